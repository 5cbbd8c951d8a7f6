"""Charts as numbers that a template turns into SVG: scales, ticks and paths, for a drawing 360 units wide.

Narrow on purpose: on a phone a chart is as wide as the screen and its text stays readable; on a wide screen
several stand beside each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

WIDTH, HEIGHT = 360.0, 222.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 12.0, 32.0, 36.0
FEW = 32  # points of a line that still get a mark each
LEVELS = 20  # shades of a density


@dataclass(frozen=True)
class Line:
    """Values of one run along the x axis, None where there are none; ``best`` is the place to point out.

    ``spreads`` are how far values reach up and down, where that is known.
    """

    name: str
    number: int
    values: Sequence[float | None]
    best: int | None = None
    spreads: Sequence[float] = ()

    def around(self, place: int) -> float:
        """The spread of a value."""
        return self.spreads[place] if self.spreads else 0.0


@dataclass(frozen=True)
class Chart:
    """Lines over places 0, 1, 2, ..., which have names; ``steps`` draws stairs between ``names``' edges."""

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
    """Whether places are in the middle of slots, so that long names have room."""

    @property
    def places(self) -> int:
        """How many values a line has."""
        return len(self.names) - self.steps

    def range(self) -> tuple[float, float, float]:
        """Lowest and highest value of the y axis, and the distance of its ticks."""
        values = [
            value + sign * line.around(place)
            for line in self.lines
            for place, value in enumerate(line.values)
            if value is not None
            for sign in ((-1, 1) if line.spreads else (0,))
        ]
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        if self.from_zero:
            low = min(low, 0.0)
        if high - low < 1e-9:
            low, high = (low, low + 1) if self.from_zero else (low - 0.5, high + 0.5)
        step = nice((high - low) / 4)
        return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step


@dataclass(frozen=True)
class Mark:
    """A point of a line, and what is shown when the pointer rests on it."""

    x: float
    y: float
    title: str
    best: bool


@dataclass(frozen=True)
class Drawn:
    """A chart in the units of the drawing."""

    chart: Chart
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    paths: list[tuple[int, str]]
    marks: list[tuple[int, list[Mark]]]
    borders: list[tuple[float, str]]
    says: str
    shades: list[tuple[int, str]] = field(default_factory=list)
    bars: list[tuple[int, str]] = field(default_factory=list)
    """Spreads of values, for each line that has them."""


def nice(step: float) -> float:
    """The next of 1, 2, 5, 10, ... (times a power of ten) that is not below."""
    power = 10.0 ** math.floor(math.log10(step))
    return next((factor * power for factor in (1, 2, 5) if factor * power >= step * (1 - 1e-9)), 10 * power)


def places_of_ticks(count: int, most: int = 7) -> list[int]:
    """Places of whole-number ticks among 0 ... count - 1, for names that count from 1: 1, 5, 10, ..."""
    if count <= most:
        return list(range(count))
    step = int(nice(max(1.0, count / (most - 1))))
    return [*([0] if step > 2 else []), *range(step - 1, count, step)]


def draw(chart: Chart) -> Drawn:
    """Place everything."""
    low, high, step = chart.range()
    in_slots = chart.slots or len(chart.names) == 1

    def across(place: float) -> float:
        share = (place + 0.5) / len(chart.names) if in_slots else place / (len(chart.names) - 1)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    def down(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low), 1)

    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    count = round((high - low) / step)
    y_ticks = [(down(low + n * step), f"{low + n * step:.{digits}f}") for n in range(count + 1)]
    ticks = chart.ticks or range(len(chart.names))
    paths, marks = [], []
    bars: list[tuple[int, str]] = []
    for line in chart.lines:
        places = [
            (across(place), down(value), place, value)
            for place, value in enumerate(line.values)
            if value is not None
        ]
        if chart.steps:
            path = "".join(f"V{y}H{across(place + 1)}" for _, y, place, _ in places)
            paths.append((line.number, f"M{across(0)} {down(0)}{path}V{down(0)}"))
            continue
        paths.append((line.number, "M" + "L".join(f"{x} {y}" for x, y, _, _ in places) if places else ""))
        spreads = [
            f"M{x} {down(value - around)}V{down(value + around)}"
            for x, _, place, value in places
            if (around := line.around(place))
        ]
        if spreads:
            bars.append((line.number, "".join(spreads)))
        shown = [
            Mark(x, y, f"{line.name}, {chart.names[p]}: {v:.{chart.decimals}f}", p == line.best)
            for x, y, p, v in places
            if len(places) <= FEW or p == line.best
        ]
        marks.append((line.number, shown))
    borders = [(across(place), name) for place, name in chart.borders]
    x_ticks = [(across(place), chart.names[place]) for place in ticks]
    return Drawn(chart, x_ticks, y_ticks, paths, marks, borders, _in_words(chart), bars=bars)


def density(
    title: str, x_label: str, y_label: str, names: Sequence[str], columns: Sequence[Sequence[int]]
) -> Drawn:
    """Histograms beside each other, the bin 0..1 upwards, as shades; the median of each as a line."""
    bins = len(columns[0])
    largest = max(max(column) / max(sum(column), 1) for column in columns) or 1.0
    wide = (WIDTH - LEFT - RIGHT) / len(columns)
    high = (HEIGHT - TOP - BOTTOM) / bins
    cells: dict[int, list[str]] = {}
    for place, column in enumerate(columns):
        for bin_, count in enumerate(column):
            level = round(LEVELS * math.sqrt(count / max(sum(column), 1) / largest))
            x, end = round(LEFT + place * wide, 1), round(LEFT + (place + 1) * wide, 1)  # no gaps
            y, foot = (round(HEIGHT - BOTTOM - edge * high, 1) for edge in (bin_ + 1, bin_))
            if level:
                cells.setdefault(level, []).append(f"M{x} {y}H{end}V{foot}H{x}z")
    medians = [median(column) for column in columns]
    points = [
        (LEFT + (place + 0.5) * wide, HEIGHT - BOTTOM - value * (HEIGHT - TOP - BOTTOM))
        for place, value in enumerate(medians)
    ]
    line = Line("median", 0, medians)
    chart = Chart(title, x_label, y_label, names, [line], 2)
    ticks = places_of_ticks(len(names))
    return Drawn(
        chart,
        [(round(LEFT + (place + 0.5) * wide, 1), names[place]) for place in ticks],
        [
            (round(HEIGHT - BOTTOM - v * (HEIGHT - TOP - BOTTOM), 1), f"{v:g}")
            for v in (0, 0.25, 0.5, 0.75, 1)
        ],
        [(0, "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points))],
        [],
        [],
        _in_words(chart),
        [(level, "".join(parts)) for level, parts in sorted(cells.items())],
    )


def median(counts: Sequence[int]) -> float:
    """The median of a histogram over 0..1, evenly spread inside a bin; 0 of nothing."""
    half, below = sum(counts) / 2, 0.0
    for place, count in enumerate(counts):
        if count and below + count >= half:
            return (place + (half - below) / count) / len(counts)
        below += count
    return 0.0


def _in_words(chart: Chart) -> str:
    """What somebody hears who cannot see the chart."""
    told = []
    for line in chart.lines:
        values = [(place, value) for place, value in enumerate(line.values) if value is not None]
        if values:
            (first, start), (last, end) = values[0], values[-1]
            told.append(
                f"{line.name}: {start:.{chart.decimals}f} at {chart.names[first]}, "
                f"{end:.{chart.decimals}f} at {chart.names[last]}"
            )
    return f"{chart.title}. {chart.y_label} by {chart.x_label}. " + "; ".join(told[:12])
