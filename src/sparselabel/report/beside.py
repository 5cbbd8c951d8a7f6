"""The maps of two runs beside each other, for pictures that nobody chose (P1 fig. 4, H.1, K.1, K.2)."""

from pathlib import Path

import numpy as np

from sparselabel.errors import ConfigError, RunError
from sparselabel.report.page import Table, blank, names_of, new_figure, save, style
from sparselabel.report.panels import MEANING, SOURCES, caption, colour_bar, legend, show_map, show_picture
from sparselabel.report.watched import Kind, Watched

TOP = 5
COLUMNS = ("row", "picture", "run", "rank", "class", "kind", "score", "map_mean", "map_max")


def draw_beside(run: Path, other: Path, count: int, out: Path) -> Path:
    """Two lines for each of the first watched pictures: the maps of the first run's best classes, in both."""
    if count < 1:
        raise ConfigError(f"count must be at least 1, not {count}")
    both = Watched(run), Watched(other)
    source = both[0].source(both[1])
    rows = _shared_rows(*both)[:count]
    names = names_of([run, other])
    top = min(TOP, len(both[0].classes))
    kinds: list[Kind] = []
    numbers: list[list[object]] = []
    with style():
        figure = new_figure(1.45 * (top + 1) + 0.9, 2.6 * len(rows) + 0.7)
        page = figure.subplots(2 * len(rows), 1 + top, squeeze=False)
        for number, row in enumerate(rows):
            grid = page[2 * number : 2 * number + 2]
            picture = both[0].picture(row)
            height, width = picture.shape[:2]
            show_picture(grid[0, 0], picture)
            grid[0, 0].set_title(f"row {row}", fontsize=8, pad=3)
            blank(grid[1, 0])
            order = np.argsort(-both[0].last.scores[both[0].place(row)], kind="stable")[:top].tolist()
            for line, watched, name in zip(grid, both, names, strict=True):
                place = watched.place(row)
                line[1].set_ylabel(f"{name}\nepoch {watched.last.epoch}", fontsize=8)
                for rank, index in enumerate(order):
                    values = watched.last.map(source, place, index)
                    score, kind = float(watched.last.scores[place, index]), watched.kind(row, index)
                    show_map(line[rank + 1], picture, values, watched.seen(source, width, height))
                    caption(line[rank + 1], watched, kind, index, score)
                    kinds.append(kind)
                    identity = (row, str(watched.split.truth.ids[row]), name, rank + 1)
                    found = (watched.classes[index], kind, score, float(values.mean()), float(values.max()))
                    numbers.append([*identity, *found])
        colour_bar(figure, page.ravel().tolist(), SOURCES[source])
        legend(figure, tuple(kind for kind in MEANING if kind in kinds))
        return save(figure, Table(COLUMNS, numbers), out)


def _shared_rows(first: Watched, second: Watched) -> list[int]:
    """The rows that both have watched, in their order; the runs must be of the same pictures."""
    if first.classes != second.classes or not np.array_equal(first.split.paths, second.split.paths):
        raise RunError(
            f"{first.run.path} and {second.run.path} were trained on other pictures or classes: "
            "nothing to set beside each other"
        )
    rows = [row for row in first.last.rows.tolist() if row in second.last.rows]
    if not rows:
        raise RunError(f"{first.run.path} and {second.run.path} watched no picture in common")
    return rows
