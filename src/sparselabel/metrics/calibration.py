"""Calibration: a linear function of the logits of each class, so that scores can be read as probabilities.

A class has its own slope and offset (Platt's scaling), fitted to validation with a prior around those that
all classes share: few images move a class little. Isotonic regression needs hundreds of positives per class,
and one temperature for all classes does not fit, as methods for unknown labels shift classes differently.

Labels may be sparse. If a present class is annotated with probability c, and an absent one with probability
d, on every image, then

    P(positive | z) = c σ(η)    P(negative | z) = d (1 − σ(η))    P(unknown | z) = 1 − the two

with η = slope · (z − m) + b, and that likelihood is maximized. Full labels are c = d = 1. m is the logit
above which as many images lie as are expected to show the class, so that b is comparable between classes.

Entries that a reviewer answered, chosen by their scores, add σ(η) for a yes and 1 − σ(η) for a no. c and d
are probabilities of annotation without these answers.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, Labels

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
LIMIT = 16.0
"""Logits are clipped here, where a score in 32 bits is 1."""
SLOPE_SPREAD, OFFSET_SPREAD = 0.3, 0.6
"""Prior standard deviations of a class's log slope and b around those of all classes."""
STEPS, ENOUGH = 60, 1e-6
BLOCK = 2_000_000  # entries at a time, so that memory does not grow with the number of classes
LOG_SLOPE, OFFSET = 3.0, 10.0  # bounds far from any sensible fit


@dataclass(frozen=True, eq=False)
class Calibration:
    """(L,) A class's calibrated score is sigmoid(slope · logit + offset)."""

    slope: Floats
    offset: Floats

    def __call__(self, logits: npt.NDArray[np.floating]) -> Floats:
        """(N, L) Calibrated scores of logits (N, L)."""
        scores = np.empty(logits.shape)
        for rows in _row_blocks(*logits.shape):
            scores[rows] = sigmoid(self.slope * np.asarray(logits[rows], np.float64) + self.offset)
        return scores

    def of_classes(self, part: slice) -> "Calibration":
        """The calibration of some classes."""
        return Calibration(self.slope[part], self.offset[part])


@dataclass(frozen=True, eq=False)
class Annotating:
    """(L,) Probabilities that a class is annotated if present (``present``) and if absent (``absent``)."""

    present: Floats
    absent: Floats


def no_calibration(classes: int) -> Calibration:
    """Scores as the model gives them."""
    return Calibration(np.ones(classes), np.zeros(classes))


def sigmoid(values: Floats) -> Floats:
    """Scores of logits."""
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -40, 40))))


def logits_of(scores: npt.NDArray[np.floating]) -> Floats:
    """Logits of scores, within ±16."""
    logits = np.empty(scores.shape)
    for rows in _row_blocks(*scores.shape):
        shares = np.clip(np.asarray(scores[rows], np.float64), 1e-12, 1 - 1e-12)
        logits[rows] = np.clip(np.log(shares) - np.log1p(-shares), -LIMIT, LIMIT)
    return logits


def calibrate(
    logits: Floats,
    labels: Labels,
    prevalence: Floats,
    annotating: Annotating,
    answered: Mask | None = None,
) -> Calibration:
    """Fit (N, L) logits to labels; ``prevalence`` (L,) is the expected share of images with each class.

    ``answered`` (N, L) are labels from questions that were chosen by score.
    """
    middle = np.array(
        [np.quantile(logits[:, index], 1 - share) for index, share in enumerate(np.clip(prevalence, 0, 1))]
    )
    sample = _Sample(logits, labels, middle, annotating, answered)
    shared = _shared(sample)
    slope, offset = _own(sample, shared)
    return Calibration(slope, offset - slope * middle)


def likelihood(calibration: Calibration, logits: Floats, labels: Labels, annotating: Annotating) -> float:
    """The mean log likelihood of an image's labels."""
    total = 0.0
    for block in class_blocks(*logits.shape):
        eta = calibration.slope[block] * logits[:, block] + calibration.offset[block]
        there, not_there = np.clip(sigmoid(eta), 1e-9, 1), np.clip(sigmoid(-eta), 1e-9, 1)
        c, d = annotating.present[block], annotating.absent[block]
        unknown = np.maximum(1 - c * there - d * not_there, 1e-9)
        chance = np.where(
            labels[:, block] == POSITIVE,
            c * there,
            np.where(labels[:, block] == NEGATIVE, d * not_there, unknown),
        )
        total += float(np.log(np.maximum(chance, 1e-12)).sum())
    return total / len(logits)


@dataclass(frozen=True, eq=False)
class _Sample:
    logits: Floats
    labels: Labels
    middle: Floats
    annotating: Annotating
    answered: Mask | None = None

    def moments(self, part: slice, log_slope: Floats, offset: Floats) -> Floats:
        """(5, classes of the part) Gradient by log slope and b, and the Fisher information of the two."""
        slope = np.exp(log_slope)
        along = slope * (self.logits[:, part] - self.middle[part])  # what b does not add; its own derivative
        there = np.clip(sigmoid(along + offset), 1e-9, 1 - 1e-9)
        c, d = self.annotating.present[part], self.annotating.absent[part]
        unknown = np.maximum(1 - c * there - d * (1 - there), 1e-9)
        labels = self.labels[:, part]
        variance = there * (1 - there)
        gradient = np.where(
            labels == POSITIVE, 1 - there, np.where(labels == NEGATIVE, -there, -(c - d) * variance / unknown)
        )
        information = variance * (c * (1 - there) + d * there + (c - d) ** 2 * variance / unknown)
        if self.answered is not None:
            information = np.where(self.answered[:, part], variance, information)
        return np.stack(
            [
                (gradient * along).sum(0),
                gradient.sum(0),
                (information * along * along).sum(0),
                (information * along).sum(0),
                information.sum(0),
            ]
        )


def _shared(sample: _Sample) -> tuple[float, float]:
    """Log slope and b fitted to all classes together."""
    log_slope, offset = 0.0, 0.0
    for _ in range(STEPS):
        sums = np.zeros(5)
        for part in class_blocks(*sample.logits.shape):
            width = sample.middle[part].shape
            sums += sample.moments(part, np.full(width, log_slope), np.full(width, offset)).sum(1)
        before = log_slope, offset
        log_slope, offset = (float(value[0]) for value in _moved(sums[:, None], *before))
        if max(abs(log_slope - before[0]), abs(offset - before[1])) < ENOUGH:
            break
    return log_slope, offset


def _own(sample: _Sample, shared: tuple[float, float]) -> tuple[Floats, Floats]:
    """Slope and b of every class, with the shared ones as prior."""
    slopes, offsets = [], []
    for part in class_blocks(*sample.logits.shape):
        log_slope = np.full(sample.middle[part].shape, shared[0])
        offset = np.full(log_slope.shape, shared[1])
        for _ in range(STEPS):
            sums = sample.moments(part, log_slope, offset)
            sums[0] -= (log_slope - shared[0]) / SLOPE_SPREAD**2
            sums[1] -= (offset - shared[1]) / OFFSET_SPREAD**2
            sums[2] += 1 / SLOPE_SPREAD**2
            sums[4] += 1 / OFFSET_SPREAD**2
            before = np.stack([log_slope, offset])
            log_slope, offset = _moved(sums, log_slope, offset)
            if np.abs([log_slope, offset] - before).max() < ENOUGH:
                break
        slopes.append(np.exp(log_slope))
        offsets.append(offset)
    return np.concatenate(slopes), np.concatenate(offsets)


def _moved(sums: Floats, log_slope: Floats | float, offset: Floats | float) -> tuple[Floats, Floats]:
    """Log slopes and b after a step of Fisher scoring, no part of it longer than 1, and within bounds."""
    down, across, first, mixed, last = sums
    first, last = first + ENOUGH, last + ENOUGH
    determinant = np.maximum(first * last - mixed**2, 1e-12)
    steps = np.stack([last * down - mixed * across, first * across - mixed * down]) / determinant
    steps = steps / np.maximum(np.abs(steps).max(0), 1)
    return (
        np.clip(log_slope + steps[0], -LOG_SLOPE, LOG_SLOPE),
        np.clip(offset + steps[1], -OFFSET, OFFSET),
    )


def _row_blocks(images: int, *classes: int) -> list[slice]:
    tall = max(1, BLOCK // max(math.prod(classes), 1))
    return [slice(start, start + tall) for start in range(0, images, tall)]


def class_blocks(images: int, classes: int) -> list[slice]:
    """Classes in parts of a bounded number of entries."""
    wide = max(1, BLOCK // max(images, 1))
    return [slice(start, min(start + wide, classes)) for start in range(0, classes, wide)]


BINS = 10


class Reliability:
    """Reliability of scores, accumulated in parts: bins of tenths, and the Brier score."""

    def __init__(self) -> None:
        self._counts = np.zeros(BINS, np.int64)
        self._sums, self._there = np.zeros((2, BINS))
        self._squares = 0.0

    def add(self, scores: Floats, positive: npt.NDArray[np.int8]) -> None:
        """Add scores and labels (N, L)."""
        index = np.minimum((scores * BINS).astype(np.int64), BINS - 1).ravel()
        self._counts += np.bincount(index, minlength=BINS)
        self._sums += np.bincount(index, scores.ravel(), BINS)
        self._there += np.bincount(index, positive.ravel(), BINS)
        self._squares += float(np.sum((scores - positive) ** 2))

    @property
    def brier(self) -> float:
        """The mean squared error of scores."""
        return self._squares / max(int(self._counts.sum()), 1)

    @property
    def bins(self) -> list[dict[str, Any]]:
        """Bins of scores in tenths: number of entries, their mean score, and the share that is present."""
        counts = self._counts
        means, shares = (total / np.maximum(counts, 1) for total in (self._sums, self._there))
        return [
            {
                "from": number / BINS,
                "to": (number + 1) / BINS,
                "count": int(counts[number]),
                "mean_score": float(means[number]) if counts[number] else None,
                "share_there": float(shares[number]) if counts[number] else None,
            }
            for number in range(BINS)
        ]


def calibration_metrics(raw: Reliability, calibrated: Reliability) -> dict[str, Any]:
    """Calibration error and Brier score, before and after calibration, with their reliability bins."""
    return {
        "ece": expected_calibration_error(calibrated.bins),
        "ece_of_raw_scores": expected_calibration_error(raw.bins),
        "brier": calibrated.brier,
        "brier_of_raw_scores": raw.brier,
        "bins": calibrated.bins,
        "bins_of_raw_scores": raw.bins,
    }


def expected_calibration_error(bins: list[dict[str, Any]]) -> float:
    """ECE: the mean distance of mean score and share, weighted by entries."""
    filled = [row for row in bins if row["count"]]
    total = sum(row["count"] for row in filled)
    apart = sum(row["count"] * abs(row["mean_score"] - row["share_there"]) for row in filled)
    return float(apart / max(total, 1))
