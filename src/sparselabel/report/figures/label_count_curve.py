"""How the mAP grows with the number of labels, from tables of `sparselabel compare` on more and more data.

Draws Cole 2021 figure 1: one table for each share of the training images, a curve for each method.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparselabel.errors import ConfigError, DataError, command
from sparselabel.report.figures.style import COLORS, MARKERS, Table, new_figure, save, style
from sparselabel.report.figures.sweep_curve import lines_of_table

NEEDED = ("method", "training_labels", "test", "spread")


@dataclass(frozen=True)
class Point:
    """A method's test mAP in percent after so many labels, and its spread over seeds, if several."""

    method: str
    labels: int
    mean: float
    spread: float | None


def draw_label_numbers(tables: Sequence[Path], out: Path) -> Path:
    """A curve for each method, over the number of labels that training saw, on a logarithmic axis."""
    if not tables:
        raise ConfigError("there is nothing to draw", f"name tables of {command('compare')}, one a data set")
    points = [point for table in tables for point in _read(table)]
    if not points:
        raise DataError("the tables have no test mAP: there is nothing to draw")
    with style():
        figure = new_figure(5.2, 3.7)
        axes = figure.subplots()
        for number, method in enumerate(dict.fromkeys(point.method for point in points)):
            own = sorted((p for p in points if p.method == method), key=lambda point: point.labels)
            axes.errorbar(
                [point.labels for point in own],
                [point.mean for point in own],
                yerr=[point.spread or 0.0 for point in own],
                label=method,
                color=COLORS[number % len(COLORS)],
                marker=MARKERS[number % len(MARKERS)],
            )
        axes.set_xscale("log", subs=[2, 5])
        for axis_format in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            axis_format(lambda value, _: f"{value:,.0f}")
        axes.tick_params(axis="x", which="minor", labelsize=7)
        axes.set_xlabel("labels in training")
        axes.set_ylabel("test mAP, %")
        figure.legend(loc="outside upper center", ncols=4)
        rows = [[p.method, p.labels, p.mean, p.spread] for p in points]
        return save(figure, Table(("method", "labels", "mAP", "spread"), rows), out)


def _read(table: Path) -> Iterator[Point]:
    if not table.is_file():
        raise DataError(f"there is no table {table}", f"{command('compare')} writes one", what=table)
    compare = f"{command('compare')} writes tables that have"
    for line in lines_of_table(table, NEEDED, "has no numbers of labels", compare):
        if "varied" in line.cells:
            raise DataError(f"{table} varies a setting", f"{command('figure', 'sweep')} draws that")
        mean, labels = line.number("test", most=100), line.number("training_labels")
        if mean is not None and labels is not None:
            yield Point(line["method"], int(labels), mean, line.number("spread"))
