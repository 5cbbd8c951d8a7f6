"""The two shapes of a table of labels: long (one label a row) and wide (one picture a row)."""

import math
import posixpath
import warnings
from array import array
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.data.readers.common import SPLITS, Box, MarkColumns
from sparselabel.data.readers.csv_parquet import Cells
from sparselabel.data.spatial_labels import Marks
from sparselabel.errors import DataError, DataWarning, listing, nearest

Integers = npt.NDArray[np.integer]

CODES = {"1": POSITIVE, "0": NEGATIVE, "": UNKNOWN, "nan": UNKNOWN, "?": UNKNOWN}


class Content(NamedTuple):
    """What a table says of its pictures: N × L values and marks."""

    classes: tuple[str, ...]
    values: Labels
    marks: Marks


class Pictures:
    """The pictures of a table in order of first appearance, with their line and split."""

    def __init__(self, cells: Cells, image: str, split: str) -> None:
        self.cells = cells
        self.image = cells.column(image)
        self.split = cells.header.index(split) if split in cells.header else None
        self.columns = {index for index in (self.image, self.split) if index is not None}
        self.row_of: dict[str, int] = {}
        self.lines = array("q")
        self.splits = array("b")  # index into SPLITS

    def row(self, line: int, cells: Sequence[str]) -> int:
        """The row of a line's picture, a new one if it is new."""
        name = cells[self.image].strip()
        if "./" in name or "//" in name:  # one picture, one id, however its path is written
            name = posixpath.normpath(name)
        code = 0 if self.split is None else self._split(line, cells[self.split])
        row = self.row_of.setdefault(name, len(self.lines))
        if row == len(self.lines):
            if not name:
                raise self.cells.wrong(line, "the picture's name is empty")
            self.lines.append(line)
            self.splits.append(code)
        elif self.splits[row] != code:
            raise self.cells.wrong(
                line,
                f"picture {name!r} is in split {SPLITS[code]!r} here and in {SPLITS[self.splits[row]]!r} "
                f"on {self.cells.place} {self.lines[row]:,}",
            )
        return row

    def _split(self, line: int, text: str) -> int:
        name = text.strip()
        if name not in SPLITS:
            raise self.cells.wrong(line, f"split {name!r} is unknown: {nearest(name, SPLITS)}")
        return SPLITS.index(name)


def read_wide(cells: Cells, pictures: Pictures) -> Content:
    """One picture a row; every column that is not the picture's or the split's is a class, in their order."""
    columns = [index for index in range(len(cells.header)) if index not in pictures.columns]
    if not columns:
        raise DataError(
            f"{cells.file} has neither a column of labels nor columns of classes: {listing(cells.header)}"
        )
    classes = tuple(cells.header[index] for index in columns)
    pick = itemgetter(*columns, columns[0])  # one column more, since for a single one it gives no tuple
    codes = dict(CODES)
    values = array("b")
    for line, row in cells.rows:
        before = len(pictures.lines)
        picture = pictures.row(line, row)
        if picture < before:
            first = f"{cells.place} {pictures.lines[picture]:,}"
            raise cells.wrong(line, f"picture {row[pictures.image]!r} is on {first} already")
        picked = pick(row)[:-1]
        try:
            values.extend([codes[cell] for cell in picked])
        except KeyError:
            for name, cell in zip(classes, picked, strict=True):
                codes[cell] = label_code(cells, line, name, cell)
            values.extend([codes[cell] for cell in picked])
    return Content(classes, np.asarray(values, dtype=np.int8).reshape(-1, len(classes)), Marks.none())


def read_long(cells: Cells, pictures: Pictures, label: str, value: str, separator: str | None) -> Content:
    """One label a row, or several in a cell; classes are sorted, what is not mentioned is UNKNOWN."""
    at_label = cells.column(label)
    at_value = cells.header.index(value) if value in cells.header else None
    at_mark = [cells.header.index(name) for name in _mark_columns(cells)]
    _warn_of_unused(cells, {*pictures.columns, at_label, at_value, *at_mark})
    codes = dict(CODES)
    index_of: dict[str, int] = {}
    rows, indices, values, lines = array("q"), array("i"), array("b"), array("q")
    marks = MarkColumns()
    for line, row in cells.rows:
        picture = pictures.row(line, row)
        texts = (row[at_label],) if separator is None else row[at_label].split(separator)
        names = [name for text in texts if (name := text.strip())]
        code = POSITIVE
        if at_value is not None:
            cell = row[at_value]
            if cell not in codes:
                codes[cell] = label_code(cells, line, value, cell)
            code = codes[cell]
            if not names and code != UNKNOWN:
                raise cells.wrong(line, f"{value} {cell!r} without the label that it is for")
        for name in names:
            rows.append(picture)
            indices.append(index_of.setdefault(name, len(index_of)))
            values.append(code)
            lines.append(line)
        if at_mark and any(place := [row[index].strip() for index in at_mark]):
            if len(names) != 1:
                raise cells.wrong(line, f"a point or box needs one label, not {row[at_label]!r}")
            if code != POSITIVE:
                said = "absent" if code == NEGATIVE else "unknown"
                raise cells.wrong(
                    line,
                    f"a point or box at {', '.join(place)} of {names[0]!r}, which is marked {said} here: "
                    f"give it the {value} 1, or leave the place empty",
                )
            marks.add(picture, index_of[names[0]], _box(cells, line, names[0], place))
    classes = tuple(sorted(index_of))
    rank = np.empty(len(classes), dtype=np.int32)
    rank[[index_of[name] for name in classes]] = np.arange(len(classes), dtype=np.int32)
    keys = np.asarray(rows, np.int64) * len(classes) + rank[np.asarray(indices, np.intp)]
    shape = (len(pictures.lines), len(classes))
    filled = _fill(cells, shape, keys, np.asarray(values), np.asarray(lines))
    built = marks.build()
    return Content(classes, filled, replace(built, classes=rank[built.classes]))


def label_code(cells: Cells, line: int, column: str, cell: str) -> int:
    """The label that a cell's text stands for, or an error that says what is wrong with it."""
    text = cell.strip().lower()
    if text in CODES:
        return CODES[text]
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if number in (POSITIVE, NEGATIVE):
        return int(number)
    why = f"must be 1 (there), 0 (not there) or empty (unknown), not {cell!r}"
    if number == -1:
        why += "; -1 is taken for 'not there' by some and for 'unknown' by others: write 0 or nothing"
    elif 0 < number < 1:
        why += "; this is a score, not a label: write 1 or 0, or give a file of scores with --scores"
    elif math.isnan(number):
        why += "; if a column holds the labels' names, say which with --label"
    raise cells.wrong(line, f"column {column!r} {why}")


def _mark_columns(cells: Cells) -> tuple[str, ...]:
    """The columns of points and boxes that the table has: x and y, and perhaps w and h."""
    found = tuple(name for name in ("x", "y", "w", "h") if name in cells.header)
    if found not in ((), ("x", "y"), ("x", "y", "w", "h")):
        raise DataError(
            f"{cells.file}: points need columns x and y, boxes x, y, w and h; found only {', '.join(found)}"
        )
    return found


def _warn_of_unused(cells: Cells, used: set[int | None]) -> None:
    unused = [name for index, name in enumerate(cells.header) if index not in used]
    if unused:
        warnings.warn(
            f"{cells.file}: columns that are not used: {listing(unused)}", DataWarning, stacklevel=4
        )


def _box(cells: Cells, line: int, name: str, texts: Sequence[str]) -> Box:
    """The point x, y, or the box of size w, h around it as far as it lies inside the picture."""
    try:
        numbers = [float(text) for text in texts if text]
    except ValueError:
        numbers = []
    filled = [bool(text) for text in texts]
    if filled in ([True, True], [True, True, False, False]) and len(numbers) == 2:
        x, y, w, h = *numbers, 0.0, 0.0
        right = 0 <= x <= 1 and 0 <= y <= 1
    elif all(filled) and len(numbers) == 4:
        x, y, w, h = numbers
        right = 0 <= x <= 1 and 0 <= y <= 1 and 0 < w <= 1 and 0 < h <= 1
    else:
        right = False
    if not right:
        raise cells.wrong(
            line,
            f"{name!r}: a point is x, y and a box is its centre x, y and its size w, h (above 0), all in "
            f"shares (0..1) of the picture's width and height, not {', '.join(texts)}",
        )
    return Box(max(x - w / 2, 0.0), max(y - h / 2, 0.0), min(x + w / 2, 1.0), min(y + h / 2, 1.0))


def _fill(cells: Cells, shape: tuple[int, int], keys: Integers, values: Integers, lines: Integers) -> Labels:
    """Labels of which those at ``keys`` (row · L + class) are given; two values for one are an error."""
    known = values != UNKNOWN
    keys, values, lines = keys[known], values[known], lines[known]
    order = np.argsort(keys, kind="stable")
    differ = np.flatnonzero((np.diff(keys[order]) == 0) & (np.diff(values[order]) != 0))
    if len(differ):
        first, second = order[differ[0]], order[differ[0] + 1]
        raise cells.wrong(
            int(lines[second]),
            f"value {values[second]}, but {values[first]} on {cells.place} {lines[first]:,} "
            f"for the same picture and label: remove one of the two",
        )
    labels = np.full(shape, UNKNOWN, dtype=np.int8)
    labels.reshape(-1)[keys] = values
    return labels
