"""Resampling of grids along cropped and mirrored axes: which cells a cell is made of, and their sum."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

Floats = npt.NDArray[np.float64]


class Bags(NamedTuple):
    """How cells are made of others: for each of B images and each cell, which k, and their weights."""

    others: npt.NDArray[np.int64]  # (B, cells, k)
    weights: Floats
    filled: npt.NDArray[np.bool_]  # (B, cells) whether a cell is made of anything

    def times(self, factor: float) -> "Bags":
        """Cells that are ``factor`` times as much: few weights are multiplied instead of many values."""
        return self if factor == 1 else self._replace(weights=self.weights * factor)

    def halves(self) -> tuple["Bags", "Bags"]:
        """Those of the first half of the images, and of the second."""
        half = len(self.others) // 2
        first = Bags(self.others[:half], self.weights[:half], self.filled[:half])
        return first, Bags(self.others[half:], self.weights[half:], self.filled[half:])


class Axis(NamedTuple):
    """One axis of B frames, each (B, 1): a crop from ``start`` to ``end``, seen from ``origin`` on.

    ``direction`` is the crop's length, negative where the view is mirrored and so begins at the end. The
    weights of a few cells are made of so few numbers that numpy is done before torch has begun.
    """

    start: Floats
    end: Floats
    origin: Floats
    direction: Floats

    @staticmethod
    def of(start: Floats, length: Floats, mirrored: npt.NDArray[np.bool_]) -> "Axis":
        """The axis of crops (B,) that may be mirrored (B,)."""
        start, length, mirrored = start[:, None], length[:, None], mirrored[:, None]
        end = start + length
        return Axis(start, end, np.where(mirrored, end, start), np.where(mirrored, -length, length))

    def halves(self) -> tuple["Axis", "Axis"]:
        """That of the first half of the frames, and of the second."""
        half = len(self.start) // 2
        return Axis(*(part[:half] for part in self)), Axis(*(part[half:] for part in self))

    def reading(self, cells: int, grid: int) -> Bags:
        """The image cells, of ``grid``, that each of the view's ``cells`` is made of."""
        place = (self.origin + self.direction * _centers(cells)) * grid - 0.5  # 0: the first cell's center
        reach = np.maximum(np.abs(self.direction) * (grid / cells), 1)  # image cells in a view cell
        others = _around(place, reach, math.ceil(2 * max(1, grid / cells)))
        inside, weights = _kept(others, reach[..., None] - np.abs(others - place[..., None]), grid)
        return Bags(inside, weights, np.ones(place.shape, dtype=np.bool_))

    def writing(self, grid: int, cells: int) -> Bags:
        """The view's ``cells`` that each image cell of ``grid`` whose center it shows is made of."""
        centers = _centers(grid)
        seen = (centers - self.origin) / self.direction
        # What the crop does not show is made of something too, of which nothing is kept in the end.
        place = np.minimum(np.maximum(seen, 0), 1) * cells - 0.5
        reach = np.maximum(cells / (np.abs(self.direction) * grid), 1)  # view cells in an image cell
        half = (reach + 1) / 2
        others = _around(place, half, math.ceil(reach.max(initial=1)) + 1)
        overlap = half[..., None] - np.abs(others - place[..., None])  # of an interval that long with each
        inside, weights = _kept(others, np.minimum(overlap, 1), cells)
        shown = (self.start <= centers) & (centers < self.end)
        return Bags(inside, weights * shown[..., None], shown)


@lru_cache
def _centers(cells: int) -> Floats:
    return (np.arange(cells) + 0.5) / cells


def _around(place: Floats, reach: Floats, most: int) -> npt.NDArray[np.int64]:
    """(B, n, most) The whole numbers that are nearer to a place (B, n) than ``reach``, and perhaps others."""
    first = np.floor(place - reach).astype(np.int64)
    return first[..., None] + np.arange(1, most + 1)


def _kept(others: npt.NDArray[np.int64], weights: Floats, cells: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """Weights that count nothing below 0 or beyond the first and last of the cells, and sum to 1."""
    inside = np.minimum(np.maximum(others, 0), cells - 1)
    weights = np.maximum(weights, 0) * (inside == others)
    return inside, weights / np.add.reduce(weights, axis=-1, keepdims=True)


def resampled(down: Bags, grids: Tensor, across: Bags) -> Tensor:
    """Make grids (B, L, H, W) anew along both axes: (B, L, h, w); mixed precision does not touch it.

    Classes lie innermost, as in channels-last memory, so that what is added up are long rows of numbers.
    """
    inner = grids.permute(0, 2, 3, 1)
    if down.others.shape[1] < grids.shape[2]:  # what becomes less comes first, what becomes more comes last
        return _along_width(across, _along_height(down, inner)).permute(0, 3, 1, 2)
    return _along_height(down, _along_width(across, inner)).permute(0, 3, 1, 2)


def _along_height(bags: Bags, grids: Tensor) -> Tensor:
    """(B, h) bags of rows of (B, H, W, L): (B, h, W, L)."""
    batch, height, width, classes = grids.shape
    _, cells, each = bags.others.shape
    numbers = bags.others.reshape(batch, cells * each) + np.arange(0, batch * height, height)[:, None]
    rows = _add_up(grids.reshape(batch * height, width * classes), numbers, bags.weights, each)
    return rows.view(batch, cells, width, classes)


def _along_width(bags: Bags, grids: Tensor) -> Tensor:
    """(B, w) bags of cells of (B, H, W, L): (B, H, w, L)."""
    batch, height, width, classes = grids.shape
    _, cells, each = bags.others.shape
    lines = np.arange(0, batch * height * width, width).reshape(batch, height, 1)
    numbers = bags.others.reshape(batch, 1, cells * each) + lines
    weights = bags.weights.astype(np.float32) if grids.dtype == torch.float32 else bags.weights
    weights = weights.reshape(batch, 1, cells * each).repeat(height, axis=1)
    made = _add_up(grids.reshape(batch * height * width, classes), numbers, weights, each)
    return made.view(batch, height, cells, classes)


def _add_up(
    table: Tensor, numbers: npt.NDArray[np.int64], weights: npt.NDArray[np.floating], each: int
) -> Tensor:
    """Sums of the table's rows, ``each`` at a time, by their numbers and weights."""
    chosen = torch.from_numpy(numbers.reshape(-1)).to(table.device)
    shares = torch.from_numpy(weights.reshape(-1)).to(table.device, table.dtype)
    ends = _ends(numbers.size, each, table.device)
    return functional.embedding_bag(
        chosen, table, ends, mode="sum", per_sample_weights=shares, include_last_offset=True
    )


@lru_cache
def _ends(count: int, each: int, device: torch.device) -> Tensor:
    """Where bags of ``each`` numbers begin and the last one ends."""
    return torch.arange(0, count + 1, each, device=device)
