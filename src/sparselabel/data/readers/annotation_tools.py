"""Shared by the readers of annotation tools: collect labels and spatial labels that come in any order."""

from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.readers.raw_dataset import (
    IMAGES_FOLDER,
    SPLITS,
    Box,
    Listing,
    RawDataset,
    RawSplit,
    SpatialLabelColumns,
    by_split,
    warn,
)
from sparselabel.errors import DataError, listing, nearest, param
from sparselabel.file_formats import naming


def tails(path: str) -> list[str]:
    """A path and what is left of it when its first folders are left out, the longest first."""
    names = [name for name in path.replace("\\", "/").split("/") if name not in ("", ".", "..")]
    return ["/".join(names[start:]) for start in range(len(names))]


class Collected:
    """Images in order of first appearance, with labels and spatial labels; ``where`` is a line or task.

    A label that annotators disagree about is UNKNOWN. Images without any known label are left out: a method
    that assumes negatives would learn that they are empty.
    """

    def __init__(self, file: Path, root: Path) -> None:
        self.file = file
        self.root = root
        self.passed_over: Counter[str] = Counter()  # kinds of annotations that are not read
        self._files = Listing(root)
        self._row_of: dict[str, int] = {}
        self._named: list[tuple[str, str]] = []  # how a row's image was named, and where
        self._splits: list[str] = []
        self._looked_at: list[bool] = []
        self._index_of: dict[str, int] = {}
        self._values: dict[tuple[int, int], int] = {}
        self._contradicted: dict[tuple[int, int], str] = {}
        self._spatial_labels = SpatialLabelColumns()
        self._missing: list[str] = []

    def wrong(self, where: str, problem: str, *remedies: str) -> DataError:
        """The error to raise for something in the file."""
        return DataError(f"{self.file}, {where}: {problem}", *remedies, what=self.file, where=where)

    def image(
        self, where: str, named: str, candidates: Iterable[str], looked_at: bool, split: str = "train"
    ) -> int:
        """The row of an image, whose file is the first candidate that is there."""
        path = next((name for name in candidates if name in self._files), None)
        if path is None:
            self._missing.append(f"{named} ({where})")
            path = f"missing: {named}"
        row = self._row_of.setdefault(path, len(self._row_of))
        if row == len(self._named):
            self._named.append((named, where))
            self._splits.append(split)
            self._looked_at.append(looked_at)
        elif self._named[row][0] != named:
            other, before = self._named[row]
            raise self.wrong(
                where,
                f"{named!r} and {other!r} ({before}) are both found as {path} in {self.root}",
                f"give the folder in which they have different names as {param('images')}",
            )
        elif self._splits[row] != split:
            raise self.wrong(where, f"{named!r} is in {split!r} here and in {self._splits[row]!r} before")
        self._looked_at[row] |= looked_at
        return row

    def classes(self, names: Iterable[str]) -> None:
        """Name classes in their order; those that are met later come after them."""
        for name in names:
            self._index_of.setdefault(name, len(self._index_of))

    def add(self, row: int, name: str, value: int = POSITIVE, boxes: Iterable[Box] = ()) -> None:
        """Add a label of an image, and its points and boxes."""
        index = self._index_of.setdefault(name, len(self._index_of))
        if self._values.setdefault((row, index), value) != value:
            self._contradicted[row, index] = f"{name} on {self._named[row][0]}"
        for box in boxes:
            self._spatial_labels.add(row, index, box)

    def point(self, where: str, name: str, x: float, y: float) -> Box:
        """A point of a class, as a box of no size; raises if it lies outside the image."""
        if 0 <= x <= 1 and 0 <= y <= 1:
            return Box(x, y, x, y)
        raise self.wrong(
            where,
            f"a point of {name!r} must lie inside the image (0 to 1 of its width and height), not at "
            f"{x:.4g}, {y:.4g}",
            "move or remove it",
        )

    def box(self, where: str, name: str, box: Box) -> Box:
        """The part of a class's box inside the image; raises if that has no area."""
        inside = box.clipped()
        if inside is None:
            edges = ", ".join(f"{edge:.4g}" for edge in box)
            raise self.wrong(
                where,
                f"a box of {name!r} must have an area inside the image (0 to 1 of its width and height), "
                f"but its left, top, right and bottom are {edges}",
                "redraw or remove it",
            )
        return inside

    def refuse_unused(self, negative: str | None, known: Collection[str], problem: str) -> None:
        """Raise if ``negative``, the name for absent classes, does not occur in the file."""
        if negative is not None and negative not in known:
            raise DataError(
                f"{self.file}: {problem} {negative!r} ({nearest(negative, known)})",
                f"name one of them with {param('negative')}",
                f"leave {param('negative')} out if nobody said what is not there",
            )

    def pass_over(self, kind: str) -> None:
        """Count an annotation that is not read; a warning names its kind."""
        self.passed_over[kind] += 1

    def source(self, name: str, complete: bool) -> RawDataset:
        """The data. ``complete``: labels that are not given are NEGATIVE on images that were annotated."""
        if self._missing:
            raise DataError(
                f"{self.file}: {len(self._missing):,} of {len(self._named):,} images are not in "
                f"{self.root}: {listing(self._missing)}",
                IMAGES_FOLDER,
            )
        values = np.full((len(self._named), len(self._index_of)), UNKNOWN, dtype=np.int8)
        if complete:
            values[np.asarray(self._looked_at, dtype=np.bool_)] = NEGATIVE
        for key, value in self._values.items():
            values[key] = value
        for key in self._contradicted:
            values[key] = UNKNOWN
        if self._contradicted:
            warn(
                f"{self.file}: {len(self._contradicted):,} labels are said to be there and not to be there, "
                f"and were left unknown: {listing(self._contradicted.values())}"
            )
        if self.passed_over:
            kinds = [f"{kind} ({count:,})" for kind, count in sorted(self.passed_over.items())]
            warn(f"{self.file}: annotations that say nothing of a class were passed over: {listing(kinds)}")
        known = np.any(values != UNKNOWN, axis=1)
        paths = np.asarray(list(self._row_of), dtype=np.str_)
        if not known.all():
            warn(
                f"{self.file}: {int((~known).sum()):,} of {len(known):,} images were left out, of which "
                f"nothing is known: {listing(paths[~known])}"
            )
        if not known.any():
            raise DataError(f"{self.file}: no image has a label")
        with naming(self.file):
            table = LabelTable(paths, tuple(self._index_of), values)
            built = self._spatial_labels.build()
        positive = values[built.rows, built.classes] == POSITIVE  # not contradicted
        whole = RawSplit(table, paths, built.only(positive))
        codes = np.asarray([SPLITS.index(split) for split in self._splits])
        return RawDataset(name, self.root, by_split(whole, np.where(known, codes, -1)), own=True)
