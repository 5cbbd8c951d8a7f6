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
