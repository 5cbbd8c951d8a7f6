"""Run by test_dealing, there or through torchrun: a run that stops at an epoch, and tells what it remembers.

Every process writes what its memories hold: as it took them from a checkpoint (taken-0-of-2.safetensors), and
at its last checkpoint (left-0-of-2.safetensors).
"""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, TrainConfig, Views
from sparselabel.data.prepared_files import open_prepared
from sparselabel.losses.memory.row_store import RowStore
from sparselabel.training.checkpoint import Checkpoint, TrainingState
from sparselabel.training.phases import Stage
from sparselabel.training.train_run import train_run
from sparselabel.training.trainer import Trainer

CONFIG = TrainConfig(
    method="en+scl",
    backbone="test_convnext",
    weights="none",
    views=Views(size=32),
    head=HeadPhase(epochs=1, lr=1e-2, batch_size=12),
    finetune=FinetunePhase(epochs=4, lr=1e-3, batch_size=12),
    watch=2,
)


class StopError(Exception):
    """Ends a run as a crash would."""


def tell(trainer: Trainer, what: str) -> None:
    """Write down what the memories of this process hold."""
    fabric = trainer.fabric
    held = {
        name: memory.read(torch.arange(memory.rows)).float()
        for name, memory in trainer.method.row_stores().items()
        if isinstance(memory, RowStore)
    }
    save_file(held, trainer.run.path / f"{what}-{fabric.global_rank}-of-{fabric.world_size}.safetensors")


def main(data: str, out: str, memories: Any, moment: str, epoch: str) -> None:
    """Go on "before" or "after" the checkpoint of an epoch, or to the end if that never comes."""
    save, restore = Trainer.save, Trainer.restore

    def stopping_save(self: Trainer, stage: Stage, state: TrainingState) -> None:
        stops = state.epochs == int(epoch)
        if stops and moment == "before":
            raise StopError
        save(self, stage, state)
        tell(self, "left")
        if stops:
            self.fabric.barrier()
            raise StopError

    def telling_restore(self: Trainer, checkpoint: Checkpoint) -> None:
        restore(self, checkpoint)
        tell(self, "taken")

    machine = Machine(accelerator="cpu", workers=0, memories=memories)
    handling = Handling(quiet=True, resume=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "save", stopping_save)
        patch.setattr(Trainer, "restore", telling_restore)
        try:
            train_run(open_prepared(Path(data)), CONFIG, Path(out), machine, handling)
        except StopError:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
