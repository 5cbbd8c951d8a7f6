"""mAP-loc of a run: its maps, batch by batch, against the masks or boxes of a split (P2 §4)."""

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import POSITIVE
from sparselabel.data.masks import Masks
from sparselabel.data.spatial_labels import spans
from sparselabel.data.view_geometry import Frame
from sparselabel.errors import DataError
from sparselabel.inference.saved_scores import judging_labels
from sparselabel.metrics.cell_coverage import Floats, covered_by_boxes, covered_by_masks
from sparselabel.metrics.localization import CUTS, enough, location_precision, on_things
from sparselabel.metrics.ranking import Scores
from sparselabel.models.output import Output

Places = Literal["any", "masks", "boxes"]
"""What maps are judged by: masks where a class has them, else boxes; or one of the two alone.

Where only masks count, pictures with things and no mask are not ranked at all: their classes could not be
right, and would stand among the others as if they were absent.
"""


class Located:
    """P pairs of a picture and a class that is there and whose places are known, and how well maps show them.

    A class of a picture is judged by masks if every one of its things there has one.
    """

    def __init__(self, part: PreparedSplit, places: Places = "any") -> None:
        self.part = part
        self.masks = part.masks if part.masks is not None else Masks.none(len(part.marks))
        self._labels = judging_labels(part)
        self._find_pairs(places)
        could_be_right = self._labels.per_picture(POSITIVE) == 0
        could_be_right[part.marks.rows[self.masks.there]] = True
        self.ranked = np.flatnonzero(could_be_right) if places == "masks" else np.arange(len(part))
        if places != "any" and len(part.marks) and not self.pairs:
            raise DataError(
                f"split {part.name!r} has no {places} of classes that are there: leave --places {places} out"
            )
        self.shares = np.zeros((self.pairs, len(CUTS)), np.float32)
        self.areas = np.zeros(self.pairs, np.float32)

    def _find_pairs(self, places: Places) -> None:
        marks, classes = self.part.marks, len(self._labels.classes)
        key = np.asarray(marks.rows) * classes + np.asarray(marks.classes)
        good = ~marks.is_point
        good[good] = self._labels.values[marks.rows[good], marks.classes[good]] == POSITIVE
        self._order = np.flatnonzero(good)[np.argsort(key[good], kind="stable")]
        pairs, first = np.unique(key[self._order], return_index=True)
        counts = np.diff(np.append(first, len(self._order)))
        masked = np.logical_and.reduceat(self.masks.there[self._order], first) if len(first) else first == -1
        kept = masked if places == "masks" else np.ones(len(pairs), np.bool_)
        self._first, self._counts = first[kept], counts[kept]
        self.masked = masked[kept] & (places != "boxes")
        self.rows, self.classes = np.divmod(pairs[kept], max(classes, 1))

    @property
    def pairs(self) -> int:
        """How many there are."""
        return len(self.rows)

    def another(self) -> "Located":
        """The same pairs, for the maps of another model."""
        other = copy(self)
        other.shares, other.areas = np.zeros_like(self.shares), np.zeros_like(self.areas)
        return other

    def see(self, rows: Tensor, output: Output, frame: Frame) -> None:
        """Judge the maps of a batch of pictures; a model that has attention instead is judged by that."""
        self.see_all(rows, frame, [(self, output)])

    def see_all(self, rows: Tensor, frame: Frame, outputs: "Sequence[tuple[Located, Output]]") -> None:
        """Judge what several models see in the same pictures; where things are is found out once for all."""
        wanted = rows.numpy()
        first = np.searchsorted(self.rows, wanted, side="left")
        counts = np.searchsorted(self.rows, wanted, side="right") - first
        chosen = spans(first, counts)
        position = np.repeat(np.arange(len(wanted)), counts)
        boxes = np.concatenate([frame.box.numpy(), frame.flip.numpy()[:, None]], axis=1)
        covered: dict[tuple[int, ...], Floats] = {}
        for judged, output in outputs:
            maps = output.maps if output.maps is not None else output.attention
            if maps is None:
                raise DataError("the model gives no maps")
            shown = maps[position, self.classes[chosen]].float().cpu().numpy()
            grid = shown.shape[1:]
            if grid not in covered:
                covered[grid] = self.covered(chosen, boxes[position], grid)
            judged.shares[chosen] = on_things(shown, covered[grid])
            judged.areas[chosen] = covered[grid].mean(axis=(1, 2))

    def covered(
        self, pairs: npt.NDArray[np.int64], frames: npt.NDArray[np.floating], grid: tuple[int, ...]
    ) -> Floats:
        """(P, h, w) The share of each cell that things of some pairs cover, in views of their pictures."""
        cells = (grid[0], grid[1])
        found = np.zeros((len(pairs), *cells), np.float32)
        for masked in (True, False):
            some = np.flatnonzero(self.masked[pairs] == masked)
            counts = self._counts[pairs[some]]
            marks = self._order[spans(self._first[pairs[some]], counts)]
            groups = np.repeat(np.arange(len(some)), counts)
            if masked:
                found[some] = covered_by_masks(self.masks.take(marks), groups, frames[some], cells)
            else:
                centres, sizes = self.part.marks.centres[marks], self.part.marks.sizes[marks]
                found[some] = covered_by_boxes(centres, sizes, groups, frames[some], cells)
        return found

    def measures(self, scores: Scores) -> dict[str, Any] | None:
        """mAP-loc, that of every class, and by how many pictures with masks and with boxes; None without."""
        if not self.pairs:
            return None
        positive = (np.asarray(self._labels.values)[self.ranked] == POSITIVE).astype(np.int8)
        rows = np.searchsorted(self.ranked, self.rows)
        found = location_precision(scores[self.ranked], positive, rows, self.classes, enough(self.shares))
        return {
            "mean": found.mean,
            "classes": dict(zip(self._labels.classes, found.by_class.tolist(), strict=True)),
            "cuts": list(CUTS),
            "ranked": len(self.ranked),
            "pairs": self.pairs,
            "masks": len(np.unique(self.rows[self.masked])),
            "boxes": len(np.unique(self.rows[~self.masked])),
            "without": int(positive.sum()) - self.pairs,
        }

    def keep(self, file: Path) -> None:
        """Write all pairs: rows, classes, whether by masks, IoA-P at each cut, and the things' area."""
        if self.pairs:
            names = ("rows", "classes", "masked", "shares", "areas")
            np.savez(file, **{name: getattr(self, name) for name in names})
