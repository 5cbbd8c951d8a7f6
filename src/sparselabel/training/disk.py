"""Room for checkpoints, looked for before training: what a method keeps in RAM is in each of them."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from sparselabel.config import TrainConfig
from sparselabel.errors import ResourceError
from sparselabel.losses.base import Method
from sparselabel.losses.memory.row_file import files_of_others
from sparselabel.models.freezing import frozen_parts
from sparselabel.resources import free_disk, in_words
from sparselabel.run import RunFolder
from sparselabel.training.memories import files_of, in_ram
from sparselabel.training.network import Learner
from sparselabel.training.run_cost import CHECKPOINTS

if TYPE_CHECKING:
    from lightning_fabric import Fabric

MOMENTS = {"adam": 2, "adamw": 2, "sgd": 1}
"""Numbers that an optimiser keeps for every weight."""


def refuse_full_disk(
    config: TrainConfig, method: Method, run: RunFolder, learner: Learner, fabric: "Fabric", validated: bool
) -> None:
    """Raise if checkpoints and files of the method cannot fit where the run is.

    Counted is what will be there for sure: without a validation the newest is the best, and of the weights of
    a head alone, which are few, nothing is known yet.
    """
    at_once = min(CHECKPOINTS if validated else CHECKPOINTS - 1, config.full.epochs or config.head.epochs)
    model, trained = _weights(config, learner)
    model, trained = model // fabric.world_size, trained // fabric.world_size  # one process writes them
    memories = in_ram(method)
    one = trained + memories
    files = sum(memory.room_to_come()[1] for memory in files_of(method))
    needed = max(at_once * one, max(at_once - 1, 1) * one + model) + files
    there = free_disk(run.path) + _size(run) // fabric.world_size  # what it has written, it will write over
    if not files:  # beside new files there must be room for the old ones, until a checkpoint is safe
        there += _size_of(files_of_others(run.memory, fabric.world_size)) // fabric.world_size
    if needed <= there:
        return
    beside = f", and {in_words(files)} of files" if files else ""
    remembered = f" ({in_words(memories)} of it what {config.method} remembers of every picture)"
    instead = f", --memories file (once {in_words(2 * memories)} instead)" if memories > trained else ""
    raise ResourceError(
        f"the run needs {in_words(needed)} of disk: {at_once} × {in_words(one)} for checkpoints"
        f"{remembered if memories else ''}{beside}; {in_words(there)} are free in {run.path}: make room, or "
        f"take an --out on a larger disk{instead}"
    )


def _weights(config: TrainConfig, learner: Learner) -> tuple[int, int]:
    """Bytes of the backbone, and of what a checkpoint of the full phase has of it."""
    full = config.full
    if not full.epochs:
        return 0, 0
    backbone = learner.backbone
    parts = frozen_parts(backbone, norm=full.frozen_norm, stages=full.frozen_stages)
    frozen = {id(parameter) for part in parts for parameter in part.parameters()}
    moved = _bytes(parameter for parameter in backbone.parameters() if id(parameter) not in frozen)
    model = _bytes(backbone.state_dict().values())
    return model, model * (2 if full.weight_average else 1) + MOMENTS[full.optimiser] * moved


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _size(run: RunFolder) -> int:
    """Bytes of checkpoints and the model of a run that goes on, or is replaced."""
    return _size_of([*run.checkpoints.rglob("*"), run.model_file])


def _size_of(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())
