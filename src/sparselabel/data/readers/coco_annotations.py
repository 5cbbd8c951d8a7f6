"""The list "annotations" of a COCO-style file as columns, and what it makes of labels and marks.

An annotation takes 25 bytes until all are read, and its mask some tens to hundreds. Where nobody wants masks,
outlines ("segmentation", four fifths of a file) are not even parsed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.data.masks import MaskColumns, Masks
from sparselabel.data.readers.coco_images import CategoryCodes, Codes, Images, Rows, column, name_of
from sparselabel.data.readers.coco_masks import mask_of
from sparselabel.data.readers.json_stream import JsonBlocks
from sparselabel.data.spatial_labels import Floats, Marks
from sparselabel.errors import DataError


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
        self._centres: list[Floats] = []
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
        self._centres.append(((low + high) / 2)[inside].astype(np.float32))
        self._sizes.append((high - low)[inside].astype(np.float32))
        if self._masks is not None:
            for place in np.flatnonzero(single).tolist():
                width, height = (round(side) for side in self._images.sizes[rows[place]].tolist())
                self._masks.add(mask_of(self.file, first + place, block[place], width, height))

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
        """(N,) Whether an image has an annotation of whatever kind, or a category was looked for on it."""
        found = np.zeros(len(self._images.ids), dtype=np.bool_)
        for rows in self._rows:
            found[rows] = True
        for looked_at, _, _ in self._images.verified or []:
            found[looked_at] = True
        return found

    def build(self, class_of: dict[str, int], kept: Rows) -> tuple[Labels, Marks, Masks | None]:
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
        centres, self._centres = _joined(self._centres), []
        sizes, self._sizes = _joined(self._sizes), []
        masks = self._masks.build() if self._masks is not None else None
        if (mark_rows[1:] < mark_rows[:-1]).any():
            order = np.argsort(mark_rows, kind="stable")
            mark_rows, mark_classes = mark_rows[order], mark_classes[order]
            centres = centres[order]
            sizes = sizes[order]
            masks = masks.take(order) if masks is not None else None
        return values, Marks(mark_rows, mark_classes, centres, sizes, check=False), masks

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
    """(2,) The first labelled key point of an annotation, in shares of the picture's size (2,)."""
    name, given = name_of("annotation", number, annotation), annotation.get("keypoints")
    triples = isinstance(given, list) and len(given) % 3 == 0 and any(given[2::3])
    if not isinstance(given, list) or not triples or not all(isinstance(one, int | float) for one in given):
        raise DataError(
            f"{file}: {name} has num_keypoints and no box, but its keypoints are {given!r}: they must be "
            "x, y and visibility of each, one of them labelled (1 or 2)"
        )
    place = next(place for place in range(0, len(given), 3) if given[place + 2])
    point = np.asarray(given[place : place + 2], dtype=np.float64) / size
    if not ((point >= 0) & (point <= 1)).all():
        raise DataError(
            f"{file}: {name}: the key point {given[place]}, {given[place + 1]} lies outside its picture of "
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
