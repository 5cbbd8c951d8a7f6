"""How right decided labels are: precision and recall at a threshold, and among the k highest scores.

The field reports six averages: CP, CR, CF1 "per class" and OP, OR, OF1 "overall", once for all
classes and once for the top 3 of a picture. What is 0/0 counts as 0 here, without an epsilon.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import POSITIVE, LabelTable
from sparselabel.errors import ConfigError
from sparselabel.inference.class_thresholds import Decisions
from sparselabel.metrics.calibration import Floats, logits_of
from sparselabel.metrics.ranking import Scores, Values, refuse_unknown, scores_and_labels

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Counts:
    """(L,) How many pictures of each class are ``predicted``, ``positive``, and both (``hits``)."""

    hits: Numbers
    predicted: Numbers
    positive: Numbers

    @property
    def precision(self) -> Values:
        """(L,) The share of hits among the predicted pictures; 0 for a class never predicted."""
        return _ratio(self.hits, self.predicted)

    @property
    def recall(self) -> Values:
        """(L,) The share of hits among the positive pictures; 0 for a class without positives."""
        return _ratio(self.hits, self.positive)

    @property
    def f1(self) -> Values:
        """(L,) The harmonic mean of precision and recall; 0 where both are."""
        return _ratio(2 * self.hits, self.predicted + self.positive)

    def averages(self) -> dict[str, float]:
        """The field's six numbers, 0..1, by their usual names.

        CP and CR are the means of the classes' precision and recall, and CF1 is the harmonic mean of
        these two (not the mean of the classes' F1). OP, OR and OF1 are of all decisions together.
        """
        cp, cr = float(self.precision.mean()), float(self.recall.mean())
        hits, predicted, positive = (int(n.sum()) for n in (self.hits, self.predicted, self.positive))
        return {
            "CP": cp,
            "CR": cr,
            "CF1": 2 * cp * cr / (cp + cr) if cp + cr else 0.0,
            "OP": hits / predicted if predicted else 0.0,
            "OR": hits / positive if positive else 0.0,
            "OF1": 2 * hits / (predicted + positive) if predicted + positive else 0.0,
        }


@dataclass(frozen=True)
class AtK:
    """The k highest scores of a picture against its labels, as means over all pictures, 0..1.

    ``recall`` is the share of the picture's positives among the k, ``precision`` the share of the k
    that are positive, ``hit_rate`` the share of pictures with at least one positive among the k.
    """

    k: int
    recall: float
    precision: float
    hit_rate: float


def precision_recall_f1(
    scores: npt.ArrayLike, labels: npt.ArrayLike, threshold: float = 0.5, top: int | None = None
) -> Counts:
    """Count what is predicted at a threshold, for (N, L) scores and labels without unknown ones.

    A class is predicted where its score is at or above the threshold. With ``top``, only a picture's
    ``top`` highest scores can be: of these, the ones at or above the threshold are predicted.
    """
    if not np.isfinite(threshold):
        raise ConfigError(f"a threshold must be a finite number, not {threshold}")
    score_array, positive = _complete(scores, labels)
    predicted = np.asarray(score_array >= float(threshold))
    if top is not None:
        predicted &= _highest(score_array, top)
    return Counts(
        hits=np.count_nonzero(predicted & positive, axis=0).astype(np.int64),
        predicted=np.count_nonzero(predicted, axis=0).astype(np.int64),
        positive=np.count_nonzero(positive, axis=0).astype(np.int64),
    )


def at_k(scores: npt.ArrayLike, labels: npt.ArrayLike, k: int) -> AtK:
    """Recall, precision and hit rate of each picture's k highest scores, whatever their size.

    Pictures without positives count as 0 in all three. Scores and labels are (N, L), none unknown.
    """
    score_array, positive = _complete(scores, labels)
    if k > score_array.shape[1]:
        raise ConfigError(f"k must be at most the number of classes, {score_array.shape[1]:,}, not {k}")
    hits = np.count_nonzero(_highest(score_array, k) & positive, axis=1)
    return AtK(
        k=k,
        recall=float(_ratio(hits, np.count_nonzero(positive, axis=1)).mean()),
        precision=float(hits.mean() / k),
        hit_rate=float((hits > 0).mean()),
    )


def _complete(scores: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Scores, npt.NDArray[np.bool_]]:
    score_array, label_array = scores_and_labels(scores, labels)
    refuse_unknown(label_array, "give full labels, or labels == 1 to count the unknown ones as negative")
    return score_array, np.asarray(label_array == POSITIVE)


def _highest(scores: Scores, k: int) -> npt.NDArray[np.bool_]:
    """(N, L) Whether a score is among its row's k highest; of equal ones, the first classes are."""
    if k < 1:
        raise ConfigError(f"the number of highest scores must be at least 1, not {k}")
    classes = scores.shape[1]
    if k >= classes:
        return np.ones(scores.shape, dtype=np.bool_)
    last = np.partition(scores, classes - k, axis=1)[:, classes - k, None]
    above, level = scores > last, scores == last
    free = k - np.count_nonzero(above, axis=1)[:, None]
    return np.asarray(above | (level & (np.cumsum(level, axis=1, dtype=np.int32) <= free)))


def _ratio(part: npt.NDArray[np.integer], whole: npt.NDArray[np.integer]) -> Values:
    """Part by whole, and 0 where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.zeros(whole.shape), where=whole > 0))


BINS = 10
WILSON = 1.96  # standard errors: 95 % of the time the truth is inside


def decided_measures(scores: Scores, labels: LabelTable, decisions: Decisions) -> dict[str, Any]:
    """Calibration of scores (N, L), and precision, recall and F1 at the thresholds; plain values for JSON.

    ``calibration`` is None where labels are incomplete: what share of unknown labels is there nobody knows.
    """
    calibrated = decisions.calibration(logits_of(scores))
    positive = (np.asarray(labels.values) == POSITIVE).astype(np.int8)
    counts = precision_recall_f1(calibrated - decisions.thresholds(), positive, 0.0)
    averages = counts.averages()
    rows = zip(
        decisions.classes,
        counts.hits.tolist(),
        counts.predicted.tolist(),
        counts.precision.tolist(),
        counts.recall.tolist(),
        counts.f1.tolist(),
        strict=True,
    )
    return {
        "chosen_from": {"split": "val", "pictures": decisions.pictures, "labels": decisions.labels},
        "macro_f1": float(counts.f1.mean()),
        "micro_f1": averages["OF1"],
        "micro_precision": averages["OP"],
        "micro_recall": averages["OR"],
        "classes": [
            {
                "name": decision.name,
                "threshold": decision.threshold,
                "precision": precision,
                "precision_interval": [*wilson(hits, predicted)] if predicted else None,
                "recall": recall,
                "f1": f1,
                "trust": decision.trust,
                "why": decision.why,
            }
            for decision, hits, predicted, precision, recall, f1 in rows
        ],
        "calibration": _calibration(np.asarray(scores, np.float64), calibrated, positive)
        if labels.complete
        else None,
    }


def _calibration(raw: Floats, calibrated: Floats, positive: npt.NDArray[np.int8]) -> dict[str, Any]:
    bins = reliability(calibrated, positive)
    return {
        "ece": expected_error(bins),
        "ece_of_raw_scores": expected_error(reliability(raw, positive)),
        "brier": float(np.mean((calibrated - positive) ** 2)),
        "brier_of_raw_scores": float(np.mean((raw - positive) ** 2)),
        "bins": bins,
        "bins_of_raw_scores": reliability(raw, positive),
    }


def reliability(scores: Floats, positive: npt.NDArray[np.int8]) -> list[dict[str, Any]]:
    """Entries by score, in tenths: how many, their mean score, and the share of them that is really there."""
    place = np.minimum((scores * BINS).astype(np.int64), BINS - 1).ravel()
    counts = np.bincount(place, minlength=BINS)
    means = np.bincount(place, scores.ravel(), BINS) / np.maximum(counts, 1)
    shares = np.bincount(place, positive.ravel(), BINS) / np.maximum(counts, 1)
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


def expected_error(bins: list[dict[str, Any]]) -> float:
    """ECE: how far mean score and share are apart, in the mean over all entries."""
    filled = [row for row in bins if row["count"]]
    total = sum(row["count"] for row in filled)
    apart = sum(row["count"] * abs(row["mean_score"] - row["share_there"]) for row in filled)
    return float(apart / max(total, 1))


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Bounds of a share, of which so many of so many were seen."""
    share, square = hits / of, WILSON**2
    middle = (share + square / (2 * of)) / (1 + square / of)
    reach = WILSON / (1 + square / of) * math.sqrt(share * (1 - share) / of + square / (4 * of**2))
    return max(0.0, middle - reach), min(1.0, middle + reach)
