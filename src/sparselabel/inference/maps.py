"""Where a run sees a few classes in a few images: RUN/maps-SPLIT.npz, for reports."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.loaders import ImageLoader, in_order
from sparselabel.data.transforms import View, draw, load, render, views_of
from sparselabel.errors import ModelError, RunError, SparselabelError
from sparselabel.inference.evaluate import load_classifier
from sparselabel.inference.saved_scores import read_arrays, split_of
from sparselabel.models.classifier import Classifier, Output
from sparselabel.run import Run

BATCH = 16


@torch.no_grad()
def write_maps(
    path: Path,
    split: str,
    rows: Sequence[int] | npt.NDArray[np.int64],
    classes: Sequence[int] | npt.NDArray[np.int64],
    data: Path | None = None,
    file: Path | None = None,
) -> None:
    """Write, for n pairs of an image and a class, ``scores`` (n,) and ``cells`` (n, h, w), their logits.

    Beside them ``rows`` (n,) and ``classes`` (n,). A file of the same pairs is left as it is; its name may
    be given.
    """
    run = Run(path)
    run.result()  # refuses a run that is not finished
    part = split_of(run, split, data)
    wanted, indices = np.asarray(rows, np.int64), np.asarray(classes, np.int64)
    file = file or run.maps_file(split)
    if not len(wanted) or _there(file, wanted, indices):
        return
    model = load_classifier(run).eval()
    loader = ImageLoader(part, views_of(run.config().views)[1])
    cells, scores = [], []
    for batch, chosen in zip(
        loader(in_order(wanted, BATCH), 0), in_order(indices, BATCH), strict=True
    ):  # an image with two classes is seen twice: these are few
        output = model(batch.inputs[0], maps=True)
        places = np.arange(len(chosen))
        cells.append(cells_of(output)[places, chosen].float().numpy())
        scores.append(torch.sigmoid(output.logits)[places, chosen].float().numpy())
    np.savez(
        file,
        rows=wanted,
        classes=indices,
        scores=np.concatenate(scores),
        cells=np.concatenate(cells),
    )


def cells_of(output: Output) -> Tensor:
    """(B, L, h, w) The maps of an output that was asked for them, as logits.

    Attention, where a model has that instead, is a share.
    """
    if output.maps is not None:
        return output.maps
    if output.attention is None:
        raise ModelError("the model gave no maps: ask it for them (maps=True)")
    return torch.logit(output.attention, eps=1e-6)


def _there(file: Path, rows: npt.NDArray[np.int64], classes: npt.NDArray[np.int64]) -> bool:
    """Whether the file has these maps already."""
    if not file.is_file():
        return False
    try:
        kept = read_arrays(file, ("rows", "classes", "scores", "cells"), "")
    except RunError:  # damaged: it is written anew
        return False
    return np.array_equal(kept["rows"], rows) and np.array_equal(kept["classes"], classes)


KEPT = 32  # images whose maps are remembered


class Looking:
    """Maps (L, h, w) of images' logits, made when they are asked for; threads take turns."""

    def __init__(self, run: Run, part: PreparedSplit) -> None:
        self._run, self._part = run, part
        self._lock = threading.Lock()
        self._model: Classifier | None = None
        self._kept: OrderedDict[int, npt.NDArray[np.float16]] = OrderedDict()
        self.view: View = views_of(run.config().views)[1]

    def load_ahead(self) -> None:
        """Read the model now, in a thread of its own, instead of when the first map is asked for."""
        threading.Thread(target=self._loaded, daemon=True).start()

    def _loaded(self) -> None:
        with self._lock, suppress(SparselabelError):  # said when a map is asked for
            self._model = self._model or load_classifier(self._run).eval()

    @torch.no_grad()
    def maps(self, row: int) -> npt.NDArray[np.float16]:
        """Logits (L, h, w) of an image's cells; the logits of attention where a model has that instead."""
        with self._lock:
            if row in self._kept:
                self._kept.move_to_end(row)
                return self._kept[row]
            if self._model is None:
                self._model = load_classifier(self._run).eval()
            image = load(self._part.path(row), self.view.at_least)
            geometry = draw(self.view, (0, 0, row, 0), image.width, image.height)
            pixels = torch.from_numpy(render(image, geometry, self.view.size))[None]
            shown = cells_of(self._model(pixels, maps=True))
            self._kept[row] = shown[0].float().numpy().astype(np.float16)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return self._kept[row]
