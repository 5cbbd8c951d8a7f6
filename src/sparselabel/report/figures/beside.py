"""The maps of two runs beside each other, for pictures that nobody chose (P1 fig. 4, H.1, K.1, K.2)."""

from pathlib import Path

import numpy as np

from sparselabel.errors import ConfigError, RunError
from sparselabel.report.figures.panels import (
    MEANING,
    caption,
    colour_bar,
    colours_of,
    explain,
    legend,
    mean_and_max,
    show_class,
    show_picture,
)
from sparselabel.report.figures.style import Table, blank, names_of, new_figure, save, style
from sparselabel.report.figures.watched_images import Kind, Watched

TOP = 5
SIDE = 0.95  # inches of a panel: four pictures fit on a page
COLUMNS = ("row", "picture", "run", "rank", "class", "kind", "score", "map", "map_mean", "map_max")


def draw_beside(run: Path, other: Path, count: int, out: Path) -> Path:
    """Two lines for each of the first watched pictures: the maps of the first run's best classes, in both."""
    if count < 1:
        raise ConfigError(f"count must be at least 1, not {count}")
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
            picture = both[0].picture(row)
            show_picture(grid[0, 0], picture)
            grid[0, 0].set_title(f"row {row}", fontsize=8, pad=3)
            blank(grid[1, 0])
            order = np.argsort(-both[0].last.scores[both[0].place(row)], kind="stable")[:top].tolist()
            for line, watched, name, source in zip(grid, both, names, sources, strict=True):
                place = watched.place(row)
                line[1].set_ylabel(f"{name}\nepoch {watched.last.epoch}", fontsize=8)
                for rank, index in enumerate(order):
                    values = watched.last.map(source, place, index)
                    score, kind = float(watched.last.scores[place, index]), watched.kind(row, index)
                    show_class(line[rank + 1], picture, values, watched, source)
                    caption(line[rank + 1], watched, kind, index, score)
                    kinds.append(kind)
                    identity = (row, str(watched.split.truth.ids[row]), name, rank + 1)
                    found = (watched.classes[index], kind, score, source, *mean_and_max(values))
                    numbers.append([*identity, *found])
        colour_bar(figure, page.ravel().tolist(), colours_of(sources))
        explain(figure, " and ".join(names), "the model's score of the whole picture", sources, both)
        legend(figure, tuple(kind for kind in MEANING if kind in kinds))
        return save(figure, Table(COLUMNS, numbers), out)


def _shared_rows(first: Watched, second: Watched) -> list[int]:
    """The rows that both have watched, in their order; the runs must be of the same pictures."""
    same_pictures = np.array_equal(first.split.digests, second.split.digests)
    if first.classes != second.classes or not same_pictures:
        raise RunError(
            f"{first.run.path} and {second.run.path} were trained on different pictures or classes "
            f"({first.run.data_name('train')} and {second.run.data_name('train')}): "
            "set runs on the same data beside each other"
        )
    rows = [row for row in first.last.rows.tolist() if row in second.last.rows]
    if not rows:
        raise RunError(f"{first.run.path} and {second.run.path} watched no picture in common")
    return rows
