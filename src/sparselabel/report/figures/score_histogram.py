"""Histograms of an image's 1st to 4th highest score, for each run (Verelst 2023 fig. 5a, F.1)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sparselabel.errors import ConfigError
from sparselabel.inference.saved_scores import refuse_other_data, saved_scores
from sparselabel.metrics.average_precision import Values
from sparselabel.metrics.tiled_scores import Scores
from sparselabel.report.figures.style import COLORS, DASHES, names_of, new_figure, save, style
from sparselabel.run import Run

RANKS = ("highest", "2nd highest", "3rd highest", "4th highest")
EDGES = np.linspace(0, 1, 26)


def draw_scores(runs: Sequence[Path], split: str, out: Path) -> Path:
    """A panel for each rank, a curve for each run: the share of images by score."""
    if not runs:
        raise ConfigError("there is nothing to draw", "name one or more evaluated runs")
    names = names_of(runs)
    everyone = [saved_scores(Run(run), split) for run in runs]
    refuse_other_data(everyone)
    highest = [-np.sort(-saved.array, axis=1)[:, : len(RANKS)] for saved in everyone]
    panels = min(scores.shape[1] for scores in highest)
    numbers: list[list[object]] = []
    with style():
        figure = new_figure(2.45 * panels + 0.6, 2.9)
        grid = figure.subplots(1, panels, squeeze=False)[0]  # each with its own height
        for rank, axes in enumerate(grid):
            for number, (name, scores) in enumerate(zip(names, highest, strict=True)):
                shares = shares_by_score(scores[:, rank])
                axes.stairs(
                    100 * shares,
                    EDGES,
                    label=name if rank == 0 else None,
                    color=COLORS[number % len(COLORS)],
                    linestyle=DASHES[number % len(DASHES)],
                    linewidth=1.6,
                )
                for low, high, share in zip(EDGES[:-1], EDGES[1:], shares, strict=True):
                    numbers.append([name, rank + 1, float(low), float(high), float(share)])
            axes.set_title(f"{RANKS[rank]} score")
            axes.set_xlim(0, 1)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".5", ".75", "1"])
            axes.set_ylim(bottom=0)
            axes.set_xlabel("score")
        grid[0].set_ylabel(f"% of the {split} images")
        figure.legend(loc="outside lower center", ncols=min(len(runs), 4))
        return save(figure, ("run", "rank", "from", "to", "share"), numbers, out)


def shares_by_score(scores: Scores) -> Values:
    """The share of images in every interval of scores."""
    return np.asarray(np.histogram(scores, EDGES)[0] / len(scores))
