"""Statistics of prepared data, counted in one pass over the labels."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.labels import (
    NEGATIVE,
    POSITIVE,
    UNKNOWN,
    LabelMatrix,
    Labels,
    SparseLabels,
    count_per_class,
    count_per_image,
    entry_spans,
    known_entries,
    row_blocks,
)
from sparselabel.data.prepared_files import PREPARE_AGAIN
from sparselabel.errors import DataError

MOST = 1000  # wrong labels that are named

What = Literal["positive", "observed_positive", "observed_negative"]
WHAT: tuple[What, ...] = ("positive", "observed_positive", "observed_negative")
Counted = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Counts:
    """The labels of a split of N images and L classes, counted.

    ``uniform`` (L,) is the expected number of observed positives of each class if every image's observed ones
    were a random choice of its positives, and ``spread`` (L,) its standard deviation.
    """

    per_image: dict[What, Counted]
    per_class: dict[What, Counted]
    uniform: Numbers
    spread: Numbers
    complete: bool
    wrong: int
    """How many observed labels are not the true ones."""
    first_wrong: tuple[tuple[int, int], ...]
    """Rows and classes of the first of them."""
    columns: tuple[bytes, ...]
    """A digest of each class's positive rows: the same for classes with the same positives."""

    @property
    def hidden(self) -> bool:
        """Whether a positive is known that is not observed."""
        return bool((self.per_class["positive"] > self.per_class["observed_positive"]).any())

    @property
    def without(self) -> int:
        """How many images have no observed label at all."""
        return int((self.per_image["observed_positive"] + self.per_image["observed_negative"] == 0).sum())

    @property
    def shares(self) -> dict[str, float]:
        """Shares of all labels: observed positives, observed negatives, and unknown ones."""
        everything = len(self.per_image["positive"]) * len(self.per_class["positive"])
        positive, negative = (int(self.per_class[what].sum()) for what in WHAT[1:])
        counts = {"positive": positive, "negative": negative, "unknown": everything - positive - negative}
        return {what: number / max(everything, 1) for what, number in counts.items()}


def count(split: PreparedSplit, folder: Path) -> Counts:
    """Count the labels of a split of the data in a folder."""
    _refuse_damaged(split, folder)
    truth, observed = split.truth.matrix, split.observed.matrix
    per_image = {what: count_per_image(labels, value) for what, (labels, value) in _parts(split).items()}
    per_class = {what: count_per_class(labels, value) for what, (labels, value) in _parts(split).items()}
    hits = np.zeros(len(truth), np.int64)  # known positives that are observed
    columns = [hashlib.blake2b(digest_size=16) for _ in split.truth.classes]
    for rows, classes, values in known_entries(truth):
        positive = np.flatnonzero(values == POSITIVE)
        np.add.at(hits, rows[positive], observed[rows[positive], classes[positive]] == POSITIVE)
        by_class = positive[np.argsort(classes[positive], kind="stable")]
        here, first = np.unique(classes[by_class], return_index=True)
        for column, start, end in zip(here.tolist(), first, [*first[1:], None], strict=False):
            columns[column].update(rows[by_class[start:end]].tobytes())
    chance = hits / np.maximum(per_image["positive"], 1)
    uniform, variance = (np.zeros(len(columns)) for _ in range(2))
    wrong, first_wrong = 0, list[tuple[int, int]]()
    for rows, classes, values in known_entries(truth):
        positive = values == POSITIVE
        of_image = chance[rows[positive]]
        uniform += np.bincount(classes[positive], of_image, len(columns))
        variance += np.bincount(classes[positive], of_image * (1 - of_image), len(columns))
        seen = observed[rows, classes]
        differ = np.flatnonzero((seen != UNKNOWN) & (seen != values))
        wrong += len(differ)
        more = differ[: MOST - len(first_wrong)]
        first_wrong += zip(rows[more].tolist(), classes[more].tolist(), strict=True)
    return Counts(
        per_image,
        per_class,
        uniform,
        np.sqrt(variance),
        split.truth.complete,
        wrong,
        tuple(first_wrong),
        tuple(digest.digest() for digest in columns),
    )


def _parts(split: PreparedSplit) -> dict[What, tuple[LabelMatrix, int]]:
    truth, observed = split.truth.matrix, split.observed.matrix
    return {
        "positive": (truth, POSITIVE),
        "observed_positive": (observed, POSITIVE),
        "observed_negative": (observed, NEGATIVE),
    }


def _refuse_damaged(split: PreparedSplit, folder: Path) -> None:
    """Raise if values are no labels, or compressed rows are not in order."""
    for name, table in (("truth", split.truth), ("observed", split.observed)):
        labels = table.matrix
        if not isinstance(labels, SparseLabels):
            _refuse_strange(labels, folder / split.name / f"{name}.npy")
            continue
        starts, (rows, classes) = labels.starts, labels.shape
        if starts[0] != 0 or starts[rows] != len(labels.columns) or (starts[1:] < starts[:-1]).any():
            problem = "its rows are not one behind the other"
            raise _damaged(folder / split.name / f"{name}_starts.npy", problem)
        for entries in entry_spans(labels):
            columns, known = labels.columns[entries], labels.known[entries]
            if columns.min() < 0 or columns.max() >= classes:
                problem = f"it names a class beyond the {classes:,}"
                raise _damaged(folder / split.name / f"{name}_columns.npy", problem)
            if known.min() < NEGATIVE or known.max() > POSITIVE:
                strange = known.max() if known.max() > POSITIVE else known.min()
                problem = f"it holds {strange}, and a known label is 1 or 0"
                raise _damaged(folder / split.name / f"{name}_known.npy", problem)


def _damaged(file: Path, problem: str) -> DataError:
    return DataError(f"{file} is damaged: {problem}", PREPARE_AGAIN, what=file)


def count_all(prepared: Dataset) -> dict[str, Counts]:
    """Count the labels of every split."""
    return {name: count(split, prepared.folder) for name, split in prepared.splits.items()}


def description(prepared: Dataset, counted: dict[str, Counts]) -> dict[str, Any]:
    """Counts per split and class, as the command ``data`` prints them in JSON."""
    return {
        "name": prepared.name,
        "splits": {
            name: _described(prepared.classes, counts)
            | {"marks": count_spatial_labels(prepared.splits[name])}
            for name, counts in counted.items()
        },
        **({"bought": prepared.made["bought"]} if "bought" in prepared.made else {}),
    }


def count_spatial_labels(split: PreparedSplit) -> dict[str, int]:
    """The number of known points, boxes and masks, and of points and boxes that training may see."""
    points, seen = int(split.spatial_labels.is_point.sum()), int(split.seen.is_point.sum())
    return {
        "points": points,
        "boxes": len(split.spatial_labels) - points,
        "masks": int(split.masks.there.sum()) if split.masks is not None else 0,
        "seen_points": seen,
        "seen_boxes": len(split.seen) - seen,
    }


def histogram(numbers: Counted) -> dict[str, Any]:
    """Mean, least and most of some numbers, and how often 0, 1, 2, … occur."""
    return {
        "mean": float(numbers.mean()) if len(numbers) else 0.0,
        "min": int(numbers.min(initial=numbers.max(initial=0))),
        "max": int(numbers.max(initial=0)),
        "histogram": np.bincount(numbers, minlength=1).tolist(),
    }


def _described(classes: tuple[str, ...], counts: Counts) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for index, name in enumerate(classes):
        row: dict[str, Any] = {"name": name} | {what: int(counts.per_class[what][index]) for what in WHAT}
        if counts.hidden:
            row["observed_positive_if_uniform"] = round(float(counts.uniform[index]), 3)
        rows.append(row)
    known = {what: histogram(counts.per_image[what]) for what in WHAT if what != "positive"}
    return {
        "images": len(counts.per_image["positive"]),
        "classes": rows,
        "complete": counts.complete,
        "observed": counts.shares,
        "images_without_labels": counts.without,
        # Where labels are missing, an image's known positives are not all that it shows.
        "per_image": {"positive": histogram(counts.per_image["positive"]) if counts.complete else None}
        | known,
    }


def _refuse_strange(labels: Labels, file: Path) -> None:
    """Raise if a value is no label."""
    for rows in row_blocks(*labels.shape):
        block = np.asarray(labels[rows])
        if block.size and (block.min() < UNKNOWN or block.max() > POSITIVE):
            strange = block.max() if block.max() > POSITIVE else block.min()
            raise _damaged(file, f"it holds {strange}, and a label is 1, 0 or -1 (unknown)")
