"""Labels in a table of your own: CSV, TSV, XLSX or Parquet, in one of two shapes.

    long, one label per row                         wide, one image per row
    image,label[,value][,x,y[,w,h]][,split]         image,cat,dog,bird[,split]
    a.jpg,cat,1                                     a.jpg,1,0,
    a.jpg,dog,0                                     b.jpg,,1,1

A value is 1 (present), 0 (absent) or empty (unknown; "nan" and "?" mean the same). Tables come in many forms.
Unambiguous ones are read, with a warning; anything else is an error that names the place.
"""

import csv
import math
import posixpath
from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparselabel.data.image_paths import shards_below
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import (
    NEGATIVE,
    POSITIVE,
    UNKNOWN,
    ContradictionError,
    Indices,
    LabelMatrix,
    SparseLabels,
    Texts,
    compact,
    count_per_class,
    known_entries,
)
from sparselabel.data.readers.image_files import match_names
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
from sparselabel.data.readers.table_files import Cells, open_cells, plain_name
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.stored_images import StoredImages, are_stored, scan
from sparselabel.errors import DataError, counted, listing, nearest, param
from sparselabel.file_formats import naming
from sparselabel.progress import progress_bar, status_console

Integers = npt.NDArray[np.integer]

CODES = {"1": POSITIVE, "0": NEGATIVE, "": UNKNOWN, "nan": UNKNOWN, "?": UNKNOWN}


Content = tuple[tuple[str, ...], LabelMatrix, SpatialLabels]
"""The classes, and the labels (N, L) and spatial labels of a table's images."""


class Images:
    """The images of a table in order of first appearance, with their line and split."""

    def __init__(self, cells: Cells, image: int, split: str) -> None:
        self.cells, self.image = cells, image
        self.split = cells.find(split)
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
    read = np.frombuffer(values, dtype=np.int8).reshape(-1, len(classes))
    return classes, compact(read), SpatialLabels.none()


def read_long(cells: Cells, images: Images, at_label: int, value: str, separator: str | None) -> Content:
    """One label per row, or several in a cell; classes are sorted, what is not mentioned is UNKNOWN."""
    at_value = cells.find(value)
    at_coordinates = _coordinates(cells)
    used = {*images.columns, at_label, at_value, *at_coordinates}
    unused = [name for index, name in enumerate(cells.header) if index not in used]
    if unused and cells.header[: len(PREDICTED)] != PREDICTED:
        warn(f"{cells.file}: columns that are not used: {listing(unused)}")
    codes = dict(CODES)
    index_of: dict[str, int] = {}
    # Millions of lines: what a line says takes 13 bytes.
    rows, indices, values, lines = array("i"), array("i"), array("b"), array("i")
    spatial_labels = SpatialLabelColumns()
    for line, row in cells.rows:
        image = images.row(line, row)
        texts = row[at_label].split(separator) if separator else (row[at_label],)
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
    of_rows, of_classes, of_values, of_lines = (
        np.asarray(column) for column in (rows, indices, values, lines)
    )
    separator_used = _separator_in(cells, index_of) if separator is None and not at_coordinates else None
    if separator_used is not None:
        texts = [*index_of]
        classes_of = [
            [name for part in text.split(separator_used) if (name := part.strip())] for text in texts
        ]
        index_of = {name: index for index, name in enumerate(dict.fromkeys(chain(*classes_of)))}
        entries, of_classes = _split_texts(
            of_classes, [[index_of[name] for name in names] for names in classes_of]
        )
        of_rows, of_values, of_lines = of_rows[entries], of_values[entries], of_lines[entries]
    if at_value is None and not at_coordinates:
        index_of, of_classes, of_values = _with_absent(cells, index_of, of_classes, of_values)
    classes = tuple(sorted(index_of))
    rank = np.empty(len(classes), dtype=np.int32)
    rank[[index_of[name] for name in classes]] = np.arange(len(classes), dtype=np.int32)
    shape = (len(images.lines), len(classes))
    labels = _labels_at(cells, shape, of_rows, rank[of_classes], of_values, of_lines)
    built = spatial_labels.build()
    return classes, labels, replace(built, classes=rank[built.classes])


def _coordinates(cells: Cells) -> list[int]:
    """The columns of points (x, y) or boxes (x, y, w, h), if there are any."""
    spatial = tuple(name for name in ("x", "y", "w", "h") if name in cells.header)
    if spatial not in ((), ("x", "y"), ("x", "y", "w", "h")):
        rule = "points need columns x and y, boxes x, y, w and h"
        raise DataError(f"{cells.file}: {rule}; found only {', '.join(spatial)}")
    return [cells.header.index(name) for name in spatial]


def _split_texts(texts: Indices, classes_of: Sequence[Sequence[int]]) -> tuple[Indices, Indices]:
    """The entry and the class of every label, where entries have ``texts`` that name several classes each."""
    counts = np.asarray([len(classes) for classes in classes_of], np.intp)
    flat = np.asarray([*chain(*classes_of)], np.intp)
    each = counts[texts]
    entries = np.repeat(np.arange(len(texts)), each)
    within = np.arange(len(entries)) - np.repeat(np.cumsum(each) - each, each)
    return entries, flat[np.repeat((np.cumsum(counts) - counts)[texts], each) + within]


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


def _labels_at(
    cells: Cells, shape: tuple[int, int], rows: Integers, classes: Integers, values: Integers, lines: Integers
) -> LabelMatrix:
    """Labels of which some are given; two values for one are an error."""
    try:
        return compact(SparseLabels.of_entries(rows, classes, values, shape))
    except ContradictionError as error:
        first, second = error.entries
        raise cells.wrong(
            int(lines[second]),
            f"value {values[second]}, but {values[first]} on {cells.row_name} {lines[first]:,} "
            f"for the same image and label",
            "remove one of the two",
        ) from error


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


IMAGE_COLUMNS = (
    *("image", "filename", "file_name", "file name", "file", "filepath", "file_path", "path", "image_path"),
    *("image_id", "imageid", "img", "photo", "picture"),
)
LABEL_COLUMNS = (
    *("label", "labels", "class", "classes", "class_name", "classname", "tag", "tags", "category"),
    *("categories", "keyword", "keywords"),
)
PREDICTED = ("image", "labels", "scores", "error")
"""The columns that `sparselabel predict` writes first."""
NAMES_AT_ONCE = 1 << 16
SEPARATORS = (";", "|", ",")  # what people put between several labels in one cell


def read(
    source: Path,
    *,
    images: str | Path | None = None,
    column: str | None = None,
    image: str | None = None,
    label: str | None = None,
    value: str = "value",
    split: str = "split",
    separator: str | None = None,
    encoding: str | None = None,
    suffix: str = "",
    names: Path | None = None,
    skip_missing: bool = False,
    unlabeled: bool | None = False,
    cluster: str | None = None,
) -> RawDataset:
    """A CSV, TSV, XLSX or Parquet table: a row per label (image, label), or a column per class (1, 0, empty).

    Example: `Dataset.from_files("table", "labels.csv", images="photos")`

    Parameters
    ----------
    source
        The table.
    images
        Folder of the images; default: the table's folder. Also tars ('shards/*.tar'), Parquet tables that
        contain images, or a URL (s3://bucket/photos): images stay there, and training reads them there.
    column
        Column with the images' bytes, if the images are in a Parquet table.
    image
        Column with the image's file name; default: image, filename, file, path or the like.
    label
        Column with the label; default: label, labels, class, tags or the like. A table without it has a
        column per class.
    value
        Column that says whether the label is present (1) or absent (0).
    split
        Column that says train, val or test.
    separator
        What separates several labels in one cell; default: detected. '' means that nothing does.
    encoding
        Text encoding of the table, such as cp1252 or utf-16; default: detected.
    suffix
        Suffix to append to the names of images to get file names (.jpg).
    names
        Table of codes and their names, if the labels are codes (class-descriptions.csv of Open Images).
    skip_missing
        Leave out images whose file is missing, instead of stopping.
    unlabeled
        Also train on images in the folder that the table does not name.
    cluster
        Address of a Ray cluster that reads images that are in no folder.

    Notes
    -----
    Rows come in order of first appearance; classes in the columns' order (wide) or sorted (long). In a long
    table x and y are a point, with w and h the center of a box, in shares (0..1) of width and height. A row
    with an empty label is an image without known labels. Without a column of values every row means 1;
    without one of splits all rows are train. Labels are separated by ; or | where they occur, or by a comma
    where the parts occur in other cells too. If ``unlabeled`` is None, images that are not named are left out
    without a warning.

    A table whose first row begins with an image has no header: its columns are image and label. Classes that
    differ only in case or spaces are one. An image without a file of its name is the one file that the name
    can mean (``match_names``). Each of these is a warning.
    """
    wanted = IMAGE_COLUMNS if image is None else (image,)
    with open_cells(source, *wanted, encoding=encoding, unnamed=PREDICTED[:1] + LABEL_COLUMNS[:1]) as opened:
        at_image = opened.column(image, "image") if image is not None else opened.find(*IMAGE_COLUMNS)
        if at_image is None:
            at_image = opened.column(IMAGE_COLUMNS[0], "image")  # raises
        cells, at_label = _label_column(opened, label)
        listed = Images(cells, at_image, split)
        if at_label is None:
            content = read_wide(cells, listed)
        else:
            content = read_long(cells, listed, at_label, value, separator)
    classes, values, spatial_labels = (
        content if names is not None else _merge_spellings(source, listed, content)
    )
    classes = classes if names is None else read_names(names, classes)
    stored = None
    if are_stored(images):
        with progress_bar(status_console(), None, "reading images") as bar:
            stored = scan([str(images)], column, cluster=cluster, report=bar.advance)
        root = stored.root
    else:
        root = images_folder(None if images is None else Path(images), source.parent)
    files = stored or Listing(root)
    paths, there = _paths(listed, files, suffix, skip_missing)
    splits_of = np.where(there, np.asarray(listed.splits, dtype=np.int8), -1)
    if unlabeled or (unlabeled is not None and images is not None):
        known = {*paths.tolist()}
        others = [path for path in files.below() if path not in known]
        if others and not unlabeled:
            warn(
                f"{counted(len(others), 'image')} of {len(others) + int(there.sum()):,} in {root} are not in "
                f"{source.name} and are not used: {listing(others, 3)}",
                f"add them with {param('unlabeled', True)}, for methods that use images without labels",
            )
        elif others:
            paths = np.concatenate([paths, np.asarray(others, dtype=np.str_)])
            values = _with_unlabeled(values, len(others))
            splits_of = np.concatenate([splits_of, np.zeros(len(others), np.int8)])
    with naming(source):  # two classes may be one to numpy, which takes no zero byte at the end
        labels = LabelTable(paths, classes, values)
    whole = RawSplit(
        labels,
        paths,
        spatial_labels,
        stored=None if stored is None else stored.of(paths),
    )
    splits = by_split(whole, splits_of)
    if "train" not in splits:
        raise DataError(f"{source}: no row has split 'train', only {', '.join(splits)}")
    return RawDataset(root.resolve().name or source.stem, root, splits, own=True)


def _with_unlabeled(labels: LabelMatrix, images: int) -> LabelMatrix:
    """The labels and those of some more images, of which nothing is known."""
    if not isinstance(labels, SparseLabels):
        nothing = np.full((images, labels.shape[1]), UNKNOWN, np.int8)
        return compact(np.concatenate([labels, nothing]))
    starts = np.concatenate([labels.starts, np.full(images, labels.starts[-1])])
    return SparseLabels(starts, labels.columns, labels.known, labels.shape[1])


def _label_column(cells: Cells, label: str | None) -> tuple[Cells, int | None]:
    """Where the labels' names are; None if the table is wide: a class may be called as such a column is."""
    if label is not None:
        return cells, cells.column(label, "label")
    index = cells.find(*LABEL_COLUMNS)
    if index is None or cells.header[index] == LABEL_COLUMNS[0]:
        return cells, index
    first = next(cells.rows, None)
    rest = replace(cells, rows=chain(() if first is None else [first], cells.rows))
    return rest, None if first is not None and first[1][index].strip() in ("0", "1") else index


def _separator_in(cells: Cells, texts: Collection[str]) -> str | None:
    """The separator of labels in one cell, if some cells hold several."""
    for separator in SEPARATORS:
        parts_of = {
            text: {name for part in text.split(separator) if (name := plain_name(part))} for text in texts
        }
        several = {text: parts for text, parts in parts_of.items() if len(parts) > 1}
        times = Counter(part for parts in parts_of.values() for part in parts)
        shared = sum(any(times[part] > 1 for part in parts) for parts in several.values())
        if not several or (separator == "," and 2 * shared < len(several)):  # as in "tench, Tinca tinca"
            continue
        if cells.header[: len(PREDICTED)] != PREDICTED:
            warn(
                f"{cells.file}: several labels in one cell, with {separator!r} between them: "
                f"{listing(map(repr, sorted(several)), 3)}",
                f"if each is one label, give {param('separator', repr(''))}",
            )
        return separator
    return None


def _with_absent(
    cells: Cells, index_of: dict[str, int], classes: Indices, values: npt.NDArray[np.int8]
) -> tuple[dict[str, int], Indices, npt.NDArray[np.int8]]:
    """Classes by name, and class and value of every label, with texts as "-dog" as negatives of the class."""
    absent = _absent_in(cells, index_of)
    if not absent:
        return index_of, classes, values
    present = {name: index for name, index in index_of.items() if index not in absent}
    new_index = {index: number for number, index in enumerate(present.values())}
    values = np.where(np.isin(classes, [*absent]), NEGATIVE, values).astype(np.int8)
    classes = np.asarray([new_index[absent.get(index, index)] for index in index_of.values()])[classes]
    return {name: new_index[index] for name, index in present.items()}, classes, values


def _absent_in(cells: Cells, index_of: Mapping[str, int]) -> dict[int, int]:
    """By number of a text as "-dog" or "not dog", that of the class that is not there; other rows have it."""
    known = {plain_name(name): index for name, index in index_of.items()}
    absent, texts = {}, []
    for name, index in index_of.items():
        rest = name[1:] if name.startswith("-") else name[4:] if name.lower().startswith("not ") else ""
        other = known.get(plain_name(rest)) if rest.strip() else None
        if other is not None and other != index:
            absent[index] = other
            texts.append(repr(name))
    if texts:
        warn(f"{cells.file}: labels of what is not there: {listing(texts)}")
    return absent


def _merge_spellings(source: Path, images: Images, content: Content) -> Content:
    """Classes that differ only in case or spaces become one, under the name that is there most often."""
    classes, values, spatial_labels = content
    columns_of: dict[str, list[int]] = {}
    for column, name in enumerate(classes):
        columns_of.setdefault(plain_name(name), []).append(column)
    if len(columns_of) == len(classes):
        return content
    often = count_per_class(values)
    merged_names, merges = [], []
    new_of = np.empty(len(classes), dtype=np.int32)
    for number, columns in enumerate(columns_of.values()):
        name = classes[max(columns, key=lambda column: (often[column], -column))]
        new_of[columns] = number
        merged_names.append(name)
        if len(columns) > 1:
            spellings = " and ".join(repr(classes[column]) for column in columns)
            merges.append(f"{spellings} became {name!r}")
    entries = [np.concatenate(part) for part in zip(*known_entries(values), strict=True)]
    rows, columns_before, known = entries or [np.empty(0, np.int64)] * 3
    shape = (len(values), len(merged_names))
    try:
        merged = SparseLabels.of_entries(rows, new_of[columns_before], known, shape)
    except ContradictionError as error:
        first = error.entries[0]
        columns = [*columns_of.values()][int(new_of[columns_before[first]])]
        spellings = " and ".join(repr(classes[column]) for column in columns)
        raise images.cells.wrong(
            images.lines[int(rows[first])],
            f"{spellings} are one class, which is there and not there",
            "rename one if they are two",
            "remove one of the two labels",
        ) from error
    warn(f"{source}: classes that differ only in case or spaces are one: {listing(merges)}")
    merged_labels = replace(spatial_labels, classes=new_of[spatial_labels.classes])
    return tuple(merged_names), compact(merged), merged_labels


def _paths(
    images: Images, files: Listing | StoredImages, suffix: str, skip_missing: bool
) -> tuple[Texts, npt.NDArray[np.bool_]]:
    """The images' paths, and which of them are among ``files``: all, unless others may be left out."""
    count, longest = len(images.row_of), max(map(len, images.row_of), default=0)
    if not count:
        raise DataError(f"{images.cells.file} has a header but no rows")
    root = files.root
    paths, there = np.empty(count, f"U{longest + len(suffix)}"), np.zeros(count, np.bool_)
    outside: list[str] = []
    every = iter(images.row_of)
    for start in range(0, count, NAMES_AT_ONCE):  # texts of a list take much more than of an array
        names = [name + suffix for name in islice(every, NAMES_AT_ONCE)]
        paths[start : start + len(names)] = names
        there[start : start + len(names)] = [name in files for name in names]
        outside += [name for name in names if name.startswith("/") or ".." in name.split("/")]
    if outside:
        warn(
            f"{images.cells.file}: {counted(len(outside), 'image')} named outside of {root}: "
            f"{listing(outside)}",
            "if nobody meant that, look at where the table comes from",
        )
    if not there.all():
        names = paths.tolist()
        exact = {name for name, is_there in zip(names, there, strict=True) if is_there}
        matched = match_names([name for name in names if name not in exact], files.below(), exact)
        if matched:
            paths = np.asarray([matched.get(name, name) for name in names], dtype=np.str_)
            there |= np.asarray([name in matched for name in names], dtype=np.bool_)
            pairs = (f"{name!r} is {file}" for name, file in matched.items())
            warn(
                f"{images.cells.file}: {counted(len(matched), 'image')} found under other names: "
                f"{listing(pairs, 5)}"
            )
    if not there.all():
        missing = paths[~there]
        problem = f"{len(missing):,} of {count:,} images are missing: {listing(missing)}"
        if not skip_missing or not there.any():
            where = listing(files.files, 3) if isinstance(files, StoredImages) else root
            shards = None if isinstance(files, StoredImages) or there.any() else shards_below(root)
            inside = f"name the shards there with {param('images')} ({shards!r})"
            raise images.cells.wrong(
                images.lines[int(np.argmin(there))],
                f"image {str(missing[0])!r} is not in {where}; {problem}",
                IMAGES_FOLDER if shards is None else inside,
                f"name what their names lack with {param('suffix')}",
                f"leave them out with {param('skip_missing', True)}",
            )
        warn(f"{images.cells.file}: {problem}; they were left out")
    return paths, there
