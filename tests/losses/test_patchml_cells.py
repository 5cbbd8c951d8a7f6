"""Labels of cells, by hand and by a slow look at every pixel."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.losses.patchml import cell_labels


def geometry(left: float, top: float, width: float, height: float, flip: bool = False) -> ViewGeometry:
    return ViewGeometry(torch.tensor([[left, top, width, height]]), torch.tensor([flip]))


def spatial_labels(*rows: tuple[int, int, float, float, float, float]) -> SpatialLabels:
    table = np.array(rows, dtype=np.float32)
    return SpatialLabels(
        table[:, 0].astype(np.int64), table[:, 1].astype(np.int32), table[:, 2:4], table[:, 4:]
    )


OBSERVED = torch.tensor([[POSITIVE, NEGATIVE, UNKNOWN]], dtype=torch.int8)
WHOLE = ViewGeometry.whole(1)


def positives(labels: torch.Tensor) -> list[list[int]]:
    return [cell.tolist() for cell in (labels[0, 0] == POSITIVE).nonzero()]


def test_a_point_makes_its_cell_positive_and_an_absent_class_all_cells_negative() -> None:
    labels = cell_labels(OBSERVED, spatial_labels((0, 0, 0.6, 0.1, 0, 0)), WHOLE, (4, 4))
    assert labels.dtype == torch.int8
    assert positives(labels) == [[0, 2]]
    assert (labels[0, 0] == UNKNOWN).sum() == 15
    assert (labels[0, 1] == NEGATIVE).all()
    assert (labels[0, 2] == UNKNOWN).all()


def test_a_point_goes_through_crop_and_flip() -> None:
    there = spatial_labels((0, 0, 0.6, 0.1, 0, 0))
    # The right half: x .6 becomes .2, which is the first of four cells; mirrored .8, the last.
    assert positives(cell_labels(OBSERVED, there, geometry(0.5, 0, 0.5, 1), (4, 4))) == [[0, 0]]
    assert positives(cell_labels(OBSERVED, there, geometry(0.5, 0, 0.5, 1, flip=True), (4, 4))) == [[0, 3]]
    assert positives(cell_labels(OBSERVED, there, geometry(0, 0, 0.5, 1), (4, 4))) == []  # out of view


def test_points_on_the_edges_have_a_cell() -> None:
    corners = spatial_labels((0, 0, 0, 0, 0, 0), (0, 0, 1, 1, 0, 0))
    assert positives(cell_labels(OBSERVED, corners, WHOLE, (2, 3))) == [[0, 0], [1, 2]]


def test_a_box_makes_the_cells_positive_that_it_covers_by_half() -> None:
    # Left .125 to .75, top 0 to .5: of four columns half of the first, all of the second and third.
    box = spatial_labels((0, 0, 0.4375, 0.25, 0.625, 0.5))
    assert positives(cell_labels(OBSERVED, box, WHOLE, (2, 4))) == [[0, 0], [0, 1], [0, 2]]
    narrower = spatial_labels((0, 0, 0.45, 0.25, 0.6, 0.5))  # from .15: two fifths of the first
    assert positives(cell_labels(OBSERVED, narrower, WHOLE, (2, 4))) == [[0, 1], [0, 2]]
    assert positives(cell_labels(OBSERVED, narrower, WHOLE, (2, 4), "any")) == [[0, 0], [0, 1], [0, 2]]


def test_a_small_box_has_the_cell_of_its_center_if_the_view_shows_it() -> None:
    small = spatial_labels((0, 0, 0.55, 0.3, 0.2, 0.1))
    assert positives(cell_labels(OBSERVED, small, WHOLE, (2, 2))) == [[0, 1]]
    sliver = geometry(0, 0, 0.5, 1)  # the view ends left of its center
    assert positives(cell_labels(OBSERVED, small, sliver, (2, 2))) == []
    assert positives(cell_labels(OBSERVED, small, sliver, (2, 2), "any")) == [[0, 1]]


def test_a_box_that_ends_where_the_view_begins_is_not_in_it() -> None:
    box = spatial_labels((0, 0, 44 / 64, 0.5, 34 / 64, 1))  # from 27/64 on
    assert positives(cell_labels(OBSERVED, box, geometry(0, 0, 27 / 64, 1), (1, 1), "any")) == []


def test_no_marks_at_all() -> None:
    labels = cell_labels(OBSERVED, SpatialLabels.none(), WHOLE, (2, 2))
    assert positives(labels) == []


@pytest.mark.parametrize("rule", ["half", "any"])
@given(st.data())
def test_equals_counting_pixels(rule: str, data: st.DataObject) -> None:
    # Everything on a raster of 64 pixels, so that a count of pixels is exact.
    def interval(low: int = 0, high: int = 64) -> tuple[int, int]:
        start = data.draw(st.integers(low, high - 1))
        return start, data.draw(st.integers(start + 1, high))

    (x0, x1), (y0, y1) = interval(), interval()
    cells = data.draw(st.sampled_from([1, 2, 4, 8]))
    left, right = (place * cells for place in interval(0, 64 // cells))
    top, bottom = (place * cells for place in interval(0, 64 // cells))
    flip = data.draw(st.booleans())
    image = np.zeros((64, 64))
    image[y0:y1, x0:x1] = 1
    view = image[top:bottom, left:right]
    view = view[:, ::-1] if flip else view
    shares = view.reshape(cells, (bottom - top) // cells, cells, (right - left) // cells).mean(axis=(1, 3))
    expected = (shares >= 0.5) if rule == "half" else (shares > 0)
    across, down = (x0 + x1) / 2 - left, (y0 + y1) / 2 - top
    width, height = right - left, bottom - top
    if not expected.any() and 0 <= across <= width and 0 <= down <= height:
        across = width - across if flip else across
        expected[min(int(down * cells / height), cells - 1), min(int(across * cells / width), cells - 1)] = (
            True
        )
    box = spatial_labels((0, 0, (x0 + x1) / 128, (y0 + y1) / 128, (x1 - x0) / 64, (y1 - y0) / 64))
    seen = ViewGeometry(
        torch.tensor([[left / 64, top / 64, (right - left) / 64, (bottom - top) / 64]], dtype=torch.float64),
        torch.tensor([flip]),
    )
    labels = cell_labels(OBSERVED, box, seen, (cells, cells), rule)  # type: ignore[arg-type]
    assert np.array_equal((labels[0, 0] == POSITIVE).numpy(), expected)


def test_a_mark_under_a_hole_makes_no_cell_positive() -> None:
    covered = ViewGeometry(WHOLE.box, WHOLE.flip, torch.tensor([[0.5, 0.0, 0.5, 0.5]]))
    both = spatial_labels((0, 0, 0.6, 0.1, 0, 0), (0, 0, 0.1, 0.1, 0, 0))
    assert positives(cell_labels(OBSERVED, both, covered, (4, 4))) == [[0, 0]]


def test_a_box_keeps_the_cells_that_a_hole_leaves() -> None:
    covered = ViewGeometry(WHOLE.box, WHOLE.flip, torch.tensor([[0.3, 0.3, 0.4, 0.4]]))
    box = spatial_labels((0, 0, 0.5, 0.5, 1, 0.5))  # both rows in the middle; its center is hidden
    assert positives(cell_labels(OBSERVED, box, covered, (4, 4))) == [[1, 0], [1, 3], [2, 0], [2, 3]]
    aside = spatial_labels((0, 0, 0.25, 0.5, 0.5, 0.5))  # its center is not, but half of its cells are
    assert positives(cell_labels(OBSERVED, aside, covered, (4, 4))) == [[1, 0], [2, 0]]
    small = spatial_labels((0, 0, 0.32, 0.32, 0.05, 0.05))  # hidden itself, though its cell's center is not
    assert positives(cell_labels(OBSERVED, small, covered, (2, 2))) == []
