"""How the maps of a watched picture's classes come about over the epochs (P1 fig. 3)."""

from pathlib import Path

import numpy as np

from sparselabel.errors import RunError
from sparselabel.report.figures.panels import (
    COLOUR_OF,
    MARKS,
    MEANING,
    colour_bar,
    colours_of,
    explain,
    mean_and_max,
    show_class,
    show_picture,
)
from sparselabel.report.figures.style import Table, new_figure, save, style
from sparselabel.report.figures.watched_images import KINDS, Snapshot, Watched

MOST = 7  # epochs that fit beside each other
COLUMNS = ("row", "picture", "epoch", "kind", "class", "score", "running_score", "map", "map_mean", "map_max")


def draw_growth(run: Path, row: int | None, out: Path) -> Path:
    """A line for each kind of class, a column for each epoch (evenly chosen where there are many)."""
    watched = Watched(run)
    (source,) = watched.sources()
    (chosen,) = watched.chosen([] if row is None else [row], 1)
    place, best = watched.place(chosen), watched.best_of_each_kind(chosen)
    snapshots = _evenly(watched, source)
    picture, name = watched.picture(chosen), str(watched.split.truth.ids[chosen])
    height, width = picture.shape[:2]
    kinds = [kind for kind in KINDS if kind in best]
    if not kinds:
        raise RunError(f"of row {chosen} no label is known: name another --row")
    numbers: list[list[object]] = []
    side = 1.25
    with style():
        figure = new_figure(
            side * (len(snapshots) + 1) + 0.9, (side * min(height / width, 1.5) + 0.35) * len(kinds) + 0.9
        )
        grid = figure.subplots(len(kinds), 1 + len(snapshots), squeeze=False)
        for line, kind in zip(grid, kinds, strict=True):
            index = best[kind]
            show_picture(line[0], picture)
            label = f"{MARKS[kind]} {watched.classes[index]}"
            line[0].set_title(label, color=COLOUR_OF[kind], fontsize=8, pad=3, weight="bold")
            line[0].set_xlabel(MEANING[kind], color=COLOUR_OF[kind], fontsize=7)
            for axes, snapshot in zip(line[1:], snapshots, strict=True):
                values = snapshot.map(source, place, index)
                score, running = float(snapshot.scores[place, index]), snapshot.running_score(place, index)
                show_class(axes, picture, values, watched, source)
                if kind == kinds[0]:
                    axes.set_title(f"epoch {snapshot.epoch}", fontsize=8, pad=3)
                axes.set_xlabel(f"{score if running is None else running:.2f}", fontsize=7, labelpad=2)
                found = (score, running, source, *mean_and_max(values))
                numbers.append([chosen, name, snapshot.epoch, kind, watched.classes[index], *found])
        colour_bar(figure, grid.ravel().tolist(), colours_of([source]))
        running = "running_scores" in watched.last.arrays
        below = "running average of the model's score" if running else "the model's score"
        explain(figure, f"{run.resolve().name}, row {chosen}", f"{below} of the picture", [source], [watched])
        return save(figure, Table(COLUMNS, numbers), out)


def _evenly(watched: Watched, source: str) -> list[Snapshot]:
    """The epochs that have maps, first and last among them, at most as many as fit."""
    snapshots = [watched.snapshot(file) for file in watched.files]
    there = [snapshot for snapshot in snapshots if snapshot.has(source)]
    places = np.linspace(0, len(there) - 1, min(MOST, len(there))).round().astype(int)
    return [there[place] for place in places]
