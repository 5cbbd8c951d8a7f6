"""Taps along an axis, by hand; whole maps are tested with the view geometry that uses them."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

from sparselabel.data.resample_grids import Axis, Taps, resample


def axis(start: float, length: float, mirrored: bool = False) -> Axis:
    return Axis.of_crops(np.array([start]), np.array([length]), np.array([mirrored]))


def spread(taps: Taps, cells: int) -> npt.NDArray[np.float64]:
    """(outputs, cells) The weights of the first image, each at the input cell it belongs to."""
    table = np.zeros((taps.cells.shape[1], cells))
    for output, (inputs, weights) in enumerate(zip(taps.cells[0], taps.weights[0], strict=True)):
        np.add.at(table[output], inputs, weights)
    return table


def test_few_cells_read_many_with_a_tent() -> None:
    taps = axis(0, 1).image_to_view(2, 4)
    # The first of two cells has its center between cells 0 and 1 of four, and reaches two cells far.
    first = [3 / 7, 3 / 7, 1 / 7, 0]
    assert spread(taps, 4) == pytest.approx(np.array([first, first[::-1]]))
    assert taps.filled.tolist() == [[True, True]]
    mirrored = axis(0, 1, mirrored=True).image_to_view(2, 4)
    assert spread(mirrored, 4) == pytest.approx(np.array([first[::-1], first]))


def test_a_crop_reads_beyond_its_edge_but_not_beyond_the_image() -> None:
    # The right half in two cells: centers 2 and 3 of four, each met exactly.
    assert spread(axis(0.5, 0.5).image_to_view(2, 4), 4).tolist() == [[0, 0, 1, 0], [0, 0, 0, 1]]
    # In four cells: places 1.75, 2.25, 2.75 and 3.25, the last one beyond the last center.
    wanted = [[0, 0.25, 0.75, 0], [0, 0, 0.75, 0.25], [0, 0, 0.25, 0.75], [0, 0, 0, 1]]
    assert spread(axis(0.5, 0.5).image_to_view(4, 4), 4) == pytest.approx(np.array(wanted))


def test_only_cells_that_the_crop_shows_are_written() -> None:
    taps = axis(0.5, 0.5).view_to_image(4, 2)
    assert taps.filled.tolist() == [[False, False, True, True]]
    assert spread(taps, 2).tolist() == [[0, 0], [0, 0], [1, 0], [0, 1]]
    assert spread(axis(0.5, 0.5, mirrored=True).view_to_image(4, 2), 2).tolist() == [
        [0, 0],
        [0, 0],
        [0, 1],
        [1, 0],
    ]


def test_a_cell_that_receives_several_takes_their_mean() -> None:
    # Four cells of a view into two of the image: each is two cells long.
    made = spread(axis(0, 1).view_to_image(2, 4), 4)
    assert made == pytest.approx(np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]))


def test_both_axes_of_several_grids_and_their_halves() -> None:
    start, length = np.array([0.0, 0.5, 0.0, 0.0]), np.array([1.0, 0.5, 1.0, 1.0])
    both = Axis.of_crops(start, length, np.array([False, False, False, True]))
    vertical, horizontal = both.image_to_view(2, 2).halves()
    made = resample(torch.arange(8.0).view(2, 1, 2, 2), vertical, horizontal)
    assert made[0, 0].tolist() == [[0, 1], [2, 3]]  # seen whole
    # The lower half, mirrored: its upper cell lies ¾ of the way to the lower row, the other beyond it.
    assert made[1, 0].flatten().tolist() == pytest.approx([6.5, 5.5, 7.0, 6.0])
    assert [len(half.start) for half in both.halves()] == [2, 2]
