"""mAP-loc: how well maps localize objects (PatchML §4, eq. 6).

PatchML. A class's map is scaled to 0..1 within the image and cut at .6, .7, .8 and .9. The remaining area is
right if at least half of it lies on objects of the class (IoA-P, intersection over the area of the
prediction). A present class with a wrong map is a false positive and still counts in the recall.

Areas are in cells of the model's map: the truth is the share of every cell that objects of the class cover.
Maps are not upsampled (ours; PatchML does not say), so a class that covers no cell by half cannot be right.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sparselabel.data.dataset import PreparedSplit, evaluation_labels
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, count_per_class, spans, take_rows
from sparselabel.data.masks import Masks
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import DataError, param
from sparselabel.files import write_arrays
from sparselabel.metrics.average_precision import precision_of_classes
from sparselabel.metrics.cell_coverage import Floats, covered_by_boxes, covered_by_masks
from sparselabel.metrics.tiled_scores import ScoreMatrix, class_blocks
from sparselabel.models.classifier import Output

CUTS = (0.6, 0.7, 0.8, 0.9)
ENOUGH = 0.5
ROUNDING = 1e-6

Maps = npt.NDArray[np.float32]


def on_things(maps: Maps, covered: Maps) -> Maps:
    """(P, C) IoA-P: the share of each cut map (P, h, w) that lies on the class."""
    if maps.shape != covered.shape:
        raise DataError(f"maps {maps.shape} and places {covered.shape} must have the same cells")
    flat, under = maps.reshape(len(maps), -1), covered.reshape(len(covered), -1)
    scaled = scaled_maps(flat[:, None])[:, 0]
    shares = np.empty((len(maps), len(CUTS)), np.float32)
    for number, cut in enumerate(CUTS):
        left = scaled >= cut
        shares[:, number] = (under * left).sum(axis=1) / np.maximum(left.sum(axis=1), 1)
    return shares


def scaled_maps(maps: Maps) -> Maps:
    """Maps (P, h, w), each from 0 to 1 within its image; a flat one shows everything."""
    low, high = maps.min(axis=(1, 2), keepdims=True), maps.max(axis=(1, 2), keepdims=True)
    spread = high - low
    return np.asarray(np.divide(maps - low, spread, out=np.ones_like(maps), where=spread > 0))


def enough(shares: Maps) -> npt.NDArray[np.bool_]:
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
    """mAP-loc from the scores (N, L) of all images and from which present classes were shown well.

    ``right`` (P, C) says it for the pairs ``rows``, ``classes`` (P,) at each of C cuts. A present class
    without known location is left out of its class's ranking.
    """
    present = truth == POSITIVE
    known = np.zeros_like(present)
    known[rows, classes] = True
    counts = (present & known).sum(axis=0)
    precisions = np.zeros((right.shape[1], truth.shape[1]))
    for number, well in enumerate(right.T):
        shown = np.where(present & ~known, np.int8(UNKNOWN), np.int8(NEGATIVE))
        shown[rows[well], classes[well]] = POSITIVE
        # Recall counts all that are there, so each step of it is smaller by the share that was shown well.
        share = (shown == POSITIVE).sum(axis=0) / np.maximum(counts, 1)
        precisions[number] = share * precision_of_classes(scores, shown, "sklearn", drop_unknown=True)
    by_class = precisions.mean(axis=0)
    there = counts > 0
    return Location(float(by_class[there].mean()) if there.any() else 0.0, by_class)


GroundTruth = Literal["any", "masks", "boxes"]
"""What maps are evaluated by: masks where a class has them, else boxes; or one of the two alone.

With masks alone, images with objects but no mask are not ranked, as their classes could never be right.
"""


class LocalizationMetric:
    """Accumulates IoA-P of P pairs of an image and a present class with known locations.

    A class of an image is evaluated by masks if all of its objects there have one.
    """

    def __init__(self, split: PreparedSplit, ground_truth: GroundTruth = "any") -> None:
        self.split = split
        self.masks = split.masks if split.masks is not None else Masks.none(len(split.spatial_labels))
        self._labels = evaluation_labels(split)
        self._find_pairs(ground_truth)
        could_be_right = self._labels.per_image(POSITIVE) == 0
        could_be_right[split.spatial_labels.rows[self.masks.there]] = True
        self.ranked = np.flatnonzero(could_be_right) if ground_truth == "masks" else np.arange(len(split))
        if ground_truth != "any" and len(split.spatial_labels) and not self.pairs:
            raise DataError(
                f"split {split.name!r} has no {ground_truth} of classes that are there",
                f"leave {param('ground_truth', ground_truth)} out",
            )
        self.shares = np.zeros((self.pairs, len(CUTS)), np.float32)
        self.areas = np.zeros(self.pairs, np.float32)

    def _find_pairs(self, ground_truth: GroundTruth) -> None:
        spatial_labels, classes = self.split.spatial_labels, len(self._labels.classes)
        key = np.asarray(spatial_labels.rows) * classes + np.asarray(spatial_labels.classes)
        good = ~spatial_labels.is_point
        good[good] = self._labels.matrix[spatial_labels.rows[good], spatial_labels.classes[good]] == POSITIVE
        self._order = np.flatnonzero(good)[np.argsort(key[good], kind="stable")]
        pairs, first = np.unique(key[self._order], return_index=True)
        counts = np.diff(np.append(first, len(self._order)))
        masked = np.logical_and.reduceat(self.masks.there[self._order], first) if len(first) else first == -1
        chosen = masked if ground_truth == "masks" else np.ones(len(pairs), np.bool_)
        self._first, self._counts = first[chosen], counts[chosen]
        self.masked = masked[chosen] & (ground_truth != "boxes")
        self.rows, self.classes = np.divmod(pairs[chosen], max(classes, 1))

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return len(self.rows)

    def new(self) -> "LocalizationMetric":
        """A new metric on the same pairs, for another model's maps."""
        other = copy(self)
        other.shares, other.areas = np.zeros_like(self.shares), np.zeros_like(self.areas)
        return other

    def update(self, rows: Tensor, output: Output, geometry: ViewGeometry) -> None:
        """Evaluate the maps of a batch of images, or attention if the model has that instead."""
        self.update_all(rows, geometry, [(self, output)])

    def update_all(
        self, rows: Tensor, geometry: ViewGeometry, outputs: "Sequence[tuple[LocalizationMetric, Output]]"
    ) -> None:
        """Evaluate the maps of several models for the same images; object areas are computed once."""
        wanted = rows.numpy()
        first = np.searchsorted(self.rows, wanted, side="left")
        counts = np.searchsorted(self.rows, wanted, side="right") - first
        chosen = spans(first, counts)
        position = np.repeat(np.arange(len(wanted)), counts)
        boxes = np.concatenate([geometry.box.numpy(), geometry.flip.numpy()[:, None]], axis=1)
        covered: dict[tuple[int, ...], Floats] = {}
        for evaluated, output in outputs:
            maps = output.maps if output.maps is not None else output.attention
            if maps is None:
                raise DataError("the model gives no maps")
            shown = maps[position, self.classes[chosen]].float().cpu().numpy()
            grid = shown.shape[1:]
            if grid not in covered:
                covered[grid] = self.covered(chosen, boxes[position], grid)
            evaluated.shares[chosen] = on_things(shown, covered[grid])
            evaluated.areas[chosen] = covered[grid].mean(axis=(1, 2))

    def covered(
        self, pairs: npt.NDArray[np.int64], geometries: npt.NDArray[np.floating], grid: tuple[int, ...]
    ) -> Floats:
        """(P, h, w) The share of each cell that objects of some pairs cover, in views of their images."""
        cells = (grid[0], grid[1])
        coverage = np.zeros((len(pairs), *cells), np.float32)
        for masked in (True, False):
            some = np.flatnonzero(self.masked[pairs] == masked)
            counts = self._counts[pairs[some]]
            spatial_labels = self._order[spans(self._first[pairs[some]], counts)]
            groups = np.repeat(np.arange(len(some)), counts)
            if masked:
                coverage[some] = covered_by_masks(
                    self.masks.take(spatial_labels), groups, geometries[some], cells
                )
            else:
                centers, sizes = (
                    self.split.spatial_labels.centers[spatial_labels],
                    self.split.spatial_labels.sizes[spatial_labels],
                )
                coverage[some] = covered_by_boxes(centers, sizes, groups, geometries[some], cells)
        return coverage

    def compute(self, scores: ScoreMatrix) -> dict[str, Any] | None:
        """mAP-loc, that of every class, and the numbers of images with masks and with boxes; None without."""
        if not self.pairs:
            return None
        rows, well = np.searchsorted(self.ranked, self.rows), enough(self.shares)
        by_class, labels = np.zeros(scores.shape[1]), take_rows(self._labels.matrix, self.ranked)
        for block in class_blocks(*scores.shape):
            here = np.flatnonzero((self.classes >= block.start) & (self.classes < block.stop))
            if len(here):
                positive = (labels[:, block] == POSITIVE).astype(np.int8)
                own = self.classes[here] - block.start
                by_class[block] = location_precision(
                    scores[:, block][self.ranked], positive, rows[here], own, well[here]
                ).by_class
        return {
            "mean": float(by_class[np.unique(self.classes)].mean()),
            "classes": dict(zip(self._labels.classes, by_class.tolist(), strict=True)),
            "cuts": list(CUTS),
            "ranked": len(self.ranked),
            "pairs": self.pairs,
            "masks": len(np.unique(self.rows[self.masked])),
            "boxes": len(np.unique(self.rows[~self.masked])),
            "without": int(count_per_class(labels).sum()) - self.pairs,
        }

    def save(self, file: Path) -> None:
        """Write all pairs: rows, classes, whether by masks, IoA-P at each cut, and the objects' area."""
        if self.pairs:
            names = ("rows", "classes", "masked", "shares", "areas")
            write_arrays(file, **{name: getattr(self, name) for name in names})
