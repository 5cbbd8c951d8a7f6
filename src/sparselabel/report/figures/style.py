"""The style of all figures, and how figures and their numbers are saved.

matplotlib is imported when a figure is drawn, not before: it takes half a second.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparselabel.errors import ConfigError, param
from sparselabel.files import atomic_write, require_file_to_write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

# Okabe and Ito's colors, which color-blind people can tell apart too, and line styles for print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX"
GRAY = "#666666"
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "text.parse_math": False,  # a class or folder may be called $x_1$
}


@contextmanager
def style() -> "Iterator[None]":
    """Draw in the project's style, whatever the user's own settings are."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)  # type: ignore[arg-type]
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of this size in inches; it needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def inline_figure(width: float, height: float) -> "Figure":
    """A figure that a notebook shows if it is the value of a cell."""
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class InlineFigure(Figure):
        def _repr_png_(self) -> bytes:
            image = io.BytesIO()
            self.savefig(image, format="png", dpi=110)
            return image.getvalue()

    figure = InlineFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def look_of(number: int) -> dict[str, Any]:
    """Color and marker of a curve."""
    return {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}


def log_curves(
    curves: Mapping[str, Sequence[tuple[float, float, float]]], x_label: str, y_label: str, tick: str
) -> "Figure":
    """By name, points (x, mean, spread) in a row, over a logarithmic axis; ``tick`` formats its numbers."""
    figure = new_figure(5.2, 3.7)
    axes = figure.subplots()
    for number, (name, points) in enumerate(curves.items()):
        x, means, spreads = zip(*points, strict=True)
        look: dict[str, Any] = {
            "color": COLORS[number % len(COLORS)],
            "marker": MARKERS[number % len(MARKERS)],
        }
        axes.errorbar(x, means, yerr=spreads, label=name, capsize=2, **look)
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))  # a spread may reach below what there can be
    axes.set_xscale("log", subs=[2, 5])
    for axis_format in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        axis_format(lambda value, _: format(value, tick))
    axes.tick_params(axis="x", which="minor", labelsize=7)
    axes.set(xlabel=x_label, ylabel=y_label)
    figure.legend(loc="outside upper center", ncols=legend_columns(curves, 5.2, 3))
    return figure


def legend_columns(names: Iterable[str], width: float, most: int = 4) -> int:
    """The number of columns of a legend of this width in inches."""
    return max(1, min(most, int(13 * width / (max(map(len, names)) + 7))))


def save(figure: "Figure", columns: Sequence[str], rows: Iterable[Sequence[object]], out: Path) -> Path:
    """Write the figure as PNG, and its numbers beside it as CSV, whose path is returned."""
    out.parent.mkdir(parents=True, exist_ok=True)
    numbers = out.with_suffix(".csv")
    with atomic_write(out) as partial:
        figure.savefig(partial, format="png", dpi=150, metadata={"Software": "sparselabel"})
    with atomic_write(numbers) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([f"{v:.6g}" if isinstance(v, float) else v for v in row] for row in rows)
    return numbers


def checked_out(out: Path, inputs: Iterable[Path] = (), name: str = "out") -> Path:
    """The path of a figure; refuses one that is no PNG, cannot be written, or replaces what is read."""
    if out.suffix.lower() != ".png":
        raise ConfigError(f"a figure is a PNG file: {param(name)} must end in .png, but is {out}", what=name)
    numbers = out.with_suffix(".csv")
    if any(numbers.resolve() == path.resolve() for path in inputs):
        raise ConfigError(f"the figure's numbers would replace {numbers}", f"choose another {param(name)}")
    for file in (out, numbers):
        require_file_to_write(file, f"choose another {param(name)}")
    return out


def names_of(runs: Sequence[Path]) -> list[str]:
    """The names of runs in a figure: their folders' names, or their paths if names repeat."""
    names = [path.resolve().name for path in runs]
    return names if len({*names}) == len(names) else [str(path) for path in runs]
