"""Another model's scores of images and classes: read them, and set unknown labels by them.

    wide                        long                     .npz
    image,cat,dog               image,label,score        images (N,), classes (L,), scores (N, L)
    a.jpg,0.93,0.02             a.jpg,cat,0.93

Scores may be on any scale; thresholds are on the same. An empty cell is no score.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels, Texts
from sparselabel.data.readers.table_files import Cells, open_cells
from sparselabel.errors import DataError, listing
from sparselabel.file_formats import read_arrays

_BETWEEN = 2  # scored, but neither high nor low; becomes UNKNOWN

Scored = tuple[str, str, Sequence[int], npt.NDArray[np.float64]]
"""Where it stands, an image's name, the columns of some classes, and their scores (NaN: none)."""


@dataclass(frozen=True, eq=False)
class ScoreReport:
    """What the scores changed, per class (L,), and how well they agree with observed labels."""

    set_positive: npt.NDArray[np.int64]
    set_negative: npt.NDArray[np.int64]
    positive: npt.NDArray[np.int64]  # observed positives with a score beyond a threshold
    positive_missed: npt.NDArray[np.int64]  # of them: the score makes it negative
    negative: npt.NDArray[np.int64]
    negative_missed: npt.NDArray[np.int64]
    unscored: int  # images without any score

    def description(self) -> dict[str, list[int] | int]:
        """The report as dataset.json has it."""
        return {
            name: value if isinstance(value, int) else value.tolist() for name, value in vars(self).items()
        }


def apply_scores(
    file: Path, table: LabelTable, paths: Texts, positive: float | None, negative: float | None
) -> tuple[Labels, ScoreReport]:
    """Labels with unknown ones set by scores: positive from ``positive`` up, negative from ``negative`` down.

    Images are found by id or by path. An observed label is never changed.
    """
    predicted = np.full(table.matrix.shape, UNKNOWN, dtype=np.int8)
    scored_rows: set[int] = set()
    for row, columns, scores in _of_table(file, table, paths, lambda row, at: predicted[row, at] != UNKNOWN):
        labels = np.full(len(columns), _BETWEEN, dtype=np.int8)
        if positive is not None:
            labels[scores >= positive] = POSITIVE
        if negative is not None:
            labels[scores <= negative] = NEGATIVE
        predicted[row, columns] = labels
        scored_rows.add(row)
    predicted[predicted == _BETWEEN] = UNKNOWN
    observed = table.values
    report = _report(observed, predicted, len(table) - len(scored_rows))
    return np.where(observed == UNKNOWN, predicted, observed), report


def read_scores(file: Path, table: LabelTable, paths: Texts) -> npt.NDArray[np.float32]:
    """(N, L) The scores of a table's images, found by id or by path; NaN where there is none."""
    result = np.full(table.matrix.shape, np.nan, dtype=np.float32)
    for row, columns, scores in _of_table(file, table, paths, lambda row, at: ~np.isnan(result[row, at])):
        infinite = ~np.isfinite(scores.astype(np.float32))
        if infinite.any():
            name = table.classes[columns[int(np.argmax(infinite))]]
            raise DataError(
                f"{file}: the score of {name!r} for {table.ids[row]!s} is "
                f"{scores[int(np.argmax(infinite))]:g}, and scores must be finite",
                "leave it empty",
                what=file,
            )
        result[row, columns] = scores
    return result


def _of_table(
    file: Path, table: LabelTable, paths: Texts, scored: Callable[[int, Indices], npt.NDArray[np.bool_]]
) -> Iterator[tuple[int, Indices, npt.NDArray[np.float64]]]:
    """Row, columns and scores of a table's images; ``scored(row, columns)`` says which came before."""
    row_of = {name: row for names in (paths, table.ids) for row, name in enumerate(names.tolist())}
    nothing = True
    for where, name, columns, scores in _scored(file, table.classes):
        row = row_of.get(name)
        if row is None:
            continue
        nothing = False
        given = ~np.isnan(scores)
        at = np.asarray(columns)[given]
        if (twice := scored(row, at)).any():
            column = table.classes[at[int(np.argmax(twice))]]
            raise DataError(
                f"{file}, {where}: a second score of {column!r} for {name!r}", "remove one of the two"
            )
        yield row, at, scores[given]
    if nothing:
        raise DataError(
            f"{file} has no score for any of the {len(table):,} training images",
            f"name them as they are named in the data, as in {table.ids[0]!s} or {paths[0]!s}",
        )


def _report(observed: Labels, predicted: Labels, unscored: int) -> ScoreReport:
    def counted(label: int, score: int | None) -> npt.NDArray[np.int64]:
        agrees = predicted != UNKNOWN if score is None else predicted == score
        return np.asarray(np.sum((observed == label) & agrees, axis=0, dtype=np.int64))

    return ScoreReport(
        set_positive=counted(UNKNOWN, POSITIVE),
        set_negative=counted(UNKNOWN, NEGATIVE),
        positive=counted(POSITIVE, None),
        positive_missed=counted(POSITIVE, NEGATIVE),
        negative=counted(NEGATIVE, None),
        negative_missed=counted(NEGATIVE, POSITIVE),
        unscored=unscored,
    )


def _scored(file: Path, classes: tuple[str, ...]) -> Iterator[Scored]:
    if file.suffix.lower() == ".npz":
        yield from _from_arrays(file, classes)
        return
    with open_cells(file, "image") as cells:
        if "image" not in cells.header:
            raise DataError(f"{file} has no column 'image', only {listing(cells.header)}", "call it so")
        image = cells.header.index("image")
        if "label" in cells.header and "score" in cells.header:
            yield from _long(cells, image, classes)
        else:
            yield from _wide(cells, image, classes)


def _long(cells: Cells, image: int, classes: tuple[str, ...]) -> Iterator[Scored]:
    index_of = {name: index for index, name in enumerate(classes)}
    label, score = cells.header.index("label"), cells.header.index("score")
    met = False
    for line, row in cells.rows:
        index = index_of.get(row[label].strip())
        if index is not None:
            met = True
            number = np.asarray([_number(cells, line, "score", row[score])])
            yield f"{cells.row_name} {line:,}", row[image].strip(), [index], number
    if not met:
        raise _no_class(cells.file, classes)


def _wide(cells: Cells, image: int, classes: tuple[str, ...]) -> Iterator[Scored]:
    columns = [
        (at, classes.index(name)) for at, name in enumerate(cells.header) if name in classes and at != image
    ]
    if not columns:
        raise _no_class(cells.file, classes)
    indices = [index for _, index in columns]
    for line, row in cells.rows:
        numbers = [_number(cells, line, cells.header[at], row[at]) for at, _ in columns]
        yield f"{cells.row_name} {line:,}", row[image].strip(), indices, np.asarray(numbers)


def _number(cells: Cells, line: int, column: str, cell: str) -> float:
    text = cell.strip()
    try:
        number = float(text) if text else math.nan
    except ValueError:
        raise cells.wrong(line, f"column {column!r} must be a score or empty, not {cell!r}") from None
    return number


def _no_class(file: Path, classes: tuple[str, ...]) -> DataError:
    return DataError(
        f"{file} has scores of none of the classes {listing(classes)}",
        "give it a column for each class",
        "columns image, label and score",
    )


def _from_arrays(file: Path, classes: tuple[str, ...]) -> Iterator[Scored]:
    layouts = {"images": "U N", "classes": "U L", "scores": "fiu N L"}
    rule = "it must hold images (N,), classes (L,) and scores (N, L)"
    arrays = read_arrays(file, layouts, rule, error=DataError)
    images, names, scores = (arrays[name] for name in layouts)
    columns = [(at, classes.index(str(name))) for at, name in enumerate(names) if str(name) in classes]
    if not columns:
        raise _no_class(file, classes)
    at, indices = [column for column, _ in columns], [index for _, index in columns]
    for row, name in enumerate(images.tolist()):
        yield f"row {row:,}", str(name), indices, scores[row, at].astype(np.float64)
