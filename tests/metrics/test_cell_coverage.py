from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from sparselabel.data.masks import Masks
from sparselabel.metrics import cell_coverage as covered
from tests.data.test_masks import Pixels, built, random_pixels

FRAMES = np.array(
    [[0, 0, 1, 1, 0], [0.21, 0.1, 0.7, 0.33, 0], [0, 0, 1, 1, 1], [0.05, 0.4, 0.35, 0.6, 1], [0, 0, 1, 1, 0]]
)


def overlap(low: float, high: float, count: int) -> np.ndarray:
    starts = np.arange(count)
    return np.asarray(np.clip(np.minimum(high, starts + 1) - np.maximum(low, starts), 0, None))


def plain(pixels: Pixels, geometry: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Cell by cell, from all pixels."""
    (height, width), (left, top, wide, high, flip) = pixels.shape, geometry
    found = np.zeros(grid)
    for row in range(grid[0]):
        down = overlap(
            (top + high * row / grid[0]) * height, (top + high * (row + 1) / grid[0]) * height, height
        )
        for column in range(grid[1]):
            start, end = (left + wide * (column + more) / grid[1] for more in (0, 1))
            across = overlap(start * width, end * width, width)
            found[row, column] = down @ pixels @ across / (down.sum() * across.sum())
    return found[:, ::-1] if flip else found


@pytest.mark.parametrize("grid", [(7, 5), (1, 1), (14, 14)])
@pytest.mark.parametrize("text", [1 << 17, 50])
def test_shares_of_cells_are_those_of_the_pixels(
    grid: tuple[int, int], text: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(covered, "TEXT", text)
    # The last image has fewer pixels than the grid has cells.
    sizes = ((60, 90), (33, 47), (100, 20), (64, 64), (9, 6))
    groups = np.array([0, 1, 1, 1, 2, 3, 3, 4])
    images = [random_pixels(number, *sizes[group]) for number, group in enumerate(groups)]
    found = covered.covered_by_masks(built([*images]), groups, FRAMES, grid)
    for group in range(5):
        union = np.any([images[number] for number in np.flatnonzero(groups == group)], axis=0)
        np.testing.assert_allclose(found[group], plain(union, FRAMES[group], grid), atol=1e-6)


def test_a_group_without_a_mask_covers_nothing() -> None:
    masks = built([np.ones((4, 4), np.bool_), None])
    found = covered.covered_by_masks(masks, np.array([0, 2]), FRAMES[[0, 0, 0]], (2, 2))
    assert found.tolist() == [[[1, 1], [1, 1]], [[0, 0], [0, 0]], [[0, 0], [0, 0]]]
    assert covered.covered_by_masks(Masks.none(0), np.empty(0, np.int64), FRAMES[:0], (2, 2)).shape == (
        0,
        2,
        2,
    )


def test_the_union_of_boxes_is_counted_once() -> None:
    centers = np.array([[0.25, 0.5], [0.5, 0.5], [0.5, 0.5]], np.float32)
    sizes = np.array([[0.5, 1], [0.5, 1], [1, 1]], np.float32)
    found = covered.covered_by_boxes(centers, sizes, np.array([0, 0, 1]), FRAMES[[0, 0]], (2, 2))
    assert found.tolist() == [[[1, 0.5], [1, 0.5]], [[1, 1], [1, 1]]]


def exact_union(corners: np.ndarray, geometry: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Cell by cell: what is left of each box, and what several share, counted out with fractions."""
    left, top, wide, high, flip = (Fraction(float(number)) for number in geometry)
    found = np.zeros(grid)
    for row, column in np.ndindex(grid):
        x, y = left + wide * column / grid[1], top + high * row / grid[0]
        cell = (x, y, x + wide / grid[1], y + high / grid[0])
        parts = [
            (max(box[0], cell[0]), max(box[1], cell[1]), min(box[2], cell[2]), min(box[3], cell[3]))
            for box in corners.tolist()
        ]
        area = Fraction(0)
        for count in range(1, len(parts) + 1):
            for some in combinations(parts, count):
                (x0, y0), (x1, y1) = (
                    [pick(part[side + axis] for part in some) for axis in (0, 1)]
                    for side, pick in ((0, max), (2, min))
                )
                area += (-1) ** (count + 1) * max(x1 - x0, 0) * max(y1 - y0, 0)
        found[row, column] = area / (cell[2] - cell[0]) / (cell[3] - cell[1])
    return found[:, ::-1] if flip else found


def test_shares_of_boxes_are_those_of_exact_rectangles() -> None:
    random = np.random.default_rng(0)
    corners = random.integers(0, 40, (14, 4)) / 64  # of few places, so that sides often coincide
    corners[:, 2:] = corners[:, :2] + random.integers(1, 24, (14, 2)) / 64
    groups = np.array([0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 5, 5, 5])
    geometries = FRAMES[[0, 1, 2, 3, 0, 1]]
    centers, sizes = (corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]
    found = covered.covered_by_boxes(
        centers.astype(np.float32), sizes.astype(np.float32), groups, geometries, (4, 5)
    )
    for group in range(6):
        boxes = np.array([[Fraction(side) for side in box] for box in corners[groups == group]])
        np.testing.assert_allclose(found[group], exact_union(boxes, geometries[group], (4, 5)), atol=1e-6)


def test_a_box_within_a_cell_has_its_own_area() -> None:
    # 0.3 × 0.3 of a cell: 9 %, and not the 2/8 × 2/8 that eighths of a cell would make of it.
    found = covered.covered_by_boxes(
        np.array([[0.3, 0.3]], np.float32),
        np.array([[0.15, 0.15]], np.float32),
        np.array([0]),
        FRAMES[:1],
        (2, 2),
    )
    np.testing.assert_allclose(found[0], np.array([[0.09, 0], [0, 0]]), atol=1e-7)
    outside = covered.covered_by_boxes(
        np.array([[0.1, 0.05]], np.float32),
        np.array([[0.1, 0.1]], np.float32),
        np.array([0]),
        FRAMES[1:2],
        (2, 2),
    )
    assert not outside.any()
