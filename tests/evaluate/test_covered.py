import numpy as np
import pytest

from sparselabel.data.masks import Masks
from sparselabel.evaluate import covered
from tests.data.test_masks import Pixels, built, random_pixels

FRAMES = np.array(
    [[0, 0, 1, 1, 0], [0.21, 0.1, 0.7, 0.33, 0], [0, 0, 1, 1, 1], [0.05, 0.4, 0.35, 0.6, 1], [0, 0, 1, 1, 0]]
)


def overlap(low: float, high: float, count: int) -> np.ndarray:
    starts = np.arange(count)
    return np.asarray(np.clip(np.minimum(high, starts + 1) - np.maximum(low, starts), 0, None))


def plain(pixels: Pixels, frame: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Cell by cell, from all pixels."""
    (height, width), (left, top, wide, high, flip) = pixels.shape, frame
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
    # The last picture has fewer pixels than the grid has cells.
    sizes = ((60, 90), (33, 47), (100, 20), (64, 64), (9, 6))
    groups = np.array([0, 1, 1, 1, 2, 3, 3, 4])
    pictures = [random_pixels(number, *sizes[group]) for number, group in enumerate(groups)]
    found = covered.covered_by_masks(built([*pictures]), groups, FRAMES, grid)
    for group in range(5):
        union = np.any([pictures[number] for number in np.flatnonzero(groups == group)], axis=0)
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
    centres = np.array([[0.25, 0.5], [0.5, 0.5], [0.5, 0.5]], np.float32)
    sizes = np.array([[0.5, 1], [0.5, 1], [1, 1]], np.float32)
    found = covered.covered_by_boxes(centres, sizes, np.array([0, 0, 1]), FRAMES[[0, 0]], (2, 2))
    assert found.tolist() == [[[1, 0.5], [1, 0.5]], [[1, 1], [1, 1]]]


def test_boxes_in_blocks_are_those_painted_on_a_raster() -> None:
    random = np.random.default_rng(0)
    low = random.uniform(0, 0.7, (300, 2)).astype(np.float32)
    sizes = random.uniform(0.01, 0.3, (300, 2)).astype(np.float32)
    centres = (low + sizes / 2).astype(np.float32)
    groups = np.sort(random.integers(0, 160, 300))
    frames = np.tile(FRAMES[0], (160, 1))
    whole = covered.covered_by_boxes(centres, sizes, groups, frames, (7, 5))
    assert np.array_equal(whole, covered.covered_by_boxes(centres, sizes, groups, frames, (7, 5), block=3))
    for group in random.choice(160, 20):
        raster = np.zeros((56, 40))  # eighths of cells
        for box in np.flatnonzero(groups == group):
            (x0, y0), (x1, y1) = (
                np.rint((centres[box] + side * sizes[box] / 2) * [40, 56]).astype(int) for side in (-1, 1)
            )
            raster[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] = 1
        np.testing.assert_allclose(whole[group], raster.reshape(7, 8, 5, 8).mean(axis=(1, 3)), atol=1e-6)
