"""The share of every cell of a view that objects cover, from their boxes or from their masks' run lengths.

Runs are never turned into pixels. A run is a few rectangles, one in each column of pixels it passes through;
boxes are cut into rectangles that do not overlap. A rectangle is four corners with signs, each of which
stands for the area to its right and below. A corner adds to its cell the part beyond it, to cells to the
right and below their share, and 1 to all beyond both. So running sums of four histograms of corners give the
covered shares exactly, also if cells and pixels are not aligned.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import spans
from sparselabel.data.masks import Masks, Runs, runs_of, union

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
TEXT = 1 << 17  # bytes of masks' texts looked at together: some tens of megabytes


@dataclass(frozen=True, eq=False)
class Rectangles:
    """R disjoint rectangles, (R,) each: their owners, and their sides in cells of the view."""

    owners: Indices
    left: Numbers
    right: Numbers
    top: Numbers
    bottom: Numbers


def covered_by_masks(
    masks: Masks, groups: Indices, geometries: npt.NDArray[np.floating], grid: tuple[int, int]
) -> Floats:
    """(P, h, w) The share of every cell that any mask of a group covers, in 0..1.

    ``groups`` (M,) is the group of each mask, 0 to P − 1 and never falling; masks of a group are of one
    image. ``geometries`` (P, 5) is the view of each group's image: left, top, width, height, flip.
    """
    covered = np.zeros((len(geometries), *grid))
    sizes = np.ones((len(geometries), 2), np.int64)
    sizes[groups[masks.there]] = masks.sizes[masks.there]
    begins = np.flatnonzero(np.diff(groups, prepend=-1))
    firsts = begins[np.diff(masks.offsets[begins] // TEXT, prepend=-1) > 0]
    for first, last in pairwise([*firsts.tolist(), len(groups)]):
        block = Masks(masks.texts, masks.offsets[first : last + 1], masks.sizes[first:last])
        some = slice(groups[first], groups[last - 1] + 1)
        runs = union(runs_of(block), groups[first:last] - groups[first])
        covered[some] = _covered(runs, sizes[some], geometries[some], grid)
    flipped = geometries[:, 4] != 0
    covered[flipped] = covered[flipped, :, ::-1]
    return np.clip(covered, 0, 1).astype(np.float32)


def covered_by_boxes(
    centers: Floats,
    sizes: Floats,
    groups: Indices,
    geometries: npt.NDArray[np.floating],
    grid: tuple[int, int],
) -> Floats:
    """(P, h, w) The share of every cell that any box of a group covers.

    Boxes are centers and sizes (M, 2) in unit coordinates; ``groups`` and ``geometries`` as for masks.
    """
    centers, half, cells = centers.astype(np.float64), sizes / 2, np.array([grid[1], grid[0]])
    low, high = (_to_view(corner, geometries[groups]) * cells for corner in (centers - half, centers + half))
    shown = (high > low).all(axis=1)
    boxes = Rectangles(groups[shown], low[shown, 0], high[shown, 0], low[shown, 1], high[shown, 1])
    covered = np.clip(_shares(_apart(boxes), len(geometries), grid), 0, 1).astype(np.float32)
    flipped = geometries[:, 4] != 0
    covered[flipped] = covered[flipped, :, ::-1]
    return covered


def _to_view(places: npt.NDArray[np.floating], geometries: npt.NDArray[np.floating]) -> Numbers:
    """Points (M, 2) in the views, not mirrored; clipped to the view."""
    return np.asarray(np.clip((places - geometries[:, :2]) / geometries[:, 2:4], 0, 1))


def _apart(boxes: Rectangles) -> Rectangles:
    """The union of each owner's boxes as rectangles that do not overlap.

    The sides of an owner's boxes cut the view into columns. In a column, going down, a box begins or ends
    here and there; the union is where more have begun than ended.
    """
    owners, sides = np.tile(boxes.owners, 2), np.concatenate([boxes.left, boxes.right])
    order = np.lexsort((sides, owners))
    owners, sides = owners[order], sides[order]
    first, last = np.split(np.argsort(order), 2)
    number, column = np.repeat(np.arange(len(first)), last - first), spans(first, last - first)
    columns, steps = np.tile(column, 2), np.repeat([1, -1], len(column))
    heights = np.concatenate([boxes.top[number], boxes.bottom[number]])
    order = np.lexsort((-steps, heights, columns))
    columns, steps, heights = columns[order], steps[order], heights[order]
    depth = np.cumsum(steps)  # 0 at the end of every column: no column sees those before it
    begin, end = (depth == 1) & (steps == 1), depth == 0
    column_of_rectangle = columns[begin]
    return Rectangles(
        owners[column_of_rectangle],
        sides[column_of_rectangle],
        sides[column_of_rectangle + 1],
        heights[begin],
        heights[end],
    )


def _covered(
    runs: Runs, sizes: Indices, geometries: npt.NDArray[np.floating], grid: tuple[int, int]
) -> Numbers:
    owners, columns, tops, bottoms = _rectangles(runs, sizes[:, 0])
    tall, wide = (
        (geometries[:, 1], geometries[:, 3], sizes[:, 0]),
        (geometries[:, 0], geometries[:, 2], sizes[:, 1]),
    )
    left, right = (_in_cells(edge, owners, *wide, grid[1]) for edge in (columns, columns + 1))
    top, bottom = (_in_cells(edge, owners, *tall, grid[0]) for edge in (tops, bottoms))
    return _shares(Rectangles(owners, left, right, top, bottom), len(geometries), grid)


def _shares(rectangles: Rectangles, count: int, grid: tuple[int, int]) -> Numbers:
    """(count, h, w) The share of every cell that the rectangles of each owner cover."""
    down = [_split(edges) for edges in (rectangles.top, rectangles.bottom)]
    across = [_split(edges) for edges in (rectangles.left, rectangles.right)]
    shape = (count, grid[0] + 1, grid[1] + 1)
    both, below, right, beyond = (np.zeros(np.prod(shape)) for _ in range(4))
    for row, rest_down, sign_down in ((*down[0], 1.0), (*down[1], -1.0)):
        for column, rest_across, sign_across in ((*across[0], 1.0), (*across[1], -1.0)):
            sign = sign_down * sign_across
            bins = (rectangles.owners * shape[1] + row) * shape[2] + column
            both += sign * np.bincount(bins, rest_down * rest_across, len(both))
            right += sign * np.bincount(bins, rest_down, len(both))
            below += sign * np.bincount(bins, rest_across, len(both))
            beyond += sign * np.bincount(bins, minlength=len(both))
    covered = both.reshape(shape) + _before(right.reshape(shape), 2) + _before(below.reshape(shape), 1)
    return (covered + _before(_before(beyond.reshape(shape), 1), 2))[:, :-1, :-1]


def _before(values: Numbers, axis: int) -> Numbers:
    """The sum of all values before each, along an axis."""
    return np.asarray(values.cumsum(axis=axis) - values)


def _in_cells(
    edges: Indices,
    owners: Indices,
    starts: npt.NDArray[np.floating],
    lengths: npt.NDArray[np.floating],
    sides: Indices,
    cells: int,
) -> Numbers:
    """Edges of pixels in cells of the view, clipped to the view."""
    scale, shift = cells / (lengths * sides), starts / lengths * cells
    return np.asarray(np.clip(edges * scale[owners] - shift[owners], 0, cells))


def _split(places: Numbers) -> tuple[Indices, Numbers]:
    """The cells of positions (the far edge: after the last), and the part of the cell beyond them."""
    cell = places.astype(np.int64)
    return cell, 1 - (places - cell)


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
