"""The public loss gives the trainer's losses, bit for bit, on the same batches."""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from sparselabel.data.dataset import Dataset
from sparselabel.losses.sparse_loss import SparseLoss
from tests.training.conftest import tiny
from tests.training.trainers import make_trainer

K = {"expected_positives": 2.0}


@pytest.mark.parametrize(
    ("name", "settings"), [("pu+scl", K), ("en+asl", K), ("role", K), ("ll-cp", {}), ("gr", {})]
)
def test_it_says_what_the_trainer_says(
    small: Dataset, tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    trainer = make_trainer(small, tiny(name, settings=settings), tmp_path)
    stage = trainer.stage("finetune", 0, None)
    criterion = SparseLoss(name, small.train.observed, epochs=2, lr=1.0, seed=trainer.config.seed, **settings)
    for epoch in range(2):
        progress = trainer.progress(stage, epoch)
        trainer.method.begin_epoch(progress)
        criterion.set_epoch(epoch)
        for rate, batch in stage.batches(epoch, prefetch=trainer.method.prefetch):
            outputs, backward = trainer.forward(stage, batch)
            step = trainer.make_step(batch, outputs, functools.partial(type(progress), epoch, 2, 0)(rate))
            losses = trainer.method(step)
            criterion.lr = rate
            logits = tuple(output.logits for output in outputs)
            loss = criterion(logits, batch.rows, outputs[0].maps, batch.geometries[0])
            assert torch.equal(loss, torch.stack([*losses.values()]).sum())
            backward(functools.reduce(torch.add, losses.values()))
            stage.optimizer_step()
            trainer.method.update(step)
