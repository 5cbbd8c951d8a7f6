"""``RawDataset``, the result of every reader: images with (spatial) labels, by split; and helpers."""

import os
import warnings
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparselabel.data.image_source import ImageSource
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import (
    POSITIVE,
    Indices,
    LabelMatrix,
    Labels,
    SparseLabels,
    Texts,
    compact,
    take_rows,
)
from sparselabel.data.masks import Masks
from sparselabel.data.readers.image_files import images_below
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.stored_images import StoredImages
from sparselabel.errors import DataError, DataWarning, listing, param
from sparselabel.file_formats import read_text


@dataclass(frozen=True, eq=False)
class RawSplit:
    """One split: ``paths`` (N,) of its images relative to the root of the data, in the order of ``labels``.

    ``observed`` (N, L) are published observed labels, if any. ``real`` (N, L) are ImageNet's reassessed
    labels, beside the original ones; a row without them is UNKNOWN. ``masks`` are those of the spatial
    labels, in their order. ``images`` are images in memory, ``stored`` the locations of images in shards or
    at addresses.
    """

    labels: LabelTable
    paths: Texts
    spatial_labels: SpatialLabels = field(default_factory=SpatialLabels.none)
    observed: LabelMatrix | None = None
    real: Labels | None = None
    masks: Masks | None = None
    images: ImageSource | None = None
    stored: StoredImages | None = None

    def take(self, rows: Indices) -> "RawSplit":
        """The split of some rows, in the order given."""
        labels = self.labels.take(rows)
        return RawSplit(
            labels,
            labels.ids if self.paths is self.labels.ids else self.paths[rows],
            self.spatial_labels.take(rows),
            None if self.observed is None else take_rows(self.observed, rows),
            None if self.real is None else self.real[rows],
            None if self.masks is None else self.masks.take(self.spatial_labels.of_rows(rows)[0]),
            None if self.images is None else self.images.take(rows),
            None if self.stored is None else self.stored.take(rows),
        )


@dataclass(frozen=True, eq=False)
class RawDataset:
    """The data as read: splits by name ("train", and "val" or "test" where the data has them).

    ``own`` data has no published validation split to reproduce.
    """

    name: str
    root: Path
    splits: dict[str, RawSplit]
    own: bool = False


SPLITS = ("train", "val", "test")
IMAGES_FOLDER = f"name the images' folder with {param('images')}"


def by_split(whole: RawSplit, codes: npt.NDArray[np.integer]) -> dict[str, RawSplit]:
    """The images of each split that has some; ``codes`` (N,) are indices into ``SPLITS``, or -1 for none."""
    rows_of = {name: np.flatnonzero(codes == code) for code, name in enumerate(SPLITS)}
    taken = {name: len(rows) for name, rows in rows_of.items() if len(rows)}
    return {name: whole.take(rows_of[name]) if count < len(codes) else whole for name, count in taken.items()}


def with_one_label(ids: Texts, paths: Texts, classes: Sequence[str], column: Indices) -> RawSplit:
    """A split of images with one known label each, a positive: its class is ``column`` (N,)."""
    ones = np.full(len(ids), POSITIVE, np.int8)
    values = SparseLabels(np.arange(len(ids) + 1), column.astype(np.int32), ones, len(classes))
    return RawSplit(LabelTable(ids, tuple(classes), compact(values)), paths)


def warn(problem: str, *remedies: str) -> None:
    """Warn of data that can be used but may not be as intended."""
    warnings.warn(DataWarning(problem, *remedies), stacklevel=3)


class Listing:
    """The files below a folder, asked for by relative path with "/" in it: ``"a/b.jpg" in Listing(root)``.

    Each directory is listed once, at its first use, which is much quicker than checking files one by one,
    above all on network drives.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names: dict[str, set[str]] = {}

    def __contains__(self, path: str) -> bool:
        folder, slash, name = path.rpartition("/")
        if folder + slash not in self._names:
            try:
                with os.scandir(self.root / (folder + slash)) as entries:
                    names = {entry.name for entry in entries if entry.is_file()}
            except (OSError, ValueError):  # nor are there files of names that no file can have
                names = set()
            self._names[folder + slash] = names
        return name in self._names[folder + slash]

    def below(self) -> list[str]:
        """The paths of all images, sorted."""
        return images_below(self.root)


LEAST_SIDE = 1e-30
"""Of a box, in unit coordinates: shorter sides would be 0 in float32."""


class Box(NamedTuple):
    """A box by its edges, in unit coordinates by default."""

    left: float
    top: float
    right: float
    bottom: float

    @staticmethod
    def around(points: Iterable[tuple[float, float]]) -> "Box":
        """The box around points."""
        columns, rows = zip(*points, strict=True)
        return Box(min(columns), min(rows), max(columns), max(rows))

    def clipped(self) -> "Box | None":
        """The part inside the image (0..1), or None if it has no area."""
        left, right = max(self.left, 0.0), min(self.right, 1.0)
        top, bottom = max(self.top, 0.0), min(self.bottom, 1.0)
        return Box(left, top, right, bottom) if min(right - left, bottom - top) >= LEAST_SIDE else None


class SpatialLabelColumns:
    """Spatial labels while they are being read, in columns of plain numbers: millions of them stay small."""

    def __init__(self) -> None:
        self._rows = array("q")
        self._classes = array("i")
        self._edges = array("d")

    def add(self, row: int, index: int, box: Box) -> None:
        """Add a box, or a point (a box of no size), of class ``index`` on the image in ``row``."""
        self._rows.append(row)
        self._classes.append(index)
        self._edges.extend(box)

    def build(self) -> SpatialLabels:
        """All that was added."""
        edges = np.asarray(self._edges, dtype=np.float64).reshape(-1, 4)
        low, high = edges[:, :2], edges[:, 2:]
        rows, classes = np.asarray(self._rows, np.int64), np.asarray(self._classes, np.int32)
        return SpatialLabels(
            rows, classes, ((low + high) / 2).astype(np.float32), (high - low).astype(np.float32)
        )


def warn_of_lost_boxes(file: Path, count: int, first: str) -> None:
    """Warn of boxes in published data that have no area or lie outside their images."""
    warn(
        f"{file}: {count:,} {'box' if count == 1 else 'boxes'} without area inside the image, the first: "
        f"{first}; their classes count as present, without a box"
    )


def images_folder(images: Path | None, *usual: Path) -> Path:
    """The images' folder: the given one, or the first of the usual ones that exists, or the last."""
    return require_folder(images or next((folder for folder in usual if folder.is_dir()), usual[-1]))


def require_folder(folder: Path) -> Path:
    """The folder, or an error if there is none."""
    if not folder.is_dir():
        fault = "not a folder" if folder.exists() else "not there"
        raise DataError(f"{folder} is {fault}: a folder is needed")
    return folder


def refuse_missing(files: Listing, paths: Sequence[str], named_by: Path) -> None:
    """Raise if images that a file names are not there."""
    missing = [path for path in paths if path not in files]
    if missing:
        raise DataError(
            f"{named_by} names {len(missing):,} of {len(paths):,} images that are not in {files.root}: "
            f"{listing(missing)}",
            IMAGES_FOLDER,
        )


def lines_of(file: Path) -> list[str]:
    """The lines of a text file, without spaces around them and without empty ones at the end."""
    lines = read_text(file).splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    return [line.strip() for line in lines]


def whole_number(text: str) -> int:
    """A whole number from 0 on; -1 for any other text, and for more digits than a number of anything has."""
    return int(text) if text.isdecimal() and len(text) < 19 else -1


def first_there(folders: Sequence[Path], names: Sequence[str]) -> Path | None:
    """The first of these files that is in one of these folders."""
    candidates = (folder / name for name in names for folder in folders)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


NEARLY = 0.05
"""Within this share of the published number of images, it was meant to be the published set."""


class Size(NamedTuple):
    """How many images and positive labels a split has."""

    images: int
    positives: int


# Verelst 2023 supplement table K.1, train and val together, as before validation is held out. Its counts of
# VOC's val and test labels are misprints; those here are of its table K.3.
PUBLISHED: dict[str, dict[str, Size]] = {
    "voc": {"train": Size(5_717, 8_331), "test": Size(5_823, 8_351)},
    "coco": {"train": Size(82_081, 241_035), "test": Size(40_137, 116_592)},
    "nuswide": {"train": Size(150_000, 284_611), "test": Size(60_260, 113_418)},
    "cub": {"train": Size(5_994, 188_343), "test": Size(5_794, 182_704)},
    "imagenet": {"train": Size(1_281_167, 1_281_167), "test": Size(50_000, 50_000)},
}


def warn_of_another_size(reader: str, splits: Mapping[str, RawSplit]) -> None:
    """Warn of splits that are nearly those of the papers, but not of a part of a set or another set."""
    for name, split in splits.items():
        expected = PUBLISHED[reader][name]
        size = Size(len(split.labels), int(split.labels.counts().sum()))
        if abs(size.images / expected.images - 1) <= NEARLY and size != expected:
            warn(
                f"{name} has {size.images:,} images and {size.positives:,} positive labels; in the "
                f"papers {reader} has {expected.images:,} and {expected.positives:,}. Observed labels and "
                "splits are drawn by row, so yours will be others, and numbers may not compare"
            )
