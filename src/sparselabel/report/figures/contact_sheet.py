"""A sheet of random images with their labels, points and boxes, to check labels by eye."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.errors import ConfigError, param
from sparselabel.report.figures.panels import COLOR_OF, MARKS, MEANING
from sparselabel.report.figures.style import GRAY, new_figure, save, style
from sparselabel.report.figures.watched_images import Kind, small_image

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS, DOWN = 6, 4
TILE, TALL = 2.1, 1.6  # inches: width of a tile, height of the image in it
LINE, LINES = 0.145, 3  # inches of a line of labels, and how many of them
GAP, HEAD, FOOT = 0.12, 0.38, 0.3
LONGEST = 26  # letters of a class's name
COLUMNS = ("row", "image", "class", "kind")
DASHES: dict[Kind, tuple[float, float]] = {"annotated": (1, 0), "present": (4, 2)}


def draw_sheet(split: PreparedSplit, seed: int, out: Path) -> Path:
    """Draw random images of a split; returns the path of the CSV with their labels."""
    rows = random_rows(len(split), seed)
    _keep_other_tables(out.with_suffix(".csv"))
    down = -(-len(rows) // ACROSS)
    high = TALL + (LINES + 1) * LINE + GAP
    width, height = ACROSS * TILE + GAP, down * high + HEAD + FOOT
    numbers: list[list[object]] = []
    shown: set[Kind] = set()
    with style():
        figure = new_figure(width, height)
        figure.set_layout_engine("none")
        title = f"{len(rows)} of {len(split):,} images of {split.name}"
        figure.text(GAP / width, 1 - 0.14 / height, title, va="top", fontsize=11, weight="bold")
        for number, row in enumerate(rows):
            left = GAP + number % ACROSS * TILE
            top = height - HEAD - LINE - number // ACROSS * high
            image = small_image(split, row)
            scale = min((TILE - GAP) / image.shape[1], TALL / image.shape[0])
            wide, tall = scale * image.shape[1], scale * image.shape[0]
            axes = figure.add_axes((left / width, (top - tall) / height, wide / width, tall / height))
            labels = labels_of(split, row)
            _show(axes, image, split, row, dict(labels))
            axes.set_title(f"row {row}", loc="left", fontsize=7, color=GRAY, pad=2)
            _write(figure, (left, top - tall - 0.05, TILE - GAP), _words(split, row, labels))
            shown |= {kind for _, kind in labels}
            named = [(split.truth.classes[index], str(kind)) for index, kind in labels] or [("", "none")]
            numbers += [[row, str(split.paths[row]), *label] for label in named]
        _legend(figure, shown, (GAP / width, FOOT / 2 / height))
        return save(figure, COLUMNS, numbers, out)


def random_rows(count: int, seed: int) -> list[int]:
    """As many rows as a sheet has room for, sorted."""
    if seed < 0:
        raise ConfigError(f"{param('seed')} must not be negative, and is {seed}", what="seed", value=seed)
    return sorted(np.random.default_rng(seed).permutation(count)[: ACROSS * DOWN].tolist())


def _keep_other_tables(numbers: Path) -> None:
    """Refuse a name beside which a CSV lies that no sheet wrote: it may be the labels themselves."""
    if numbers.exists():
        with numbers.open(encoding="utf-8", errors="replace") as file:
            if file.readline().strip() != ",".join(COLUMNS):
                raise ConfigError(
                    f"{numbers} is there and not of a sheet", f"choose another name for {param('sheet')}"
                )


def labels_of(split: PreparedSplit, row: int) -> list[tuple[int, Kind]]:
    """The classes of an image that are there, annotated ones first, and which of them are annotated."""
    observed = np.flatnonzero(split.observed.matrix[row] == POSITIVE).tolist()
    true = np.flatnonzero(split.truth.matrix[row] == POSITIVE).tolist()
    hidden = [index for index in true if index not in observed]
    return [(index, "annotated") for index in observed] + [(index, "present") for index in hidden]


def _show(
    axes: "Axes", image: npt.NDArray[np.uint8], split: PreparedSplit, row: int, kinds: dict[int, Kind]
) -> None:
    """The image with its marks; the largest of each class has its name."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Normal, Stroke

    height, width = image.shape[:2]
    axes.set_axis_off()
    axes.imshow(image, extent=(0, width, height, 0), aspect="auto")
    axes.set(xlim=(0, width), ylim=(height, 0))
    halo = [Stroke(linewidth=2.4, foreground="white"), Normal()]
    spatial_labels = split.spatial_labels.take([row])
    named: set[int] = set()
    for number in np.argsort(-np.prod(spatial_labels.sizes, axis=1), kind="stable").tolist():
        index = int(spatial_labels.classes[number])
        kind = kinds.get(index, "absent")
        (u, v), (w, h) = spatial_labels.centers[number].tolist(), spatial_labels.sizes[number].tolist()
        left, top = (u - w / 2) * width, (v - h / 2) * height
        if spatial_labels.is_point[number]:
            axes.plot(
                [left], [top], "o", color=COLOR_OF[kind], markersize=6,
                markeredgecolor="white", fillstyle="full" if kind == "annotated" else "none",
                path_effects=halo,
            )  # fmt: skip
        else:
            box = Rectangle((left, top), w * width, h * height, fill=False, linewidth=1.2, path_effects=halo)
            box.set(edgecolor=COLOR_OF[kind], linestyle=(0, DASHES.get(kind, (1, 1))))
            axes.add_patch(box)
        if index not in named:
            named.add(index)
            above = top > 0.08 * height  # where there is room, so that nothing small is hidden
            beside = 5 if spatial_labels.is_point[number] else 0.4
            axes.annotate(
                _short(split.truth.classes[index]), (left, top), (beside, 1.4 if above else -1.4),
                textcoords="offset points", va="bottom" if above else "top", fontsize=5.5, color="white",
                bbox={"facecolor": COLOR_OF[kind], "edgecolor": "none", "pad": 0.8}, clip_on=True,
            )  # fmt: skip


def _words(split: PreparedSplit, row: int, labels: list[tuple[int, Kind]]) -> list[tuple[str, str]]:
    """What is written below an image, and in which colors."""
    names = split.truth.classes
    words = [(f"{MARKS[kind]} {_short(names[index])}", COLOR_OF[kind]) for index, kind in labels]
    if not words:
        words = [("nothing known to be there", GRAY)]
    negatives = int((split.observed.matrix[row] == NEGATIVE).sum())
    if negatives:
        words.append((f"{MARKS['absent']} {negatives:,} annotated as absent", COLOR_OF["absent"]))
    return words


def _write(figure: "Figure", place: tuple[float, float, float], texts: list[tuple[str, str]]) -> None:
    """Colored words in lines, as a typesetter would; what does not fit is counted."""
    left, top, wide = place
    width, height = figure.get_size_inches()
    across, line = 0.0, 0
    for number, (text, color) in enumerate(texts):
        word = figure.text(0, 0, text, fontsize=7, color=color, va="top")
        takes = word.get_window_extent().width / figure.dpi
        rest = len(texts) - number
        if across and across + takes > wide - (0.25 if rest > 1 and line == LINES - 1 else 0):
            if line == LINES - 1:
                word.set(text=f"+ {rest}", color=GRAY)
                rest = 0
            else:
                across, line = 0.0, line + 1
        word.set_position(((left + across) / width, (top - line * LINE) / height))
        across += takes + 0.08
        if not rest:
            return


def _legend(figure: "Figure", shown: set[Kind], place: tuple[float, float]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLOR_OF[kind], label=f"{MARKS[kind]} {MEANING[kind]}", dashes=DASHES[kind])
        for kind in DASHES
        if kind in shown
    ]
    figure.legend(
        handles=handles, loc="center left", bbox_to_anchor=place, ncols=len(DASHES), labelcolor="linecolor",
        borderaxespad=0, borderpad=0, fontsize=8,
    )  # fmt: skip


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
