"""The label lists published with Hill and SPLC: which positives training may see.

COCO_train2014_000000191249.jpg,49 60     an image, and the positions of its classes, counted from 0
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from sparselabel.data.labels import POSITIVE, UNKNOWN
from sparselabel.data.readers.published_sizes import Size, warn_of_another_list
from sparselabel.data.readers.source import Split, lines_of
from sparselabel.errors import DataError, DataWarning


def with_observed(split: Split, file: Path) -> Split:
    """The images of a split that the list names, with its labels as the observed ones.

    All other labels are UNKNOWN. Images are known by file name, whatever their folder.
    """
    row_of = {path.rpartition("/")[2]: row for row, path in enumerate(split.paths.tolist())}
    if len(row_of) < len(split.paths):
        raise DataError(
            f"{file}: images of several folders have one file name: a list cannot tell them apart"
        )
    observed = np.full_like(split.labels.values, UNKNOWN)
    seen: dict[int, int] = {}  # row -> line
    for line, text in enumerate(lines_of(file), 1):
        row = _row(file, line, text, row_of)
        if row in seen:
            raise DataError(
                f"{file}, line {line:,}: {text!r:.100} is there a second time, after line {seen[row]:,}"
            )
        seen[row] = line
        classes = _classes(file, line, text, len(split.labels.classes))
        absent = [index for index in classes if split.labels.values[row, index] != POSITIVE]
        if absent:
            raise DataError(
                f"{file}, line {line:,}: {text!r:.100}: by its full labels, class {absent[0]} "
                f"({split.labels.classes[absent[0]]}) is not on the image: is the list for this set, "
                "with classes counted from 0?"
            )
        observed[row, classes] = POSITIVE
    if not seen:
        raise DataError(f"{file} is empty: a line `image,class class ...` for each image is needed")
    warn_of_another_list(file, Size(len(seen), int((observed == POSITIVE).sum())))
    if len(seen) < len(row_of):
        warnings.warn(
            f"{file} names {len(seen):,} of {len(row_of):,} training images; the others were left out",
            DataWarning,
            stacklevel=2,
        )
    rows = np.flatnonzero(np.isin(np.arange(len(observed)), [*seen]))
    return replace(split, observed=observed).take(rows)


def _row(file: Path, line: int, text: str, row_of: Mapping[str, int]) -> int:
    name, comma, _ = text.partition(",")
    name = name.rpartition("/")[2]
    if not comma:
        raise DataError(f"{file}, line {line:,}: must be `image,class class ...`, not {text!r:.100}")
    if name not in row_of:
        raise DataError(f"{file}, line {line:,}: {name!r:.100} is not among the training images with a label")
    return row_of[name]


def _classes(file: Path, line: int, text: str, count: int) -> list[int]:
    words = text.partition(",")[2].split()
    wrong = [word for word in words if not (word.isdecimal() and int(word) < count)]
    if wrong or not words:
        found = f"not {wrong[0]!r:.100}" if wrong else "and there is none"
        raise DataError(f"{file}, line {line:,}: a class must be a number from 0 to {count - 1}, {found}")
    return [int(word) for word in words]
