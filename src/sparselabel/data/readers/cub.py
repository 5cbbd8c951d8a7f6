"""Caltech-UCSD Birds 200-2011 with its 312 attributes as classes.

CUB_200_2011/images.txt                              "1 001.Black_footed_Albatross/Black_..._0046_18.jpg"
            /train_test_split.txt                    "1 0": image 1 is not for training
            /attributes/image_attribute_labels.txt   "1 1 0 3 27.7": image, attribute, is it there, ...
            /images/001.Black_footed_Albatross/...
attributes.txt, beside CUB_200_2011 as in the archive or in it   "1 has_bill_shape::curved_(up_or_down)"
"""

import io
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import UNKNOWN, Labels
from sparselabel.data.readers.raw_dataset import (
    Listing,
    RawDataset,
    RawSplit,
    by_split,
    first_there,
    images_folder,
    lines_of,
    refuse_missing,
    warn_of_another_size,
    whole_number,
)
from sparselabel.errors import DataError
from sparselabel.file_formats import naming, reading

Numbers = npt.NDArray[np.int64]
NUMBER = rb"\d{1,9}"
"""More digits than any number of an image or a class has."""


def leading_numbers(file: Path, columns: int) -> tuple[Numbers, Numbers]:
    """Line numbers (n,) and the first ``columns`` numbers (n, columns) of each line; empty lines are skipped.

    Numbers are separated by spaces or tabs. What follows the last one is not looked at.
    """
    with reading(file):
        text = file.read_bytes()
    rule = rb"[ \t]+".join([NUMBER] * columns) + rb"(?=\s|\Z)"
    if wrong := re.search(rb"^(?!%b|\r?$).*" % rule, text, re.MULTILINE):
        line = text.count(b"\n", 0, wrong.start()) + 1
        begins = wrong[0].decode("utf-8", "replace").rstrip("\r")
        raise DataError(
            f"{file}, line {line:,}: must begin with {columns} whole numbers, not {begins!r:.200}"
        )
    lines = np.asarray([line for line, one in enumerate(text.split(b"\n"), 1) if one.strip()], np.int64)
    if not len(lines):
        return lines, np.empty((0, columns), np.int64)
    with reading(file):  # as of a line break of old Macs inside a line
        return lines, np.loadtxt(io.BytesIO(text), np.int64, comments=None, usecols=range(columns), ndmin=2)


ATTRIBUTES = Path("attributes", "image_attribute_labels.txt")


def read(source: Path, *, images: Path | None = None) -> RawDataset:
    """CUB-200-2011 with its 312 attributes: the folder CUB_200_2011.

    Example: `Dataset.from_files("cub", "CUB_200_2011", sparsify="single-positive")`

    Parameters
    ----------
    source
        The folder, or the one above it.
    images
        Folder of the images, if it is not images/ in the source folder.

    Notes
    -----
    An attribute is POSITIVE where ``is_present`` is 1, else NEGATIVE, however certain the annotator was: the
    papers' reading. "train" and "test" are the official split, in the order of ``images.txt``.
    """
    root = _locate(source)
    keys, names = _numbered(root / "images.txt", "an image")
    in_training = _in_training(root / "train_test_split.txt", keys)
    attributes, classes = _numbered(_attribute_names(root), "an attribute")
    values = _read_labels(root / ATTRIBUTES, keys, attributes)
    folder = images_folder(images, root / "images")
    refuse_missing(Listing(folder), names, root / "images.txt")
    with naming(root / "images.txt"):
        table = LabelTable(np.asarray(names, dtype=np.str_), tuple(classes), values)
    splits = by_split(RawSplit(table, table.ids), np.where(in_training, 0, 2))
    if "train" not in splits:
        raise DataError(f"{root / 'train_test_split.txt'}: no image is for training (1)")
    warn_of_another_size("cub", splits)
    return RawDataset(root.resolve().name, folder, splits)


def _locate(source: Path) -> Path:
    for folder in (source, source / "CUB_200_2011", source / "CUB_200_2011" / "CUB_200_2011"):
        if (folder / "images.txt").is_file() and (folder / ATTRIBUTES).is_file():
            return folder
    raise DataError(
        f"{source}: no images.txt with {ATTRIBUTES.as_posix()} beside it, nor in CUB_200_2011 below: "
        "give the unpacked CUB_200_2011"
    )


def _attribute_names(root: Path) -> Path:
    """The archive has the names beside the folder; other releases have moved them into it."""
    file = first_there((root, root / "attributes", root.resolve().parent), ["attributes.txt"])
    if file is None:
        raise DataError(
            f"{root}: attributes.txt, with the attributes' names, is not there, in attributes/ or beside the "
            "folder: the archive CUB_200_2011.tgz has it at its top"
        )
    return file


def _numbered(file: Path, what: str) -> tuple[Numbers, list[str]]:
    """Numbers and names, a line each."""
    keys: dict[int, int] = {}
    names: list[str] = []
    for line, text in enumerate(lines_of(file), 1):
        match text.split():
            case [number, name] if whole_number(number) >= 0:
                if (first := keys.setdefault(int(number), line)) != line:
                    again = f"number {number} is there a second time, after line {first}"
                    raise DataError(f"{file}, line {line}: {again}")
                names.append(name)
            case _:
                raise DataError(f"{file}, line {line}: must be a number and {what}, not {text!r:.200}")
    if not names:
        raise DataError(f"{file} is empty: a number and {what} a line are needed")
    return np.asarray([*keys], dtype=np.int64), names


def _in_training(file: Path, keys: Numbers) -> npt.NDArray[np.bool_]:
    """(N,) Whether an image is for training."""
    flags = np.full(len(keys), UNKNOWN, dtype=np.int8)
    lines, numbers = leading_numbers(file, 2)
    rows = _positions(file, lines, numbers[:, 0], keys, "image", "images.txt")
    _refuse_other_values(file, lines, numbers[:, 1], "1 (for training) or 0")
    flags[rows] = numbers[:, 1]
    if (flags == UNKNOWN).any():
        missing = keys[np.argmin(flags)]
        raise DataError(f"{file}: image {missing} of images.txt is not there: every image needs a line")
    return np.asarray(flags == 1)


def _read_labels(file: Path, images: Numbers, attributes: Numbers) -> Labels:
    """(N, L) The labels; every image has a line for every attribute, and some have extra columns."""
    values = np.full((len(images), len(attributes)), UNKNOWN, dtype=np.int8)
    lines, numbers = leading_numbers(file, 3)
    rows = _positions(file, lines, numbers[:, 0], images, "image", "images.txt")
    columns = _positions(file, lines, numbers[:, 1], attributes, "attribute", "attributes.txt")
    _refuse_other_values(file, lines, numbers[:, 2], "1 (present) or 0")
    again = np.ones(len(lines), dtype=np.bool_)
    again[np.unique(rows * len(attributes) + columns, return_index=True)[1]] = False
    if again.any():
        image, attribute, _ = numbers[again][0]
        line = lines[again][0]
        raise DataError(f"{file}, line {line:,}: image {image} has attribute {attribute} a second time")
    values[rows, columns] = numbers[:, 2]
    missing = np.argwhere(values == UNKNOWN)
    if len(missing):
        row, column = missing[0]
        raise DataError(
            f"{file}: {len(missing):,} of {values.size:,} labels are not there, the first that of image "
            f"{images[row]} and attribute {attributes[column]}: is the file complete?"
        )
    return values


def _positions(
    file: Path, lines: Numbers, numbers: Numbers, known: Numbers, what: str, where: str
) -> Numbers:
    """The positions of numbers among the known ones."""
    order = np.argsort(known)
    positions = order[np.minimum(np.searchsorted(known, numbers, sorter=order), len(known) - 1)]
    wrong = known[positions] != numbers
    if wrong.any():
        first = int(np.argmax(wrong))
        raise DataError(f"{file}, line {lines[first]:,}: {what} {numbers[first]} is not in {where}")
    return np.asarray(positions)


def _refuse_other_values(file: Path, lines: Numbers, values: Numbers, allowed: str) -> None:
    wrong = values > 1
    if wrong.any():
        first = int(np.argmax(wrong))
        raise DataError(f"{file}, line {lines[first]:,}: must say {allowed}, not {values[first]}")
