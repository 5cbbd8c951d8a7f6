from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine
from sparselabel.data.dataset import Dataset
from sparselabel.data.loaders import FeatureLoader
from sparselabel.errors import ConfigError
from sparselabel.losses.step import Progress
from sparselabel.models.classifier import LinearHead
from sparselabel.run import Run
from sparselabel.training import phases
from sparselabel.training.schedule import lr_at, momentum_at
from sparselabel.training.train_run import train_run
from tests.training.conftest import tiny
from tests.training.trainers import make_trainer


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_optimizer_is_set_to_it(small: Dataset, tmp_path: Path, optimizer: Any) -> None:
    head = HeadPhase(epochs=3, lr=0.3, batch_size=8, schedule="one-cycle", optimizer=optimizer)
    trainer = make_trainer(small, tiny(head=head, finetune=FinetunePhase(epochs=0)), tmp_path)
    stage = trainer.stage("head", 0, None)
    (group,) = stage.optimizer.param_groups
    for step, (rate, _) in enumerate(stage.batches(0, prefetch=lambda rows: None)):
        moved = momentum_at(head, step, 24)
        assert group["lr"] == rate == lr_at(head, step, 24)
        assert (group["momentum"] if optimizer == "sgd" else group["betas"]) == (
            moved if optimizer == "sgd" else (moved, 0.999)
        )


def test_what_is_trained_on_images_can_be_compiled(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    def wrap(module: nn.Module) -> nn.Module:
        compiled.append(module)
        return nn.Sequential(module)  # another module with the same parameters

    monkeypatch.setattr("torch.compile", wrap)
    config = tiny(frozen=True, head=HeadPhase(epochs=1), finetune=FinetunePhase(epochs=1))
    trainer = make_trainer(small, config, tmp_path, machine=Machine("cpu", workers=0, compile=True))
    assert trainer.stage("head", 0, None).fabric_module is trainer.network.head
    stage = trainer.stage("finetune", 1, None)
    assert compiled == [trainer.network.classifier]
    assert stage.fabric_module is not stage.module
    assert stage.eval_module is trainer.network.classifier


def test_a_compiler_that_fails_is_told_from_other_errors(small: Dataset, tmp_path: Path) -> None:
    from torch._dynamo.exc import TorchDynamoException

    machine = Machine("cpu", workers=0, compile=True)
    trainer = make_trainer(small, tiny(), tmp_path, machine=machine)
    stage = trainer.stage("finetune", 0, None)
    batch = next(iter(trainer.loaders.one_batch("finetune")([np.arange(2)], 0)))
    for error, raised in (
        (TorchDynamoException("no C++ compiler"), ConfigError),
        (RuntimeError(), RuntimeError),
    ):

        def fail(*_: object, error: RuntimeError = error, **__: object) -> Any:
            raise error

        stage.fabric_module = fail
        with pytest.raises(raised) as caught:
            trainer.train_step(stage, batch, Progress(0, 4, 2, 1e-3))
        assert getattr(caught.value, "what", None) == ("compile" if raised is ConfigError else None)


def test_a_head_that_sees_features_standardized_once_is_the_same(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine("cpu", workers=0, engine="torch")
    head = HeadPhase(epochs=3, batch_size=7)
    config = tiny(frozen=True, head=head, finetune=FinetunePhase(epochs=0))
    stage = make_trainer(small, config, tmp_path / "trainer", machine).stage("head", 0, None)
    assert isinstance(stage.module, LinearHead)
    assert stage.module.unit_norm
    before, rows = stage.loader, [np.array([5, 3, 60])]
    (batch,) = before(rows, 0)
    monkeypatch.setattr(phases, "SHARE_OF_RAM", 0.0)
    stage.standardize_once()
    assert stage.loader is before  # no room for a copy
    train_run(small, config, tmp_path / "every", machine, Handling(quiet=True))
    monkeypatch.undo()
    stage.standardize_once()
    assert isinstance(stage.loader, FeatureLoader)
    assert torch.equal(next(stage.loader(rows, 0)).inputs[0], stage.module.standardized(batch.inputs[0]))
    train_run(small, config, tmp_path / "once", machine, Handling(quiet=True))
    weights = [load_file(Run(tmp_path / name).model_file) for name in ("once", "every")]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
