"""Inputs of a dry run: a batch is real, and the time that it takes is measured."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sparselabel.data.loaders import Feed, PictureFeed, in_order
from sparselabel.data.sampler import rows_of
from sparselabel.training.inputs import Inputs

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SCORED = 32  # pictures in a batch of evaluation


@dataclass
class FirstInputs(Inputs):
    """Inputs that compute no more stored features than a batch: the others are made up.

    ``to_come`` counts the bytes of features that a run would compute, in ``time`` seconds, and ``in_ram``
    those of them that it would hold: pooled ones; those of cells stay in their file.
    """

    to_come: int = 0
    in_ram: int = 0
    time: float = 0.0
    _made_up: dict[tuple[str, bool], Tensor] = field(default_factory=dict)

    def _features_of(self, split: str, cells: bool) -> Tensor:
        if self._file(split, cells).exists():
            return super()._features_of(split, cells)
        if (split, cells) not in self._made_up:
            part, backbone = self.data.split(split), self.learner.backbone.to(self.fabric.device).eval()
            feed = PictureFeed(part, self.test_view)
            seconds, found = timed(feed, len(part), self.fabric, self.workers, backbone)
            one = found[:1].half().cpu() if cells else found[:1].float().mean(dim=(2, 3)).cpu()
            self._made_up[split, cells] = one.expand(len(part), *one.shape[1:])
            self._count(seconds, found)
        return self._made_up[split, cells]

    def _count(self, seconds: float, found: Tensor) -> None:
        """What all features that are missing will take: those of --frozen, and others that were asked for."""
        wanted = {(name, self._of_cells(name)) for name in self.data.splits if self.config.frozen}
        missing = [one for one in wanted | {*self._made_up} if not self._file(*one).exists()]
        width, grid = found.shape[1], found.shape[2] * found.shape[3]
        sizes = {(name, cells): len(self.data.split(name)) * width for name, cells in missing}
        pooled = sum(4 * size for (_, cells), size in sizes.items() if not cells)
        kept = sum(2 * size * grid for (_, cells), size in sizes.items() if cells)
        self.to_come, self.in_ram = pooled + kept, pooled
        self.time = seconds * sum(len(self.data.split(name)) for name, _ in missing) / self.fabric.world_size


@torch.no_grad()
def timed(
    feed: Feed, count: int, fabric: "Fabric", workers: int, model: Callable[[Tensor], Any]
) -> tuple[float, Any]:
    """Seconds a picture, of a batch loaded and seen by the model, and what it said of it.

    Workers load while the model works.
    """
    rows = rows_of(count, fabric.global_rank, fabric.world_size)[:SCORED]
    began = time.monotonic()
    batch = next(iter(feed(in_order(rows, SCORED), 0)))
    loaded = time.monotonic()
    said = model(batch.inputs[0].to(fabric.device))
    wait(fabric.device)
    loading, seeing = loaded - began, time.monotonic() - loaded
    return (max(loading / workers, seeing) if workers else loading + seeing) / len(rows), said


def wait(device: torch.device) -> None:
    """Let a GPU finish what it was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
