"""An image with a map over it, as one panel of a figure; all panels share one scale of colors."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.thumbnails import COLOR_MAP, OPACITY
from sparselabel.report.figures.style import GRAY
from sparselabel.report.figures.watched_images import Kind, Maps, Watched, seen_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS: dict[Kind, str] = {"annotated": "●", "present": "○", "absent": "×", "unknown": "?"}
COLOR_OF: dict[Kind, str] = {
    "annotated": "#0072B2",
    "present": "#009E73",
    "absent": "#D55E00",
    "unknown": GRAY,
}
MEANING: dict[Kind, str] = {
    "annotated": "annotated",
    "present": "there, but not annotated",
    "absent": "absent",
    "unknown": "not known",
}
SOURCES = {
    "heat_maps": "running-average heat maps",
    "maps": "the model's score of each cell",
    "attention": "attention, by each map's highest",
}
LETTERS_PER_INCH = 15  # of the title
ATTENTION = (
    "Attention is where the model looked for a class, not a score: the shares of a map's cells add up to 1, "
    "and its colors go from 0 to its highest"
)
NEVER_SEEN = "cells that no training view has shown yet keep their start (1 if annotated)"


def show_image(axes: "Axes", image: npt.NDArray[np.uint8], **colors: Any) -> None:
    """The image alone, without ticks and frame."""
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    height, width = image.shape[:2]
    axes.imshow(image, aspect="equal", extent=(0, width, height, 0), **colors)


def show_map(
    axes: "Axes", image: npt.NDArray[np.uint8], values: Maps, seen: Sequence[float] = (0, 0, 1, 1)
) -> None:
    """The image in gray, and over what was ``seen`` of it (left, top, width, height) a map of 0..1."""
    height, width = image.shape[:2]
    gray = 90 + 0.6 * (image @ np.array([0.299, 0.587, 0.114]))  # pale, so that dark things hide no color
    show_image(axes, gray, cmap="gray", vmin=0, vmax=255)
    left, top, wide, high = seen
    extent = (left * width, (left + wide) * width, (top + high) * height, top * height)
    colors: dict[str, Any] = {"cmap": COLOR_MAP, "vmin": 0, "vmax": 1, "alpha": OPACITY}
    axes.imshow(values, aspect="equal", extent=extent, interpolation="bilinear", **colors)
    axes.set(xlim=(0, width), ylim=(height, 0))


def show_class(
    axes: "Axes", image: npt.NDArray[np.uint8], values: Maps | None, watched: Watched, source: str
) -> None:
    """The map of a class over the image; the image alone, and why, where the run kept no map of it."""
    if values is not None:
        show_map(axes, image, colored(values, source), seen_of(watched.run, image, source))
        return
    show_map(axes, image, np.full((1, 1), np.nan))
    axes.text(0.5, 0.5, "no map kept", transform=axes.transAxes, ha="center", va="center", fontsize=7)


def colored(values: Maps, source: str) -> Maps:
    """(h, w) in 0..1 What the colors of a map stand for: itself, or attention as a share of its highest."""
    return np.asarray(values / values.max()) if source == "attention" else values


def mean_and_max(values: Maps | None) -> tuple[float | None, float | None]:
    """Mean and maximum of a map for a table; empty if no map was saved."""
    return (None, None) if values is None else (float(values.mean()), float(values.max()))


def explain(
    figure: "Figure", title: str, number: str, sources: Sequence[str], runs: Sequence[Watched]
) -> None:
    """The title, and below it in small letters what the numbers and the colors are."""
    words = f"Numbers: {number}. Colors: {' and, of the second run, '.join(_of_sources(sources))}"
    if "attention" in sources:
        words += f". {ATTENTION}."
    if "heat_maps" in sources:
        words += f"; {NEVER_SEEN}."
        few = sorted({run.top_maps for run in runs if run.top_maps is not None})
        if few:
            best = " or ".join(map(str, few))
            words += f" Maps are kept of the best {best} classes of an image (top-maps)."
    lines = textwrap.wrap(words, int(LETTERS_PER_INCH * figure.get_figwidth()))
    figure.suptitle("\n".join([title, *lines]), fontsize=7.5, color="#333333")


def caption(axes: "Axes", watched: Watched, kind: Kind, index: int, score: float) -> None:
    """The class above its map: mark and color of its kind, name and score."""
    name = watched.classes[index]
    short = name if len(name) <= 18 else f"{name[:17]}…"
    axes.set_title(f"{MARKS[kind]} {short} {score:.2f}", color=COLOR_OF[kind], fontsize=8, pad=3)


def legend(figure: "Figure", kinds: tuple[Kind, ...]) -> None:
    """Write what the symbols mean below the figure."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], linestyle="", label=f"{MARKS[kind]} {MEANING[kind]}", color=COLOR_OF[kind])
        for kind in kinds
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(kinds), labelcolor="linecolor", handlelength=0
    )


def colors_of(sources: Sequence[str]) -> str:
    """The label of the color bar."""
    return "\n".join(_of_sources(sources))


def _of_sources(sources: Sequence[str]) -> list[str]:
    return [SOURCES[source] for source in dict.fromkeys(sources)]


def color_bar(figure: "Figure", axes: "list[Axes]", label: str) -> None:
    """The one scale of all maps: 0..1."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = ScalarMappable(Normalize(0, 1), COLOR_MAP)
    bar = figure.colorbar(scale, ax=axes, fraction=0.025, pad=0.01, aspect=30, label=label, alpha=OPACITY)
    bar.outline.set_visible(False)
