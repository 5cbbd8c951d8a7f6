"""Where a run sees its classes in watched pictures (P1 fig. 2)."""

from collections.abc import Sequence
from pathlib import Path

from sparselabel.report.figures.panels import (
    COLOUR_OF,
    MEANING,
    caption,
    colour_bar,
    colours_of,
    explain,
    mean_and_max,
    show_class,
    show_picture,
)
from sparselabel.report.figures.style import Table, blank, new_figure, save, style
from sparselabel.report.figures.watched_images import KINDS, Watched

COLUMNS = ("row", "picture", "kind", "class", "score", "map", "map_mean", "map_max")


def draw_heat_maps(run: Path, rows: Sequence[int], count: int, out: Path) -> Path:
    """A line for each picture: itself, and the best-scored annotated, unannotated and absent class's map."""
    watched = Watched(run)
    chosen, (source,) = watched.chosen(rows, count), watched.sources()
    numbers: list[list[object]] = []
    with style():
        figure = new_figure(8.6, 1.8 * len(chosen) + 0.6)
        grid = figure.subplots(len(chosen), 1 + len(KINDS), squeeze=False)
        for line, row in zip(grid, chosen, strict=True):
            picture = watched.picture(row)
            name = str(watched.split.truth.ids[row])
            show_picture(line[0], picture)
            line[0].set_title(f"row {row}", fontsize=8, pad=3)
            best, place = watched.best_of_each_kind(row), watched.place(row)
            for axes, kind in zip(line[1:], KINDS, strict=True):
                if kind not in best:
                    blank(axes)
                    axes.text(0.5, 0.5, "none", ha="center", va="center", color=COLOUR_OF[kind])
                    continue
                values = watched.last.map(source, place, best[kind])
                score = float(watched.last.scores[place, best[kind]])
                show_class(axes, picture, values, watched, source)
                caption(axes, watched, kind, best[kind], score)
                found = (watched.classes[best[kind]], score, source, *mean_and_max(values))
                numbers.append([row, name, kind, *found])
        for axes, kind in zip(grid[0, 1:], KINDS, strict=True):
            axes.annotate(
                MEANING[kind], (0.5, 1), (0, 18), xycoords="axes fraction", textcoords="offset points",
                ha="center", va="bottom", color=COLOUR_OF[kind], weight="bold",
            )  # fmt: skip
        colour_bar(figure, grid.ravel().tolist(), colours_of([source]))
        title = f"{run.resolve().name} after epoch {watched.last.epoch}"
        explain(figure, title, "the model's score of the whole picture", [source], [watched])
        return save(figure, Table(COLUMNS, numbers), out)
