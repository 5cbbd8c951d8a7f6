"""Resampling of feature and heat maps between an image and a view of it (a crop, perhaps mirrored).

A map is resampled separably, one axis after the other. Along an axis every output cell is a weighted mean of
a few input cells, its taps: ``Axis`` computes them from the crops, ``resample`` applies them to the maps.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

Floats = npt.NDArray[np.float64]


class Taps(NamedTuple):
    """The input cells of each of n output cells along one axis, for each of B images, and their weights."""

    cells: npt.NDArray[np.int64]  # (B, n, k)
    weights: Floats  # (B, n, k)
    filled: npt.NDArray[np.bool_]  # (B, n) whether an output cell has any input

    def times(self, factor: float) -> "Taps":
        """The taps of an output scaled by ``factor``: cheaper than scaling the values."""
        return self if factor == 1 else self._replace(weights=self.weights * factor)

    def halves(self) -> tuple["Taps", "Taps"]:
        """The taps of the first half of the images, and of the second."""
        half = len(self.cells) // 2
        first = Taps(self.cells[:half], self.weights[:half], self.filled[:half])
        return first, Taps(self.cells[half:], self.weights[half:], self.filled[half:])


class Axis(NamedTuple):
    """One axis of B crops, each (B, 1): from ``start`` to ``end``, where the view begins at ``origin``.

    ``direction`` is the crop's length, negative where the view is mirrored and so begins at the end. All in
    numpy, which is faster than torch on so few numbers.
    """

    start: Floats
    end: Floats
    origin: Floats
    direction: Floats

    @staticmethod
    def of_crops(start: Floats, length: Floats, mirrored: npt.NDArray[np.bool_]) -> "Axis":
        """The axis of crops (B,) that may be mirrored (B,)."""
        start, length, mirrored = start[:, None], length[:, None], mirrored[:, None]
        end = start + length
        return Axis(start, end, np.where(mirrored, end, start), np.where(mirrored, -length, length))

    def halves(self) -> tuple["Axis", "Axis"]:
        """The axis of the first half of the crops, and of the second."""
        half = len(self.start) // 2
        return Axis(*(column[:half] for column in self)), Axis(*(column[half:] for column in self))

    def image_to_view(self, view_cells: int, image_cells: int) -> Taps:
        """The taps of view cells among image cells: a tent filter."""
        position = (self.origin + self.direction * _centers(view_cells)) * image_cells - 0.5  # in image cells
        reach = np.maximum(np.abs(self.direction) * (image_cells / view_cells), 1)  # in image cells
        cells = _around(position, reach, math.ceil(2 * max(1, image_cells / view_cells)))
        inside, weights = _normalized(
            cells, reach[..., None] - np.abs(cells - position[..., None]), image_cells
        )
        return Taps(inside, weights, np.ones(position.shape, dtype=np.bool_))

    def view_to_image(self, image_cells: int, view_cells: int) -> Taps:
        """The taps of image cells among view cells: a box filter. Cells outside the crop have weights 0."""
        centers = _centers(image_cells)
        in_view = (centers - self.origin) / self.direction
        # Cells outside the crop are clamped to its edge here, and masked in the end.
        position = np.minimum(np.maximum(in_view, 0), 1) * view_cells - 0.5
        reach = np.maximum(view_cells / (np.abs(self.direction) * image_cells), 1)  # in view cells
        half = (reach + 1) / 2
        cells = _around(position, half, math.ceil(reach.max(initial=1)) + 1)
        overlap = half[..., None] - np.abs(cells - position[..., None])  # of the box with each view cell
        inside, weights = _normalized(cells, np.minimum(overlap, 1), view_cells)
        visible = (self.start <= centers) & (centers < self.end)
        return Taps(inside, weights * visible[..., None], visible)


@lru_cache
def _centers(cells: int) -> Floats:
    return (np.arange(cells) + 0.5) / cells


def _around(position: Floats, reach: Floats, count: int) -> npt.NDArray[np.int64]:
    """(B, n, count) All cells within ``reach`` of a position (B, n), and perhaps some more."""
    first = np.floor(position - reach).astype(np.int64)
    return first[..., None] + np.arange(1, count + 1)


def _normalized(
    cells: npt.NDArray[np.int64], weights: Floats, count: int
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Cells clamped to 0..count - 1; weights that sum to 1, none negative, those of clamped cells 0."""
    inside = np.minimum(np.maximum(cells, 0), count - 1)
    weights = np.maximum(weights, 0) * (inside == cells)
    return inside, weights / np.add.reduce(weights, axis=-1, keepdims=True)


def resample(maps: Tensor, vertical: Taps, horizontal: Taps) -> Tensor:
    """Maps (B, L, H, W) resampled along both axes: (B, L, h, w), in their own precision under autocast too.

    Classes lie innermost, as in channels-last memory, so that long contiguous rows are added up.
    """
    inner = maps.permute(0, 2, 3, 1)
    if vertical.cells.shape[1] < maps.shape[2]:  # the axis that shrinks first, one that grows last
        return _resample_width(_resample_height(inner, vertical), horizontal).permute(0, 3, 1, 2)
    return _resample_height(_resample_width(inner, horizontal), vertical).permute(0, 3, 1, 2)


def _resample_height(maps: Tensor, taps: Taps) -> Tensor:
    """(B, H, W, L) to (B, h, W, L)."""
    batch, height, width, classes = maps.shape
    _, cells, each = taps.cells.shape
    index = taps.cells.reshape(batch, cells * each) + np.arange(0, batch * height, height)[:, None]
    rows = _weighted_sums(maps.reshape(batch * height, width * classes), index, taps.weights, each)
    return rows.view(batch, cells, width, classes)


def _resample_width(maps: Tensor, taps: Taps) -> Tensor:
    """(B, H, W, L) to (B, H, w, L)."""
    batch, height, width, classes = maps.shape
    _, cells, each = taps.cells.shape
    first_of_row = np.arange(0, batch * height * width, width).reshape(batch, height, 1)
    index = taps.cells.reshape(batch, 1, cells * each) + first_of_row
    weights = taps.weights.astype(np.float32) if maps.dtype == torch.float32 else taps.weights
    weights = weights.reshape(batch, 1, cells * each).repeat(height, axis=1)
    sums = _weighted_sums(maps.reshape(batch * height * width, classes), index, weights, each)
    return sums.view(batch, height, cells, classes)


def _weighted_sums(
    table: Tensor, index: npt.NDArray[np.int64], weights: npt.NDArray[np.floating], each: int
) -> Tensor:
    """Weighted sums of rows of the table, ``each`` of them at a time."""
    return functional.embedding_bag(
        torch.from_numpy(index.reshape(-1)).to(table.device),
        table,
        _offsets(index.size, each, table.device),
        mode="sum",
        per_sample_weights=torch.from_numpy(weights.reshape(-1)).to(table.device, table.dtype),
        include_last_offset=True,
    )


@lru_cache
def _offsets(count: int, each: int, device: torch.device) -> Tensor:
    """Where bags of ``each`` rows begin, and where the last one ends."""
    return torch.arange(0, count + 1, each, device=device)
