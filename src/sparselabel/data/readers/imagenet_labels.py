"""The labels of ImageNet's validation pictures: the single ones in three forms, and ReaL."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices
from sparselabel.data.readers.common import lines_of
from sparselabel.data.readers.source import Split
from sparselabel.errors import DataError, listing

NUMBERED = re.compile(r"ILSVRC2012_val_(\d{8})\.")
HEADER = "ImageId,PredictionString"
AGREE = 0.5
"""ReaL keeps nine in ten of the single labels; below a half, classes are in another order."""


def is_synset(name: str) -> bool:
    """Whether this is a synset id, as in n01440764."""
    return len(name) == 9 and name[0] == "n" and name[1:].isdecimal()


def read_single(file: Path, synsets: Path | None, pictures: Sequence[str], ids: Sequence[str]) -> Indices:
    """(N,) The class of each picture, from a file that names synsets or the devkit's numbers.

    LOC_val_solution.csv goes by file name; the others have a line for each of the pictures, by their numbers.
    """
    lines = lines_of(file)
    if lines and lines[0] == HEADER:
        return _from_solution(file, lines, pictures, ids)
    if lines and lines[0].isdecimal():
        order = _devkit_order(file, synsets)
        wrong = next((line for line, text in enumerate(lines, 1) if not _names_one(text, len(order))), None)
        if wrong is not None:
            raise DataError(
                f"{file}, line {wrong:,}: must be a number from 1 to {len(order):,}, the lines of {synsets}, "
                f"not {lines[wrong - 1]!r:.100}"
            )
        lines = [order[int(text) - 1] for text in lines]
    numbers = _numbers(pictures, file, len(lines))
    index_of = {key: index for index, key in enumerate(ids)}
    for number in numbers:
        if lines[number] not in index_of:
            raise DataError(
                f"{file}, line {number + 1:,}: must be the synset id of a class folder, "
                f"not {lines[number]!r:.100}"
            )
    return np.asarray([index_of[lines[number]] for number in numbers], dtype=np.intp)


def _from_solution(file: Path, lines: list[str], pictures: Sequence[str], ids: Sequence[str]) -> Indices:
    """ILSVRC2012_val_00048981,n03995372 85 1 499 272 ...: the synset, its box, and perhaps others of it."""
    index_of = {key: index for index, key in enumerate(ids)}
    found: dict[str, int] = {}
    for line, text in enumerate(lines[1:], 2):
        name, _, said = text.partition(",")
        key = said.split(" ")[0]
        if key not in index_of:
            raise DataError(
                f"{file}, line {line:,}: must be a picture and the synset id of a class folder, "
                f"not {text!r:.100}"
            )
        found[name] = index_of[key]
    missing = [name for name in pictures if Path(name).stem not in found]
    if missing:
        raise DataError(f"{file} has no label of {len(missing):,} pictures in val: {listing(missing)}")
    return np.asarray([found[Path(name).stem] for name in pictures], dtype=np.intp)


def _devkit_order(file: Path, synsets: Path | None) -> list[str]:
    if synsets is None:
        raise DataError(
            f"{file} has the devkit's numbers, whose order is in meta.mat: name a text file of the synset "
            "ids in that order with --synsets (docs/readers.md says how), or use LOC_val_solution.csv"
        )
    order = lines_of(synsets)
    wrong = next((line for line, text in enumerate(order, 1) if not is_synset(text)), None)
    if wrong is not None:
        raise DataError(f"{synsets}, line {wrong:,}: must be a synset id, not {order[wrong - 1]!r:.100}")
    return order


def _names_one(text: str, count: int) -> bool:
    return text.isdecimal() and 1 <= int(text) <= count


def _numbers(pictures: Sequence[str], file: Path, count: int) -> list[int]:
    """The positions of pictures in a file that goes by their numbers, which start with 1."""
    numbers: list[int] = []
    for name in pictures:
        match = NUMBERED.match(name)
        number = int(match[1]) if match else 0
        if not 1 <= number <= count:
            rule = f"the {count:,} of {file}" if match else "ILSVRC2012_val_00000001.JPEG and so on"
            raise DataError(f"{file} goes by the numbers of the pictures: {name} is not among {rule}")
        numbers.append(number - 1)
    return numbers


def read_real(file: Path, split: Split) -> Split:
    """The split with ReaL's labels beside its own; a picture that ReaL gives none has UNKNOWN ones."""
    lists = _load(file)
    ids, classes = split.labels.ids.tolist(), len(split.labels.classes)
    real = np.full(split.labels.values.shape, UNKNOWN, dtype=np.int8)
    for row, number in enumerate(_numbers(ids, file, len(lists))):
        match lists[number]:
            case []:
                continue
            case [*labels] if all(isinstance(label, int) and 0 <= label < classes for label in labels):
                real[row] = NEGATIVE
                real[row, np.asarray(labels, dtype=np.intp)] = POSITIVE
            case wrong:
                raise DataError(
                    f"{file}, list {number + 1:,} ({ids[row]}): must hold numbers of the {classes:,} "
                    f"classes, from 0, not {wrong!r:.100}: ReaL is for all 1,000 classes"
                )
    judged = real[:, 0] != UNKNOWN
    if not judged.any():
        raise DataError(f"{file} has no label for any of the {len(ids):,} pictures in val: is it real.json?")
    kept = (real == POSITIVE) & (split.labels.values == POSITIVE)
    share = kept[judged].any(axis=1).mean()
    if share < AGREE:
        raise DataError(
            f"{file} keeps the single label of only {share:.0%} of the pictures: one of the two is in "
            "another order of classes, or of pictures; check the files of --labels and --synsets"
        )
    return replace(split, real=real)


def _load(file: Path) -> list[object]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{file} is not there: leave --real out, or name ReaL's real.json") from None
    except ValueError as error:
        raise DataError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, list) or not content:
        raise DataError(f"{file} must hold a list of lists, one for each picture, not {content!r:.100}")
    return content
