"""How many images each class is in: an estimate with its spread, counting, and the file."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, Labels, LabelTable
from sparselabel.errors import DataError, command, listing
from sparselabel.files import write_json
from sparselabel.losses.setting_checks import within_label_bounds

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
How = Literal["auto", "counted"]

DRAWS = 400
SPREAD = 1.96
OWN_COUNT = 20.0
"""Images that the share by annotated labels weighs beside a class's own count in the counted sample."""
FEWEST_COUNTED = 30
AGAIN = f"make it again with {command('expect')}"


@dataclass(frozen=True)
class ClassCounts:
    """Expected positives of every class in training: p_i with bounds (L,), and their sum an image, K."""

    how: How
    classes: tuple[str, ...]
    images: int
    annotated: npt.NDArray[np.int64]
    expected: Floats
    low: Floats
    high: Floats
    interval: tuple[float, float]
    trusted: bool
    why: str

    @property
    def per_image(self) -> float:
        """K, the mean number of classes in an image."""
        return float(self.expected.sum() / self.images)

    @property
    def summary(self) -> str:
        """K with its interval, how it was found and whether to trust it, in one line."""
        low, high = self.interval
        trust = "" if self.trusted else ", not to be trusted"
        return f"K {self.per_image:.3f} ({low:.2f} – {high:.2f}), {self.how}{trust}: {self.why}"

    def within(self, observed: Labels) -> "ClassCounts":
        """The same for labels (N, L) of which more is known by now: no class below or above what can be."""
        annotated = annotated_positives(observed)
        expected = bounded(self.expected, observed)
        k, fewest = float(expected.sum() / self.images), float(annotated.sum() / self.images)
        low, high = (max(bound, fewest) for bound in self.interval)
        return replace(
            self,
            annotated=annotated,
            expected=expected,
            low=bounded(self.low, observed),
            high=bounded(self.high, observed),
            interval=(min(low, k), max(high, k)),
        )

    def write(self, path: Path) -> None:
        """Write them as JSON."""
        rows = zip(self.classes, self.annotated, self.expected, self.low, self.high, strict=True)
        content = {
            "how": self.how,
            "K": round(self.per_image, 4),
            "interval": [round(bound, 4) for bound in self.interval],
            "trusted": self.trusted,
            "why": self.why,
            "images": self.images,
            "classes": [
                {"name": name, "annotated": int(seen)}
                | {
                    key: round(float(n), 2)
                    for key, n in zip(("expected", "low", "high"), numbers, strict=True)
                }
                for name, seen, *numbers in rows
            ],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, content)


def read_expected(path: Path, classes: tuple[str, ...]) -> ClassCounts:
    """Read what ``ClassCounts.write`` wrote, for these classes in this order."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = {row["name"]: row for row in content["classes"]}
        if len(rows) < len(content["classes"]):
            names = [row["name"] for row in content["classes"]]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise DataError(
                f"{path} counts {listing(twice)} more than once",
                "leave one line of each class",
                AGAIN,
                what=path,
                value=twice,
            )
        missing = [name for name in classes if name not in rows]
        extra = [name for name in rows if name not in classes]
        if missing or extra:
            raise DataError(
                f"{path} counts other classes than the data has (missing: {listing(missing) or 'none'}; "
                f"unknown: {listing(extra) or 'none'})",
                AGAIN,
                what=path,
            )
        column = {
            key: np.array([rows[name][key] for name in classes], dtype=np.float64)
            for key in ("annotated", "expected", "low", "high")
        }
        low, high = (float(bound) for bound in content["interval"])
        how, why, images = content["how"], str(content["why"]), int(content["images"])
        trusted, per_image = bool(content["trusted"]), float(content["K"])
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, DataError):
            raise
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(
            f"{path} is not a file of expected positives ({reason})",
            f"make it with {command('expect')}",
            what=path,
        ) from error
    fault = _fault(how, images, (low, high))
    for name, *numbers in zip(classes, *column.values(), strict=True):
        fault = fault or _fault_of_class(name, images, *numbers)
    if fault:
        raise DataError(f"{path} has counts that cannot be ({fault})", "mend it", AGAIN, what=path)
    annotated = column.pop("annotated").astype(np.int64)
    counts = ClassCounts(
        how=how, classes=classes, images=images, annotated=annotated, interval=(low, high),
        trusted=trusted, why=why, **column,
    )  # fmt: skip
    # Both are written rounded: K to four digits, the numbers of the classes to two.
    if not abs(counts.per_image - per_image) <= 1e-4 + 0.005 * len(classes) / images:
        raise DataError(
            f"{path} says K {per_image:g}, but its classes add up to {counts.per_image:.4f} an image, "
            "and they are what counts",
            "change their `expected` and K together",
            "give K itself in place of the file",
            AGAIN,
            what=path,
            value=per_image,
        )
    return counts


def _fault(how: str, images: int, interval: tuple[float, float]) -> str:
    """What cannot be in the numbers of a file, or nothing."""
    if how not in ("auto", "counted"):
        return f"`how` must be auto or counted, not {how!r}"
    if images < 1:
        return f"`images` must be at least 1, not {images}"
    if not 0 <= interval[0] <= interval[1] < math.inf:
        return f"`interval` must be two numbers from 0 on that do not fall, not {list(interval)}"
    return ""


def _fault_of_class(
    name: str, images: int, annotated: float, expected: float, low: float, high: float
) -> str:
    """What cannot be in the numbers of a class, or nothing."""
    if not 0 <= annotated <= images or annotated != int(annotated):
        return f"{name} must have 0 to {images:,} annotated images, not {annotated:g}"
    if not annotated <= expected <= images:
        return (
            f"{name} must be expected in at least its {annotated:g} annotated images and at most all "
            f"{images:,}, not in {expected:g}"
        )
    if not 0 <= low <= high <= images:
        return f"{name} must have 0 <= low <= high <= {images:,}, not {low:g} and {high:g}"
    return ""


def bounded(expected: Floats, observed: Labels) -> Floats:
    """Numbers for each class (..., L) within the bounds that the observed labels set."""
    annotated, negatives = ((observed == label).sum(0) for label in (POSITIVE, NEGATIVE))
    return within_label_bounds(expected, annotated, negatives, len(observed))


def counted_positives(complete: LabelTable, observed: LabelTable, seed: int = 0) -> ClassCounts:
    """Expected positives from some random images with complete labels.

    K is their mean number of classes. Classes share K·N by their annotated labels (Verelst 2023 eq. 3); the
    larger the sample, the more a class's own count in it weighs; what a class cannot take, as no class is in
    more than all images, the others share. K's spread is a bootstrap over the counted images. A class's is
    Wilson's interval of its own count, which has a width for a class that was never seen, too.
    """
    if complete.classes != observed.classes:
        raise DataError("the counted images must have the data's classes, in the same order")
    if not complete.complete:
        raise DataError(
            "counted images must have all labels, 1 or 0", "complete them", "leave those rows out"
        )
    if len(complete) < 2:
        raise DataError(
            f"{len(complete)} counted images say nothing",
            "label a few dozen random ones completely",
            value=len(complete),
        )
    annotated = annotated_positives(observed.values)
    counts = (complete.values == POSITIVE).astype(np.float64)
    size, images = len(counts), len(observed)
    own = counts.mean(0) * images
    weight = size / (size + OWN_COUNT * len(annotated))
    mixed = weight * own + (1 - weight) * own.sum() * annotated / annotated.sum()
    most = images - observed.counts(NEGATIVE)
    known = annotated > 0
    expected = np.zeros(len(annotated))
    expected[known] = shared_out(own.sum(), mixed[known], annotated[known], most[known])
    each, random = counts.sum(1), np.random.default_rng(seed)
    drawn = [each[random.integers(0, size, size)].mean() for _ in range(DRAWS)]  # one at a time is in memory
    k = expected.sum() / images
    k_low, k_high = np.quantile(drawn, (0.025, 0.975))
    # What is annotated is there for sure.
    k_low, k_high = min(max(k_low, annotated.sum() / images), k), max(k_high, k)
    low, high = (bounded(images * share, observed.values) for share in wilson(counts.sum(0), size))
    low, high = np.minimum(low, expected), np.maximum(high, expected)
    few = size < FEWEST_COUNTED
    why = f"counted in {size:,} images" + (f": fewer than {FEWEST_COUNTED}" if few else "")
    return ClassCounts(
        "counted", observed.classes, len(observed), annotated, expected, low, high,
        (float(k_low), float(k_high)), not few, why,
    )  # fmt: skip


def shared_out(amount: float, weights: Floats, least: Counts, most: Counts) -> Floats:
    """(L,) Numbers in proportion to ``weights`` (above 0) that add up to ``amount``, each within its bounds.

    Where the bounds do not let them, the nearest they can. All have one factor, found by halving.
    """
    low, high = 0.0, float(np.max(most / np.maximum(weights, 1e-12), initial=0.0))
    for _ in range(100):
        factor = (low + high) / 2
        if np.clip(factor * weights, least, most).sum() < amount:
            low = factor
        else:
            high = factor
    shares: Floats = np.clip(high * weights, least, most)
    return shares


def wilson(seen: Floats | Counts, size: int | Counts) -> tuple[Floats, Floats]:
    """Wilson's 95 % interval of the share of which ``seen`` of ``size`` draws were."""
    share, square = seen / size, SPREAD**2 / size
    middle = share + square / 2
    half = SPREAD * np.sqrt((share * (1 - share) + square / 4) / size)
    return (middle - half) / (1 + square), (middle + half) / (1 + square)


def annotated_positives(observed: Labels) -> npt.NDArray[np.int64]:
    """(L,) Annotated positives; raises if there are none."""
    annotated: npt.NDArray[np.int64] = (observed == POSITIVE).sum(0, dtype=np.int64)
    if not annotated.any():
        raise DataError("the training labels have no positive label: there is nothing to estimate from")
    return annotated
