"""``ClassCounts``: how many images each class is in, an estimate with its bounds, and its JSON file."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import NEGATIVE, POSITIVE, LabelMatrix, count_per_class
from sparselabel.errors import DataError, command, counted, listing, spell
from sparselabel.file_formats import read_json
from sparselabel.files import write_json
from sparselabel.losses.setting_checks import within_label_bounds
from sparselabel.schema import Count, Finite

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
How = Literal["auto", "counted"]

DRAWS = 400
SPREAD = 1.96
COUNTED = 40
"""Random images that a remedy suggests to label completely: about six seconds each."""
AGAIN = f"make it again with {command('expect')}"


@dataclass(frozen=True)
class ClassCounts:
    """Expected positives of every class in training: p_i with bounds (L,), and their sum per image, K."""

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
        """K with its interval, how it was found, whether to trust it and what to do if not, in one line."""
        low, high = self.interval
        trust = "" if self.trusted else ", not to be trusted"
        what_to_do = f"; what to do: {spell(self.remedy)}" if self.remedy else ""
        return f"K {self.per_image:.3f} ({low:.2f} – {high:.2f}), {self.how}{trust}: {self.why}{what_to_do}"

    @property
    def remedy(self) -> str:
        """The command that would make K reliable, and how precise it would be; "" if it is trusted."""
        return "" if self.trusted else remedy_of(self.how, self.per_image, self.interval)

    def within(self, observed: LabelMatrix) -> "ClassCounts":
        """The same counts, clipped to the bounds of newer labels (N, L)."""
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


def remedy_of(how: How, k: float, interval: tuple[float, float]) -> str:
    """The command that would make an untrusted K reliable, and how precise it would be."""
    if how == "counted":
        return "label more random training images completely, until the interval is narrow enough for you"
    # Numbers of classes vary by at most about √(K (K − 1)), as a geometric distribution does: by 1.8 of 2.4
    # on COCO, .7 of .8 on VOC.
    off = SPREAD * math.sqrt(max(k * (k - 1), 0.1) / COUNTED)
    return (
        f"label {COUNTED} random training images completely, in about four minutes "
        f"({command('review', 'RUN', goal='count')}), and count in them "
        f"({command('expect', 'DATA', how='counted', labels='RUN/complete.csv')}): K is then known within "
        f"about {off:.1f} instead of {interval[0]:.1f} – {interval[1]:.1f}"
    )


class ExpectedClass(TypedDict):
    """The expected positives of a class, in the file."""

    name: str
    annotated: Finite
    expected: Finite
    low: Finite
    high: Finite


class ExpectedFile(TypedDict):
    """The file that ``ClassCounts.write`` writes."""

    how: How
    K: Finite
    interval: tuple[Finite, Finite]
    trusted: bool
    why: str
    images: Count
    classes: list[ExpectedClass]


NUMBERS = ("annotated", "expected", "low", "high")


def read_expected(path: Path, classes: tuple[str, ...]) -> ClassCounts:
    """Read what ``ClassCounts.write`` wrote, for these classes in this order."""
    content = read_json(path, ExpectedFile, f"make it with {command('expect')}", error=DataError)
    rows = {row["name"]: row for row in content["classes"]}
    if len(rows) < len(content["classes"]):
        names = [row["name"] for row in content["classes"]]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataError(
            f"{path} counts {listing(twice)} more than once", "leave one line of each class", AGAIN
        )
    missing = [name for name in classes if name not in rows]
    extra = [name for name in rows if name not in classes]
    if missing or extra:
        raise DataError(
            f"{path} counts other classes than the data has (missing: {listing(missing) or 'none'}; "
            f"unknown: {listing(extra) or 'none'})",
            AGAIN,
        )
    numbers_of = [[*(rows[name][key] for key in NUMBERS)] for name in classes]  # type: ignore[literal-required]
    column = dict(zip(NUMBERS, np.array(numbers_of, np.float64).reshape(-1, len(NUMBERS)).T, strict=True))
    low, high = content["interval"]
    how, why, images = content["how"], content["why"], content["images"]
    trusted, per_image = content["trusted"], content["K"]
    fault = _fault(images, (low, high))
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
            f"{path} says K {per_image:g}, but its classes add up to {counts.per_image:.4f} per image, "
            "and they are what counts",
            "change their `expected` and K together",
            "give K itself in place of the file",
            AGAIN,
        )
    return counts


def _fault(images: int, interval: tuple[float, float]) -> str:
    """The problem with the numbers of a file, or ""."""
    if images < 1:
        return f"`images` must be at least 1, not {images}"
    if not 0 <= interval[0] <= interval[1] < math.inf:
        return f"`interval` must be two numbers from 0 on that do not fall, not {list(interval)}"
    return ""


def _fault_of_class(
    name: str, images: int, annotated: float, expected: float, low: float, high: float
) -> str:
    """The problem with the numbers of a class, or ""."""
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


def bounded(expected: Floats, observed: LabelMatrix) -> Floats:
    """Numbers for each class (..., L) within the bounds that the observed labels set."""
    annotated, negatives = (count_per_class(observed, label) for label in (POSITIVE, NEGATIVE))
    return within_label_bounds(expected, annotated, negatives, len(observed))


def shared_out(amount: float, weights: Floats, least: Counts, most: Counts) -> Floats:
    """(L,) Numbers in proportion to ``weights`` (above 0) that add up to ``amount``, each within its bounds.

    If the bounds do not allow it, as near as possible. The common factor is found by bisection.
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


def annotated_positives(observed: LabelMatrix) -> npt.NDArray[np.int64]:
    """(L,) Observed positives; raises if there are none."""
    annotated = count_per_class(observed)
    if not annotated.any():
        raise DataError("the training labels have no positive label: there is nothing to estimate from")
    return annotated


def read_expected_for(file: Path, data: Dataset) -> ClassCounts:
    """The counts in a file, which must be those of this data: they are numbers of images."""
    counts = read_expected(file, data.classes)
    annotated = data.train.observed.counts()
    if counts.images != len(data.train) or not np.array_equal(counts.annotated, annotated):
        raise DataError(
            f"{file} was made for other labels ({counted(counts.images, 'image')} with "
            f"{counts.annotated.sum():,} annotations) than {data.folder} has ({len(data.train):,} with "
            f"{annotated.sum():,}): make it again with `sparselabel expect`"
        )
    return counts
