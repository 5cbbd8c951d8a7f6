"""Checkpoints: a folder an epoch, written under another name and renamed when it is complete.

    checkpoints/0007/model.safetensors      the trained part of the classifier (the head alone, or all)
                    /average.safetensors    its running average, if there is one
                    /optimiser.pt           read with weights_only: nothing in it is executed
                    /method.safetensors     the method's small state
                    /memory-0.safetensors   its memories, a file for each process
                    /state.json             epoch, phase, best epoch

Kept are the newest and the best. Random state is not in it: every epoch seeds its generators anew.
"""

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sparselabel.errors import RunError
from sparselabel.method.base import Method
from sparselabel.run_folder import read_json, write_json

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class TrainingState:
    """How far a run is.

    ``epochs`` done in all phases; ``phase`` the current one, begun at ``phase_began``; ``phase_over`` whether
    it is at its end; ``best_epoch`` and ``best`` the best validation so far, None without one.
    """

    epochs: int = 0
    phase: str = ""
    phase_began: int = 0
    phase_over: bool = True
    best_epoch: int = 0
    best: float | None = None


def save_checkpoint(
    folder: Path,
    fabric: "Fabric",
    state: TrainingState,
    model: dict[str, Tensor],
    average: dict[str, Tensor] | None,
    optimiser: dict[str, Any],
    method: Method,
) -> None:
    """Write the checkpoint of ``state.epochs`` and remove those that are neither it nor the best."""
    final = folder / f"{state.epochs:04d}"
    work = folder / f"{final.name}.partial"
    if fabric.is_global_zero:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(final, ignore_errors=True)
        work.mkdir(parents=True)
    fabric.barrier()
    memories = method.memories()
    tensors = {
        f"{name}/{key}": value for name, memory in memories.items() for key, value in memory.state().items()
    }
    _save(tensors, work / f"memory-{fabric.global_rank}.safetensors")
    if fabric.is_global_zero:
        _save(model, work / "model.safetensors")
        _save(method.state_dict(), work / "method.safetensors")
        if average is not None:
            _save(average, work / "average.safetensors")
        torch.save(optimiser, work / "optimiser.pt")
        write_json(work / "state.json", asdict(state) | {"processes": fabric.world_size})
    for file in work.iterdir() if fabric.is_global_zero else ():
        _sync(file)
    fabric.barrier()
    if fabric.is_global_zero:
        work.rename(final)
        _sync(folder)
    fabric.barrier()
    for memory in memories.values():
        memory.committed()
    if fabric.is_global_zero:
        for other in checkpoints(folder):
            if other not in (final, folder / f"{state.best_epoch:04d}"):
                shutil.rmtree(other)


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints of a folder, oldest first."""
    return sorted(path for path in folder.glob("[0-9]*") if path.suffix != ".partial")


class Checkpoint:
    """A checkpoint on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        about = read_json(path / "state.json")
        self.processes = about.pop("processes")
        self.state = TrainingState(**about)

    def model(self) -> dict[str, Tensor]:
        """The trained weights."""
        return load_file(self.path / "model.safetensors")

    def average(self) -> dict[str, Tensor] | None:
        """The running average of the weights, if one was kept."""
        file = self.path / "average.safetensors"
        return load_file(file) if file.exists() else None

    def optimiser(self) -> dict[str, Any]:
        """The optimiser's state."""
        state: dict[str, Any] = torch.load(self.path / "optimiser.pt", map_location="cpu", weights_only=True)
        return state

    def restore_method(self, method: Method, fabric: "Fabric") -> None:
        """Bring the method and its memories back to this moment."""
        if self.processes != fabric.world_size and method.memories():
            raise RunError(
                f"{self.path} was written by {self.processes} processes, which share the method's memories, "
                f"and now there are {fabric.world_size}: resume with {self.processes}"
            )
        method.load_state_dict(load_file(self.path / "method.safetensors"))
        tensors = load_file(self.path / f"memory-{fabric.global_rank}.safetensors")
        for name, memory in method.memories().items():
            prefix = f"{name}/"
            memory.restore({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Where a run can go on, if it has got anywhere."""
    found = checkpoints(folder)
    return Checkpoint(found[-1]) if found else None


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
