"""What a phase does once, and not in every step."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine
from sparselabel.data.dataset import Dataset
from sparselabel.data.loaders import FeatureLoader
from sparselabel.models.classifier import LinearHead
from sparselabel.run import Run
from sparselabel.training import phases
from sparselabel.training.train_run import train_run
from tests.training.conftest import tiny
from tests.training.trainers import make_trainer

MACHINE = Machine(accelerator="cpu", workers=0, engine="torch")


def test_a_head_that_sees_features_standardized_once_is_the_same(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = HeadPhase(epochs=3, batch_size=7)
    config = tiny(frozen=True, head=head, finetune=FinetunePhase(epochs=0))
    stage = make_trainer(small, config, tmp_path / "trainer", MACHINE).stage("head", 0, None)
    assert isinstance(stage.module, LinearHead)
    assert stage.module.unit_norm
    before, rows = stage.loader, [np.array([5, 3, 60])]
    (batch,) = before(rows, 0)
    monkeypatch.setattr(phases, "SHARE_OF_RAM", 0.0)
    stage.standardize_once()
    assert stage.loader is before  # no room for a copy
    train_run(small, config, tmp_path / "every", MACHINE, Handling(quiet=True))
    monkeypatch.undo()
    stage.standardize_once()
    assert isinstance(stage.loader, FeatureLoader)
    assert torch.equal(next(stage.loader(rows, 0)).inputs[0], stage.module.standardized(batch.inputs[0]))
    train_run(small, config, tmp_path / "once", MACHINE, Handling(quiet=True))
    weights = [load_file(Run(tmp_path / name).model_file) for name in ("once", "every")]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
