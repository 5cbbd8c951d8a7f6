"""A comparison as a figure: methods, their test mAP and its interval."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparselabel.comparison.summary import Row
from sparselabel.report.figures.style import COLORS, GRAY, inline_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_comparison(rows: Sequence[Row], varied: str | None = None) -> "Figure":
    """A line for each tested row, the first on top: a point for each run, their mean and its interval."""
    tested = [row for row in rows if row.test]
    with style():
        figure = inline_figure(5.2, 0.9 + 0.32 * max(1, len(tested)))
        axes = figure.subplots()
        for place, row in enumerate(tested):
            runs = [100 * value for value in row.test.values()]
            axes.plot(runs, [place] * len(runs), "o", color=GRAY, alpha=0.5, markersize=3)
            axes.plot(100 * row.mean, place, "D", color=COLORS[0])
            if row.interval is not None:
                axes.hlines(place, 100 * row.interval.low, 100 * row.interval.high, color=COLORS[0])
        names = [", ".join(_words(row, varied)) for row in tested]
        axes.set_yticks(range(len(tested)), names)
        axes.invert_yaxis()
        name = next((row.names["test"] for row in tested if "test" in row.names), "mAP")
        axes.set_xlabel(f"test {name}, %")
    return figure


def _words(row: Row, varied: str | None) -> list[str]:
    """What a row is called."""
    value = [f"{varied} {row.value}"] if row.value else []
    return [row.method, *value, *([row.annotation] if row.annotation else [])]
