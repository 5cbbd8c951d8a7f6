"""``SparseLoss`` with DDP on two processes, Lightning and Accelerate."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from sparselabel.losses.sparse_loss import SparseLoss
from tests.losses.loops import union_batches
from tests.losses.test_sparse_loss import (
    COUNT,
    EPOCHS,
    OBSERVED,
    Model,
    batches,
    criterion_of,
    geometry,
    loop,
)

ROOT = Path(__file__).parents[2]


def run_on_two(method: str, sampler: str, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [*command, "-m", "tests.losses.loops", method, sampler, str(out)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("method", ["en", "pu+scl"])
def test_two_processes_are_one(method: str, tmp_path: Path) -> None:
    done = run_on_two(method, "sharded", tmp_path / "losses.pt")
    assert done.returncode == 0, done.stderr[-3000:]
    found = torch.load(tmp_path / "losses.pt")
    criterion, model = SparseLoss(method, OBSERVED, expected_positives=1.8), Model()
    optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.1)
    wanted, current = [], None
    for epoch, index in union_batches():
        if epoch != current:
            criterion.set_epoch(epoch)
            current = epoch
        output = model(index)
        loss = criterion(output.logits, index, output.maps, geometry(index))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        wanted.append(loss.item())
    assert len(found) == EPOCHS * COUNT // 4
    assert found == pytest.approx(wanted, rel=1e-5)


def test_a_sampler_that_moves_images_is_refused_by_name(tmp_path: Path) -> None:
    run_on_two("en", "distributed", tmp_path / "losses.pt")  # one that is refused ends the others
    refusals = [file.read_text() for file in tmp_path.glob("*.refused")]
    assert refusals
    assert all("DistributedSampler, would lose it: use sparselabel.ShardedSampler" in one for one in refusals)
    assert not (tmp_path / "losses.pt").exists()


def test_methods_without_a_memory_take_any_sampler(tmp_path: Path) -> None:
    done = run_on_two("pu", "distributed", tmp_path / "losses.pt")
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(torch.load(tmp_path / "losses.pt")) == EPOCHS * COUNT // 4


@pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning", "ignore::UserWarning")
def test_lightning_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    lightning = pytest.importorskip("pytorch_lightning")
    losses: list[Tensor] = []

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model, self.criterion = Model(), criterion_of("en+scl")

        def on_train_epoch_start(self) -> None:
            self.criterion.set_epoch(self.current_epoch)

        def training_step(self, batch: Tensor, _: int) -> Tensor:
            output = self.model(batch)
            loss: Tensor = self.criterion(output.logits, batch, output.maps, geometry(batch))
            losses.append(loss.detach())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.model.parameters(), lr=0.1)

        def train_dataloader(self) -> Any:
            return DataLoader(list(batches(self.current_epoch)), batch_size=None)  # type: ignore[arg-type]

    def fit(epochs: int, file: Path | None) -> Any:
        trainer = lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, reload_dataloaders_every_n_epochs=1,
        )  # fmt: skip
        trainer.fit(Module(), ckpt_path=file)
        return trainer

    fit(2, None).save_checkpoint(tmp_path / "half.ckpt")
    fit(EPOCHS, tmp_path / "half.ckpt")
    wanted, _ = loop(criterion_of("en+scl"))
    assert torch.equal(torch.stack(losses), torch.stack(wanted))


def test_accelerate_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    losses = []

    def train(epochs: range, load: Path | None) -> Any:
        accelerator = accelerate.Accelerator(cpu=True)
        criterion = criterion_of("en+scl")
        model, optimizer = Model(), None
        optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.1)
        model, optimizer = accelerator.prepare(model, optimizer)
        accelerator.register_for_checkpointing(criterion)
        if load is not None:
            accelerator.load_state(str(load))
        for epoch in epochs:
            criterion.set_epoch(epoch)
            for index in batches(epoch):
                output = model(index)
                loss = criterion(output.logits, index, output.maps, geometry(index))
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
                losses.append(loss.detach())
        return accelerator

    train(range(2), None).save_state(str(tmp_path / "half"))
    train(range(2, EPOCHS), tmp_path / "half")
    wanted, _ = loop(criterion_of("en+scl"))
    assert torch.equal(torch.stack(losses), torch.stack(wanted))
