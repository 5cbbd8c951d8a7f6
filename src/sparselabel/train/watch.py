"""A few training pictures that are followed from epoch to epoch, for figures."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from sparselabel.data.feed import Batch, Feed, PictureFeed
from sparselabel.train.inputs import Inputs
from sparselabel.train.learner import in_evaluation


class Watch:
    """Keeps, after every epoch, the scores of a few rows, and their maps where the model has cells."""

    def __init__(self, folder: Path, count: int, inputs: Inputs) -> None:
        self.folder = folder
        self.inputs = inputs
        rows = len(inputs.data.train)
        self.rows = np.linspace(0, rows - 1, min(count, rows)).astype(np.int64)
        self._batches: dict[bool, Batch] = {}

    @torch.no_grad()
    def keep(self, phase: str, epoch: int, module: nn.Module) -> None:
        """Write ``EPOCH.npz``: rows (n,), scores (n, L) and, of pictures, ``maps`` (n, L, h, w) of scores."""
        fabric = self.inputs.fabric
        if not len(self.rows) or not fabric.is_global_zero:
            return
        stored = self.inputs.stored(phase)
        if stored not in self._batches:
            feed: Feed = (
                self.inputs.evaluation(phase, "train")
                if stored
                else PictureFeed(self.inputs.data.train, self.inputs.test_view)
            )
            self._batches[stored] = next(iter(feed([self.rows], epoch=0)))
        views = self._batches[stored].inputs[0].to(fabric.device)
        output = in_evaluation(module, fabric, maps=not stored)(views)
        arrays = {"rows": self.rows, "scores": torch.sigmoid(output.logits).float().cpu().numpy()}
        if output.maps is not None:
            arrays["maps"] = torch.sigmoid(output.maps).half().cpu().numpy()
        self.folder.mkdir(exist_ok=True)
        np.savez(self.folder / f"{epoch:04d}.npz", **arrays)  # type: ignore[arg-type]
