"""What prepared data holds, counted in one pass over the labels, some rows at a time."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import PREPARE_AGAIN, Dataset, PreparedSplit
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, LabelTable
from sparselabel.errors import DataError

BLOCK = 1 << 22  # labels looked at together: data of any size needs some tens of megabytes
MOST = 1000  # wrong labels that are named

What = Literal["positive", "observed_positive", "observed_negative"]
WHAT: tuple[What, ...] = ("positive", "observed_positive", "observed_negative")
Counted = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Counts:
    """The labels of a split of N images and L classes, counted.

    ``uniform`` (L,) is how many positives of each class would be observed if every image's observed ones
    were a random choice of its positives, and ``spread`` (L,) the standard deviation of that number.
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
        """What is observed of all labels: the share of positives, of negatives, and of unknown ones."""
        everything = len(self.per_image["positive"]) * len(self.per_class["positive"])
        positive, negative = (int(self.per_class[what].sum()) for what in WHAT[1:])
        counts = {"positive": positive, "negative": negative, "unknown": everything - positive - negative}
        return {what: number / max(everything, 1) for what, number in counts.items()}


def count(split: PreparedSplit, folder: Path) -> Counts:
    """Count the labels of a split of the data in a folder."""
    rows, classes = split.truth.values.shape
    per_image = {what: np.zeros(rows, np.int64) for what in WHAT}
    per_class = {what: np.zeros(classes, np.int64) for what in WHAT}
    uniform, variance = np.zeros(classes), np.zeros(classes)
    columns = [hashlib.blake2b(digest_size=16) for _ in range(classes)]
    wrong, first_wrong = 0, list[tuple[int, int]]()
    complete = True
    step = max(8, BLOCK // max(classes, 1) // 8 * 8)  # bits of rows are packed by eight
    for start in range(0, rows, step):
        truth = _checked(split.truth, folder / split.name / "truth.npy", start, step)
        observed = _checked(split.observed, folder / split.name / "observed.npy", start, step)
        complete &= not (truth == UNKNOWN).any()
        masks = {
            "positive": truth == POSITIVE,
            "observed_positive": observed == POSITIVE,
            "observed_negative": observed == NEGATIVE,
        }
        for what in WHAT:
            per_image[what][start : start + step] = masks[what].sum(1)
            per_class[what] += masks[what].sum(0)
        positive = masks["positive"]
        chance = (positive & masks["observed_positive"]).sum(1) / np.maximum(positive.sum(1), 1)
        uniform += chance @ positive
        variance += (chance * (1 - chance)) @ positive
        differ = (observed != UNKNOWN) & (truth != UNKNOWN) & (observed != truth)  # scores may say more
        wrong += int(np.count_nonzero(differ))
        if len(first_wrong) < MOST:
            wrong_entries = np.argwhere(differ)[: MOST - len(first_wrong)]
            first_wrong += [(start + row, column) for row, column in wrong_entries.tolist()]
        bits = np.packbits(positive, axis=0)
        for digest, column in zip(columns, bits.T, strict=True):
            digest.update(column.tobytes())
    return Counts(
        per_image,
        per_class,
        uniform,
        np.sqrt(variance),
        complete,
        wrong,
        tuple(first_wrong),
        tuple(digest.digest() for digest in columns),
    )


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
    """How many points, boxes and masks are known, and how many points and boxes training may see."""
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


def _checked(table: LabelTable, file: Path, start: int, step: int) -> Labels:
    block = np.asarray(table.values[start : start + step])
    if block.size and (block.min() < UNKNOWN or block.max() > POSITIVE):
        raise DataError(
            f"{file} is damaged: it holds {block.max() if block.max() > POSITIVE else block.min()}, and a "
            "label is 1, 0 or -1 (unknown)",
            PREPARE_AGAIN,
        )
    return block
