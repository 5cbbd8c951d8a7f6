"""All the numbers of an evaluation, as plain values for JSON."""

import warnings
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import LabelTable
from sparselabel.errors import DataWarning
from sparselabel.metrics.average_precision import (
    Rule,
    average_precision,
    by_number_of_labels,
    mean_average_precision,
)
from sparselabel.metrics.precision_recall import at_k, precision_recall_f1

RULES: tuple[Rule, ...] = ("sklearn", "voc", "hits")


def map_name_of(labels: LabelTable) -> str:
    """What to call a mAP against these labels: other than a mAP where unknown ones count as absent."""
    return "mAP" if labels.complete else "observed-label mAP"


def label_metrics(
    scores: npt.NDArray[np.floating], labels: LabelTable, threshold: float = 0.5
) -> dict[str, Any]:
    """Every measure of scores (N, L) against labels, by name.

    Where labels are incomplete, unknown ones count as absent ("observed-label" numbers), and what needs the
    number of labels of an image is left out (None).
    """
    values = np.asarray(labels.values)
    complete = labels.complete
    positive = (values == 1).astype(np.int8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # classes without positives are named in the result
        ap = {rule: average_precision(scores, positive, rule) for rule in RULES}
    means = {rule: asdict(mean_average_precision(ap[rule], positive)) for rule in RULES}
    at_threshold = precision_recall_f1(scores, positive, threshold)
    top_three = precision_recall_f1(scores, positive, threshold, top=3)
    per_class = zip(
        labels.classes,
        labels.counts().tolist(),
        ap["sklearn"].tolist(),
        at_threshold.precision.tolist(),
        at_threshold.recall.tolist(),
        at_threshold.f1.tolist(),
        strict=True,
    )
    names = ("name", "positive", "average_precision", "precision", "recall", "f1")
    subsets = by_number_of_labels(scores, positive) if complete else None
    return {
        "images": len(labels),
        "labels": "complete" if complete else "observed; unknown counts as absent",
        "threshold": threshold,
        "mean_average_precision": means,
        "classes": [dict(zip(names, row, strict=True)) for row in per_class],
        "classes_without_positives": [
            c for c, n in zip(labels.classes, labels.counts(), strict=True) if n == 0
        ],
        "by_number_of_labels": None if subsets is None else {k: asdict(v) for k, v in subsets.items()},
        "at_threshold": at_threshold.averages(),
        "at_threshold_top_3": top_three.averages(),
        "at_k": [asdict(at_k(scores, positive, k)) for k in (1, 3, 5) if k <= values.shape[1]],
    }
