"""What happened from epoch to epoch: losses, validation, and the scores of hidden labels."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sparselabel.report.charts import Chart, Drawn, Line, density, draw, places_of_ticks
from sparselabel.report.run_data import ShownRun

COLUMNS = 48  # epochs of a density that can still be told apart on a phone


def learning_curves(runs: Sequence[ShownRun]) -> list[Drawn]:
    """Validation first, then a chart for each part of the loss, with a line for each run."""
    names = _names(runs)
    if not names:
        return []
    charts = []
    judged = [epoch["validation"]["name"] for run in runs for epoch in run.epochs if epoch["validation"]]
    if judged:
        lines = [
            Line(
                run.name,
                number,
                [epoch["validation"] and 100 * epoch["validation"]["value"] for epoch in run.epochs],
                run.result["best_epoch"] - 1,
            )
            for number, run in enumerate(runs)
        ]
        charts.append(_over_epochs(f"Validation {judged[0]}", f"{judged[0]}, %", names, lines, runs))
    parts = dict.fromkeys(part for run in runs for epoch in run.epochs for part in epoch["losses"])
    for part in parts:
        lines = [
            Line(run.name, number, [epoch["losses"].get(part) for epoch in run.epochs])
            for number, run in enumerate(runs)
            if any(part in epoch["losses"] for epoch in run.epochs)
        ]
        charts.append(
            _over_epochs(f"Loss: {part}", "mean loss", names, lines, runs, decimals=4, from_zero=True)
        )
    return charts


def recovery_curves(runs: Sequence[ShownRun]) -> list[Drawn]:
    """How high hidden positives of training are scored: the share above 0.5, and the scores of each run."""
    kept = [(number, run) for number, run in enumerate(runs) if any(_hidden(epoch) for epoch in run.epochs)]
    if not kept:
        return []
    lines = [
        Line(run.name, number, [_above_half(_hidden(epoch)) for epoch in run.epochs]) for number, run in kept
    ]
    told = [run for _, run in kept]
    charts = [
        _over_epochs("Scored above 0.5", "% of hidden labels", _names(told), lines, told, from_zero=True)
    ]
    for _, run in kept:
        columns = [(epoch["epoch"], counts) for epoch in run.epochs if (counts := _hidden(epoch))]
        places = np.linspace(0, len(columns) - 1, min(COLUMNS, len(columns))).round().astype(int)
        chosen = [columns[place] for place in places]
        names = [str(epoch) for epoch, _ in chosen]
        charts.append(density(run.name, "epoch", "score", names, [counts for _, counts in chosen]))
    return charts


def _hidden(epoch: dict[str, Any]) -> list[int] | None:
    """The histogram of the scores of hidden positives, if they are known and there are any."""
    counts: list[int] | None = epoch.get("hidden_positives")
    return counts if counts and sum(counts) else None


def _above_half(counts: list[int] | None) -> float | None:
    return None if counts is None else 100 * sum(counts[len(counts) // 2 :]) / sum(counts)


def _over_epochs(
    title: str,
    y_label: str,
    names: list[str],
    lines: list[Line],
    runs: Sequence[ShownRun],
    decimals: int = 1,
    from_zero: bool = False,
) -> Drawn:
    return draw(
        Chart(
            title,
            "epoch",
            y_label,
            names,
            lines,
            decimals,
            from_zero,
            borders=_borders(runs),
            ticks=places_of_ticks(len(names)),
        )
    )


def _names(runs: Sequence[ShownRun]) -> list[str]:
    return [str(epoch + 1) for epoch in range(max(len(run.epochs) for run in runs))]


def _borders(runs: Sequence[ShownRun]) -> list[tuple[float, str]]:
    """Where a phase begins after another, if it does so at the same epoch in all runs."""
    phases = [[epoch["phase"] for epoch in run.epochs] for run in runs]
    found = {
        tuple((n - 0.5, now) for n, (before, now) in enumerate(pairwise(p), 1) if now != before)
        for p in phases
    }
    return list(found.pop()) if len(found) == 1 else []
