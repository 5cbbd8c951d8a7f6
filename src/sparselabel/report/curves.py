"""Curves over epochs: losses, validation, and the scores of hidden labels."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sparselabel.report.charts import Chart, Drawn, Line, density, draw, places_of_ticks
from sparselabel.report.run_data import ShownRun

COLUMNS = 48  # epochs of a density that can still be told apart on a phone


def learning_curves(runs: Sequence[ShownRun]) -> list[Drawn]:
    """Validation first, then a chart for each part of the loss, with a line for each run."""
    charts = []
    metrics = [epoch["validation"]["name"] for run in runs for epoch in run.epochs if epoch["validation"]]
    if metrics:
        lines = [
            Line(
                run.name,
                number,
                [epoch["validation"] and 100 * epoch["validation"]["value"] for epoch in run.epochs],
                run.result["best_epoch"] - 1,
            )
            for number, run in enumerate(runs)
        ]
        charts.append(_over_epochs(f"Validation {metrics[0]}", f"{metrics[0]}, %", lines, runs))
    for term in dict.fromkeys(term for run in runs for epoch in run.epochs for term in epoch["losses"]):
        lines = [
            Line(run.name, number, [epoch["losses"].get(term) for epoch in run.epochs])
            for number, run in enumerate(runs)
            if any(term in epoch["losses"] for epoch in run.epochs)
        ]
        charts.append(_over_epochs(f"Loss: {term}", "mean loss", lines, runs, decimals=4, from_zero=True))
    return charts


def recovery_curves(runs: Sequence[ShownRun]) -> list[Drawn]:
    """How high hidden positives of training are scored: the share above 0.5, and the scores of each run."""
    logged = [(n, run) for n, run in enumerate(runs) if any(_hidden(epoch) for epoch in run.epochs)]
    if not logged:
        return []
    lines = [
        Line(run.name, number, [_above_half(_hidden(epoch)) for epoch in run.epochs])
        for number, run in logged
    ]
    shown = [run for _, run in logged]
    charts = [_over_epochs("Scored above 0.5", "% of hidden labels", lines, shown, from_zero=True)]
    for run in shown:
        epochs = [(str(epoch["epoch"]), counts) for epoch in run.epochs if (counts := _hidden(epoch))]
        chosen = np.linspace(0, len(epochs) - 1, min(COLUMNS, len(epochs))).round().astype(int).tolist()
        names, columns = zip(*(epochs[index] for index in chosen), strict=True)
        charts.append(density(run.name, "epoch", "score", names, columns))
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
    lines: list[Line],
    runs: Sequence[ShownRun],
    decimals: int = 1,
    from_zero: bool = False,
) -> Drawn:
    """A chart over epochs; a border where a phase begins after another at the same epoch in all runs."""
    names = [str(epoch + 1) for epoch in range(max(len(run.epochs) for run in runs))]
    phases = [[epoch["phase"] for epoch in run.epochs] for run in runs]
    borders = {
        tuple((n - 0.5, now) for n, (before, now) in enumerate(pairwise(of_run), 1) if now != before)
        for of_run in phases
    }
    shared = borders.pop() if len(borders) == 1 else ()
    ticks = places_of_ticks(len(names))
    chart = Chart(title, "epoch", y_label, names, lines, decimals, from_zero, borders=shared, ticks=ticks)
    return draw(chart)
