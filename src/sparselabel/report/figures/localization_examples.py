"""Good and failed localizations: maps of a class beside the outlines of its objects (PatchML fig. 4, 5).

PatchML. Reads what `sparselabel evaluate` wrote: IoA-P of all maps (location-SPLIT.npz); and the maps of
the chosen ones, which the command has made in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import PreparedSplit
from sparselabel.errors import ConfigError, RunError, command, param
from sparselabel.file_formats import read_arrays, refuse_outside
from sparselabel.inference.saved_scores import SplitScores, refuse_other_data, saved_scores
from sparselabel.metrics.localization import CUTS, enough, scaled_maps
from sparselabel.report.figures.panels import color_bar, show_image, show_map
from sparselabel.report.figures.style import GRAY, names_of, new_figure, save, style
from sparselabel.report.figures.watched_images import seen_of, small_image
from sparselabel.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = ("example", "row", "image", "class", "places", "run", "score", *(f"IoA_P_at_{cut}" for cut in CUTS))
OUTLINE = "#00E5A0"
MOST = 12
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Examples:
    """Chosen pairs of an image and a class, ``good`` good ones first; ``numbers`` are theirs among all."""

    good: int
    numbers: Integers
    rows: Integers
    classes: Integers


@dataclass(frozen=True, eq=False)
class EvaluatedMaps:
    """A run's scores, and IoA-P (P, C) of its maps of P pairs."""

    saved: SplitScores
    pairs: dict[str, npt.NDArray[Any]]

    @property
    def shares(self) -> npt.NDArray[np.float32]:
        """(P, C) IoA-P at each cut."""
        return self.pairs["shares"]

    @property
    def attention(self) -> bool:
        """Whether its maps are attention."""
        return self.saved.run.config().has_attention

    @property
    def scores(self) -> npt.NDArray[np.floating[Any]]:
        """(P,) The class's score in the image."""
        return np.asarray(self.saved.array[self.pairs["rows"], self.pairs["classes"]])


def read_evaluated(runs: Sequence[Path], split: str) -> list[EvaluatedMaps]:
    """What evaluation wrote of the runs' maps; refuses runs on other data or ground truth."""
    if not runs:
        raise ConfigError("there is nothing to show", "name an evaluated run")
    first, *others = every = [_read_run(path, split) for path in runs]
    refuse_other_data([one.saved for one in every])
    for one in others:
        pairs = ((one.pairs[name], first.pairs[name]) for name in ("rows", "classes", "masked"))
        if not all(np.array_equal(*pair) for pair in pairs):
            raise RunError(
                f"{first.saved.run.path} and {one.saved.run.path} were evaluated by another ground truth",
                "evaluate both by the same ground truth",
            )
    return every


PAIRS = {"rows": "i M", "classes": "i M", "masked": "b M", "shares": "f M cuts", "areas": "f M"}


def _read_run(path: Path, split: str) -> EvaluatedMaps:
    saved = saved_scores(Run(path), split)
    file, evaluate = saved.run.location_file(split), command("evaluate", path, split=split)
    if not file.is_file():
        raise RunError(f"there is no {file}", f"{evaluate} writes it where the data has boxes or masks")
    pairs = read_arrays(file, PAIRS, f"{evaluate} writes it again")
    counts = {"rows": len(saved.split), "classes": len(saved.labels.classes)}
    refuse_outside(file, pairs, counts, f"{evaluate} writes it again")
    return EvaluatedMaps(saved, pairs)


def choose(runs: Sequence[EvaluatedMaps], count: int) -> Examples:
    """Good and failed maps of the last run, ``count`` of each, of different classes if there are enough.

    Good: right at every cut, first those most above the first run's map; of a single run, above what a map
    would reach that shows everything. Failed: right at none, first those of the highest score.
    """
    if not 1 <= count <= MOST:
        raise ConfigError(f"{param('count')} must be 1 to {MOST}, not {count}", what="count", value=count)
    last = runs[-1]
    right = enough(last.shares)
    before = runs[0].shares.mean(axis=1) if len(runs) > 1 else last.pairs["areas"]
    gain = last.shares.mean(axis=1) - before
    good = _various(np.flatnonzero(right.all(axis=1)), gain, last.pairs["classes"], count)
    failed = _various(np.flatnonzero(~right.any(axis=1)), last.scores, last.pairs["classes"], count)
    numbers = np.concatenate([good, failed]).astype(np.int64)
    return Examples(len(good), numbers, last.pairs["rows"][numbers], last.pairs["classes"][numbers])


def _various(
    among: Integers, worth: npt.NDArray[np.floating[Any]], classes: Integers, count: int
) -> npt.NDArray[np.intp]:
    """The worthiest ones, first one of each class, then a second one of each."""
    order = among[np.argsort(-worth[among], kind="stable")]
    times = np.zeros(len(order), np.int64)
    met: dict[int, int] = {}
    for index_in_order, index in enumerate(classes[order].tolist()):
        times[index_in_order] = met[index] = met.get(index, -1) + 1
    return order[np.argsort(times, kind="stable")][:count]


def draw_localization(runs: Sequence[EvaluatedMaps], examples: Examples, split: str, out: Path) -> Path:
    """A line for each pair of a good and a failed example: the image with outlines, and every run's map."""
    if not len(examples.rows):
        raise RunError("no map is right at every cut or wrong at every cut: there is nothing to show")
    names = names_of([one.saved.run.path for one in runs])
    maps = [_maps(one, examples, split) for one in runs]
    wide = 1 + len(runs)
    counts = {"good": examples.good, "failed": len(examples.rows) - examples.good}
    kinds = [kind for kind, count in counts.items() if count]
    lines = max(counts.values())
    numbers: list[list[object]] = []
    with style():
        # The words above want the room of four images, also where there are fewer.
        figure = new_figure(1.75 * max(len(kinds) * wide, 4) + 0.6, 1.85 * lines + 0.9)
        grid = figure.subplots(lines, len(kinds) * wide, squeeze=False)
        for axes in grid.ravel():
            axes.set_axis_off()
        for example in range(len(examples.rows)):
            kind = "good" if example < examples.good else "failed"
            column, line = kinds.index(kind) * wide, example if kind == "good" else example - examples.good
            rows = _show(grid[line][column : column + wide], runs, maps, examples, example)
            numbers += [[kind, *row[:4], name, *row[4:]] for name, row in zip(names, rows, strict=True)]
        title = f"Maps of {' and '.join(names)}: {_where(names[-1], kinds)}"
        looking = [name for name, one in zip(names, runs, strict=True) if one.attention]
        words = (
            "IoA-P: the share of a map, cut at .6 to .9 of its range, that lies on the outlined things; mean "
            "over the cuts,\nand at how many of them it is a half or more"
        )
        if looking:
            words += f"\nMaps of {' and '.join(looking)} are attention: where it looked, not scores of cells"
        figure.suptitle(f"{title}\n{words}", fontsize=7.5, color="#333333")
        color_bar(figure, grid.ravel().tolist(), "the class's map, from its least to its most in the image")
        return save(figure, COLUMNS, numbers, out)


def _where(run: str, kinds: Sequence[str]) -> str:
    if len(kinds) == 2:
        return f"where {run} is right at every cut (left) and at none (right)"
    return {
        "good": f"where {run} is right at every cut; it is wrong at all of them nowhere",
        "failed": f"where {run} is right at no cut; it is right at all of them nowhere",
    }[kinds[0]]


def _show(
    line: "Sequence[Axes]",
    runs: Sequence[EvaluatedMaps],
    maps: Sequence[npt.NDArray[np.float32]],
    examples: Examples,
    example: int,
) -> list[list[object]]:
    """Draw an example; returns a row of numbers for each run."""
    number, row, index = (int(of[example]) for of in (examples.numbers, examples.rows, examples.classes))
    split = runs[0].saved.split
    image = small_image(split, row)
    masked = bool(runs[0].pairs["masked"][number])
    name = split.truth.classes[index]
    show_image(line[0], image)
    _outline(line[0], split, row, index, masked)
    line[0].set_title(name if len(name) <= 22 else f"{name[:21]}…", fontsize=8, pad=3)
    line[0].set_axis_on()
    rows: list[list[object]] = []
    for axes, one, shown in zip(line[1:], runs, maps, strict=True):
        axes.set_axis_on()
        show_map(axes, image, shown[example], seen_of(one.saved.run, image))
        _outline(axes, split, row, index, masked)
        shares, score = one.shares[number], float(one.scores[number])
        right = int(enough(shares).sum())
        symbol = "✓" if right > len(CUTS) / 2 else "✗"
        run = one.saved.run.path.resolve().name
        named = f"{run if len(run) <= 16 else f'{run[:15]}…'}, " if len(runs) > 1 else ""
        caption = f"{symbol} IoA-P {shares.mean():.2f} ({right} of {len(CUTS)})\n{named}score {score:.2f}"
        axes.set_title(caption, fontsize=6.5, pad=3, color="black" if symbol == "✓" else GRAY)
        about = (row, str(split.truth.ids[row]), name, "masks" if masked else "boxes")
        rows.append([*about, score, *(float(share) for share in shares)])
    return rows


def _maps(one: EvaluatedMaps, examples: Examples, split: str) -> npt.NDArray[np.float32]:
    """(n, h, w) The run's maps of the examples, each from 0 to 1."""
    file = one.saved.run.located_maps_file(split)
    arrays = read_arrays(file, {"rows": "i M", "classes": "i M", "cells": "f M h w"}, "draw the figure again")
    if not all(np.array_equal(arrays[name], getattr(examples, name)) for name in ("rows", "classes")):
        raise RunError(f"{file} has other maps: draw the figure again")
    cells = arrays["cells"]
    return scaled_maps(
        1 / (1 + np.exp(-cells)) if one.attention else cells
    )  # as they were evaluated: in shares


def _outline(axes: "Axes", split: PreparedSplit, row: int, index: int, masked: bool) -> None:
    """The outlines of a class's things: their masks' or boxes'."""
    from matplotlib.patches import Rectangle

    things = split.spatial_labels
    numbers, _ = things.of_rows([row])
    width, height = axes.get_xlim()[1], axes.get_ylim()[0]
    for number in numbers[(things.classes[numbers] == index) & ~things.is_point[numbers]].tolist():
        if masked and split.masks is not None:
            pixels = np.pad(split.masks.decode(number).astype(np.float32), 1)
            tall, wide = pixels.shape[0] - 2, pixels.shape[1] - 2
            across = (np.arange(wide + 2) - 0.5) / wide * width
            down = (np.arange(tall + 2) - 0.5) / tall * height
            axes.contour(across, down, pixels, levels=[0.5], colors=[OUTLINE], linewidths=1.1)
        else:
            size = things.sizes[number] * (width, height)
            corner = things.centers[number] * (width, height) - size / 2
            box = Rectangle(tuple(corner), *size, fill=False, edgecolor=OUTLINE, linewidth=1.1)
            axes.add_patch(box)
    axes.set(xlim=(0, width), ylim=(height, 0))
