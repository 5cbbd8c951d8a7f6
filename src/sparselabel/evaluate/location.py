"""How well maps show where things are: mAP-loc (P2 §4, eq. 6).

P2 = PatchML. A class's map is scaled to 0..1 within the picture and cut at .6, .7, .8 and .9. What is left is
right if at least half of it lies on things of the class (IoA-P, intersection over the area of the
prediction). A class that is there but badly shown is a false positive and still counts in the recall.

Everything is counted in cells: the truth says which share of every cell things of the class cover, so that
an intersection is exact for a map that is as coarse as the model made it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.data.marks import Marks
from sparselabel.errors import DataError
from sparselabel.evaluate.ranking import precision_of_classes

CUTS = (0.6, 0.7, 0.8, 0.9)
ENOUGH = 0.5
FINE = 8  # parts of a cell, along an axis, in which the union of boxes is counted

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Places:
    """Where things are: ``covered`` (P, h, w) in 0..1 for P pairs of a picture's row and a class."""

    rows: npt.NDArray[np.int64]
    classes: npt.NDArray[np.int32]
    covered: Floats

    def __len__(self) -> int:
        return len(self.rows)


def places_of_boxes(marks: Marks, grid: tuple[int, int], block: int = 4096) -> Places:
    """The share of every cell that the union of a class's boxes covers, in parts of 1/8 of a cell's side."""
    boxes = ~marks.is_point
    rows, classes = np.asarray(marks.rows)[boxes], np.asarray(marks.classes)[boxes]
    corners = _raster(marks.centres[boxes], marks.sizes[boxes], grid)
    key = rows * (int(classes.max(initial=0)) + 1) + classes
    order = np.argsort(key, kind="stable")
    pairs, first = np.unique(key[order], return_index=True)
    last = np.append(first[1:], len(order))
    covered = np.empty((len(pairs), *grid), np.float32)
    for start in range(0, len(pairs), block):
        chosen = slice(start, min(start + block, len(pairs)))
        counts = last[chosen] - first[chosen]
        own = np.repeat(np.arange(len(counts)), counts)
        covered[chosen] = _union(own, corners[order[first[chosen][0] : last[chosen][-1]]], len(counts), grid)
    return Places(rows[order][first], classes[order][first].astype(np.int32), covered)


def _raster(centres: Floats, sizes: Floats, grid: tuple[int, int]) -> npt.NDArray[np.int64]:
    """(M, 4) Left, top, right, bottom of boxes in parts of cells; none is empty."""
    scale = np.array([grid[1], grid[0]]) * FINE
    low = np.clip(np.rint((centres - sizes / 2) * scale), 0, scale - 1)
    high = np.clip(np.rint((centres + sizes / 2) * scale), low + 1, scale)
    return np.concatenate([low, high], axis=1).astype(np.int64)


def _union(
    own: npt.NDArray[np.intp], corners: npt.NDArray[np.int64], count: int, grid: tuple[int, int]
) -> Floats:
    """(count, h, w) The share of cells inside any of the boxes that belong together."""
    height, width = grid[0] * FINE, grid[1] * FINE
    # Each box adds 1 where it begins and takes it away where it ends; running sums fill it.
    steps = np.zeros((count, height + 1, width + 1), np.int32)
    left, top, right, bottom = corners.T
    for rows, columns, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
        np.add.at(steps, (own, rows, columns), sign)
    inside = steps.cumsum(axis=1).cumsum(axis=2)[:, :height, :width] > 0
    parts = inside.reshape(count, grid[0], FINE, grid[1], FINE)
    return np.asarray(parts.mean(axis=(2, 4), dtype=np.float32))


def well_placed(maps: Floats, covered: Floats, cuts: Sequence[float] = CUTS) -> npt.NDArray[np.bool_]:
    """(P, C) Whether what is left of each map (P, h, w) at each cut lies on the class by half or more."""
    if maps.shape != covered.shape:
        raise DataError(f"maps {maps.shape} and places {covered.shape} must have the same cells")
    flat, under = maps.reshape(len(maps), -1), covered.reshape(len(covered), -1)
    low, high = flat.min(axis=1, keepdims=True), flat.max(axis=1, keepdims=True)
    spread = high - low
    scaled = np.divide(flat - low, spread, out=np.ones_like(flat), where=spread > 0)  # a flat map shows all
    right = np.empty((len(maps), len(cuts)), np.bool_)
    for number, cut in enumerate(cuts):
        left = scaled >= cut
        right[:, number] = (under * left).sum(axis=1) >= ENOUGH * left.sum(axis=1)
    return right


@dataclass(frozen=True, eq=False)
class Location:
    """mAP-loc, 0..1, and the average precision of each class (L,), the mean over the cuts."""

    mean: float
    by_class: npt.NDArray[np.float64]


def location_precision(
    scores: npt.NDArray[np.floating],
    truth: Labels,
    rows: npt.NDArray[np.integer],
    classes: npt.NDArray[np.integer],
    right: npt.NDArray[np.bool_],
) -> Location:
    """mAP-loc from the scores (N, L) of all pictures and from which present classes were shown well.

    ``right`` (P, C) says it for the pairs ``rows``, ``classes`` (P,) at each of C cuts. A present class that
    is not among the pairs, because nobody knows where it is, is left out of its class's ranking.
    """
    present = truth == POSITIVE
    known = np.zeros_like(present)
    known[rows, classes] = True
    counts = (present & known).sum(axis=0)
    found = np.zeros((right.shape[1], truth.shape[1]))
    for number, well in enumerate(right.T):
        shown = np.where(present & ~known, np.int8(UNKNOWN), np.int8(NEGATIVE))
        shown[rows[well], classes[well]] = POSITIVE
        # Recall counts all that are there, so each step of it is smaller by the share that was shown well.
        share = (shown == POSITIVE).sum(axis=0) / np.maximum(counts, 1)
        found[number] = share * precision_of_classes(scores, shown, "sklearn", drop_unknown=True)
    by_class = found.mean(axis=0)
    there = counts > 0
    return Location(float(by_class[there].mean()) if there.any() else 0.0, by_class)
