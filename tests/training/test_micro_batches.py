"""Micro-batches give the gradients of the whole batch, for every method."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparselabel.config import FinetunePhase, HeadPhase
from sparselabel.data.dataset import Dataset
from sparselabel.distributed import default_precision
from sparselabel.errors import ConfigError
from sparselabel.losses.step import Progress
from sparselabel.models.classifier import Output
from sparselabel.training.micro_batches import active_norms, has_dropout
from sparselabel.training.trainer import Trainer
from tests.training.conftest import tiny
from tests.training.trainers import make_trainer


def full_step(
    small: Dataset, folder: Path, epoch: int = 3, **changes: Any
) -> tuple[Trainer, dict[str, Tensor]]:
    """One step of the full phase in double precision, and its gradients."""
    phase: dict[str, Any] = {"epochs": 4, "lr": 1e-3, "batch_size": 13, "frozen_norm": True}
    chosen = {key: changes.pop(key) for key in [*changes] if key in FinetunePhase.__dataclass_fields__}
    config = tiny(
        head=HeadPhase(epochs=0), finetune=FinetunePhase(**(phase | chosen)), precision="64-true", **changes
    )
    with default_precision("64-true"):
        trainer = make_trainer(small, config, folder)
        stage = trainer.stage("finetune", 0, None)
        trainer.method.begin_epoch(Progress(epoch, 4, 0, 1e-3))
        stage.fabric_module.train()
        found: dict[str, Tensor] = {}

        def keep() -> None:
            named = stage.module.named_parameters()
            found.update({name: value.grad.clone() for name, value in named if value.grad is not None})

        stage.optimizer.step = keep
        rate, batch = next(stage.batches(epoch, prefetch=lambda rows: None))
        torch.manual_seed(5)  # now: the loader draws a number too
        outputs, backward = trainer.forward(stage, batch)
        seen = trainer.make_step(batch, outputs, Progress(epoch, 4, 0, rate))
        losses = trainer.method(seen)
        backward(torch.stack([*losses.values()]).sum())
        stage.optimizer_step()
        trainer.method.update(seen)
    return trainer, found


@pytest.mark.parametrize("method", ["an", "epr", "role", "ll-ct", "en+scl", "asl", "splc+cl"])
def test_parts_have_the_gradients_of_the_whole_batch(small: Dataset, tmp_path: Path, method: str) -> None:
    settings = {"expected_positives": 2.0} if method in ("epr", "role", "en+scl") else {}
    _, whole = full_step(small, tmp_path / "whole", method=method, settings=settings)
    trainer, parts = full_step(small, tmp_path / "parts", method=method, settings=settings, micro_batches=4)
    assert whole.keys() == parts.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-9, atol=1e-12, msg=name)
    assert not active_norms(trainer.network.classifier.train())


def test_parts_are_small(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []
    from sparselabel.models.classifier import Classifier

    forward = Classifier.forward

    def spied(self: Classifier, views: Tensor, maps: bool = False) -> Any:
        seen.append((len(views), torch.is_grad_enabled()))
        return forward(self, views, maps)

    monkeypatch.setattr(Classifier, "forward", spied)
    full_step(small, tmp_path, micro_batches=3)
    sizes = [(5, False), (4, False), (4, False), (5, True), (4, True), (4, True)]
    assert seen[-6:] == sizes


def test_dropout_and_batch_norm_see_each_part_once(small: Dataset, tmp_path: Path) -> None:
    """As if the graphs of all parts had been kept: the same masks, statistics counted once."""
    live: dict[str, Any] = {
        "classifier": "query2label",
        "backbone": "test_resnet",
        "frozen_norm": False,
        "micro_batches": 4,
    }
    trainer, found = full_step(small, tmp_path / "parts", **live)
    with default_precision("64-true"):
        other = make_trainer(small, trainer.config, tmp_path / "kept")
        stage = other.stage("finetune", 0, None)
        model = stage.module.train()
        other.method.begin_epoch(Progress(3, 4, 0, 1e-3))
        _, batch = next(stage.batches(3, prefetch=lambda rows: None))
        torch.manual_seed(5)
        logits = torch.cat([model(part).logits for part in batch.inputs[0].tensor_split(4)])
        losses = other.method(other.make_step(batch, (Output(logits),), Progress(3, 4, 0, 1e-3)))
        losses["labels"].backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(found[name], weight.grad, rtol=1e-6, atol=1e-9, msg=name)
    buffers = dict(trainer.network.backbone.network.named_buffers())
    for name, value in other.network.backbone.network.named_buffers():
        if "running" in name:
            torch.testing.assert_close(buffers[name], value, rtol=1e-9, atol=1e-12, msg=name)


def test_what_is_computed_again_is_counted_once(small: Dataset, tmp_path: Path) -> None:
    counted = []
    for number, again in enumerate((False, True)):
        live: dict[str, Any] = {"frozen_norm": False, "backbone": "test_resnet", "grad_checkpointing": again}
        trainer, _ = full_step(small, tmp_path / str(number), **live)
        counted.append(dict(trainer.network.backbone.network.named_buffers()))
    for name, plain in counted[0].items():
        if "running" in name:
            torch.testing.assert_close(counted[1][name], plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classifier": "query2label"}, True),
        ({}, False),
        ({"micro_batches": 1, "classifier": "query2label"}, False),
    ],
)
def test_dropout_is_said(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: bool
) -> None:
    lines: list[str] = []
    parts = changes.pop("micro_batches", 4)
    full = FinetunePhase(epochs=1, batch_size=16, micro_batches=parts, frozen_norm=True)
    trainer = make_trainer(small, tiny(finetune=full, **changes), tmp_path)
    monkeypatch.setattr(trainer.log, "say", lines.append)
    trainer.stage("finetune", 2, None)
    wanted = (
        "dropout draws its masks for 4 images at a time: gradients are those of other masks than with a "
        "batch of 16 at once, and the same on average"
    )
    assert lines == [wanted] * said


def test_what_has_dropout() -> None:
    from timm.layers.drop import DropPath

    for layer, drawing in (
        (nn.Dropout(0.1), True),
        (nn.Dropout(0.0), False),
        (nn.MultiheadAttention(4, 1, dropout=0.2), True),
        (nn.MultiheadAttention(4, 1), False),
        (DropPath(0.1), True),
        (DropPath(0.0), False),
    ):
        assert has_dropout(nn.Sequential(nn.Linear(2, 2), layer)) is drawing


def test_live_batch_norm_is_said(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    config = tiny(finetune=FinetunePhase(epochs=1, batch_size=16, micro_batches=4))
    trainer = make_trainer(small, config, tmp_path)
    monkeypatch.setattr(trainer.log, "say", said.append)
    trainer.stage("head", 0, None)
    assert said == []
    trainer.stage("finetune", 2, None)
    assert said == [
        "batch norm sees 4 images at a time, so that this is not the same as a batch of 16 at once; with "
        "frozen norms (`finetune.frozen_norm`) it would be"
    ]


@pytest.mark.parametrize("parts", [0, 17])
def test_a_number_of_parts_that_cannot_be(parts: int) -> None:
    with pytest.raises(
        ConfigError, match=f"finetune.micro_batches` must be from 1 to the images of a batch, 16, not {parts}"
    ):
        FinetunePhase(batch_size=16, micro_batches=parts)


def test_the_head_may_learn_faster(small: Dataset, tmp_path: Path) -> None:
    trainer = make_trainer(small, tiny(finetune=FinetunePhase(epochs=1, head_rate=10.0, lr=1e-3)), tmp_path)
    stage = trainer.stage("finetune", 0, None)
    next(stage.batches(0, prefetch=lambda rows: None))
    head = {id(value) for value in trainer.network.head.parameters()}
    rates = {id(group["params"][0]) in head: group["lr"] for group in stage.optimizer.param_groups}
    assert rates == pytest.approx({False: 1e-3, True: 1e-2})
