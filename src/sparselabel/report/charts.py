"""Charts as numbers that a template turns into SVG: scales, ticks and paths, for a drawing 360 units wide.

Narrow on purpose: on a phone a chart is as wide as the screen and its text stays readable; on a wide screen
several stand beside each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

WIDTH, HEIGHT = 360.0, 222.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 12.0, 32.0, 36.0
FEW = 32  # points of a line that still get a mark each
MOST_TICKS = 7
LEVELS = 20  # shades of a density


@dataclass(frozen=True)
class Line:
    """Values of one run along the x axis, None where there are none; ``best`` is the index to point out.

    ``spreads`` are how far values reach up and down, where that is known.
    """

    name: str
    number: int
    values: Sequence[float | None]
    best: int | None = None
    spreads: Sequence[float] = ()

    def points(self) -> list[tuple[int, float, float]]:
        """Index, value and spread of the values there are."""
        spreads = self.spreads or [0.0] * len(self.values)
        pairs = zip(self.values, spreads, strict=True)
        return [(at, value, spread) for at, (value, spread) in enumerate(pairs) if value is not None]


@dataclass(frozen=True)
class Chart:
    """Lines over places 0, 1, 2, ..., which have names; ``steps`` draws stairs between ``names``' edges.

    With ``slots`` places are in the middle of slots, so that long names have room.
    """

    title: str
    x_label: str
    y_label: str
    names: Sequence[str]
    lines: Sequence[Line]
    decimals: int = 1
    from_zero: bool = False
    steps: bool = False
    borders: Sequence[tuple[float, str]] = ()
    ticks: Sequence[int] = ()
    slots: bool = False

    @property
    def places(self) -> int:
        """The number of values of a line."""
        return len(self.names) - self.steps

    def range(self) -> tuple[float, float, float]:
        """Lowest and highest value of the y axis, and the distance of its ticks."""
        points = [point for line in self.lines for point in line.points()]
        low = min((value - spread for _, value, spread in points), default=0.0)
        high = max((value + spread for _, value, spread in points), default=1.0)
        if self.from_zero:
            low = min(low, 0.0)
        if high - low < 1e-9:
            low, high = (low, low + 1) if self.from_zero else (low - 0.5, high + 0.5)
        step = nice((high - low) / 4)
        return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step

    def in_words(self) -> str:
        """The text that a screen reader reads for the chart."""
        words = []
        for line in self.lines:
            if points := line.points():
                (first, start, _), (last, end, _) = points[0], points[-1]
                start_text, end_text = f"{start:.{self.decimals}f}", f"{end:.{self.decimals}f}"
                words.append(
                    f"{line.name}: {start_text} at {self.names[first]}, {end_text} at {self.names[last]}"
                )
        return f"{self.title}. {self.y_label} by {self.x_label}. " + "; ".join(words[:12])


class Mark(NamedTuple):
    """A point of a line, and what is shown when the pointer rests on it."""

    x: float
    y: float
    title: str
    best: bool


@dataclass(frozen=True)
class Drawn:
    """A chart in the units of the drawing; paths, marks and ``bars`` (spreads) by the number of a line."""

    chart: Chart
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    paths: list[tuple[int, str]]
    marks: list[tuple[int, list[Mark]]]
    bars: list[tuple[int, str]]
    borders: list[tuple[float, str]]
    says: str
    shades: Sequence[tuple[int, str]] = ()


def nice(step: float) -> float:
    """The next of 1, 2, 5, 10, ... (times a power of ten) that is not below."""
    power = 10.0 ** math.floor(math.log10(step))
    return next((factor * power for factor in (1, 2, 5) if factor * power >= step * (1 - 1e-9)), 10 * power)


def places_of_ticks(count: int) -> list[int]:
    """Places of whole-number ticks among 0 ... count - 1, for names that count from 1: 1, 5, 10, ..."""
    if count <= MOST_TICKS:
        return list(range(count))
    step = int(nice(max(1.0, count / (MOST_TICKS - 1))))
    return [*([0] if step > 2 else []), *range(step - 1, count, step)]


def draw(chart: Chart, y_axis: tuple[float, float, float] | None = None) -> Drawn:
    """Place everything; ``y_axis`` is lowest, highest and step, if not those of the values."""
    low, high, step = y_axis or chart.range()
    in_slots = chart.slots or len(chart.names) == 1

    def across(place: float) -> float:
        share = (place + 0.5) / len(chart.names) if in_slots else place / (len(chart.names) - 1)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    def down(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low), 1)

    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    levels = [low + n * step for n in range(round((high - low) / step) + 1)]
    paths, marks, bars = [], [], []
    for line in chart.lines:
        points = line.points()
        if chart.steps:
            path = "".join(f"V{down(value)}H{across(at + 1)}" for at, value, _ in points)
            paths.append((line.number, f"M{across(0)} {down(0)}{path}V{down(0)}"))
            continue
        path = "L".join(f"{across(at)} {down(value)}" for at, value, _ in points)
        paths.append((line.number, f"M{path}" if path else ""))
        if bar := "".join(f"M{across(at)} {down(v - s)}V{down(v + s)}" for at, v, s in points if s):
            bars.append((line.number, bar))
        shown = [
            Mark(
                across(at),
                down(value),
                f"{line.name}, {chart.names[at]}: {value:.{chart.decimals}f}",
                at == line.best,
            )
            for at, value, _ in points
            if len(points) <= FEW or at == line.best
        ]
        marks.append((line.number, shown))
    return Drawn(
        chart,
        [(across(place), chart.names[place]) for place in chart.ticks or range(len(chart.names))],
        [(down(level), f"{level:.{digits}f}") for level in levels],
        paths,
        marks,
        bars,
        [(across(place), name) for place, name in chart.borders],
        chart.in_words(),
    )


def density(
    title: str, x_label: str, y_label: str, names: Sequence[str], columns: Sequence[Sequence[int]]
) -> Drawn:
    """Histograms beside each other, the bin 0..1 upwards, as shades; the median of each as a line."""
    largest = max(max(column) / max(sum(column), 1) for column in columns) or 1.0
    wide, high = (WIDTH - LEFT - RIGHT) / len(columns), (HEIGHT - TOP - BOTTOM) / len(columns[0])
    cells: dict[int, str] = {}
    for column_number, column in enumerate(columns):
        x, end = round(LEFT + column_number * wide, 1), round(LEFT + (column_number + 1) * wide, 1)  # no gaps
        for bin_, count in enumerate(column):
            y, foot = (round(HEIGHT - BOTTOM - edge * high, 1) for edge in (bin_ + 1, bin_))
            if level := round(LEVELS * math.sqrt(count / max(sum(column), 1) / largest)):
                cells[level] = cells.get(level, "") + f"M{x} {y}H{end}V{foot}H{x}z"
    line, ticks = Line("median", 0, [median(column) for column in columns]), places_of_ticks(len(names))
    chart = Chart(title, x_label, y_label, names, [line], 2, slots=True, ticks=ticks)
    return replace(draw(chart, (0, 1, 0.2)), marks=[], shades=sorted(cells.items()))


def median(counts: Sequence[int]) -> float:
    """The median of a histogram over 0..1, evenly spread inside a bin; 0 of nothing."""
    half, below = sum(counts) / 2, 0.0
    for position, count in enumerate(counts):
        if count and below + count >= half:
            return (position + (half - below) / count) / len(counts)
        below += count
    return 0.0
