"""A few training images that are followed from epoch to epoch, for figures."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from sparselabel.data.loaders import Batch, ImageLoader, Loader, rows_of
from sparselabel.losses.base import SparseLoss
from sparselabel.training.phase_loaders import Inputs
from sparselabel.training.network import in_evaluation


class Watch:
    """Keeps, after every epoch, the scores of a few rows, and maps or attention where there are cells."""

    def __init__(self, folder: Path, count: int, inputs: Inputs) -> None:
        self.folder = folder
        self.inputs = inputs
        # The process that writes them is the first one, and it remembers its own rows only.
        rows = rows_of(len(inputs.data.train), 0, inputs.fabric.world_size)
        self.rows = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]
        self._batches: dict[bool, Batch] = {}

    @torch.no_grad()
    def keep(self, phase: str, epoch: int, module: nn.Module, method: SparseLoss) -> None:
        """Write ``EPOCH.npz``: rows (n,), scores (n, L) and, of cells, ``maps`` (n, L, h, w) of scores.

        Of a model that has attention instead, that: ``attention`` (n, L, h, w), shares that add up to 1.
        The first epoch is 1. And what the method remembers of them: ``running_scores`` (n, L),
        ``heat_maps`` (n, L, H, W) in 0..255 and, if not all classes have one, ``heat_map_classes`` (n, k).
        """
        fabric = self.inputs.fabric
        if not len(self.rows) or not fabric.is_global_zero:
            return
        stored = self.inputs.stored(phase)
        if stored not in self._batches:
            loader: Loader = (
                self.inputs.evaluation(phase, "train")
                if stored
                else ImageLoader(self.inputs.data.train, self.inputs.test_view)
            )
            self._batches[stored] = next(iter(loader([self.rows], epoch=0)))
        views = self._batches[stored].inputs[0].to(fabric.device)
        output = in_evaluation(module, fabric, maps=not stored or self.inputs.cells)(views)
        arrays = {"rows": self.rows, "scores": torch.sigmoid(output.logits).float().cpu().numpy()}
        if output.maps is not None:
            arrays["maps"] = torch.sigmoid(output.maps).half().cpu().numpy()
        elif output.attention is not None:
            arrays["attention"] = output.attention.half().cpu().numpy()
        logged_state = method.logged_state(torch.from_numpy(self.rows))
        arrays |= {name: value.cpu().numpy() for name, value in logged_state.items()}
        self.folder.mkdir(exist_ok=True)
        np.savez(self.folder / f"{epoch:04d}.npz", **arrays)  # type: ignore[arg-type]
