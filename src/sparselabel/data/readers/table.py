"""Labels in a table of your own: CSV, TSV or Parquet, in one of two shapes.

    long, one label per row                         wide, one image per row
    image,label[,value][,x,y[,w,h]][,split]         image,cat,dog,bird[,split]
    a.jpg,cat,1                                     a.jpg,1,0,
    a.jpg,dog,0                                     b.jpg,,1,1

A value is 1 (there), 0 (not there) or empty (nobody looked; "nan" and "?" mean the same).
"""

import csv
import math
import posixpath
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, LabelTable, Texts
from sparselabel.data.readers.csv_parquet import Cells, open_cells
from sparselabel.data.readers.raw_dataset import (
    IMAGES_FOLDER,
    LEAST_SIDE,
    SPLITS,
    Box,
    Listing,
    RawDataset,
    RawSplit,
    SpatialLabelColumns,
    by_split,
    images_folder,
    warn,
)
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import DataError, counted, listing, nearest, param

Integers = npt.NDArray[np.integer]

CODES = {"1": POSITIVE, "0": NEGATIVE, "": UNKNOWN, "nan": UNKNOWN, "?": UNKNOWN}


Content = tuple[tuple[str, ...], Labels, SpatialLabels]
"""The classes, and the labels (N, L) and spatial labels of a table's images."""


class Images:
    """The images of a table in order of first appearance, with their line and split."""

    def __init__(self, cells: Cells, image: str, split: str) -> None:
        self.cells = cells
        self.image = cells.column(image, "image")
        self.split = cells.header.index(split) if split in cells.header else None
        self.columns = {index for index in (self.image, self.split) if index is not None}
        self.row_of: dict[str, int] = {}
        self.lines = array("q")
        self.splits = array("b")  # indices into SPLITS

    def row(self, line: int, cells: Sequence[str]) -> int:
        """The row of a line's image, a new one if it is new."""
        name = cells[self.image].strip()
        if "./" in name or "//" in name:  # one image, one id, however its path is written
            name = posixpath.normpath(name)
        split = "train" if self.split is None else cells[self.split].strip()
        if split not in SPLITS:
            raise self.cells.wrong(line, f"split {split!r} is unknown: {nearest(split, SPLITS)}")
        row = self.row_of.setdefault(name, len(self.lines))
        if row == len(self.lines):
            if not name:
                raise self.cells.wrong(line, "the image's name is empty")
            self.lines.append(line)
            self.splits.append(SPLITS.index(split))
        elif (first := SPLITS[self.splits[row]]) != split:
            before = f"{first!r} on {self.cells.row_name} {self.lines[row]:,}"
            raise self.cells.wrong(line, f"image {name!r} is in split {split!r} here and in {before}")
        return row


def read_wide(cells: Cells, images: Images) -> Content:
    """One image per row; every column that is not the image's or the split's is a class, in their order."""
    columns = [index for index in range(len(cells.header)) if index not in images.columns]
    if not columns:
        neither = "neither a column of labels nor columns of classes"
        raise DataError(f"{cells.file} has {neither}: {listing(cells.header)}")
    classes = tuple(cells.header[index] for index in columns)
    pick = itemgetter(*columns, columns[0])  # one column more, since for a single one it gives no tuple
    codes = dict(CODES)
    values = array("b")
    for line, row in cells.rows:
        before = len(images.lines)
        image = images.row(line, row)
        if image < before:
            first = f"{cells.row_name} {images.lines[image]:,}"
            raise cells.wrong(line, f"image {row[images.image]!r} is on {first} already")
        picked = pick(row)[:-1]
        try:
            values.extend([codes[cell] for cell in picked])
        except KeyError:
            for name, cell in zip(classes, picked, strict=True):
                codes[cell] = label_code(cells, line, name, cell)
            values.extend([codes[cell] for cell in picked])
    return classes, np.asarray(values, dtype=np.int8).reshape(-1, len(classes)), SpatialLabels.none()


def read_long(cells: Cells, images: Images, label: str, value: str, separator: str | None) -> Content:
    """One label per row, or several in a cell; classes are sorted, what is not mentioned is UNKNOWN."""
    at_label = cells.header.index(label)
    at_value = cells.header.index(value) if value in cells.header else None
    spatial = tuple(name for name in ("x", "y", "w", "h") if name in cells.header)
    if spatial not in ((), ("x", "y"), ("x", "y", "w", "h")):
        rule = "points need columns x and y, boxes x, y, w and h"
        raise DataError(f"{cells.file}: {rule}; found only {', '.join(spatial)}")
    at_coordinates = [cells.header.index(name) for name in spatial]
    used = {*images.columns, at_label, at_value, *at_coordinates}
    unused = [name for index, name in enumerate(cells.header) if index not in used]
    if unused:
        warn(f"{cells.file}: columns that are not used: {listing(unused)}")
    codes = dict(CODES)
    index_of: dict[str, int] = {}
    rows, indices, values, lines = array("q"), array("i"), array("b"), array("q")
    spatial_labels = SpatialLabelColumns()
    for line, row in cells.rows:
        image = images.row(line, row)
        texts = (row[at_label],) if separator is None else row[at_label].split(separator)
        names = [name for text in texts if (name := text.strip())]
        code = POSITIVE
        if at_value is not None:
            cell = row[at_value]
            if cell not in codes:
                codes[cell] = label_code(cells, line, value, cell, named=True)
            code = codes[cell]
            if not names and code != UNKNOWN:
                raise cells.wrong(line, f"{value} {cell!r} without the label that it is for")
        for name in names:
            rows.append(image)
            indices.append(index_of.setdefault(name, len(index_of)))
            values.append(code)
            lines.append(line)
        if at_coordinates and any(coordinates := [row[index].strip() for index in at_coordinates]):
            if len(names) != 1:
                raise cells.wrong(line, f"a point or box needs one label, not {row[at_label]!r}")
            if code != POSITIVE:
                state = "absent" if code == NEGATIVE else "unknown"
                raise cells.wrong(
                    line,
                    f"a point or box at {', '.join(coordinates)} of {names[0]!r}, which is {state} here",
                    f"give it the {value} 1",
                    "leave the coordinates empty",
                )
            spatial_labels.add(image, index_of[names[0]], _box(cells, line, names[0], coordinates))
    classes = tuple(sorted(index_of))
    rank = np.empty(len(classes), dtype=np.int32)
    rank[[index_of[name] for name in classes]] = np.arange(len(classes), dtype=np.int32)
    keys = np.asarray(rows, np.int64) * len(classes) + rank[np.asarray(indices, np.intp)]
    shape = (len(images.lines), len(classes))
    filled = _fill(cells, shape, keys, np.asarray(values), np.asarray(lines))
    built = spatial_labels.build()
    return classes, filled, replace(built, classes=rank[built.classes])


def label_code(cells: Cells, line: int, column: str, cell: str, named: bool = False) -> int:
    """The label that a cell's text stands for, or an error that says what is wrong with it.

    ``named``: the column of the labels' names is known.
    """
    text = cell.strip().lower()
    if text in CODES:
        return CODES[text]
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if number in (POSITIVE, NEGATIVE):
        return int(number)
    remedies: tuple[str, ...] = ()
    if number == -1:  # taken for "not there" by some and for "unknown" by others
        remedies = ("write 0 if it is not there, and nothing if it is unknown",)
    elif 0 < number < 1:
        remedies = ("write 1 or 0 instead of a score", f"give a file of scores as {param('scores')}")
    elif math.isnan(number) and not named:
        remedies = (f"if a column holds the labels' names, say which with {param('label')}",)
    problem = f"must be 1 (there), 0 (not there) or empty (unknown), not {cell!r}"
    raise cells.wrong(line, f"column {column!r} {problem}", *remedies)


def _box(cells: Cells, line: int, name: str, texts: Sequence[str]) -> Box:
    """The point x, y, or the box of size w, h around it as far as it lies inside the image."""
    point = not any(texts[2:])
    try:
        x, y, w, h = [float(text) for text in (texts[:2] if point else texts)] + [0.0, 0.0] * point
    except ValueError:
        x = y = w = h = math.nan
    if not (0 <= x <= 1 and 0 <= y <= 1 and (point or (LEAST_SIDE <= w <= 1 and LEAST_SIDE <= h <= 1))):
        raise cells.wrong(
            line,
            f"{name!r}: a point is x, y and a box is its center x, y and its size w, h (above 0), all in "
            f"shares (0..1) of the image's width and height, not {', '.join(texts)}",
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
            f"value {values[second]}, but {values[first]} on {cells.row_name} {lines[first]:,} "
            f"for the same image and label",
            "remove one of the two",
        )
    labels = np.full(shape, UNKNOWN, dtype=np.int8)
    labels.reshape(-1)[keys] = values
    return labels


def read_names(file: Path, codes: tuple[str, ...]) -> tuple[str, ...]:
    """The names of some classes; where several have one name, the code is put behind it."""
    name_of: dict[str, str] = {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            for row in reader:
                if not any(row):
                    continue
                where = f"{file}, line {reader.line_num:,}"
                if len(row) != 2 or not row[0].strip() or not row[1].strip():
                    raise DataError(f"{where}: must be a code and a name, not {listing(row)!r}")
                code, name = row[0].strip(), row[1].strip()
                if name_of.setdefault(code, name) != name:
                    raise DataError(f"{where}: {code!r} is {name!r} here and {name_of[code]!r} before")
    except (FileNotFoundError, IsADirectoryError):
        raise DataError(
            f"{file} is not there", "give a CSV file of codes and names", f"leave {param('names')} out"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} is not a CSV file in UTF-8: {error}") from error
    unknown = [code for code in codes if code not in name_of]
    if unknown:
        raise DataError(
            f"{file} has no name for {len(unknown):,} of {len(codes):,} labels: {listing(unknown)}",
            "give the file that belongs to the labels",
        )
    often = Counter(name_of[code] for code in codes)
    return tuple(
        name_of[code] if often[name_of[code]] == 1 else f"{name_of[code]} ({code})" for code in codes
    )


LABEL = "label"
SEPARATORS = (";", "|", ",")  # what people put between several labels in one cell


def read(
    source: Path,
    *,
    images: Path | None = None,
    image: str = "image",
    label: str = LABEL,
    value: str = "value",
    split: str = "split",
    separator: str | None = None,
    suffix: str = "",
    names: Path | None = None,
    skip_missing: bool = False,
) -> RawDataset:
    """Read a table: long if it has a column ``label``, else wide, where every other column is a class.

    Rows come in order of first appearance; classes in the columns' order (wide) or sorted (long). In a long
    table x and y are a point, with w and h the center of a box, in shares (0..1) of width and height.

    Parameters
    ----------
    source
        The CSV, TSV or Parquet file.
    images
        The images' folder, to which the image column is relative; by default the table's own.
    image
        Name of the column with the image's file.
    label
        Name of the column with the class (long). An empty cell is an image of which nothing is known.
    value
        Name of the column with 1, 0 or nothing (long); without it every row says 1.
    split
        Name of the column with train, val or test; without it all rows are train.
    separator
        What separates several classes in one cell (long).
    suffix
        What to put behind the image column to get a file's name (".jpg" where it holds bare ids).
    names
        A table of code and name, if the labels are codes (class-descriptions.csv of Open Images).
    skip_missing
        Leave out images whose file is not there, with a warning, instead of stopping.
    """
    with open_cells(source, image) as cells:
        listed = Images(cells, image, split)
        wide = label not in cells.header
        if wide and label != LABEL:
            cells.column(label, "label")  # whoever names it wants it
        classes, values, spatial_labels = (
            read_wide(cells, listed) if wide else read_long(cells, listed, label, value, separator)
        )
    classes = classes if names is None else read_names(names, classes)
    _warn_of_classes(source, classes, SEPARATORS if not wide else ())
    root = images_folder(images, source.parent)
    paths, there = _paths(listed, root, suffix, skip_missing)
    whole = RawSplit(LabelTable(paths, classes, values), paths, spatial_labels)
    splits = by_split(whole, np.where(there, np.asarray(listed.splits, dtype=np.int8), -1))
    if "train" not in splits:
        raise DataError(f"{source}: no row has split 'train', only {', '.join(splits)}")
    return RawDataset(source.stem, root, splits)


def _warn_of_classes(source: Path, classes: tuple[str, ...], separators: tuple[str, ...]) -> None:
    """Warn of class names that differ in nothing but case and spaces, and of those that look like several:

    a part of them is another class, or a part of one.
    """
    spellings: dict[str, list[str]] = {}
    for name in classes:
        spellings.setdefault(" ".join(name.split()).casefold(), []).append(repr(name))
    alike = [" and ".join(names) for names in spellings.values() if len(names) > 1]
    if alike:
        problem = f"{source}: classes that differ only in case or spaces: {listing(alike)}"
        warn(problem, "if they are the same, write them alike")
    for separator in separators:
        parts_of = {name: {part.strip() for part in name.split(separator)} for name in classes}
        times = Counter(part for parts in parts_of.values() for part in parts)
        several = [
            repr(name)
            for name, parts in parts_of.items()
            if separator in name and any(times[part] > 1 for part in parts)
        ]
        if several:
            warn(
                f"{source}: classes that look like several labels in one cell: {listing(several)}",
                f"if they are, give {param('separator', repr(separator))}",
                "write each label in a row of its own",
                "rename them if each is one",
            )


def _paths(
    images: Images, root: Path, suffix: str, skip_missing: bool
) -> tuple[Texts, npt.NDArray[np.bool_]]:
    """The images' paths, and which of them are in ``root``: all, unless others may be left out."""
    names = [name + suffix for name in images.row_of]
    if not names:
        raise DataError(f"{images.cells.file} has a header but no rows")
    files = Listing(root)
    there = np.asarray([name in files for name in names], dtype=np.bool_)
    paths = np.asarray(names, dtype=np.str_)
    outside = [name for name in names if name.startswith("/") or ".." in name.split("/")]
    if outside:
        warn(
            f"{images.cells.file}: {counted(len(outside), 'image')} named outside of {root}: "
            f"{listing(outside)}",
            "if nobody meant that, look at where the table comes from",
        )
    if not there.all():
        missing = paths[~there]
        problem = f"{len(missing):,} of {len(names):,} images are missing: {listing(missing)}"
        if not skip_missing or not there.any():
            raise images.cells.wrong(
                images.lines[int(np.argmin(there))],
                f"image {str(missing[0])!r} is not in {root}; {problem}",
                IMAGES_FOLDER,
                f"name what their names lack with {param('suffix')}",
                f"leave them out with {param('skip_missing', True)}",
            )
        warn(f"{images.cells.file}: {problem}; they were left out")
    return paths, there
