"""The list "annotations" of a COCO-style file as columns, and what it makes of labels and marks.

An annotation takes 25 bytes until all are read, and its mask some tens to hundreds. Where nobody wants masks,
outlines ("segmentation", four fifths of a file) are not even parsed.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pycocotools import mask as run_lengths

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, Texts, refuse_duplicates
from sparselabel.data.masks import MaskColumns, Masks, pixels_of
from sparselabel.data.readers.json_stream import JsonBlocks
from sparselabel.data.readers.raw_dataset import naming
from sparselabel.data.spatial_labels import Floats, SpatialLabels
from sparselabel.errors import DataError

Rows = npt.NDArray[np.int64]
Keys = npt.NDArray[Any]
Codes = npt.NDArray[np.int32]

VERIFIED = {"neg_category_ids": NEGATIVE, "pos_category_ids": POSITIVE}
"""Lists of an image with categories that someone looked for: the first is LVIS's, the second ours."""


class CategoryCodes:
    """Category ids as numbers in order of appearance: what categories there are may be known later."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._first: dict[str, tuple[int, str]] = {}  # id -> its code, and what to say of its first use

    def code(self, ids: Sequence[Any], said: Callable[[int], str]) -> Codes:
        """(B,) The codes of some ids; ``said(place)`` is how a message puts one of them."""
        unique, places, inverse = np.unique(_keys(ids), return_index=True, return_inverse=True)
        codes = np.empty(len(unique), dtype=np.int32)
        for index, (key, place) in enumerate(zip(unique.tolist(), places.tolist(), strict=True)):
            if str(key) not in self._first:
                self._first[str(key)] = (len(self._first), said(place))
            codes[index] = self._first[str(key)][0]
        return codes[inverse]

    def classes(self, class_of: dict[str, int]) -> npt.NDArray[np.int32]:
        """Code -> class, or an error for a category that is not listed."""
        for key, (_, said) in self._first.items():
            if key not in class_of:
                raise DataError(f"{self.file}: {said} is not among the categories")
        return np.asarray([class_of[key] for key in self._first], dtype=np.int32)


class Images:
    """The list "images": ids, file names and sizes of N images; rows are the ids sorted as strings.

    ``verified`` are (rows, category codes, label) of what was looked for, or None if no image says so.
    """

    def __init__(self, blocks: JsonBlocks, categories: CategoryCodes) -> None:
        file = blocks.file
        verified: list[tuple[Rows, Codes, int]] | None = None
        keys: list[Keys] = []
        names: list[npt.NDArray[np.bytes_]] = []
        sizes: list[npt.NDArray[np.float64]] = []
        count = 0
        for block in blocks.elements():
            ids = column(file, "image", block, count, "id")
            sizes.append(_sizes(file, ids, block))
            keys.append(_keys(ids))
            names.append(np.asarray([_file_name(image).encode(errors="replace") for image in block]))
            found = _verified(block, ids, categories)
            if found:
                verified = (verified or []) + [(rows + count, codes, value) for rows, codes, value in found]
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
        new_row = np.empty(count, dtype=np.int64)
        new_row[order] = np.arange(count)
        self.verified = None
        if verified is not None:
            self.verified = [(new_row[rows], codes, value) for rows, codes, value in verified]
        self._sorted, self._rows = self.ids, np.arange(count)
        if self._find_by_number:
            by_number = np.argsort(given)
            self._sorted, self._rows = given[by_number], new_row[by_number]

    def find(self, ids: Sequence[Any]) -> Rows:
        """The rows of some ids; -1 for those that are not there."""
        keys = _keys(ids)
        known, rows = self._sorted, self._rows
        if not (self._find_by_number and keys.dtype.kind == "i"):
            keys, known, rows = keys.astype(np.str_), self.ids, np.arange(len(self.ids))
        place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[place] == keys, rows[place], -1)


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


def _file_name(image: dict[str, Any]) -> str:
    """The image's file name, or the address that LVIS has instead."""
    return str(image.get("file_name") or image.get("coco_url") or "")


def _verified(block: list[Any], ids: list[Any], categories: CategoryCodes) -> list[tuple[Rows, Codes, int]]:
    """(places in the block, category codes, label) for each list of ``VERIFIED`` that its images have."""
    found = []
    for key, value in VERIFIED.items():
        lists = [image.get(key) for image in block]
        if any(given is not None for given in lists):
            pairs = [(place, category) for place, given in enumerate(lists) for category in given or []]
            places = np.asarray([place for place, _ in pairs], dtype=np.int64)

            def said(at: int, pairs: list[tuple[int, Any]] = pairs, key: str = key) -> str:
                return f"image {ids[pairs[at][0]]}: {pairs[at][1]!r} of {key}"

            found.append((places, categories.code([category for _, category in pairs], said), value))
    return found


CORNERS = 3  # of a polygon, at least


def mask_of(file: Path, place: int, annotation: Any, width: int, height: int) -> dict[str, Any] | None:
    """The mask of an annotation in pycocotools' form; None if it has none, or one without a pixel."""
    given = annotation.get("segmentation")
    if not given:
        return None
    try:
        found = _runs(given, height, width) if isinstance(given, dict) else _filled(given, height, width)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise DataError(
            f"{file}: {name_of('annotation', place, annotation)}: segmentation must be polygons "
            f"[[x, y, x, y, ...], ...] or run lengths of the image's {height} × {width} pixels ({error}): "
            f"{given!r:.100}"
        ) from error
    return found if found is not None and run_lengths.area(found) else None


def _filled(polygons: Any, height: int, width: int) -> dict[str, Any] | None:
    """The pixels inside any of the polygons; those of less than three corners have none."""
    if not isinstance(polygons, list) or not all(isinstance(polygon, list) for polygon in polygons):
        raise TypeError("not a list of lists")
    kept = [polygon for polygon in polygons if len(polygon) >= 2 * CORNERS]
    for polygon in kept:
        numbers = np.asarray(polygon)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iuf" or len(polygon) % 2:
            raise ValueError("a polygon is an even number of numbers")
        if not np.isfinite(numbers).all():
            raise ValueError("a polygon's numbers must be finite")
    if not kept:
        return None
    found: dict[str, Any] = run_lengths.merge(run_lengths.frPyObjects(kept, height, width))
    return found


def _runs(given: dict[str, Any], height: int, width: int) -> dict[str, Any]:
    if [*given["size"]] != [height, width]:
        raise ValueError(f"its size is {given['size']}")
    counts = given["counts"]
    if isinstance(counts, str):
        found: dict[str, Any] = {"size": [height, width], "counts": counts.encode("ascii")}
        columns = MaskColumns()
        columns.add(found)
        try:
            pixels = pixels_of(columns.build() or Masks.none(0))
        except DataError:
            raise ValueError("they are damaged") from None
        if pixels != height * width:
            raise ValueError(f"its runs are of {pixels:,} pixels")
    else:
        lengths = np.asarray(counts)
        if lengths.dtype.kind not in "iu" or lengths.ndim != 1 or lengths.min(initial=0) < 0:
            raise ValueError("run lengths are counts of pixels")
        if int(lengths.sum()) != height * width:
            raise ValueError(f"its runs are of {int(lengths.sum()):,} pixels")
        found = run_lengths.frPyObjects({"size": [height, width], "counts": lengths.tolist()}, height, width)
    return found


class Annotations:
    """The list "annotations": rows, categories and boxes."""

    def __init__(
        self, blocks: JsonBlocks, images: Images, categories: CategoryCodes, masks: bool = False
    ) -> None:
        self.file = blocks.file
        self._images = images
        self._categories = categories
        self._rows: list[npt.NDArray[np.int32]] = []
        self._codes: list[Codes] = []
        self._boxed: list[npt.NDArray[np.bool_]] = []
        self._centers: list[Floats] = []
        self._sizes: list[Floats] = []
        self._masks = MaskColumns() if masks else None
        self.left_out = 0
        self.first_left_out: tuple[str, str, Any] | None = None  # annotation, category id and bbox
        count = 0
        for block in blocks.elements(skip=None if masks else "segmentation"):
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
        categories = column(self.file, "annotation", block, first, "category_id")

        def said(place: int) -> str:
            return f"{name_of('annotation', first + place, block[place])}: category_id {categories[place]!r}"

        self._codes.append(self._categories.code(categories, said))
        single = np.asarray([not annotation.get("iscrowd", 0) for annotation in block], dtype=np.bool_)
        chosen = np.flatnonzero(single)
        low, high = self._edges(block, first, chosen, self._images.sizes[rows[chosen]])
        inside = np.all(low < high, axis=1)
        for place in np.flatnonzero(np.all(low == high, axis=1)).tolist():  # a point, as write_labels has it
            number = int(chosen[place])
            if block[number].get("num_keypoints"):
                inside[place] = True
                if "keypoints" in block[number]:
                    size = self._images.sizes[rows[number]]
                    low[place] = high[place] = _point(self.file, first + number, block[number], size)
        single[chosen] = inside
        lost = chosen[~inside]
        if len(lost) and self.first_left_out is None:
            place = int(lost[0])
            name = name_of("annotation", first + place, block[place])
            self.first_left_out = name, str(categories[place]), block[place]["bbox"]
        self.left_out += len(lost)
        self._boxed.append(single)
        self._centers.append(((low + high) / 2)[inside].astype(np.float32))
        self._sizes.append((high - low)[inside].astype(np.float32))
        if self._masks is not None:
            for place in np.flatnonzero(single).tolist():
                width, height = (round(side) for side in self._images.sizes[rows[place]].tolist())
                self._masks.add(mask_of(self.file, first + place, block[place], width, height))

    def _edges(self, block: list[Any], first: int, chosen: Rows, sizes: Any) -> tuple[Any, Any]:
        """Upper left and lower right corners of the boxes of some annotations, clipped to their images."""
        numbers = _boxes([block[place].get("bbox") for place in chosen.tolist()])
        if numbers is None:
            for place in chosen.tolist():
                _refuse_box(self.file, first + place, block[place])
            raise DataError(f"{self.file}: a bbox has a number too large to be one of pixels")
        low, high = numbers[:, :2] / sizes, (numbers[:, :2] + numbers[:, 2:]) / sizes
        return np.maximum(low, 0.0), np.minimum(high, 1.0)

    def with_any(self) -> npt.NDArray[np.bool_]:
        """(N,) Whether an image has an annotation of whatever kind, or a category was looked for on it."""
        found = np.zeros(len(self._images.ids), dtype=np.bool_)
        for rows in self._rows:
            found[rows] = True
        for looked_at, _, _ in self._images.verified or []:
            found[looked_at] = True
        return found

    def build(self, class_of: dict[str, int], kept: Rows) -> tuple[Labels, SpatialLabels, Masks | None]:
        """Labels, marks and masks of the images in rows ``kept``; what was read is given up on the way."""
        classes = self._categories.classes(class_of)
        new_row = np.full(len(self._images.ids), -1, dtype=np.int64)
        new_row[kept] = np.arange(len(kept))
        verified = self._images.verified
        rest = NEGATIVE if verified is None else UNKNOWN
        values = np.full((len(kept), len(class_of)), rest, dtype=np.int8)
        for rows, codes, value in verified or []:
            values[new_row[rows], classes[codes]] = value
        count = sum(int(boxed.sum()) for boxed in self._boxed)
        mark_rows, mark_classes = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int32)
        start = 0
        for part, boxed in enumerate(self._boxed):
            rows, indices = new_row[self._rows[part]], classes[self._codes[part]]
            if verified is not None:
                self._refuse_contradiction(values, rows, indices, class_of, kept)
            values[rows, indices] = POSITIVE
            end = start + int(boxed.sum())
            mark_rows[start:end], mark_classes[start:end] = rows[boxed], indices[boxed]
            start = end
        self._rows, self._codes, self._boxed = [], [], []
        centers, self._centers = _joined(self._centers), []
        sizes, self._sizes = _joined(self._sizes), []
        masks = self._masks.build() if self._masks is not None else None
        if (mark_rows[1:] < mark_rows[:-1]).any():
            order = np.argsort(mark_rows, kind="stable")
            mark_rows, mark_classes = mark_rows[order], mark_classes[order]
            centers = centers[order]
            sizes = sizes[order]
            masks = masks.take(order) if masks is not None else None
        return values, SpatialLabels(mark_rows, mark_classes, centers, sizes, check=False), masks

    def _refuse_contradiction(
        self, values: Labels, rows: Rows, indices: Codes, class_of: dict[str, int], kept: Rows
    ) -> None:
        wrong = values[rows, indices] == NEGATIVE
        if wrong.any():
            place = int(np.argmax(wrong))
            image, category = self._images.ids[kept[rows[place]]], [*class_of][indices[place]]
            raise DataError(
                f"{self.file}: image {image} has category {category} in neg_category_ids, and an annotation "
                "of it: remove one of the two"
            )


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty((0, 2), dtype=np.float32)


def _point(file: Path, number: int, annotation: dict[str, Any], size: Any) -> Any:
    """(2,) The first labeled key point of an annotation, in shares of the image's size (2,)."""
    name, given = name_of("annotation", number, annotation), annotation.get("keypoints")
    triples = isinstance(given, list) and len(given) % 3 == 0 and any(given[2::3])
    if not isinstance(given, list) or not triples or not all(isinstance(one, int | float) for one in given):
        raise DataError(
            f"{file}: {name} has num_keypoints and no box, but its keypoints are {given!r}: they must be "
            "x, y and visibility of each, one of them labeled (1 or 2)"
        )
    place = next(place for place in range(0, len(given), 3) if given[place + 2])
    point = np.asarray(given[place : place + 2], dtype=np.float64) / size
    if not ((point >= 0) & (point <= 1)).all():
        raise DataError(
            f"{file}: {name}: the key point {given[place]}, {given[place + 1]} lies outside its image of "
            f"{size[0]:g} x {size[1]:g} pixels"
        )
    return point


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
