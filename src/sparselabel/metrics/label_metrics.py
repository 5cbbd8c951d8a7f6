"""All metrics of an evaluation, as plain values for JSON."""

from dataclasses import asdict
from typing import Any

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.metrics.average_precision import (
    Rule,
    by_number_of_labels,
    mean_average_precision,
    precisions_by_rule,
    scores_and_labels,
)
from sparselabel.metrics.precision_recall import at_k, precision_recall_f1
from sparselabel.metrics.tiled_scores import ScoreMatrix

RULES: tuple[Rule, ...] = ("sklearn", "voc", "hits")


def map_name_of(labels: LabelTable) -> str:
    """The name of the mAP on these labels; it differs if unknown labels count as absent."""
    return "mAP" if labels.complete else "observed-label mAP"


def label_metrics(scores: ScoreMatrix, labels: LabelTable, threshold: float = 0.5) -> dict[str, Any]:
    """All metrics of scores (N, L) against labels, by name.

    In incomplete labels unknown ones count as absent ("observed-label" metrics), and metrics by the number of
    labels are None. "known" then has the mean average precision by known labels alone.
    """
    scores, values = scores_and_labels(scores, labels.matrix)
    complete = labels.complete
    ap = precisions_by_rule(scores, values, RULES)
    means = {rule: asdict(mean_average_precision(ap[rule], values)) for rule in RULES}
    at_threshold = precision_recall_f1(scores, values, threshold)
    top_three = precision_recall_f1(scores, values, threshold, top=3)
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
    subsets = by_number_of_labels(scores, values) if complete else None
    return {
        "images": len(labels),
        "labels": "complete" if complete else "observed; unknown counts as absent",
        "threshold": threshold,
        "mean_average_precision": means,
        "classes": [dict(zip(names, row, strict=True)) for row in per_class],
        "classes_without_positives": [
            c for c, n in zip(labels.classes, labels.counts(), strict=True) if n == 0
        ],
        "known": None if complete else _of_known(scores, labels),
        "by_number_of_labels": None if subsets is None else {k: asdict(v) for k, v in subsets.items()},
        "at_threshold": at_threshold.averages(),
        "at_threshold_top_3": top_three.averages(),
        "at_k": [asdict(at_k(scores, values, k)) for k in (1, 3, 5) if k <= values.shape[1]],
    }


def _of_known(scores: ScoreMatrix, labels: LabelTable) -> dict[str, Any]:
    """Average precision of each class among the images where it is known.

    Only classes with a known positive and a known negative count.
    """
    decided = (labels.counts(POSITIVE) > 0) & (labels.counts(NEGATIVE) > 0)
    ap = precisions_by_rule(scores, labels.matrix, ("sklearn",), drop_unknown=True)["sklearn"]
    return {
        "classes": int(decided.sum()),
        "labels": labels.known,
        "mean_average_precision": float(ap[decided].mean()) if decided.any() else None,
    }
