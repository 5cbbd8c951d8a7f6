"""A stacked method gives every run the same losses, gradients and row stores as alone."""

from dataclasses import replace

import pytest
import torch

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.registry import make_method
from sparselabel.losses.step import Layout, Progress, Step
from sparselabel.models.classifier import Output

ROWS, CLASSES, BATCH, EPOCHS = 24, 5, 8, 3
RATES = (0.1, 0.01, 0.03)
METHODS = {
    "an": {},
    "an-ls": {},
    "asl": {},
    "asl+nothing": {"scale": 10.0},
    "bce": {},
    "bce-ls": {},
    "em": {},
    "en": {"expected_positives": 2.0},
    "en+asl": {"expected_positives": 2.0},
    "en+focal": {"expected_positives": 2.0},
    "ep": {"expected_positives": 2.0},
    "epr": {"expected_positives": 2.0},
    "focal": {},
    "gr": {},
    "hill": {},
    "iu": {},
    "iun": {},
    "pseudo": {"threshold": 0.5},
    "pu": {"expected_positives": 2.0},
    "role": {"expected_positives": 2.0},
    "splc": {"threshold": 0.5},
    "wan": {},
}


def labels() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    observed = torch.full((ROWS, CLASSES), UNKNOWN, dtype=torch.int8)
    draw = torch.rand(ROWS, CLASSES, generator=generator)
    observed[draw < 0.2] = POSITIVE
    observed[draw > 0.9] = NEGATIVE
    return observed


def a_step(rows: torch.Tensor, logits: torch.Tensor, progress: Progress) -> Step:
    observed, truth = labels(), (labels() == POSITIVE).to(torch.int8)
    return Step(rows, observed[rows], (Output(logits),), (), progress, truth=truth[rows], check=False)


@pytest.mark.parametrize("name", METHODS)
def test_a_stacked_method_is_the_methods_of_the_runs(name: str) -> None:
    def methods() -> list[ComposedLoss]:
        made = [make_method(name.removesuffix("+nothing"), **METHODS[name]) for _ in RATES]
        for seed, method in enumerate(made):
            method.prepare(Layout(torch.arange(ROWS), labels(), ROWS, seed=seed))
        return made

    alone, beside = methods(), methods()
    assert beside[0].side_by_side
    stacked = ComposedLoss.stack(beside)
    generator = torch.Generator().manual_seed(1)
    for epoch in range(EPOCHS):
        progress = Progress(epoch, EPOCHS, 0, 0.1)
        for method in (*alone, stacked):
            method.begin_epoch(progress)
        order = torch.stack([torch.randperm(ROWS, generator=generator) for _ in RATES])
        for rows in torch.split(order, BATCH, dim=1):
            logits = (2 * torch.randn(len(RATES), BATCH, CLASSES, generator=generator)).requires_grad_()
            together = a_step(rows, logits, replace(progress, lr=torch.tensor(RATES, dtype=torch.float64)))
            losses = stacked(together)
            (slopes,) = torch.autograd.grad(sum(losses.values()).sum(), logits)
            stacked.update(together)
            for run, (method, lr) in enumerate(zip(alone, RATES, strict=True)):
                own = logits[run].detach().requires_grad_()
                step = a_step(rows[run], own, replace(progress, lr=lr))
                expected = method(step)
                (slope,) = torch.autograd.grad(sum(expected.values()), own)
                method.update(step)
                assert {key: float(values[run].detach()) for key, values in losses.items()} == pytest.approx(
                    {key: float(value.detach()) for key, value in expected.items()}, rel=1e-6, abs=1e-7
                )
                torch.testing.assert_close(slopes[run], slope, rtol=1e-6, atol=1e-7)
    for one, other in zip(beside, alone, strict=True):
        for key, memory in one.row_stores().items():
            for tensor, value in memory.state().items():
                expected_value = other.row_stores()[key].state()[tensor]
                torch.testing.assert_close(value, expected_value, rtol=1e-6, atol=1e-6)
        if other.estimates() is not None:
            torch.testing.assert_close(one.estimates(), other.estimates(), rtol=1e-6, atol=1e-6)
        assert one.logged_state(torch.arange(3)).keys() == other.logged_state(torch.arange(3)).keys()


@pytest.mark.parametrize("name", ["em+apl", "patchml", "an+scl"])
def test_methods_that_cannot_say_so(name: str) -> None:
    assert not make_method(name).side_by_side


def test_a_method_with_a_reduction_of_its_own_is_not_stacked() -> None:
    an = make_method("an")
    assert an.side_by_side
    assert not ComposedLoss(an.label_loss, reduction=lambda losses, valid, counted: losses.sum()).side_by_side
