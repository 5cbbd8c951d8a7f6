"""Which share of every cell of a view things cover, from their boxes or from the runs of their masks.

Runs are never turned into pixels. A run is a few rectangles, one in each column of pixels it passes through,
and a rectangle is four corners with signs: what begins at a corner fills everything to its right and below.
So a corner in a cell adds to that cell the part beyond it, to the cells to the right and below their share,
and 1 to all beyond both: four histograms of corners and their running sums are the covered shares, exactly,
also where cells do not end where pixels do.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sparselabel.data.masks import Masks, Runs, runs_of, union

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
FINE = 8  # parts of a cell, along an axis, in which the union of boxes is counted
TEXT = 1 << 17  # bytes of masks' texts looked at together: some tens of megabytes


def covered_by_masks(
    masks: Masks, groups: Indices, frames: npt.NDArray[np.floating], grid: tuple[int, int]
) -> Floats:
    """(P, h, w) The share of every cell that any mask of a group covers, in 0..1.

    ``groups`` (M,) is the group of each mask, 0 to P − 1 and never falling; masks of a group are of one
    picture. ``frames`` (P, 5) is the view of each group's picture: left, top, width, height, flip.
    """
    covered = np.zeros((len(frames), *grid))
    sizes = np.ones((len(frames), 2), np.int64)
    sizes[groups[masks.there]] = masks.sizes[masks.there]
    begins = np.flatnonzero(np.diff(groups, prepend=-1))
    firsts = begins[np.diff(masks.offsets[begins] // TEXT, prepend=-1) > 0]
    for first, last in pairwise([*firsts.tolist(), len(groups)]):
        part = Masks(masks.texts, masks.offsets[first : last + 1], masks.sizes[first:last])
        some = slice(groups[first], groups[last - 1] + 1)
        runs = union(runs_of(part), groups[first:last] - groups[first])
        covered[some] = _covered(runs, sizes[some], frames[some], grid)
    flipped = frames[:, 4] != 0
    covered[flipped] = covered[flipped, :, ::-1]
    return np.clip(covered, 0, 1).astype(np.float32)


def covered_by_boxes(
    centres: Floats,
    sizes: Floats,
    groups: Indices,
    frames: npt.NDArray[np.floating],
    grid: tuple[int, int],
    block: int = 4096,
) -> Floats:
    """(P, h, w) The share of every cell that any box of a group covers, counted in eighths of a cell's side.

    Boxes are centres and sizes (M, 2) in unit coordinates; ``groups`` and ``frames`` as for masks.
    """
    low, high = _to_view(centres - sizes / 2, frames[groups]), _to_view(centres + sizes / 2, frames[groups])
    shown = (high > low).all(axis=1)
    groups = groups[shown]
    corners = _raster(low[shown], high[shown], grid)
    covered = np.zeros((len(frames), *grid), np.float32)
    for start in range(0, len(frames), block):
        end = min(start + block, len(frames))
        first, last = np.searchsorted(groups, [start, end])
        covered[start:end] = _union(groups[first:last] - start, corners[first:last], end - start, grid)
    flipped = frames[:, 4] != 0
    covered[flipped] = covered[flipped, :, ::-1]
    return covered


def _to_view(places: npt.NDArray[np.floating], frames: npt.NDArray[np.floating]) -> Numbers:
    """Where places (M, 2) are in the views, not mirrored; what lies outside is moved to the rim."""
    return np.asarray(np.clip((places - frames[:, :2]) / frames[:, 2:4], 0, 1))


def _raster(low: Numbers, high: Numbers, grid: tuple[int, int]) -> Indices:
    """(M, 4) Left, top, right, bottom of boxes in parts of cells; none is empty."""
    scale = np.array([grid[1], grid[0]]) * FINE
    start = np.clip(np.rint(low * scale), 0, scale - 1)
    end = np.clip(np.rint(high * scale), start + 1, scale)
    return np.concatenate([start, end], axis=1).astype(np.int64)


def _union(own: Indices, corners: Indices, count: int, grid: tuple[int, int]) -> Floats:
    """(count, h, w) The share of cells inside any of the boxes that belong together."""
    height, width = grid[0] * FINE, grid[1] * FINE
    # Each box adds 1 where it begins and takes it away where it ends; running sums fill it.
    steps = np.zeros((count, height + 1, width + 1), np.int32)
    left, top, right, bottom = corners.T
    for rows, columns, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
        np.add.at(steps, (own, rows, columns), sign)
    inside = steps.cumsum(axis=1).cumsum(axis=2)[:, :height, :width] > 0
    parts = inside.reshape(count, grid[0], FINE, grid[1], FINE)
    return np.asarray(parts.mean(axis=(2, 4), dtype=np.float32))


def _covered(runs: Runs, sizes: Indices, frames: npt.NDArray[np.floating], grid: tuple[int, int]) -> Numbers:
    owners, columns, tops, bottoms = _rectangles(runs, sizes[:, 0])
    tall, wide = (frames[:, 1], frames[:, 3], sizes[:, 0]), (frames[:, 0], frames[:, 2], sizes[:, 1])
    down = [_cells(edge, owners, *tall, grid[0]) for edge in (tops, bottoms)]
    across = [_cells(edge, owners, *wide, grid[1]) for edge in (columns, columns + 1)]
    shape = (len(frames), grid[0] + 1, grid[1] + 1)
    both, below, right, beyond = (np.zeros(np.prod(shape)) for _ in range(4))
    for row, rest_down, sign_down in ((*down[0], 1.0), (*down[1], -1.0)):
        for column, rest_across, sign_across in ((*across[0], 1.0), (*across[1], -1.0)):
            sign = sign_down * sign_across
            bins = (owners * shape[1] + row) * shape[2] + column
            both += sign * np.bincount(bins, rest_down * rest_across, len(both))
            right += sign * np.bincount(bins, rest_down, len(both))
            below += sign * np.bincount(bins, rest_across, len(both))
            beyond += sign * np.bincount(bins, minlength=len(both))
    found = both.reshape(shape) + _before(right.reshape(shape), 2) + _before(below.reshape(shape), 1)
    return (found + _before(_before(beyond.reshape(shape), 1), 2))[:, :-1, :-1]


def _before(values: Numbers, axis: int) -> Numbers:
    """The sum of all values before each, along an axis."""
    return np.asarray(values.cumsum(axis=axis) - values)


def _cells(
    edges: Indices,
    owners: Indices,
    starts: npt.NDArray[np.floating],
    lengths: npt.NDArray[np.floating],
    sides: Indices,
    cells: int,
) -> tuple[Indices, Numbers]:
    """In which cell of the view edges of pixels lie (``cells``: behind the last), and the part beyond them.

    What lies outside the view is moved to its rim.
    """
    scale, shift = cells / (lengths * sides), starts / lengths * cells
    place = np.clip(edges * scale[owners] - shift[owners], 0, cells)
    cell = place.astype(np.int64)
    return cell, 1 - (place - cell)


def _rectangles(runs: Runs, heights: Indices) -> tuple[Indices, Indices, Indices, Indices]:
    """Runs cut at the ends of columns: owners, columns, and the rows from which and up to which."""
    height = heights[runs.owners]
    left = runs.starts // height
    counts = (runs.ends - 1) // height - left + 1
    number = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(number)) - np.repeat(np.cumsum(counts) - counts, counts)
    tall = height[number]
    columns = left[number] + within
    tops = np.maximum(runs.starts[number] - columns * tall, 0)
    bottoms = np.minimum(runs.ends[number] - columns * tall, tall)
    return runs.owners[number], columns, tops, bottoms
