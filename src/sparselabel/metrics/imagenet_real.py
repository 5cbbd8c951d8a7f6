"""ReaL: ImageNet's validation images with several labels each (Verelst 2023 §4.3, table 3)."""

import warnings
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import POSITIVE, UNKNOWN, Labels
from sparselabel.errors import DataError, DataWarning
from sparselabel.metrics.average_precision import (
    average_precision,
    by_number_of_labels,
    mean_average_precision,
)
from sparselabel.metrics.tiled_scores import ScoreMatrix, in_memory

NUMBERS = ("1", "2", "3", "4+")
"""Table 3's subsets, by an image's number of labels."""


def real_metrics(scores: npt.ArrayLike, single: Labels, real: Labels) -> dict[str, Any]:
    """Top-1 by the one original label on all images; top-1 and mAP by ReaL on those that have its labels.

    ``scores``, ``single`` and ``real`` are (N, L); an image without ReaL labels has UNKNOWN ones.
    """
    values = np.asarray(scores)
    labeled = np.asarray(real[:, 0] != UNKNOWN)
    if not labeled.any():
        raise DataError(
            f"none of the {len(labeled):,} images has a ReaL label", "prepare them with real.json again"
        )
    labels = np.asarray(real[labeled])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # how many classes have positives is in the result
        ap = average_precision(values[labeled], labels)
    subsets = by_number_of_labels(values[labeled], labels)
    return {
        "images": int(labeled.sum()),
        "labels_a_image": float((labels == POSITIVE).sum(axis=1).mean()),
        "top_1_single": top_1(values, single),
        "top_1": top_1(values[labeled], labels),
        "mean_average_precision": asdict(mean_average_precision(ap, labels)),
        "by_number_of_labels": {number: asdict(subsets[number]) for number in NUMBERS},
    }


def real_metrics_of(scores: ScoreMatrix, split: PreparedSplit) -> dict[str, Any] | None:
    """The measures on a split that has ReaL labels; None on others."""
    if split.real is None:
        return None
    return real_metrics(in_memory(scores), split.observed.values, np.asarray(split.real))


def top_1(scores: npt.ArrayLike, labels: Labels) -> float:
    """The share of images whose highest-scored class is one of their labels (Verelst 2023 eq. 9).

    Of equal scores the first counts.
    """
    best = np.argmax(np.asarray(scores), axis=1)
    return float((labels[np.arange(len(labels)), best] == POSITIVE).mean())
