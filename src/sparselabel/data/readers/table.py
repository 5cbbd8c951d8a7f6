"""Labels in a table of your own: CSV, TSV or Parquet, in one of two shapes.

    long, one label a row                           wide, one picture a row
    image,label[,value][,x,y[,w,h]][,split]         image,cat,dog,bird[,split]
    a.jpg,cat,1                                     a.jpg,1,0,
    a.jpg,dog,0                                     b.jpg,,1,1

A value is 1 (there), 0 (not there) or empty (nobody looked; "nan" and "?" mean the same).
"""

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import LabelTable, Texts
from sparselabel.data.readers.common import SPLITS, Listing, require_folder
from sparselabel.data.readers.csv_parquet import open_cells
from sparselabel.data.readers.source import Source, Split
from sparselabel.data.readers.table_names import read_names
from sparselabel.data.readers.table_shapes import Pictures, read_long, read_wide
from sparselabel.errors import DataError, DataWarning, listing

SEPARATORS = (";", "|", ",")  # what people put between several labels in one cell


def read(
    source: Path,
    *,
    images: Path | None = None,
    image: str = "image",
    label: str = "label",
    value: str = "value",
    split: str = "split",
    separator: str | None = None,
    suffix: str = "",
    names: Path | None = None,
    skip_missing: bool = False,
) -> Source:
    """Read a table: long if it has a column ``label``, else wide, where every other column is a class.

    Rows come in order of first appearance; classes in the columns' order (wide) or sorted (long). In a long
    table x and y are a point, with w and h the centre of a box, in shares (0..1) of width and height.

    Parameters
    ----------
    source
        The CSV, TSV or Parquet file.
    images
        The pictures' folder, to which the image column is relative; by default the table's own.
    image
        Name of the column with the picture's file.
    label
        Name of the column with the class (long). An empty cell is a picture of which nothing is known.
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
        Leave out pictures whose file is not there, with a warning, instead of stopping.
    """
    with open_cells(source, image) as cells:
        pictures = Pictures(cells, image, split)
        wide = label not in cells.header
        content = read_wide(cells, pictures) if wide else read_long(cells, pictures, label, value, separator)
    classes = content.classes if names is None else read_names(names, content.classes)
    _warn_of_alike(source, classes)
    if not wide:
        _warn_of_several_in_one(source, classes)
    root = require_folder(images or source.parent)
    paths, there = _paths(pictures, root, suffix, skip_missing)
    table = LabelTable(paths, classes, content.values)
    codes = np.where(there, np.asarray(pictures.splits, dtype=np.int8), -1)
    splits: dict[str, Split] = {}
    for code, name in enumerate(SPLITS):
        rows = np.flatnonzero(codes == code)
        if len(rows) == len(table):
            splits[name] = Split(table, paths, content.marks)
        elif len(rows):
            splits[name] = Split(table.take(rows), paths[rows], content.marks.take(rows))
    if "train" not in splits:
        raise DataError(f"{source}: no row has split 'train', only {', '.join(splits)}")
    return Source(source.stem, root, splits)


def _warn_of_alike(source: Path, classes: tuple[str, ...]) -> None:
    """Warn of class names that differ in nothing but case and spaces."""
    spellings: dict[str, list[str]] = {}
    for name in classes:
        spellings.setdefault(" ".join(name.split()).casefold(), []).append(repr(name))
    alike = [" and ".join(names) for names in spellings.values() if len(names) > 1]
    if alike:
        warnings.warn(
            f"{source}: classes that differ only in case or spaces: {listing(alike)}; "
            "if they are the same, write them alike and prepare again",
            DataWarning,
            stacklevel=3,
        )


def _warn_of_several_in_one(source: Path, classes: tuple[str, ...]) -> None:
    """Warn of class names that look like several: a part of them is another class, or a part of one."""
    for mark in SEPARATORS:
        parts_of = {name: {part.strip() for part in name.split(mark)} for name in classes}
        times = Counter(part for parts in parts_of.values() for part in parts)
        several = [
            repr(name)
            for name, parts in parts_of.items()
            if mark in name and any(times[part] > 1 for part in parts)
        ]
        if several:
            warnings.warn(
                f"{source}: classes that look like several labels in one cell: {listing(several)}; "
                f"if they are, prepare with --separator '{mark}'; if not, rename them",
                DataWarning,
                stacklevel=3,
            )


def _paths(
    pictures: Pictures, root: Path, suffix: str, skip_missing: bool
) -> tuple[Texts, npt.NDArray[np.bool_]]:
    """The pictures' paths, and which of them are in ``root``: all, unless others may be left out."""
    names = [name + suffix for name in pictures.row_of]
    if not names:
        raise DataError(f"{pictures.cells.file} has a header but no rows")
    files = Listing(root)
    there = np.asarray([name in files for name in names], dtype=np.bool_)
    paths = np.asarray(names, dtype=np.str_)
    if not there.all():
        missing = paths[~there]
        said = f"{len(missing):,} of {len(names):,} pictures are missing: {listing(missing)}"
        if not skip_missing or not there.any():
            raise pictures.cells.wrong(
                pictures.lines[int(np.argmin(there))],
                f"picture {str(missing[0])!r} is not in {root}; {said}; name the pictures' folder with "
                f"--images, or what their names lack with --suffix, or leave them out with --skip-missing",
            )
        warnings.warn(f"{pictures.cells.file}: {said}; they were left out", DataWarning, stacklevel=3)
    return paths, there
