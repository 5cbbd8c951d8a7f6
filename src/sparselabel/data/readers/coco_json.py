"""The lists "images" and "annotations" of a COCO-style file as columns, made into labels and spatial labels.

An annotation takes 25 bytes until all are read, and its mask some tens to hundreds. If masks are not needed,
outlines ("segmentation", four fifths of a file) are not parsed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pycocotools import mask as run_lengths

from sparselabel.data.label_table import refuse_duplicates, refuse_odd_names
from sparselabel.data.labels import NEGATIVE, POSITIVE, LabelMatrix, SparseLabels, Texts, compact
from sparselabel.data.masks import MaskColumns, Masks, pixels_of
from sparselabel.data.readers.json_stream import JsonBlocks
from sparselabel.data.spatial_labels import Floats, SpatialLabels
from sparselabel.errors import DataError, shown
from sparselabel.file_formats import naming

Rows = npt.NDArray[np.int64]
Keys = npt.NDArray[Any]
Codes = npt.NDArray[np.int32]

VERIFIED = {"neg_category_ids": NEGATIVE, "pos_category_ids": POSITIVE}
"""An image's lists of verified categories: the first is LVIS's, the second ours."""


LONGEST_OUTLINE = 1e6  # pixels
FARTHEST = 1e8  # pixels from the image's corner: pycocotools computes in 32 bits, with fifths of pixels


class CategoryCodes:
    """Category ids as numbers in order of appearance, as the list of categories may come later."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._first: dict[str, tuple[int, str]] = {}  # id -> its code, and what to say of its first use

    def code(self, ids: Sequence[Any], describe: Callable[[int], str]) -> Codes:
        """(B,) The codes of some ids; ``describe(position)`` names one of them in a message."""
        unique, positions, inverse = np.unique(_keys(ids), return_index=True, return_inverse=True)
        codes = np.empty(len(unique), dtype=np.int32)
        for index, (key, position) in enumerate(zip(unique.tolist(), positions.tolist(), strict=True)):
            if str(key) not in self._first:
                self._first[str(key)] = (len(self._first), describe(position))
            codes[index] = self._first[str(key)][0]
        return codes[inverse]

    def classes(self, class_of: dict[str, int]) -> npt.NDArray[np.int32]:
        """Code -> class, or an error for a category that is not listed."""
        for key, (_, first_use) in self._first.items():
            if key not in class_of:
                raise DataError(f"{self.file}: {first_use} is not among the categories")
        return np.asarray([class_of[key] for key in self._first], dtype=np.int32)


class Images:
    """The list "images": ids, file names and sizes of N images; rows are the ids sorted as strings.

    ``verified`` are (rows, category codes, label) of verified categories, or None if there are none.
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
            # LVIS has an address instead of a file name.
            texts = (str(image.get("file_name") or image.get("coco_url") or "") for image in block)
            names.append(np.asarray([text.encode(errors="replace") for text in texts]))
            labels = _verified(block, ids, categories)
            if labels:
                verified = (verified or []) + [(rows + count, codes, value) for rows, codes, value in labels]
            count += len(block)
        if not count:
            raise DataError(f"{file}: 'images' is empty")
        self._find_by_number = all(block.dtype.kind == "i" for block in keys)
        given: Keys = np.concatenate(
            keys if self._find_by_number else [block.astype(np.str_) for block in keys]
        )
        # Digits sort the same as bytes, which are shorter.
        given_texts: Keys = given.astype(np.bytes_) if self._find_by_number else given
        order = np.argsort(given_texts, kind="stable")
        self.names = np.concatenate(names)[order]
        self.sizes = np.concatenate(sizes)[order]
        longest = max(int(np.strings.str_len(given_texts).max()), 1)
        self.ids: Texts = given_texts[order].astype(f"U{longest}")
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
        """The rows of some ids; -1 for unknown ids."""
        keys = _keys(ids)
        known, rows = self._sorted, self._rows
        if not (self._find_by_number and keys.dtype.kind == "i"):
            keys, known, rows = keys.astype(np.str_), self.ids, np.arange(len(self.ids))
        position = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[position] == keys, rows[position], -1)


def read_categories(file: Path, categories: list[Any]) -> dict[str, tuple[int, str]]:
    """Category id -> class index and name, in the file's order."""
    if not categories:
        raise DataError(f"{file}: 'categories' is empty")
    names = [str(name) for name in column(file, "category", categories, 0, "name")]
    keys = [str(key) for key in column(file, "category", categories, 0, "id")]
    with naming(file):
        refuse_odd_names("class", names)
        refuse_duplicates("category", np.asarray(names, dtype=np.str_))
        refuse_duplicates("category id", np.asarray(keys, dtype=np.str_))
    return {key: (index, name) for index, (key, name) in enumerate(zip(keys, names, strict=True))}


def column(file: Path, kind: str, block: list[Any], first: int, key: str) -> list[Any]:
    """A member of all records of a block, of which the first is number ``first`` of its list."""
    for position, record in enumerate(block):
        if not isinstance(record, dict) or key not in record:
            name = name_of(kind, first + position, record)
            raise DataError(f"{file}: {name} has no {key!r}: {shown(record)}")
    return [record[key] for record in block]


def name_of(kind: str, position: int, record: Any) -> str:
    """A record's name in messages: its id, or its position in the list."""
    known = isinstance(record, dict) and "id" in record
    return f"{kind} {record['id']}" if known else f"{kind} at position {position:,} (counted from 0)"


def _keys(ids: Sequence[Any]) -> Keys:
    """Ids as whole numbers if all of them are, else as texts."""
    if all(type(key) is int for key in ids):
        try:
            return np.asarray(ids, dtype=np.int64)
        except OverflowError:
            pass
    return np.asarray([str(key) for key in ids], dtype=np.str_)


def _sizes(file: Path, ids: list[Any], block: list[Any]) -> npt.NDArray[np.float64]:
    """(B, 2) widths and heights."""
    for key, image in zip(ids, block, strict=True):
        width, height = image.get("width"), image.get("height")
        if not all(isinstance(side, int | float) and 0 < side <= LONGEST_SIDE for side in (width, height)):
            rule = f"must have a width and a height above 0 and up to {LONGEST_SIDE:,}"
            raise DataError(f"{file}: image {key} {rule}, not {shown(width)} and {shown(height)}")
    return np.asarray([(image["width"], image["height"]) for image in block], dtype=np.float64).reshape(-1, 2)


def _verified(block: list[Any], ids: list[Any], categories: CategoryCodes) -> list[tuple[Rows, Codes, int]]:
    """(positions in the block, category codes, label) for each list of ``VERIFIED`` that its images have."""
    verified = []
    for key, value in VERIFIED.items():
        lists = [image.get(key) for image in block]
        for image, given in zip(ids, lists, strict=True):
            if given is not None and not isinstance(given, list):
                problem = f"image {shown(image)}: {key} must be a list of ids, not {shown(given)}"
                raise DataError(f"{categories.file}: {problem}", what=categories.file, value=given)
        if any(given is not None for given in lists):
            rows = [row for row, given in enumerate(lists) for _ in given or []]
            looked_for = [category for given in lists for category in given or []]

            def describe(
                at: int, rows: list[int] = rows, names: list[Any] = looked_for, key: str = key
            ) -> str:
                return f"image {ids[rows[at]]}: {names[at]!r} of {key}"

            codes = categories.code(looked_for, describe)
            verified.append((np.asarray(rows, dtype=np.int64), codes, value))
    return verified


LONGEST_SIDE = 1_000_000  # pixels
MOST_PIXELS = 1 << 31  # of a mask: run lengths have 32 bits
CORNERS = 3  # of a polygon, at least


def mask_of(file: Path, position: int, annotation: Any, width: int, height: int) -> dict[str, Any] | None:
    """The mask of an annotation in pycocotools' form; None if it has none, or one without a pixel."""
    given = annotation.get("segmentation")
    if not given:
        return None
    try:
        if height * width > MOST_PIXELS:
            raise ValueError(f"and masks have at most {MOST_PIXELS:,} pixels")
        rle = _runs(given, height, width) if isinstance(given, dict) else _filled(given, height, width)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise DataError(
            f"{file}: {name_of('annotation', position, annotation)}: segmentation must be polygons "
            f"[[x, y, x, y, ...], ...] or run lengths of the image's {height} × {width} pixels ({error}): "
            f"{shown(given)}"
        ) from error
    return rle if rle is not None and run_lengths.area(rle) else None


def _filled(polygons: Any, height: int, width: int) -> dict[str, Any] | None:
    """The pixels inside any of the polygons; those of less than three corners have none."""
    if not isinstance(polygons, list) or not all(isinstance(polygon, list) for polygon in polygons):
        raise TypeError("not a list of lists")
    outlines = [polygon for polygon in polygons if len(polygon) >= 2 * CORNERS]
    for polygon in outlines:
        numbers = np.asarray(polygon)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iuf" or len(polygon) % 2:
            raise ValueError("a polygon is an even number of numbers")
        if not np.isfinite(numbers).all():
            raise ValueError("a polygon's numbers must be finite")
        _refuse_endless(numbers.astype(np.float64).reshape(-1, 2))
    if not outlines:
        return None
    rle: dict[str, Any] = run_lengths.merge(run_lengths.frPyObjects(outlines, height, width))
    return rle


def _refuse_endless(corners: npt.NDArray[np.float64]) -> None:
    """Raise for an outline (n, 2) that would take gigabytes: pycocotools keeps 80 bytes per pixel of it."""
    farthest = float(np.abs(corners).max())
    if farthest > FARTHEST:
        raise ValueError(f"a corner at {farthest:.3g} is no place in an image")
    length = float(np.abs(corners - np.roll(corners, 1, axis=0)).max(axis=1).sum())
    if length > LONGEST_OUTLINE:
        raise ValueError(f"an outline is {length:.3g} pixels long, and at most {LONGEST_OUTLINE:.3g} may be")


def _runs(given: dict[str, Any], height: int, width: int) -> dict[str, Any]:
    if [*given["size"]] != [height, width]:
        raise ValueError(f"its size is {given['size']}")
    counts = given["counts"]
    if isinstance(counts, str):
        rle: dict[str, Any] = {"size": [height, width], "counts": counts.encode("ascii")}
        columns = MaskColumns()
        columns.add(rle)
        try:
            pixels = pixels_of(columns.build() or Masks.none(0))
        except DataError:
            raise ValueError("they are damaged") from None
    else:
        lengths = np.asarray(counts)
        if lengths.dtype.kind not in "iu" or lengths.ndim != 1 or lengths.min(initial=0) < 0:
            raise ValueError("run lengths are counts of pixels")
        if int(lengths.max(initial=0)) > height * width:  # before they are added: sums wrap
            raise ValueError(f"one of its runs is of {int(lengths.max()):,} pixels")
        pixels = int(lengths.sum())
        rle = {"size": [height, width], "counts": lengths.tolist()}
    if pixels != height * width:
        raise ValueError(f"its runs are of {pixels:,} pixels")
    return rle if isinstance(counts, str) else run_lengths.frPyObjects(rle, height, width)


class _Looked:
    """Labels if every category was verified on every image."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.values = np.full(shape, NEGATIVE, dtype=np.int8)

    def add(self, rows: Rows, classes: Codes) -> int | None:
        """Add annotations."""
        self.values[rows, classes] = POSITIVE
        return None

    def build(self) -> LabelMatrix:
        """(N, L) The labels."""
        return self.values


class _Listed:
    """Labels if images list their verified categories: rows, classes and labels."""

    def __init__(self, shape: tuple[int, int], listed: list[tuple[Rows, Codes, int]]) -> None:
        self.shape = shape
        self._entries = [(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int8))]
        for rows, classes, value in listed:
            self._add(rows, classes, value)
        self._listed = self._sparse()

    def add(self, rows: Rows, classes: Codes) -> int | None:
        """Add annotations; returns the first one whose category is labeled absent, if any."""
        wrong = self._listed[rows, classes] == NEGATIVE
        if wrong.any():
            return int(np.argmax(wrong))
        self._add(rows, classes, POSITIVE)
        return None

    def build(self) -> LabelMatrix:
        """(N, L) The labels."""
        return compact(self._sparse())

    def _add(self, rows: Rows, classes: Codes, value: int) -> None:
        values = np.full(len(rows), value, np.int8)
        self._entries.append((rows.astype(np.int32), classes.astype(np.int32), values))

    def _sparse(self) -> SparseLabels:
        rows, classes, values = (np.concatenate(column) for column in zip(*self._entries, strict=True))
        return SparseLabels.of_entries(rows, classes, values, self.shape)


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
        self._centers: list[Floats] = [np.empty((0, 2), dtype=np.float32)]
        self._sizes: list[Floats] = [np.empty((0, 2), dtype=np.float32)]
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
            position = int(np.argmax(rows < 0))
            name = name_of("annotation", first + position, block[position])
            raise DataError(f"{self.file}: {name}: image_id {ids[position]!r} is not among the images")
        self._rows.append(rows.astype(np.int32))
        categories = column(self.file, "annotation", block, first, "category_id")

        def describe(position: int) -> str:
            name = name_of("annotation", first + position, block[position])
            return f"{name}: category_id {categories[position]!r}"

        self._codes.append(self._categories.code(categories, describe))
        single = np.asarray([not annotation.get("iscrowd", 0) for annotation in block], dtype=np.bool_)
        chosen = np.flatnonzero(single)
        low, high = self._edges(block, first, chosen, self._images.sizes[rows[chosen]])
        inside = np.all(low < high, axis=1)
        for position in np.flatnonzero(np.all(low == high, axis=1)).tolist():  # a point
            number = int(chosen[position])
            if block[number].get("num_keypoints"):
                inside[position] = True
                if "keypoints" in block[number]:
                    size = self._images.sizes[rows[number]]
                    low[position] = high[position] = _point(self.file, first + number, block[number], size)
        single[chosen] = inside
        lost = chosen[~inside]
        if len(lost) and self.first_left_out is None:
            position = int(lost[0])
            name = name_of("annotation", first + position, block[position])
            self.first_left_out = name, str(categories[position]), block[position]["bbox"]
        self.left_out += len(lost)
        self._boxed.append(single)
        self._centers.append(((low + high) / 2)[inside].astype(np.float32))
        self._sizes.append((high - low)[inside].astype(np.float32))
        if self._masks is not None:
            for position in np.flatnonzero(single).tolist():
                width, height = (round(side) for side in self._images.sizes[rows[position]].tolist())
                self._masks.add(mask_of(self.file, first + position, block[position], width, height))

    def _edges(self, block: list[Any], first: int, chosen: Rows, sizes: Any) -> tuple[Any, Any]:
        """Upper left and lower right corners of the boxes of some annotations, clipped to their images."""
        numbers = _boxes([block[position].get("bbox") for position in chosen.tolist()])
        if numbers is None:
            for position in chosen.tolist():
                annotation = block[position]
                name = f"{self.file}: {name_of('annotation', first + position, annotation)}"
                if "bbox" not in annotation:
                    raise DataError(f"{name} has no 'bbox': {shown(annotation)}")
                if _boxes([box := annotation["bbox"]]) is None:
                    raise DataError(f"{name}: bbox must be [x, y, width, height] in pixels, not {shown(box)}")
            raise DataError(f"{self.file}: a bbox has a number too large to be one of pixels")
        low, high = numbers[:, :2] / sizes, (numbers[:, :2] + numbers[:, 2:]) / sizes
        return np.maximum(low, 0.0), np.minimum(high, 1.0)

    def with_any(self) -> npt.NDArray[np.bool_]:
        """(N,) Whether an image has any annotation, or a verified category."""
        annotated = np.zeros(len(self._images.ids), dtype=np.bool_)
        for annotated_rows in self._rows:
            annotated[annotated_rows] = True
        for rows, _, _ in self._images.verified or []:
            annotated[rows] = True
        return annotated

    def build(
        self, class_of: dict[str, int], selected: Rows
    ) -> tuple[LabelMatrix, SpatialLabels, Masks | None]:
        """Labels, spatial labels and masks of the images ``selected``; frees the columns on the way."""
        classes = self._categories.classes(class_of)
        new_row = np.full(len(self._images.ids), -1, dtype=np.int64)
        new_row[selected] = np.arange(len(selected))
        verified, shape = self._images.verified, (len(selected), len(class_of))
        labels: _Looked | _Listed = _Looked(shape)
        if verified is not None:
            with naming(self.file):
                labels = _Listed(shape, [(new_row[rows], classes[codes], v) for rows, codes, v in verified])
        count = sum(int(boxed.sum()) for boxed in self._boxed)
        label_rows, label_classes = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int32)
        start = 0
        for block, boxed in enumerate(self._boxed):
            rows, indices = new_row[self._rows[block]], classes[self._codes[block]]
            first = labels.add(rows, indices)
            if first is not None:
                image, category = self._images.ids[selected[rows[first]]], [*class_of][indices[first]]
                both = f"image {image} has category {category} in neg_category_ids, and an annotation of it"
                raise DataError(f"{self.file}: {both}", "remove one of the two")
            end = start + int(boxed.sum())
            label_rows[start:end], label_classes[start:end] = rows[boxed], indices[boxed]
            start = end
        self._rows, self._codes, self._boxed = [], [], []
        centers, self._centers = np.concatenate(self._centers), []
        sizes, self._sizes = np.concatenate(self._sizes), []
        masks = self._masks.build() if self._masks is not None else None
        if (label_rows[1:] < label_rows[:-1]).any():
            order = np.argsort(label_rows, kind="stable")
            label_rows, label_classes = label_rows[order], label_classes[order]
            centers, sizes = centers[order], sizes[order]
            masks = masks.take(order) if masks is not None else None
        return labels.build(), SpatialLabels(label_rows, label_classes, centers, sizes, check=False), masks


def _point(file: Path, number: int, annotation: dict[str, Any], size: Any) -> Any:
    """(2,) The first labeled key point of an annotation, in shares of the image's size (2,)."""
    name, given = name_of("annotation", number, annotation), annotation.get("keypoints")
    triples = isinstance(given, list) and len(given) % 3 == 0 and any(given[2::3])
    if not isinstance(given, list) or not triples or not all(isinstance(one, int | float) for one in given):
        raise DataError(
            f"{file}: {name} has num_keypoints and no box, but its keypoints are {shown(given)}: they must "
            "be x, y and visibility of each, one of them labeled (1 or 2)"
        )
    start = next(start for start in range(0, len(given), 3) if given[start + 2])
    point = np.asarray(given[start : start + 2], dtype=np.float64) / size
    if not ((point >= 0) & (point <= 1)).all():
        raise DataError(
            f"{file}: {name}: the key point {given[start]}, {given[start + 1]} lies outside its image of "
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
