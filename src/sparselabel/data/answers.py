"""Reviewers' answers about single labels: an append-only CSV file, and how answers change observed labels.

    image,label,value,time,reviewer
    a.jpg,cat,1,2026-03-01T09:12:44+00:00,ann      1 it is there, 0 it is not, ? nobody could tell
    a.jpg,cat,,2026-03-01T09:12:51+00:00,ann       nothing: the last answer about it is taken back

Of several answers to one question the last counts. Only ``observed`` of training and validation gets these
labels, never ``truth``, and nothing of a test split.
"""

import codecs
import csv
import hashlib
import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix, SparseLabels, Texts
from sparselabel.errors import DataError, DataWarning, command, counted, listing, nearest
from sparselabel.file_formats import reading

COLUMNS = ("image", "label", "value", "time", "reviewer")
OTHER_ANSWERS = "give the answers that belong to this data"
NAMES_AT_ONCE = 1 << 16
SKIPPED = -2
"""The reviewer could not tell: unknown for training, and not asked again."""
TAKEN_BACK = ""
WORDS = {"1": POSITIVE, "0": NEGATIVE, "?": SKIPPED}
WORD_OF = {value: word for word, value in WORDS.items()}


@dataclass(frozen=True)
class Answer:
    """One line: an image and a class by name; the value is None where the last answer is taken back."""

    image: str
    label: str
    value: int | None
    time: str = ""
    reviewer: str = ""

    def line(self) -> bytes:
        """The answer as a line of the file."""
        word = TAKEN_BACK if self.value is None else WORD_OF[self.value]
        return as_line([self.image, self.label, word, self.time, self.reviewer])


def as_line(cells: Sequence[str]) -> bytes:
    """A line of the file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


HEADER = as_line(COLUMNS)


def file_of(answers: Sequence[Answer]) -> bytes:
    """A file of these answers; nothing if there are none."""
    return HEADER + b"".join(answer.line() for answer in answers) if answers else b""


def read_answers(file: Path) -> list[Answer]:
    """All lines of a file of answers, in order, without a last line that a crash left unfinished.

    ``review/answer_log.py`` repairs such a file before it appends to it.
    """
    with reading(file, f"give a file of answers, as {command('review')} writes it"):
        content = file.read_bytes()
    # The header of a file that is not ours is refused below.
    end = finished_length(file, content) if has_our_columns(content) else len(content)
    return list(_lines_of(file, content[:end]))


def has_our_columns(content: bytes) -> bool:
    """Whether a file begins like a file of answers, even if its header is unfinished."""
    first, line_break, _ = content.removeprefix(codecs.BOM_UTF8).partition(b"\n")
    return first.rstrip(b"\r") == HEADER.rstrip() if line_break else HEADER.startswith(first)


def finished_length(file: Path, content: bytes) -> int:
    """Bytes up to the end of the last finished line; a line break inside quotes ends none.

    Only the beginning of one answer may follow, as a crash leaves it. More means that a quotation mark is
    never closed, and the answers behind it must not be lost.
    """
    end, start, quotes = 0, 0, 0
    while (stop := content.find(b"\n", start)) >= 0:
        quotes += content.count(b'"', start, stop)
        start = stop + 1
        if quotes % 2 == 0:
            end = start
    torn = content[end:]
    before = torn.partition(b'"')[0]  # we quote whole cells, with at most one line break in a name
    if torn.count(b"\n") > 1 or (b"\n" in torn and before and not before.endswith(b",")):
        line = content.count(b"\n", 0, end) + 1
        raise DataError(
            f"{file}, line {line:,}: a quotation mark begins there and never ends: what follows is lost",
            'mend the line (a cell with " in it stands in quotes, and each " inside twice)',
        )
    return end


def _lines_of(file: Path, content: bytes) -> Iterator[Answer]:
    ways_out = "mend the line", "move the file away and begin a new one"
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        header = next(reader, None)
        if header is None:
            return
        if tuple(header) != COLUMNS:
            rule = f"its columns must be {', '.join(COLUMNS)}, not {listing(header)}"
            raise DataError(
                f"{file} is not a file of answers: {rule}", f"give what {command('review')} wrote"
            )
        for cells in filter(any, reader):
            where = f"{file}, line {reader.line_num:,}"
            if len(cells) != len(COLUMNS) or not cells[0] or not cells[1]:
                raise DataError(f"{where}: must be {', '.join(COLUMNS)}, not {listing(cells)}", *ways_out)
            image, label, word, time, reviewer = cells
            if word != TAKEN_BACK and word not in WORDS:
                rule = "1 (there), 0 (not there), ? (cannot tell) or nothing (taken back)"
                raise DataError(f"{where}: a value must be {rule}, not {word!r}", *ways_out)
            yield Answer(image, label, WORDS.get(word), time, reviewer)
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not text in UTF-8 ({error.reason})", *ways_out) from error
    except csv.Error as error:
        raise DataError(f"{file} is not a CSV file ({error})", *ways_out) from error


def last_words(answers: Iterable[Answer]) -> dict[tuple[str, str], int]:
    """The valid answers: for each image and class the last one that was not taken back."""
    values_of: dict[tuple[str, str], list[int]] = {}
    for answer in answers:
        before = values_of.setdefault((answer.image, answer.label), [])
        if answer.value is not None:
            before.append(answer.value)
        elif before:
            before.pop()
    return {key: values[-1] for key, values in values_of.items() if values}


class Overlay(NamedTuple):
    """Labels with answers applied, and what the answers changed."""

    values: LabelMatrix
    known: list[tuple[int, int, int]]  # row, class and label, in order of rows and classes
    changed: int  # observed labels that an answer changed
    elsewhere: list[str]  # images that are not among these, but in another split


def lay_over(
    words: dict[tuple[str, str], int],
    observed: LabelMatrix,
    images: Sequence[Texts],
    classes: Sequence[str],
    where: str,
    elsewhere: Iterable[str] = (),
) -> Overlay:
    """A copy of ``observed`` (N, L) with these answers; ``images`` are names of the rows, each (N,).

    An unknown image or class is an error, unless the image is one of ``elsewhere``.
    """
    answered = {image for image, _ in words}
    row_of = {name: row for names in images for row, name in _named(names) if name in answered}
    other = sorted(answered.intersection(elsewhere) - set(row_of))
    strange = sorted(answered - set(row_of) - set(other))
    if strange:
        raise DataError(
            f"{where}: {len(strange):,} of {len(answered):,} images are not in the data: {listing(strange)}",
            OTHER_ANSWERS,
        )
    column_of = {name: column for column, name in enumerate(classes)}
    unknown = sorted({label for _, label in words if label not in column_of})
    if unknown:
        raise DataError(
            f"{where}: the data has no class {unknown[0]!r} ({nearest(unknown[0], column_of)}); "
            f"{len(unknown):,} such in all",
            OTHER_ANSWERS,
        )
    changes: dict[tuple[int, int], int] = {}
    known, changed = [], 0
    for (image, label), value in words.items():
        if value == SKIPPED or image not in row_of:
            continue
        row, column = row_of[image], column_of[label]
        changed += int(changes.get((row, column), observed[row, column]) not in (UNKNOWN, value))
        changes[row, column] = value
        known.append((row, column, value))
    return Overlay(_with_changes(observed, changes), sorted(known), changed, other)


def _named(names: Texts) -> Iterator[tuple[int, str]]:
    """Rows and names, in blocks, as Python strings take more memory than an array."""
    for start in range(0, len(names), NAMES_AT_ONCE):
        yield from enumerate(names[start : start + NAMES_AT_ONCE].tolist(), start)


def _with_changes(observed: LabelMatrix, changes: dict[tuple[int, int], int]) -> LabelMatrix:
    rows, columns = [row for row, _ in changes], [column for _, column in changes]
    if isinstance(observed, SparseLabels):
        return observed.with_entries(rows, columns, [*changes.values()])
    values = np.array(observed)
    values[rows, columns] = [*changes.values()]
    return values


def with_answers(data: Dataset, answers: Sequence[Answer], where: str) -> Dataset:
    """The data with answers in the observed labels of training and validation, whose digests then change.

    ``where`` names the answers in messages: their files.
    """
    words, splits, changed = last_words(answers), dict(data.splits), 0
    for name in ("train", "val"):
        if name not in splits or (name != "train" and not words):
            continue
        split = splits[name]
        others = (one for other, one in data.splits.items() if other not in ("train", name))
        elsewhere = (str(image) for one in others for image in chain(one.paths, one.truth.ids))
        laid = lay_over(words, split.observed.matrix, _names(split), data.classes, where, elsewhere)
        splits[name], changed = _with_labels(split, laid), changed + laid.changed
        left = set(laid.elsewhere)
        words = {key: value for key, value in words.items() if key[0] in left}
    if words:
        images = sorted({image for image, _ in words})
        raise DataError(
            f"{where}: {len(images):,} images are neither in training nor in validation, but in another "
            f"split: {listing(images)}",
            OTHER_ANSWERS,
        )
    if changed:
        problem = f"{where}: {counted(changed, 'answer')} contradict labels that were observed before"
        warnings.warn(f"{problem}; the answers count", DataWarning, stacklevel=2)
    return replace(data, splits=splits, answers=tuple(answers), unanswered=data.annotations)


def _names(split: PreparedSplit) -> tuple[Texts, Texts]:
    return split.truth.ids, split.paths


def _with_labels(split: PreparedSplit, laid: Overlay) -> PreparedSplit:
    if not laid.known:
        return split
    digest = hashlib.blake2b(split.digest.encode(), digest_size=16)
    digest.update(np.asarray(laid.known, dtype="<i8").tobytes())
    observed = split.observed.with_values(laid.values, check=False)
    # Absent classes have no spatial labels.
    seen = split.seen.only(laid.values[split.seen.rows, split.seen.classes] == POSITIVE)
    return replace(split, observed=observed, seen=seen, digest=digest.hexdigest())


def answered_labels(
    split: PreparedSplit, answers: Iterable[Answer]
) -> tuple[LabelMatrix, npt.NDArray[np.int64]]:
    """(N, L) A split's observed labels with the answers about it, and rows and classes (n, 2) of these.

    Answers about other images or classes are left out.
    """
    classes = set(split.truth.classes)
    words = {key: value for key, value in last_words(answers).items() if key[1] in classes}
    others = {image for image, _ in words}
    laid = lay_over(words, split.observed.matrix, _names(split), split.truth.classes, "", others)
    entries = sorted({(row, column) for row, column, _ in laid.known})
    return laid.values, np.asarray(entries, dtype=np.int64).reshape(-1, 2)


def with_files(data: Dataset, files: Sequence[Path]) -> Dataset:
    """The data with the answers of some files, applied in turn."""
    if not files:
        return data
    return with_answers(data, [answer for file in files for answer in read_answers(file)], listing(files))
