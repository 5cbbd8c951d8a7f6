"""The class-aware selective loss against the numbers of its authors' program, and by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from sparselabel.errors import ConfigError
from sparselabel.losses.base import ComposedLoss, TargetLoss, batch_sum
from sparselabel.losses.class_selective import SelectiveFocal, SelectiveUnknown
from sparselabel.losses.step import Layout
from tests.conftest import Golden
from tests.losses import reweighted_reference as reference
from tests.losses.steps import make_step, targets_of

CASES = Golden("csl").cases


def method_of(case: dict[str, Any]) -> ComposedLoss:
    hyper = case["hyper"]
    prior = case["inputs"]["prior"].tolist() if hyper.get("use_prior") else None
    target_rule = SelectiveUnknown(
        hyper["mode"], hyper.get("likelihood_topk", 5), prior, hyper.get("prior_threshold", 0.5)
    )
    entry_loss = SelectiveFocal(
        hyper["gamma_pos"],
        hyper["gamma_neg"],
        hyper["gamma_unann"],
        hyper["alpha_pos"],
        hyper["alpha_neg"],
        hyper["alpha_unann"],
    )
    return ComposedLoss(TargetLoss(target_rule, entry_loss), reduction=batch_sum)


def differentiated(loss: Tensor, logits: Tensor) -> tuple[float, Tensor]:
    (gradient,) = torch.autograd.grad(loss, logits)
    return float(loss.detach()), gradient


def same(found: tuple[float, Tensor], wanted: tuple[float, Tensor]) -> None:
    """Loss and gradient are those wanted, to 12 digits."""
    assert found[0] == pytest.approx(wanted[0], rel=1e-12)
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-12, atol=1e-12 * float(wanted[1].abs().max()))


def test_cases_have_every_kind_of_setting() -> None:
    hypers = [case["hyper"] for case in CASES.values()]
    assert len(hypers) == 54
    assert {hyper["clip"] for hyper in hypers} == {0, 0.05}
    assert {hyper["gamma_pos"] for hyper in hypers} == {0, 1}
    assert {(hyper["alpha_neg"], hyper["alpha_unann"]) for hyper in hypers} == {(1, 1), (0.5, 0.25)}


@pytest.mark.parametrize("name", CASES)
def test_equals_the_authors_program(name: str) -> None:
    case = CASES[name]
    logits = torch.from_numpy(case["inputs"]["logits"]).double().requires_grad_()
    observed = torch.from_numpy(case["inputs"]["labels"]).to(torch.int8)
    method, step = method_of(case), make_step(logits, observed)
    losses, targets = method(step), targets_of(method, step)
    hyper = case["hyper"]
    focus = hyper["gamma_pos"], hyper["gamma_neg"], hyper["gamma_unann"]
    weights = hyper["alpha_pos"], hyper["alpha_neg"], hyper["alpha_unann"]
    # Their weights and exponents here are exact in float32; the clamp of scores at 1e-8 moves nothing.
    golden = case["values"]["loss64"], torch.from_numpy(case["outputs"]["grad64"])
    theirs = reference.selective(logits, observed, targets.weight, 1e-8, hyper["clip"], focus, weights)
    same(differentiated(theirs, logits), golden)
    # Their clip of negatives' scores is 0 by default; ours is the reference without it.
    ours = differentiated(losses["labels"], logits)
    plain = reference.selective(logits, observed, targets.weight, 0.0, 0.0, focus, weights)
    same(ours, differentiated(plain, logits))
    if hyper["clip"] == 0:
        same(ours, golden)
    if "weights" in case["outputs"]:
        assert torch.equal(targets.weight.float(), torch.from_numpy(case["outputs"]["weights"]).float())


def test_by_hand() -> None:
    # Scores ½ everywhere; positive, negative and unknown with exponents 1, 2, 3: ½, ¼, ⅛ of log 2.
    logits, observed = torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[1, 0, -1]], dtype=torch.int8)
    losses = SelectiveFocal(1, 2, 3)(logits, (observed == 1).double(), observed)
    assert losses.tolist()[0] == pytest.approx([math.log(2) / 2, math.log(2) / 4, math.log(2) / 8])


def test_numbers_that_float32_does_not_have() -> None:
    logits, observed = (
        torch.tensor([[0.7, -0.4, 1.1]], dtype=torch.float64),
        torch.tensor([[1, 0, -1]], dtype=torch.int8),
    )
    entry_loss = SelectiveFocal(0.1, 1.3, 2.7, 0.9, 0.6, 0.2)
    found = entry_loss(logits, (observed == 1).double(), observed).tolist()[0]
    positive, negative, unknown = (1 / (1 + math.exp(-logit)) for logit in (0.7, -0.4, 1.1))
    assert found == pytest.approx(
        [
            -0.9 * (1 - positive) ** 0.1 * math.log(positive),
            -0.6 * negative**1.3 * math.log(1 - negative),
            -0.2 * unknown**2.7 * math.log(1 - unknown),
        ],
        rel=1e-14,
    )


def test_finite_at_large_logits() -> None:
    logits = torch.tensor([[100.0, -100.0, 100.0, -100.0, 100.0]], requires_grad=True)
    observed = torch.tensor([[1, 1, 0, 0, -1]], dtype=torch.int8)
    losses = SelectiveFocal()(logits, (observed == 1).float(), observed)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert torch.isfinite(losses).all()
    assert torch.isfinite(gradient).all()


def test_refusals() -> None:
    with pytest.raises(
        ConfigError, match="likeliest is a number of unknown labels per image, 0 or more, not -1: 0 leaves"
    ):
        SelectiveUnknown(likeliest=-1)
    with pytest.raises(ConfigError, match="gamma_unknown must be a number that is not negative, not -1"):
        SelectiveFocal(gamma_unknown=-1)
    with pytest.raises(ConfigError, match="prior must have a number for each of 2 classes, not 1"):
        SelectiveUnknown(prior=[0.1]).prepare(Layout(torch.arange(1), torch.zeros(1, 2, dtype=torch.int8), 1))
