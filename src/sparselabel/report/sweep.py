"""What a setting does to the mAP, from tables of `sparselabel compare --vary`.

Draws P1 fig. 5b (μ), 5c (K), B.1 (crops), E.1 (distance and weight), and P3's wrong k; from
table-by-labels.csv P1 fig. 5d.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparselabel.errors import ConfigError, DataError, nearest
from sparselabel.report.page import COLOURS, MARKERS, Table, new_figure, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEEDED = ("method", "varied", "value")
SPLITS = {"val": "validation", "test": "test"}
FINER = ("4", "5", "6", "7+")
COLUMNS = 4  # panels beside each other
WIDE = 50  # largest by smallest value from which the axis is logarithmic


@dataclass(frozen=True)
class Point:
    """A line of a table: the mAP in per cent, and its ``spread`` over seeds where there are several.

    ``value`` is "" for a method without the setting, ``labels`` "" where all pictures count.
    """

    curve: str
    varied: str
    value: str
    labels: str
    mean: float
    spread: float | None


def draw_sweep(tables: Sequence[Path], split: str, out: Path) -> Path:
    """A curve for each method (and table) over the values; a dashed line for one without the setting.

    Of tables by the number of labels: a panel for each number. "4+" only where there is nothing finer.
    """
    if not tables:
        raise ConfigError("there is nothing to draw: name a table of `sparselabel compare ... --vary`")
    if split not in SPLITS:
        raise ConfigError(f"there is no split {split!r} in a table: {nearest(split, SPLITS)}")
    points = [point for table in tables for point in _read(table, split, several=len(tables) > 1)]
    if any(point.labels in FINER for point in points):
        points = [point for point in points if point.labels != "4+"]
    if not points:
        raise DataError(f"the tables have no {SPLITS[split]} mAP: name another --split")
    names = {point.varied for point in points}
    if len(names) > 1 or len({point.labels == "" for point in points}) > 1:
        raise DataError(
            f"the tables do not fit into one figure (they vary {', '.join(sorted(names))}; with or without "
            "the number of labels): draw them apart"
        )
    with style():
        figure = _figure(points, f"{SPLITS[split]} mAP, %")
        columns = ("curve", "varied", "value", "labels", "mAP", "spread")
        rows = [[p.curve, p.varied, p.value, p.labels, p.mean, p.spread] for p in points]
        return save(figure, Table(columns, rows), out)


def _read(table: Path, split: str, several: bool) -> Iterator[Point]:
    """The points of a table; where there are several, its folder's name tells its curves apart."""
    if not table.is_file():
        raise DataError(f"there is no table {table}: `sparselabel compare ... --vary NAME V1 V2` writes one")
    with table.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    if not lines or not {*NEEDED} <= {*lines[0]}:
        raise DataError(
            f"{table} is no table of a varied setting: `sparselabel compare ... --vary` writes one"
        )
    for line in lines:
        by_labels = "labels" in line
        if by_labels and line["split"] != SPLITS[split]:
            continue
        mean = line["mAP" if by_labels else SPLITS[split]]
        # table.csv has the spread of the test alone.
        spread = line["spread"] if by_labels or split == "test" else ""
        curve = f"{line['method']} ({table.resolve().parent.name})" if several else line["method"]
        if mean:
            labels = line["labels"] if by_labels else ""
            around = float(spread) if spread else None
            yield Point(curve, line["varied"], line["value"], labels, float(mean), around)


def _figure(points: Sequence[Point], title: str) -> "Figure":
    """A panel for all pictures, or one for each number of labels, each with a scale of its own."""
    panels = list(dict.fromkeys(point.labels for point in points))
    columns = min(len(panels), COLUMNS)
    rows = -(-len(panels) // columns)
    figure = new_figure(*((5.2, 3.7) if len(panels) == 1 else (2.5 * columns + 0.4, 2.7 * rows + 0.4)))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.remove()
    for axes, labels in zip(grid, panels, strict=False):
        _panel(axes, [point for point in points if point.labels == labels])
        axes.set_xlabel(points[0].varied)
        if labels:
            axes.set_title(f"pictures with {labels} label{'' if labels == '1' else 's'}")
        if panels.index(labels) % columns == 0:
            axes.set_ylabel(title)
        if labels == panels[0]:
            handles, names = axes.get_legend_handles_labels()
            figure.legend(handles, names, loc="outside upper center", ncols=4)
    return figure


def _panel(axes: "Axes", points: Sequence[Point]) -> None:
    values = _in_order([point.value for point in points if point.value])
    numbers = _numbers(values)
    for number, curve in enumerate(dict.fromkeys(point.curve for point in points)):
        colour = COLOURS[number % len(COLOURS)]
        own = {point.value: point for point in points if point.curve == curve}
        if "" in own:  # the method does not have the setting
            axes.axhline(own[""].mean, label=curve, color=colour, linestyle="--", linewidth=1.2)
            continue
        there = [value for value in values if value in own]
        places = [numbers[values.index(value)] for value in there]
        _curve(axes, places, [own[value] for value in there], curve, colour, MARKERS[number % len(MARKERS)])
    if min(numbers, default=0) > 0 and max(numbers) / min(numbers) >= WIDE:
        axes.set_xscale("log")
    axes.set_xticks(numbers, values)
    axes.minorticks_off()


def _curve(
    axes: "Axes", places: Sequence[float], points: Sequence[Point], label: str, colour: str, marker: str
) -> None:
    """Means with markers, and a band as wide as the spread of the seeds."""
    means = [point.mean for point in points]
    axes.plot(places, means, label=label, color=colour, marker=marker)
    spreads = [point.spread or 0.0 for point in points]
    if any(spreads):
        low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
        high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)


def _in_order(values: Sequence[str]) -> list[str]:
    """Each value once, by size where all are numbers, else as in the table."""
    once = list(dict.fromkeys(values))
    return sorted(once, key=float) if all(map(_is_number, once)) else once


def _numbers(values: Sequence[str]) -> list[float]:
    """Where the values stand on the axis: where they belong as numbers, else side by side."""
    if all(map(_is_number, values)):
        return [float(value) for value in values]
    return [float(place) for place in range(len(values))]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
