"""mAP against a setting, or against the number of labels, from the tables of ``sparselabel compare``.

Draws Verelst 2023 fig. 5b (μ), 5c (K), B.1 (crops), E.1 (distance and weight), and Cole 2021's wrong k; from
table-by-labels.csv Verelst 2023 fig. 5d; and from tables on more and more data Cole 2021 fig. 1.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sparselabel.data.readers.table_files import open_cells
from sparselabel.errors import ConfigError, DataError, RunError, command, listing, nearest, param
from sparselabel.report.figures.style import legend_columns, log_curves, look_of, new_figure, save, style
from sparselabel.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


AGAIN = "mend it, or write the table anew with `sparselabel compare`"


@dataclass(frozen=True)
class Line:
    """A line of a table, by the names of its columns."""

    place: str
    cells: dict[str, str]

    def __getitem__(self, column: str) -> str:
        if column not in self.cells:
            raise DataError(
                f"{self.place}: the table has no column {column!r} (it has {', '.join(self.cells)})", AGAIN
            )
        return self.cells[column]

    def number(self, column: str, most: float = math.inf) -> float | None:
        """A number from 0 to ``most``, or None where the cell is empty."""
        text = self[column]
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= most or math.isinf(value):
            rule = f"a number from 0 to {most:g}" if most < math.inf else "a number from 0 on"
            raise DataError(f"{self.place}: column {column!r} must be {rule}, or empty, not {text!r}", AGAIN)
        return value


def _lines(table: Path, needed: Sequence[str], otherwise: str, remedy: str) -> Iterator[Line]:
    """The lines of a table with the columns ``needed``; ``otherwise`` says what it is without them."""
    if not table.is_file():
        raise DataError(f"there is no table {table}", remedy, what=table)
    with open_cells(table, needed[0], encoding="utf-8") as cells:
        rows = list(cells.rows)
        if not rows or not {*needed} <= {*cells.header}:
            raise DataError(f"{table} {otherwise}", remedy, what=table)
        for line, row in rows:
            yield Line(f"{table}, line {line:,}", dict(zip(cells.header, row, strict=True)))


VARIED = command("compare", "...", vary="NAME V1 V2")
NEEDED = ("method", "varied", "value")
SPLITS = {"val": "validation", "test": "test"}
FINER = ("4", "5", "6", "7+")
COLUMNS = 4  # panels beside each other
WIDE = 50  # largest by smallest value from which the axis is logarithmic


@dataclass(frozen=True)
class Point:
    """A line of a table: the mAP in percent, and its ``spread`` over seeds where there are several.

    ``value`` is "" for a method without the setting, ``labels`` "" where all images count.
    """

    curve: str
    varied: str
    value: str
    labels: str
    mean: float
    spread: float | None


def draw_label_numbers(tables: Sequence[Path], out: Path) -> Path:
    """A curve for each method: the test mAP over the number of labels that training saw."""
    if not tables:
        raise ConfigError("there is nothing to draw", f"name tables of {command('compare')}, one a data set")
    rows: list[tuple[str, int, float, float | None]] = []
    remedy = f"{command('compare')} writes tables that have"
    columns = ("method", "training_labels", "test", "spread")
    for table in tables:
        for line in _lines(table, columns, "has no numbers of labels", remedy):
            if "varied" in line.cells:
                raise DataError(f"{table} varies a setting", f"{command('figure', 'sweep')} draws that")
            mean, labels = line.number("test", most=100), line.number("training_labels")
            if mean is not None and labels is not None:
                name = ", ".join([line["method"], *_kind(line.cells.get("annotation", ""))])
                rows.append((name, int(labels), mean, line.number("spread")))
    if not rows:
        raise DataError(f"{listing(tables)}: no test mAP, so there is nothing to draw")
    curves: dict[str, list[tuple[float, float, float]]] = {}
    for method, labels, mean, spread in sorted(rows, key=lambda row: row[1]):
        curves.setdefault(method, []).append((labels, mean, spread or 0.0))
    with style():
        figure = log_curves(curves, "labels in training", "test mAP, %", ",.0f")
        return save(figure, ("method", "labels", "mAP", "spread"), rows, out)


def _kind(annotation: str) -> list[str]:
    """A kind of annotation without its numbers, which make for more or fewer labels."""
    return [word for word in annotation.split(",") if word and not _is_number(word.rpartition("=")[2])]


def draw_sweep(tables: Sequence[Path], split: str, out: Path) -> Path:
    """A curve for each method (and table) over the values; a dashed line for one without the setting.

    Of tables by the number of labels: a panel for each number. "4+" only where there is nothing finer.
    """
    if not tables:
        raise ConfigError("there is nothing to draw", f"name a table of {VARIED}")
    tables = [table_in(path) for path in tables]
    if split not in SPLITS:
        raise ConfigError(f"there is no split {split!r} in a table", nearest(split, SPLITS), what="split")
    _refuse_other_data(tables, split)
    points = [point for table in tables for point in _read(table, split, several=len(tables) > 1)]
    if any(point.labels in FINER for point in points):
        points = [point for point in points if point.labels != "4+"]
    if not points:
        raise DataError(f"{listing(tables)}: no {SPLITS[split]} mAP", f"name another {param('split')}")
    names = {point.varied for point in points}
    if len(names) > 1 or len({point.labels == "" for point in points}) > 1:
        raise DataError(
            f"{listing(tables)} do not fit into one figure (they vary {', '.join(sorted(names))}; with or "
            "without the number of labels)",
            "draw them apart",
        )
    with style():
        figure = _figure(points, f"{SPLITS[split]} mAP, %")
        columns = ("curve", "varied", "value", "labels", "mAP", "spread")
        rows = [[p.curve, p.varied, p.value, p.labels, p.mean, p.spread] for p in points]
        return save(figure, columns, rows, out)


def table_in(path: Path) -> Path:
    """The table that is meant: in the folder of a comparison its table.csv, else the file itself."""
    return path / "table.csv" if path.is_dir() else path


def _refuse_other_data(tables: Sequence[Path], split: str) -> None:
    """Raise if the runs beside one table are of other data than those beside another."""
    first: Run | None = None
    for table in tables:
        for file in sorted(table.resolve().parent.glob("*/run.json"))[:1]:
            run = Run(file.parent)
            first = first or run
            if run.metadata()["data_digest"].get(split) != first.metadata()["data_digest"].get(split):
                raise RunError(
                    f"{table} is of other data ({run.data_name(split)}) than {tables[0]} "
                    f"({first.data_name(split)})",
                    "draw them apart",
                )


def _read(table: Path, split: str, several: bool) -> Iterator[Point]:
    """The points of a table; where there are several, its folder's name tells its curves apart."""
    for line in _lines(table, NEEDED, "is no table of a varied setting", f"{VARIED} writes one"):
        by_labels = "labels" in line.cells
        if by_labels and line["split"] != SPLITS[split]:
            continue
        mean = line.number("mAP" if by_labels else SPLITS[split], most=100)
        column = "spread" if by_labels or split == "test" else "validation_spread"
        spread = line.number(column)
        annotation = f", {name}" if (name := line.cells.get("annotation")) else ""
        folder = f" ({table.resolve().parent.name})" if several else ""
        curve = f"{line['method']}{annotation}{folder}"
        if mean is not None:
            labels = line["labels"] if by_labels else ""
            yield Point(curve, line["varied"], line["value"], labels, mean, spread)


def _figure(points: Sequence[Point], title: str) -> "Figure":
    """A panel for all images, or one for each number of labels, each with a scale of its own."""
    panels = list(dict.fromkeys(point.labels for point in points))
    columns = min(len(panels), COLUMNS)
    rows = -(-len(panels) // columns)
    figure = new_figure(*((5.2, 3.7) if len(panels) == 1 else (2.5 * columns + 0.4, 2.7 * rows + 0.4)))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.remove()
    for axes, labels in zip(grid, panels, strict=False):
        _panel(axes, [point for point in points if point.labels == labels], small=len(panels) > 1)
        axes.set_xlabel(points[0].varied)
        if labels:
            axes.set_title(f"images with {labels} label{'' if labels == '1' else 's'}")
        if panels.index(labels) % columns == 0:
            axes.set_ylabel(title)
        if labels == panels[0]:
            handles, names = axes.get_legend_handles_labels()
            beside = legend_columns(names, figure.get_figwidth())
            figure.legend(handles, names, loc="outside upper center", ncols=beside)
    return figure


def _panel(axes: "Axes", points: Sequence[Point], small: bool) -> None:
    values = _in_order([point.value for point in points if point.value])
    places = _places(values)
    curves = list(dict.fromkeys(point.curve for point in points))
    for number, curve in enumerate(curves):
        look = look_of(number)
        own = {point.value: point for point in points if point.curve == curve}
        if "" in own:  # the method does not have the setting
            axes.axhline(own[""].mean, label=curve, color=look["color"], linestyle="--", linewidth=1.2)
            continue
        numbers = [value for value in values if value in own and _is_number(value)]
        words = [value for value in values if value in own and value not in numbers]
        if numbers:  # with a band as wide as the spread of the seeds
            at = [places[value] for value in numbers]
            means = np.array([own[value].mean for value in numbers])
            spreads = np.array([own[value].spread or 0.0 for value in numbers])
            axes.plot(at, means, label=curve, **look)
            if spreads.any():
                axes.fill_between(
                    at, means - spreads, means + spreads, color=look["color"], alpha=0.15, linewidth=0
                )
        # Words have no order: each stands by itself, those of several curves side by side.
        aside = 0.06 * _step(places) * (number - (len(curves) - 1) / 2)
        for word in words:
            label = None if numbers or word != words[0] else curve  # the legend names a curve once
            at_word, mean, spread = places[word] + aside, own[word].mean, own[word].spread or None
            axes.errorbar(at_word, mean, spread, label=label, linestyle="", capsize=3, **look)
    _axis(axes, places, small)


def _axis(axes: "Axes", places: dict[str, float], small: bool) -> None:
    """Ticks at the values, where there is room for them; else at round numbers."""
    at = [*places.values()]
    if _is_wide(places):
        axes.set_xscale("log")
    scaled = np.log(at) if _is_wide(places) else np.asarray(at)
    room = 0.12 if small else 0.06
    crowded = len(at) > 1 and np.diff(np.sort(scaled)).min() < room * np.ptp(scaled)
    if not (crowded and all(map(_is_number, places))):
        axes.set_xticks(at, [*places], rotation=45 if crowded else 0)
        axes.minorticks_off()
    if not any(map(_is_number, places)):
        axes.set_xlim(-0.5, len(places) - 0.5)


def _in_order(values: Sequence[str]) -> list[str]:
    """Each value once: numbers by size, then words as in the table."""
    once = list(dict.fromkeys(values))
    return sorted(filter(_is_number, once), key=float) + [value for value in once if not _is_number(value)]


def _places(values: Sequence[str]) -> dict[str, float]:
    """The positions of values on the axis: numbers at their value, words side by side to the right."""
    places = {value: float(value) for value in values if _is_number(value)}
    words = [value for value in values if value not in places]
    low, high = min(places.values(), default=0.0), max(places.values(), default=0.0)
    if not places:
        return {word: float(place) for place, word in enumerate(words)}
    for place, word in enumerate(words, start=1):
        aside = 0.2 * place
        places[word] = (
            high * (high / low) ** aside if _is_wide(places) else high + aside * (high - low or 1.0)
        )
    return places


def _step(places: dict[str, float]) -> float:
    """The distance between words."""
    words = [place for value, place in places.items() if not _is_number(value)]
    return words[1] - words[0] if len(words) > 1 else 0.2 * float(np.ptp([*places.values()]))


def _is_wide(places: dict[str, float]) -> bool:
    """Whether the numbers differ so much that the axis must be logarithmic."""
    numbers = [place for value, place in places.items() if _is_number(value)]
    return bool(numbers) and min(numbers) > 0 and max(numbers) / min(numbers) >= WIDE


def _is_number(text: str) -> bool:
    """Whether it has a place on an axis: "inf" and "nan" are words."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
