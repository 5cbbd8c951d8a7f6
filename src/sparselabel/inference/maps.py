"""Heat maps of a few classes in a few images, in RUN/maps-SPLIT.npz, for reports."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.loaders import in_order
from sparselabel.data.transforms import View, draw, render
from sparselabel.errors import RunError, SparselabelError
from sparselabel.file_formats import read_arrays
from sparselabel.files import write_arrays
from sparselabel.inference.scorer import (
    Scorer,
    cells_of,
    evaluation_loader,
    evaluation_view,
    full_precision,
    load_scorer,
)
from sparselabel.run import Run

MAPS_LAYOUT = {"rows": "i n", "classes": "i n", "scores": "f n", "cells": "f n h w"}
MAPS_BATCH = 16  # not BATCH: rounding depends on it, and reports keep their maps


def write_maps(
    run: Run,
    split: str,
    rows: Sequence[int] | npt.NDArray[np.int64],
    classes: Sequence[int] | npt.NDArray[np.int64],
    file: Path | None = None,
) -> None:
    """Write, for n pairs of an image and a class, ``scores`` (n,) and ``cells`` (n, h, w), their logits.

    Beside them ``rows`` (n,) and ``classes`` (n,). A file of the same pairs is left as it is; its name may
    be given.
    """
    run.require_finished()
    prepared_split = run.split(split)
    wanted, indices = np.asarray(rows, np.int64), np.asarray(classes, np.int64)
    file = file or run.maps_file(split)
    if not len(wanted) or _there(file, wanted, indices):
        return
    scorer, loader = load_scorer(run, images=len(wanted)), evaluation_loader(run.config(), prepared_split)
    cells, scores = [], []
    for scored, chosen in zip(
        scorer.batches(loader, wanted, batch=MAPS_BATCH, maps=True),
        in_order(indices, MAPS_BATCH),
        strict=True,
    ):  # an image with two classes is scored twice: there are few
        positions = np.arange(len(chosen))
        cells.append(cells_of(scored.output)[positions, chosen].float().cpu().numpy())
        logits = full_precision(scored.output.logits)[positions, chosen]
        scores.append(torch.sigmoid(logits).float().cpu().numpy())
    write_arrays(
        file, rows=wanted, classes=indices, scores=np.concatenate(scores), cells=np.concatenate(cells)
    )


def _there(file: Path, rows: npt.NDArray[np.int64], classes: npt.NDArray[np.int64]) -> bool:
    """Whether the file has these maps already."""
    if not file.is_file():
        return False
    try:
        stored = read_arrays(file, MAPS_LAYOUT)
    except RunError:  # damaged: it is written anew
        return False
    return np.array_equal(stored["rows"], rows) and np.array_equal(stored["classes"], classes)


KEPT = 32  # images whose maps are remembered


class MapCache:
    """Maps (L, h, w) of images, computed on demand and cached; safe to use from threads."""

    def __init__(self, run: Run, split: PreparedSplit) -> None:
        self._run, self._split = run, split
        self._lock = threading.Lock()
        self._scorer: Scorer | None = None
        self._maps: OrderedDict[int, npt.NDArray[np.float16]] = OrderedDict()
        self.view: View = evaluation_view(run.config())

    def load_ahead(self) -> None:
        """Load the model now, in a background thread."""
        threading.Thread(target=self._load, daemon=True).start()

    def _load(self) -> None:
        with self._lock, suppress(SparselabelError):  # raised when a map is asked for
            self._scorer = self._scorer or load_scorer(self._run)

    def maps(self, row: int) -> npt.NDArray[np.float16]:
        """Logits (L, h, w) of an image's cells, or of its attention if the model has no maps."""
        with self._lock:
            if row in self._maps:
                self._maps.move_to_end(row)
                return self._maps[row]
            if self._scorer is None:
                self._scorer = load_scorer(self._run)
            image = self._split.image(row, self.view.at_least)
            geometry = draw(self.view, (0, 0, row, 0), image.width, image.height)
            pixels = torch.from_numpy(render(image, geometry, self.view.size))[None]
            cells = cells_of(self._scorer(pixels, maps=True))
            self._maps[row] = cells[0].float().cpu().numpy().astype(np.float16)
            while len(self._maps) > KEPT:
                self._maps.popitem(last=False)
            return self._maps[row]
