"""Inputs of a dry run: a batch is real, and the time that it takes is measured."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sparselabel.data.feed import Feed, PictureFeed, in_order
from sparselabel.data.sampler import rows_of
from sparselabel.train.inputs import Inputs

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SCORED = 32  # pictures in a batch of evaluation


@dataclass
class FirstInputs(Inputs):
    """Inputs that compute no more stored features than a batch: the others are made up.

    ``to_come`` counts the bytes of features that a run would compute, in ``time`` seconds.
    """

    to_come: int = 0
    time: float = 0.0
    _made_up: dict[str, Tensor] = field(default_factory=dict)

    def features(self, split: str) -> Tensor:
        """(N, D) The features there are, or as many rows of some."""
        if self._file(split).exists():
            return super().features(split)
        if split not in self._made_up:
            part, backbone = self.data.split(split), self.learner.backbone.to(self.fabric.device).eval()
            feed = PictureFeed(part, self.test_view)
            seconds, pooled = timed(feed, len(part), self.fabric, self.workers, backbone)
            self._made_up[split] = pooled.float().mean(dim=(2, 3)).cpu()[:1].expand(len(part), -1)
            missing = [
                len(other) for other in self.data.splits.values() if not self._file(other.name).exists()
            ]
            self.to_come = sum(missing) * pooled.shape[1] * 4
            self.time = sum(missing) * seconds / self.fabric.world_size
        return self._made_up[split]


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
