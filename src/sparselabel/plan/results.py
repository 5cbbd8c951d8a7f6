"""Results of a plan: mean and spread over draws for every kind of annotation and fraction of the budget."""

import csv
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sparselabel.data.annotation_budget import Kind
from sparselabel.files import atomic_write
from sparselabel.plan.budget import Budget
from sparselabel.plan.candidate_runs import Candidate, scores_of

Measure = Literal["mAP", "mAP-loc"]
NAMES: dict[Kind, str] = {
    "I": "answers alone",
    "SP": "answers with one point",
    "SB": "answers with one box",
    "AP": "answers with all points",
    "AB": "answers with all boxes",
}
"""Kinds of annotation, in the order of the work they are to set up."""
BOUGHT = ("answers", "positive", "points", "boxes", "images", "classes_unseen")
COLUMNS = ("kind", "method", "fraction", "hours", "draw", "sample_seconds", *BOUGHT, "mAP", "mAP_loc")


@dataclass(frozen=True)
class KindResult:
    """mAP and mAP-loc of a kind of annotation with a fraction of the budget, in percent by draw.

    ``bought`` has the mean over draws of what was bought for the sample.
    """

    kind: Kind
    fraction: float
    hours: float
    bought: dict[str, float]
    values: dict[Measure, dict[int, float]] = field(default_factory=dict)

    def mean(self, measure: Measure = "mAP") -> float | None:
        """The mean over draws; None where nothing is known."""
        values = self.values.get(measure, {})
        return statistics.fmean(values.values()) if values else None

    def spread(self, measure: Measure = "mAP") -> float | None:
        """The standard deviation over draws; None for a single one."""
        values = self.values.get(measure, {})
        return statistics.stdev(values.values()) if len(values) > 1 else None

    def text(self, measure: Measure = "mAP") -> str:
        """Mean and spread for people: 61.2 ± 0.8; – where nothing is known."""
        mean, spread = self.mean(measure), self.spread(measure)
        if mean is None:
            return "–"
        return f"{mean:.1f}" if spread is None else f"{mean:.1f} ± {spread:.1f}"


def results_of(candidates: Sequence[Candidate], budget: Budget, split: str) -> list[KindResult]:
    """A row for each kind and fraction, in the order of the candidates."""
    groups: dict[tuple[Kind, float], list[Candidate]] = {}
    for one in candidates:
        groups.setdefault((one.kind, one.fraction), []).append(one)
    rows = []
    for (kind, fraction), group in groups.items():
        values: dict[Measure, dict[int, float]] = {"mAP": {}, "mAP-loc": {}}
        for one in group:
            for measure, value in zip(values, scores_of(one, split), strict=True):
                if value is not None:
                    values[measure][one.draw] = 100 * value
        bought = {name: statistics.fmean(one.bought[name] for one in group) for name in BOUGHT}
        rows.append(KindResult(kind, fraction, fraction * budget.hours, bought, values))
    return rows


def write_csv(candidates: Sequence[Candidate], budget: Budget, split: str, out: Path) -> None:
    """A line for each run: what was spent and bought of the sample, and what came of it, in percent."""
    with atomic_write(out) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for one in candidates:
            numbers = ["" if value is None else f"{100 * value:.3f}" for value in scores_of(one, split)]
            spent = f"{one.bought['seconds']:.6g}"
            hours = f"{one.fraction * budget.hours:.6g}"
            counts = [one.bought[name] for name in BOUGHT]
            first = [one.kind, one.run.method, f"{one.fraction:g}", hours, one.draw, spent]
            writer.writerow([*first, *counts, *numbers])
