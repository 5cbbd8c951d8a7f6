"""Resampling of grids along cropped and mirrored axes: which cells a cell is made of, and their sum."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional


class Bags(NamedTuple):
    """How cells are made of others: for each of B pictures and each cell, which k, and their weights."""

    others: npt.NDArray[np.int64]  # (B, cells, k)
    weights: npt.NDArray[np.float64]

    @property
    def filled(self) -> npt.NDArray[np.bool_]:
        """(B, cells) Whether a cell is made of anything."""
        there: npt.NDArray[np.bool_] = np.logical_or.reduce(self.weights, axis=-1)
        return there


class Axis(NamedTuple):
    """One axis of B frames: the crop's ``start`` and ``length`` (B,), and whether it is ``mirrored`` (B,).

    The weights of a few cells are made of so few numbers that numpy is done before torch has begun.
    """

    start: npt.NDArray[np.float64]
    length: npt.NDArray[np.float64]
    mirrored: npt.NDArray[np.bool_]

    def reading(self, cells: int, grid: int) -> Bags:
        """The picture cells, of ``grid``, that each of the view's ``cells`` is made of."""
        seen = np.where(self.mirrored[:, None], 1 - _centres(cells), _centres(cells))
        place = (
            self.start[:, None] + self.length[:, None] * seen
        ) * grid - 0.5  # 0 is the first cell's centre
        reach = np.maximum(self.length * (grid / cells), 1)[:, None, None]  # picture cells in a view cell
        others = _around(place, reach[..., 0], math.ceil(2 * max(1, grid / cells)))
        return _kept(others, 1 - np.abs(others - place[..., None]) / reach, grid)

    def writing(self, grid: int, cells: int) -> Bags:
        """The view's ``cells`` that each picture cell of ``grid`` whose centre it shows is made of."""
        seen = (_centres(grid) - self.start[:, None]) / self.length[:, None]
        seen = np.minimum(np.maximum(seen, 0), 1)  # so that what the crop does not show is made of something
        place = np.where(self.mirrored[:, None], 1 - seen, seen) * cells - 0.5
        reach = np.maximum(cells / (self.length * grid), 1)[:, None, None]  # view cells in a picture cell
        half = (reach + 1) / 2
        others = _around(place, half[..., 0], math.ceil(reach.max(initial=1)) + 1)
        overlap = half - np.abs(others - place[..., None])  # of an interval that long with each cell
        kept = _kept(others, np.minimum(overlap, 1), cells)
        start, end = self.start[:, None], (self.start + self.length)[:, None]
        shown = (start <= _centres(grid)) & (_centres(grid) < end)
        return Bags(kept.others, kept.weights * shown[..., None])


@lru_cache
def _centres(cells: int) -> npt.NDArray[np.float64]:
    return (np.arange(cells) + 0.5) / cells


def _around(
    place: npt.NDArray[np.float64], reach: npt.NDArray[np.float64], most: int
) -> npt.NDArray[np.int64]:
    """(B, n, most) The whole numbers that are nearer to a place (B, n) than ``reach``, and perhaps others."""
    first = np.floor(place - reach).astype(np.int64)
    return first[..., None] + np.arange(1, most + 1)


def _kept(others: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], cells: int) -> Bags:
    """Weights that count nothing below 0 or beyond the first and last of the cells, and sum to 1."""
    inside = np.minimum(np.maximum(others, 0), cells - 1)
    weights = np.maximum(weights, 0) * (inside == others)
    return Bags(inside, weights / np.add.reduce(weights, axis=-1, keepdims=True))


def resampled(down: Bags, grids: Tensor, across: Bags) -> Tensor:
    """Make grids (B, L, H, W) anew along both axes: (B, L, h, w).

    Classes lie innermost, as in channels-last memory, so that what is added up are long rows of numbers.
    """
    inner = grids.permute(0, 2, 3, 1)
    with torch.autocast(grids.device.type, enabled=False):  # geometry stays exact under mixed precision
        if (
            down.others.shape[1] < grids.shape[2]
        ):  # what becomes less comes first, what becomes more comes last
            return _along_width(across, _along_height(down, inner)).permute(0, 3, 1, 2)
        return _along_height(down, _along_width(across, inner)).permute(0, 3, 1, 2)


def _along_height(bags: Bags, grids: Tensor) -> Tensor:
    """(B, h) bags of rows of (B, H, W, L): (B, h, W, L)."""
    batch, height, width, classes = grids.shape
    others = bags.others + np.arange(0, batch * height, height)[:, None, None]
    rows = _add_up(grids.reshape(batch * height, width * classes), others, bags.weights)
    return rows.view(batch, bags.others.shape[1], width, classes)


def _along_width(bags: Bags, grids: Tensor) -> Tensor:
    """(B, w) bags of cells of (B, H, W, L): (B, H, w, L)."""
    batch, height, width, classes = grids.shape
    line = np.arange(0, batch * height * width, width).reshape(batch, height, 1, 1)
    weights = bags.weights.astype(np.float32) if grids.dtype == torch.float32 else bags.weights
    cells = _add_up(
        grids.reshape(batch * height * width, classes),
        bags.others[:, None] + line,
        weights[:, None].repeat(height, axis=1),
    )
    return cells.view(batch, height, bags.others.shape[1], classes)


def _add_up(table: Tensor, others: npt.NDArray[np.int64], weights: npt.NDArray[np.floating]) -> Tensor:
    """Sums of the table's rows, k at a time, by number and weight (..., k)."""
    shape = (-1, others.shape[-1])
    numbers = torch.from_numpy(others.reshape(shape)).to(table.device)
    shares = torch.from_numpy(weights.reshape(shape)).to(table.device, table.dtype)
    return functional.embedding_bag(numbers, table, mode="sum", per_sample_weights=shares)
