"""Where a run sees its classes in watched images (Verelst 2023 fig. 2)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sparselabel.errors import ConfigError, RunError, param
from sparselabel.report.figures.panels import (
    COLOR_OF,
    MARKS,
    MEANING,
    caption,
    color_bar,
    colors_of,
    explain,
    legend,
    mean_and_max,
    show_class,
    show_image,
)
from sparselabel.report.figures.style import names_of, new_figure, save, style
from sparselabel.report.figures.watched_images import KINDS, Kind, Snapshot, Watched, small_image

COLUMNS = ("row", "image", "kind", "class", "score", "map", "map_mean", "map_max")


def draw_heat_maps(run: Path, rows: Sequence[int], count: int, out: Path) -> Path:
    """A line for each image: itself, and the best-scored annotated, unannotated and absent class's map."""
    watched = Watched(run)
    chosen, (source,) = watched.chosen(rows, count), watched.sources()
    numbers: list[list[object]] = []
    with style():
        figure = new_figure(8.6, 1.8 * len(chosen) + 0.6)
        grid = figure.subplots(len(chosen), 1 + len(KINDS), squeeze=False)
        for line, row in zip(grid, chosen, strict=True):
            image = small_image(watched.split, row)
            name = str(watched.split.truth.ids[row])
            show_image(line[0], image)
            line[0].set_title(f"row {row}", fontsize=8, pad=3)
            best, position = watched.best_of_each_kind(row), watched.place(row)
            for axes, kind in zip(line[1:], KINDS, strict=True):
                if kind not in best:
                    axes.set_axis_off()
                    axes.text(0.5, 0.5, "none", ha="center", va="center", color=COLOR_OF[kind])
                    continue
                values = watched.last.map(source, position, best[kind])
                score = float(watched.last.scores[position, best[kind]])
                show_class(axes, image, values, watched, source)
                caption(axes, watched, kind, best[kind], score)
                about_map = (watched.classes[best[kind]], score, source, *mean_and_max(values))
                numbers.append([row, name, kind, *about_map])
        for axes, kind in zip(grid[0, 1:], KINDS, strict=True):
            axes.annotate(
                MEANING[kind], (0.5, 1), (0, 18), xycoords="axes fraction", textcoords="offset points",
                ha="center", va="bottom", color=COLOR_OF[kind], weight="bold",
            )  # fmt: skip
        color_bar(figure, grid.ravel().tolist(), colors_of([source]))
        title = f"{run.resolve().name} after epoch {watched.last.epoch}"
        explain(figure, title, "the model's score of the whole image", [source], [watched])
        return save(figure, COLUMNS, numbers, out)


MOST = 7  # epochs that fit beside each other
GROWTH_COLUMNS = (
    "row", "image", "epoch", "kind", "class", "score", "running_score", "map", "map_mean", "map_max",
)  # fmt: skip


def draw_growth(run: Path, row: int | None, out: Path) -> Path:
    """A line for each kind of class, a column for each epoch (evenly chosen where there are many)."""
    watched = Watched(run)
    (source,) = watched.sources()
    (chosen,) = watched.chosen([] if row is None else [row], 1)
    position, best = watched.place(chosen), watched.best_of_each_kind(chosen)
    snapshots = _evenly(watched, source)
    image, name = small_image(watched.split, chosen), str(watched.split.truth.ids[chosen])
    height, width = image.shape[:2]
    kinds = [kind for kind in KINDS if kind in best]
    if not kinds:
        raise RunError(f"of row {chosen} no label is known", f"name another {param('row')}", value=chosen)
    numbers: list[list[object]] = []
    side = 1.25
    with style():
        figure = new_figure(
            side * (len(snapshots) + 1) + 0.9, (side * min(height / width, 1.5) + 0.35) * len(kinds) + 0.9
        )
        grid = figure.subplots(len(kinds), 1 + len(snapshots), squeeze=False)
        for line, kind in zip(grid, kinds, strict=True):
            index = best[kind]
            show_image(line[0], image)
            label = f"{MARKS[kind]} {watched.classes[index]}"
            line[0].set_title(label, color=COLOR_OF[kind], fontsize=8, pad=3, weight="bold")
            line[0].set_xlabel(MEANING[kind], color=COLOR_OF[kind], fontsize=7)
            for axes, snapshot in zip(line[1:], snapshots, strict=True):
                values = snapshot.map(source, position, index)
                score, running = (
                    float(snapshot.scores[position, index]),
                    snapshot.running_score(position, index),
                )
                show_class(axes, image, values, watched, source)
                if kind == kinds[0]:
                    axes.set_title(f"epoch {snapshot.epoch}", fontsize=8, pad=3)
                axes.set_xlabel(f"{score if running is None else running:.2f}", fontsize=7, labelpad=2)
                about_map = (score, running, source, *mean_and_max(values))
                numbers.append([chosen, name, snapshot.epoch, kind, watched.classes[index], *about_map])
        color_bar(figure, grid.ravel().tolist(), colors_of([source]))
        running = "running_scores" in watched.last.arrays
        below = "running average of the model's score" if running else "the model's score"
        explain(figure, f"{run.resolve().name}, row {chosen}", f"{below} of the image", [source], [watched])
        return save(figure, GROWTH_COLUMNS, numbers, out)


def _evenly(watched: Watched, source: str) -> list[Snapshot]:
    """The epochs that have maps, first and last among them, at most as many as fit."""
    snapshots = [watched.snapshot(file) for file in watched.files]
    there = [snapshot for snapshot in snapshots if source in snapshot.arrays]
    positions = np.linspace(0, len(there) - 1, min(MOST, len(there))).round().astype(int)
    return [there[index] for index in positions]


TOP = 5
SIDE = 0.95  # inches of a panel: four images fit on a page
SIDE_COLUMNS = ("row", "image", "run", "rank", "class", "kind", "score", "map", "map_mean", "map_max")


def draw_beside(run: Path, other: Path, count: int, out: Path) -> Path:
    """Two lines for each of the first watched images: the maps of the first run's best classes, in both."""
    if count < 1:
        raise ConfigError(f"{param('count')} must be at least 1, not {count}", what="count", value=count)
    both = Watched(run), Watched(other)
    sources = both[0].sources(both[1])
    rows = _shared_rows(*both)[:count]
    names = names_of([run, other])
    top = min(TOP, len(both[0].classes))
    kinds: list[Kind] = []
    numbers: list[list[object]] = []
    with style():
        figure = new_figure(SIDE * (top + 1) + 1.0, 2 * (SIDE + 0.16) * len(rows) + 1.1)
        page = figure.subplots(2 * len(rows), 1 + top, squeeze=False)
        for number, row in enumerate(rows):
            grid = page[2 * number : 2 * number + 2]
            image = small_image(both[0].split, row)
            show_image(grid[0, 0], image)
            grid[0, 0].set_title(f"row {row}", fontsize=8, pad=3)
            grid[1, 0].set_axis_off()
            order = np.argsort(-both[0].last.scores[both[0].place(row)], kind="stable")[:top].tolist()
            for line, watched, name, source in zip(grid, both, names, sources, strict=True):
                position = watched.place(row)
                line[1].set_ylabel(f"{name}\nepoch {watched.last.epoch}", fontsize=8)
                for rank, index in enumerate(order):
                    values = watched.last.map(source, position, index)
                    score, kind = float(watched.last.scores[position, index]), watched.kind(row, index)
                    show_class(line[rank + 1], image, values, watched, source)
                    caption(line[rank + 1], watched, kind, index, score)
                    kinds.append(kind)
                    identity = (row, str(watched.split.truth.ids[row]), name, rank + 1)
                    about_map = (watched.classes[index], kind, score, source, *mean_and_max(values))
                    numbers.append([*identity, *about_map])
        color_bar(figure, page.ravel().tolist(), colors_of(sources))
        explain(figure, " and ".join(names), "the model's score of the whole image", sources, both)
        legend(figure, tuple(kind for kind in MEANING if kind in kinds))
        return save(figure, SIDE_COLUMNS, numbers, out)


def _shared_rows(first: Watched, second: Watched) -> list[int]:
    """The rows that both have watched, in their order; the runs must be of the same images."""
    same_images = np.array_equal(first.split.digests, second.split.digests)
    if first.classes != second.classes or not same_images:
        raise RunError(
            f"{first.run.path} and {second.run.path} were trained on different images or classes "
            f"({first.run.data_name('train')} and {second.run.data_name('train')})",
            "set runs on the same data beside each other",
        )
    rows = [row for row in first.last.rows.tolist() if row in second.last.rows]
    if not rows:
        raise RunError(f"{first.run.path} and {second.run.path} watched no image in common")
    return rows
