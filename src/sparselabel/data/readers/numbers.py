"""Whole numbers at the beginning of millions of lines, without a Python object for each."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparselabel.errors import DataError

Numbers = npt.NDArray[np.int64]
BLOCK = 1 << 24
DIGITS = 9
"""More digits than any number of a picture or a class has; int64 holds them."""


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
