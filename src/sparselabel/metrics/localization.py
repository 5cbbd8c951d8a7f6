"""How well maps show where things are: mAP-loc (P2 §4, eq. 6).

P2 = PatchML. A class's map is scaled to 0..1 within the picture and cut at .6, .7, .8 and .9. What is left is
right if at least half of it lies on things of the class (IoA-P, intersection over the area of the
prediction). A class that is there but badly shown is a false positive and still counts in the recall.

Everything is counted in cells: the truth says which share of every cell things of the class cover, so that
an intersection is exact for a map that is as coarse as the model made it. Maps are not made finer first
(ours; P2 does not say), so a class that covers no cell by half cannot be shown well.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.errors import DataError
from sparselabel.metrics.ranking import precision_of_classes

CUTS = (0.6, 0.7, 0.8, 0.9)
ENOUGH = 0.5
ROUNDING = 1e-6

Floats = npt.NDArray[np.float32]


def on_things(maps: Floats, covered: Floats, cuts: Sequence[float] = CUTS) -> Floats:
    """(P, C) IoA-P: the share of what is left of each map (P, h, w) at each cut that lies on the class."""
    if maps.shape != covered.shape:
        raise DataError(f"maps {maps.shape} and places {covered.shape} must have the same cells")
    flat, under = maps.reshape(len(maps), -1), covered.reshape(len(covered), -1)
    scaled = scaled_maps(flat[:, None])[:, 0]
    found = np.empty((len(maps), len(cuts)), np.float32)
    for number, cut in enumerate(cuts):
        left = scaled >= cut
        found[:, number] = (under * left).sum(axis=1) / np.maximum(left.sum(axis=1), 1)
    return found


def scaled_maps(maps: Floats) -> Floats:
    """Maps (P, h, w), each from 0 to 1 within its picture; a flat one shows everything."""
    low, high = maps.min(axis=(1, 2), keepdims=True), maps.max(axis=(1, 2), keepdims=True)
    spread = high - low
    return np.asarray(np.divide(maps - low, spread, out=np.ones_like(maps), where=spread > 0))


def enough(shares: Floats) -> npt.NDArray[np.bool_]:
    """Whether IoA-P is a half or more, but for rounding errors."""
    return np.asarray(shares >= ENOUGH - ROUNDING)


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
