"""How good calibrated scores and the thresholds of classes are on a split."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import POSITIVE, LabelTable
from sparselabel.inference.class_thresholds import Decisions
from sparselabel.metrics.calibration import Floats, logits_of
from sparselabel.metrics.decisions import precision_recall_f1
from sparselabel.metrics.ranking import Scores

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
