"""Caltech-UCSD Birds 200-2011 with its 312 attributes as classes.

CUB_200_2011/images.txt                              "1 001.Black_footed_Albatross/Black_..._0046_18.jpg"
            /train_test_split.txt                    "1 0": image 1 is not for training
            /attributes/image_attribute_labels.txt   "1 1 0 3 27.7": image, attribute, is it there, ...
            /images/001.Black_footed_Albatross/...
attributes.txt, beside CUB_200_2011 as in the archive or in it   "1 has_bill_shape::curved_(up_or_down)"
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import UNKNOWN, Labels, LabelTable
from sparselabel.data.readers.raw_dataset import (
    Listing,
    RawDataset,
    RawSplit,
    first_there,
    lines_of,
    naming,
    refuse_empty,
    refuse_missing,
    require_folder,
    warn_of_another_size,
)
from sparselabel.errors import DataError

Numbers = npt.NDArray[np.int64]
BLOCK = 1 << 24
DIGITS = 9
"""More digits than any number of an image or a class has; int64 holds them."""


def leading_numbers(file: Path, columns: int, block: int = BLOCK) -> Iterator[tuple[Numbers, Numbers]]:
    """Line numbers (n,) and the first ``columns`` numbers (n, columns) of each line, a block of lines a time.

    Numbers are separated by spaces or tabs. What follows the last one is not looked at; empty lines are
    skipped.
    """
    before, rest = 0, b""
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(block):
                text = rest + chunk
                end = text.rfind(b"\n") + 1
                rest = text[end:]
                if end:
                    yield _parse(file, text[:end], columns, before)
                    before += text.count(b"\n", 0, end)
    except FileNotFoundError:
        raise DataError(f"{file} is not there, and it is needed") from None
    if rest:
        yield _parse(file, rest + b"\n", columns, before)


def _parse(file: Path, text: bytes, columns: int, before: int) -> tuple[Numbers, Numbers]:
    data = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    lines = np.flatnonzero(~np.isin(data[starts], (ord("\n"), ord("\r"))))
    at = starts[lines]
    good = np.ones(len(at), dtype=bool)
    numbers = np.zeros((len(at), columns), dtype=np.int64)
    for column in range(columns):
        if column:
            gap = _is_gap(data[at])
            good &= gap
            while gap.any():  # each line ends with "\n", which is no gap: nobody runs into the next line
                at = at + gap
                gap = _is_gap(data[at])
        first = at
        for _ in range(DIGITS):
            digit = data[at] - np.uint8(ord("0"))  # what is no digit wraps around to more than 9
            there = digit < 10
            if not there.any():
                break
            numbers[:, column] = np.where(there, numbers[:, column] * 10 + digit, numbers[:, column])
            at = at + there
        good &= at > first
    good &= _is_gap(data[at]) | np.isin(data[at], (ord("\n"), ord("\r")))
    if not good.all():
        line = int(lines[np.argmin(good)])
        wrong = text[starts[line] : ends[line]].decode("utf-8", "replace").rstrip("\r")
        raise DataError(
            f"{file}, line {before + line + 1:,}: must begin with {columns} whole numbers, not {wrong!r:.200}"
        )
    return lines + before + 1, numbers


def _is_gap(characters: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return np.asarray((characters == ord(" ")) | (characters == ord("\t")))


ATTRIBUTES = Path("attributes", "image_attribute_labels.txt")


def read(source: Path, *, images: Path | None = None) -> RawDataset:
    """Read CUB-200-2011 from the folder ``CUB_200_2011``, or the one above it.

    An attribute is POSITIVE where ``is_present`` is 1, else NEGATIVE, however certain the annotator was: the
    papers' reading. "train" and "test" are the official split, in the order of ``images.txt``.

    Parameters
    ----------
    source
        The folder.
    images
        The images' folder; by default ``images`` inside.
    """
    root = _locate(source)
    keys, names = _numbered(root / "images.txt", "an image")
    in_training = _in_training(root / "train_test_split.txt", keys)
    attributes, classes = _numbered(_attribute_names(root), "an attribute")
    values = _read_labels(root / ATTRIBUTES, keys, attributes)
    folder = require_folder(images or root / "images")
    refuse_missing(Listing(folder), names, root / "images.txt")
    with naming(root / "images.txt"):
        table = LabelTable(np.asarray(names, dtype=np.str_), tuple(classes), values)
    whole = RawSplit(table, table.ids)
    splits = {
        "train": whole.take(np.flatnonzero(in_training)),
        "test": whole.take(np.flatnonzero(~in_training)),
    }
    refuse_empty(splits["train"].labels, f"{root / 'train_test_split.txt'}: no image is for training (1)")
    splits = {name: split for name, split in splits.items() if len(split.labels)}
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
    folders = (root, root / "attributes", root.resolve().parent)
    file = first_there(folders, ["attributes.txt"])
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
            case [number, name] if number.isdecimal():
                if int(number) in keys:
                    raise DataError(
                        f"{file}, line {line}: number {number} is there a second time, after line "
                        f"{keys[int(number)]}"
                    )
                keys[int(number)] = line
                names.append(name)
            case _:
                raise DataError(f"{file}, line {line}: must be a number and {what}, not {text!r:.200}")
    if not names:
        raise DataError(f"{file} is empty: a number and {what} a line are needed")
    return np.asarray([*keys], dtype=np.int64), names


def _in_training(file: Path, keys: Numbers) -> npt.NDArray[np.bool_]:
    """(N,) Whether an image is for training."""
    flags = np.full(len(keys), UNKNOWN, dtype=np.int8)
    for lines, numbers in leading_numbers(file, 2):
        rows = _positions(file, lines, numbers[:, 0], keys, "image", "images.txt")
        _refuse_other_values(file, lines, numbers[:, 1], "1 (for training) or 0")
        flags[rows] = numbers[:, 1]
    if (flags == UNKNOWN).any():
        raise DataError(
            f"{file}: image {keys[np.argmin(flags)]} of images.txt is not there: every image needs a line"
        )
    return np.asarray(flags == 1)


def _read_labels(file: Path, images: Numbers, attributes: Numbers) -> Labels:
    """(N, L) The labels; every image has a line for every attribute, and some have extra columns."""
    values = np.full((len(images), len(attributes)), UNKNOWN, dtype=np.int8)
    flat = values.reshape(-1)
    line_of = np.zeros(flat.size, dtype=np.int64)  # the line of each label
    for lines, numbers in leading_numbers(file, 3):
        rows = _positions(file, lines, numbers[:, 0], images, "image", "images.txt")
        columns = _positions(file, lines, numbers[:, 1], attributes, "attribute", "attributes.txt")
        _refuse_other_values(file, lines, numbers[:, 2], "1 (present) or 0")
        positions = rows * len(attributes) + columns
        before = line_of[positions]
        line_of[positions[::-1]] = lines[::-1]  # of several lines, the first is kept
        again = (before > 0) | (line_of[positions] != lines)
        if again.any():
            first = int(np.argmax(again))
            image, attribute, _ = numbers[first]
            raise DataError(
                f"{file}, line {lines[first]:,}: image {image} has attribute {attribute} a second time"
            )
        flat[positions] = numbers[:, 2]
    missing = int((flat == UNKNOWN).sum())
    if missing:
        row, column = np.argwhere(values == UNKNOWN)[0]
        raise DataError(
            f"{file}: {missing:,} of {flat.size:,} labels are not there, the first that of image "
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
