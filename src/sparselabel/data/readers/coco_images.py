"""The lists "images" and "categories" of a COCO-style file as columns, and ids as numbers.

What grows with the number of images is arrays; ids are found by search in sorted ones.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, Texts, refuse_duplicates
from sparselabel.data.readers.common import naming
from sparselabel.data.readers.json_stream import JsonBlocks
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
