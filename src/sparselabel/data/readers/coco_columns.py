"""The three lists of a COCO-style file as columns: what grows with their length is arrays of numbers.

Image ids are found by search in sorted arrays, and an annotation takes 25 bytes until all are read. Outlines
and masks ("segmentation") are passed over; to read them too, ask ``JsonBlocks.elements`` for them.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, Labels, Texts, refuse_duplicates
from sparselabel.data.marks import Floats, Marks
from sparselabel.data.readers.common import naming
from sparselabel.data.readers.json_blocks import JsonBlocks
from sparselabel.errors import DataError

Rows = npt.NDArray[np.int64]
Keys = npt.NDArray[Any]


class Images:
    """The list "images": ids, file names and sizes of N images; rows are the ids sorted as strings."""

    def __init__(self, blocks: JsonBlocks) -> None:
        file = blocks.file
        keys: list[Keys] = []
        names: list[npt.NDArray[np.bytes_]] = []
        sizes: list[npt.NDArray[np.float64]] = []
        count = 0
        for block in blocks.elements():
            ids = column(file, "image", block, count, "id")
            sizes.append(_sizes(file, ids, block))
            keys.append(_keys(ids))
            names.append(np.asarray([str(image.get("file_name", "")).encode() for image in block]))
            count += len(block)
        if not count:
            raise DataError(f"{file}: 'images' is empty")
        self._find_by_number = all(part.dtype.kind == "i" for part in keys)
        given: Keys = np.concatenate(
            keys if self._find_by_number else [part.astype(np.str_) for part in keys]
        )
        # Digits sort the same as bytes, which are shorter.
        texts: Keys = given.astype(np.bytes_) if self._find_by_number else given
        order = np.argsort(texts, kind="stable")
        self.names = np.concatenate(names)[order]
        self.sizes = np.concatenate(sizes)[order]
        self.ids = _trimmed(texts[order])
        if (self.ids[1:] == self.ids[:-1]).any():
            with naming(file):
                refuse_duplicates("image id", self.ids)
        if self._find_by_number:
            rows = np.empty(count, dtype=np.int64)
            rows[order] = np.arange(count)
            by_number = np.argsort(given)
            self._sorted, self._rows = given[by_number], rows[by_number]
        else:
            self._sorted, self._rows = self.ids, np.arange(count)

    def find(self, ids: Sequence[Any]) -> Rows:
        """The rows of some ids; -1 for those that are not there."""
        keys = _keys(ids)
        known, rows = self._sorted, self._rows
        if not (self._find_by_number and keys.dtype.kind == "i"):
            keys, known, rows = keys.astype(np.str_), self.ids, np.arange(len(self.ids))
        place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[place] == keys, rows[place], -1)


class Annotations:
    """The list "annotations": rows, categories and boxes. What categories there are may be known later."""

    def __init__(self, blocks: JsonBlocks, images: Images) -> None:
        self.file = blocks.file
        self._images = images
        self._first_with: dict[str, str] = {}  # category id, in order of appearance -> how messages put it
        self._rows: list[npt.NDArray[np.int32]] = []
        self._codes: list[npt.NDArray[np.int32]] = []
        self._boxed: list[npt.NDArray[np.bool_]] = []
        self._centres: list[Floats] = []
        self._sizes: list[Floats] = []
        count = 0
        for block in blocks.elements(skip="segmentation"):
            self._add(block, count)
            count += len(block)

    def _add(self, block: list[Any], first: int) -> None:
        ids = column(self.file, "annotation", block, first, "image_id")
        rows = self._images.find(ids)
        if (rows < 0).any():
            place = int(np.argmax(rows < 0))
            name = name_of("annotation", first + place, block[place])
            raise DataError(f"{self.file}: {name}: image_id {ids[place]!r} is not among the images")
        self._rows.append(rows.astype(np.int32))
        self._codes.append(
            self._coded(column(self.file, "annotation", block, first, "category_id"), block, first)
        )
        single = np.asarray([not annotation.get("iscrowd", 0) for annotation in block], dtype=np.bool_)
        chosen = np.flatnonzero(single)
        low, high = self._edges(block, first, chosen, self._images.sizes[rows[chosen]])
        inside = np.all(low < high, axis=1)
        single[chosen] = inside
        self._boxed.append(single)
        self._centres.append(((low + high) / 2)[inside].astype(np.float32))
        self._sizes.append((high - low)[inside].astype(np.float32))

    def _coded(self, ids: list[Any], block: list[Any], first: int) -> npt.NDArray[np.int32]:
        unique, places, inverse = np.unique(_keys(ids), return_index=True, return_inverse=True)
        codes = []
        for key, place in zip(unique.tolist(), places.tolist(), strict=True):
            if str(key) not in self._first_with:
                name = name_of("annotation", first + place, block[place])
                self._first_with[str(key)] = f"{name}: category_id {ids[place]!r}"
            codes.append([*self._first_with].index(str(key)))
        return np.asarray(codes, dtype=np.int32)[inverse]

    def _edges(self, block: list[Any], first: int, chosen: Rows, sizes: Any) -> tuple[Any, Any]:
        """Upper left and lower right corners of the boxes of some annotations, clipped to their pictures."""
        numbers = _boxes([block[place].get("bbox") for place in chosen.tolist()])
        if numbers is None:
            for place in chosen.tolist():
                _refuse_box(self.file, first + place, block[place])
            raise DataError(f"{self.file}: a bbox has a number too large to be one of pixels")
        low, high = numbers[:, :2] / sizes, (numbers[:, :2] + numbers[:, 2:]) / sizes
        return np.maximum(low, 0.0), np.minimum(high, 1.0)

    def with_any(self) -> npt.NDArray[np.bool_]:
        """(N,) Whether an image has an annotation, of whatever kind."""
        found = np.zeros(len(self._images.ids), dtype=np.bool_)
        for rows in self._rows:
            found[rows] = True
        return found

    def build(self, class_of: dict[str, int], kept: Rows) -> tuple[Labels, Marks]:
        """Labels and marks of the images in rows ``kept``; what was read is given up on the way."""
        for key, what in self._first_with.items():
            if key not in class_of:
                raise DataError(f"{self.file}: {what} is not among the categories")
        classes = np.asarray([class_of[key] for key in self._first_with], dtype=np.int32)
        new_row = np.full(len(self._images.ids), -1, dtype=np.int64)
        new_row[kept] = np.arange(len(kept))
        values = np.full((len(kept), len(class_of)), NEGATIVE, dtype=np.int8)
        count = sum(int(boxed.sum()) for boxed in self._boxed)
        mark_rows, mark_classes = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int32)
        start = 0
        for part, boxed in enumerate(self._boxed):
            rows, indices = new_row[self._rows[part]], classes[self._codes[part]]
            values[rows, indices] = POSITIVE
            end = start + int(boxed.sum())
            mark_rows[start:end], mark_classes[start:end] = rows[boxed], indices[boxed]
            start = end
        self._rows, self._codes, self._boxed = [], [], []
        centres, self._centres = _joined(self._centres), []
        sizes, self._sizes = _joined(self._sizes), []
        if (mark_rows[1:] < mark_rows[:-1]).any():
            order = np.argsort(mark_rows, kind="stable")
            mark_rows, mark_classes = mark_rows[order], mark_classes[order]
            centres = centres[order]
            sizes = sizes[order]
        return values, Marks(mark_rows, mark_classes, centres, sizes, check=False)


def read_categories(file: Path, categories: list[Any]) -> dict[str, tuple[int, str]]:
    """Category id -> class index and name, in the file's order."""
    if not categories:
        raise DataError(f"{file}: 'categories' is empty")
    names = [str(name) for name in column(file, "category", categories, 0, "name")]
    keys = [str(key) for key in column(file, "category", categories, 0, "id")]
    with naming(file):
        refuse_duplicates("category", np.asarray(names, dtype=np.str_))
        refuse_duplicates("category id", np.asarray(keys, dtype=np.str_))
    return {key: (index, name) for index, (key, name) in enumerate(zip(keys, names, strict=True))}


def column(file: Path, kind: str, block: list[Any], first: int, key: str) -> list[Any]:
    """A member of all records of a block, of which the first is number ``first`` of its list."""
    try:
        return [record[key] for record in block]
    except (KeyError, TypeError, IndexError):
        for place, record in enumerate(block):
            if not isinstance(record, dict) or key not in record:
                name = name_of(kind, first + place, record)
                raise DataError(f"{file}: {name} has no {key!r}: {record!r:.200}") from None
        raise


def name_of(kind: str, place: int, record: Any) -> str:
    """How messages call a record: by its id, or by its place in the list if it has none."""
    known = isinstance(record, dict) and "id" in record
    return f"{kind} {record['id']}" if known else f"{kind} at position {place:,} (counted from 0)"


def _keys(ids: Sequence[Any]) -> Keys:
    """Ids as whole numbers if all of them are, else as texts."""
    if all(type(key) is int for key in ids):
        try:
            return np.asarray(ids, dtype=np.int64)
        except OverflowError:
            pass
    return np.asarray([str(key) for key in ids], dtype=np.str_)


def _trimmed(texts: Keys) -> Texts:
    """Texts as wide as the longest of them."""
    return texts.astype(f"U{max(int(np.strings.str_len(texts).max()), 1)}")


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty((0, 2), dtype=np.float32)


def _sizes(file: Path, ids: list[Any], block: list[Any]) -> npt.NDArray[np.float64]:
    """(B, 2) widths and heights."""
    for key, image in zip(ids, block, strict=True):
        width, height = image.get("width"), image.get("height")
        if not (isinstance(width, int | float) and isinstance(height, int | float)) or not (
            0 < width < math.inf and 0 < height < math.inf
        ):
            raise DataError(
                f"{file}: image {key} must have a width and a height above 0, not {width!r} and {height!r}"
            )
    return np.asarray([(image["width"], image["height"]) for image in block], dtype=np.float64).reshape(-1, 2)


def _boxes(boxes: list[Any]) -> npt.NDArray[np.float64] | None:
    """(B, 4) the boxes, or None if one is not x, y and a width and height that are not negative."""
    try:
        given = np.asarray(boxes if boxes else np.empty((0, 4)))
    except ValueError:  # of different lengths
        return None
    if given.dtype.kind not in "iuf" or given.shape != (len(boxes), 4):
        return None
    numbers = given.astype(np.float64)
    right = np.isfinite(numbers).all() and (numbers[:, 2:] >= 0).all()
    return numbers if right else None


def _refuse_box(file: Path, place: int, annotation: Any) -> None:
    name = name_of("annotation", place, annotation)
    if "bbox" not in annotation:
        raise DataError(f"{file}: {name} has no 'bbox': {annotation!r:.200}")
    if _boxes([annotation["bbox"]]) is None:
        wrong = annotation["bbox"]
        raise DataError(f"{file}: {name}: bbox must be [x, y, width, height] in pixels, not {wrong!r}")
