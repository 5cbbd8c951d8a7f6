"""Scores of positives that are not annotated, epoch by epoch (Cole 2021 fig. 2)."""

import textwrap
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sparselabel.errors import ConfigError, RunError
from sparselabel.file_formats import read_json_lines
from sparselabel.report.figures.style import names_of, new_figure, save, style
from sparselabel.run import EpochRecord, Run

COLUMNS = 4  # panels beside each other
TITLE = 26  # letters of a title's line


def draw_hidden_positives(runs: Sequence[Path], out: Path) -> Path:
    """A panel for each run; each column is the histogram of an epoch and adds up to 1, white is none."""
    if not runs:
        raise ConfigError("there is nothing to draw", "name runs or the folder of a comparison")
    names = names_of(runs)
    logged = [_logged(Run(path)) for path in runs]
    columns = min(len(runs), COLUMNS)
    rows = -(-len(runs) // columns)
    with style():
        figure = new_figure(2.6 * columns + 1.1, 2.6 * rows + 0.2)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for axes in grid[len(runs) :]:
            axes.remove()
        for number, (axes, name, epochs) in enumerate(zip(grid, names, logged, strict=False)):
            counts = np.array([epoch["hidden_positives"] for epoch in epochs], np.float64)
            shares = (counts / counts.sum(axis=1, keepdims=True)).T
            extent = (epochs[0]["epoch"] - 0.5, epochs[-1]["epoch"] + 0.5, 0, 1)
            image = axes.imshow(
                np.ma.masked_equal(shares, 0),
                aspect="auto", origin="lower", extent=extent, cmap="viridis", vmin=0, vmax=1,
            )  # fmt: skip
            for before, epoch in pairwise(epochs):
                if before["phase"] != epoch["phase"]:
                    axes.axvline(epoch["epoch"] - 0.5, color="black", linestyle=":", linewidth=1)
            axes.grid(visible=False)
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.set_title(textwrap.fill(name.replace(",", ", "), TITLE))
            axes.set_xlabel("epoch")
            if number % columns == 0:
                axes.set_ylabel("score of unobserved positives")
        figure.colorbar(image, ax=list(grid[: len(runs)]), label="share of them in an epoch")
        numbers = [
            [name, epoch["epoch"], epoch["phase"], low, high, count / sum(epoch["hidden_positives"])]
            for name, epochs in zip(names, logged, strict=True)
            for epoch in epochs
            for low, high, count in _bins(epoch["hidden_positives"])
        ]
        return save(figure, ("run", "epoch", "phase", "from", "to", "share"), numbers, out)


def _bins(counts: Sequence[int]) -> list[tuple[float, float, int]]:
    edges = np.linspace(0, 1, len(counts) + 1).tolist()
    return list(zip(edges[:-1], edges[1:], counts, strict=True))


def _logged(run: Run) -> list[dict[str, Any]]:
    """The epochs of a run, which must know the labels that it did not observe."""
    run.require_finished()
    epochs: list[dict[str, Any]] = [{**record} for record in read_json_lines(run.metrics_file, EpochRecord)]
    if not epochs or not all(sum(epoch.get("hidden_positives") or ()) for epoch in epochs):
        raise RunError(
            f"{run.path} did not log scores of unobserved positives: that takes training data whose full "
            "labels are known, some of which are hidden",
            what=run.path,
        )
    return epochs
