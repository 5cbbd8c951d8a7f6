"""mAP-loc: by hand, and against a slow look at every pixel."""

import numpy as np
import pytest

from sparselabel.data.marks import Marks
from sparselabel.errors import DataError
from sparselabel.evaluate.location import location_precision, places_of_boxes, well_placed


def boxes(*rows: tuple[int, int, float, float, float, float]) -> Marks:
    table = np.array(rows, dtype=np.float32)
    return Marks(table[:, 0].astype(np.int64), table[:, 1].astype(np.int32), table[:, 2:4], table[:, 4:])


def test_the_union_of_boxes_is_counted_once() -> None:
    # Two boxes of class 1 in picture 0 overlap; a point says nothing about extent.
    marks = boxes(
        (0, 1, 0.25, 0.5, 0.5, 1), (0, 1, 0.5, 0.5, 0.5, 1), (2, 0, 0.5, 0.5, 1, 1), (3, 0, 0.5, 0.5, 0, 0)
    )
    places = places_of_boxes(marks, (2, 2))
    assert places.rows.tolist() == [0, 2]
    assert places.classes.tolist() == [1, 0]
    np.testing.assert_allclose(places.covered[0], [[1, 0.5], [1, 0.5]])
    np.testing.assert_allclose(places.covered[1], 1)


def test_blocks_change_nothing() -> None:
    random = np.random.default_rng(0)
    low = random.uniform(0, 0.7, (300, 2))
    size = random.uniform(0.01, 0.3, (300, 2))
    rows, classes = random.integers(0, 40, 300), random.integers(0, 4, 300).astype(np.int32)
    marks = Marks(rows, classes, (low + size / 2).astype(np.float32), size.astype(np.float32))
    whole, parts = places_of_boxes(marks, (7, 5)), places_of_boxes(marks, (7, 5), block=3)
    assert np.array_equal(whole.covered, parts.covered)
    assert np.array_equal(whole.rows, parts.rows)
    # The same by painting every pair on a raster of eighths of cells.
    for number in random.choice(len(whole), 20):
        raster = np.zeros((56, 40))
        same = (marks.rows == whole.rows[number]) & (marks.classes == whole.classes[number])
        for mark in np.flatnonzero(same):
            (x0, y0), (x1, y1) = (
                np.rint((marks.centres[mark] + side * marks.sizes[mark] / 2) * [40, 56]).astype(int)
                for side in (-1, 1)
            )
            raster[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] = 1
        shares = raster.reshape(7, 8, 5, 8).mean(axis=(1, 3))
        np.testing.assert_allclose(whole.covered[number], shares, atol=1e-6)


def test_what_is_left_at_a_cut_must_lie_on_the_class_by_half() -> None:
    covered = np.array([[[1, 0], [0, 0]]], np.float32)
    sharp = np.array([[[9, 1], [1, 1]]], np.float32)  # only the right cell is left at every cut
    assert well_placed(sharp, covered).tolist() == [[True] * 4]
    # Scaled 1, .75, .5, 0: at .6 and .7 two cells are left, half of them right; at .8 and .9 one.
    wide = np.array([[[4, 3], [2, 0]]], np.float32)
    assert well_placed(wide, covered).tolist() == [[True] * 4]
    # Scaled 1, .75, .65, 0: at .6 three cells, one of them right.
    wider = np.array([[[4, 3], [2.6, 0]]], np.float32)
    assert well_placed(wider, covered).tolist() == [[False, True, True, True]]
    wrong = np.array([[[0, 9], [0, 0]]], np.float32)
    assert well_placed(wrong, covered).tolist() == [[False] * 4]
    flat = np.zeros((1, 2, 2), np.float32)  # shows everything: a quarter of it is right
    assert well_placed(flat, covered).tolist() == [[False] * 4]


def test_other_cells_are_refused() -> None:
    with pytest.raises(DataError, match="same cells"):
        well_placed(np.zeros((1, 2, 2), np.float32), np.zeros((1, 3, 3), np.float32))


def test_a_class_that_is_shown_badly_is_a_false_positive_and_counts_in_the_recall() -> None:
    scores = np.array([[0.9], [0.8], [0.7], [0.6]])
    truth = np.array([[1], [1], [0], [1]], np.int8)
    rows, classes = np.array([0, 1, 3]), np.zeros(3, np.int64)
    right = np.array([[True], [False], [True]])
    found = location_precision(scores, truth, rows, classes, right)
    # Hits at ranks 1 and 4 of 3 things: (1/1 + 2/4) / 3.
    assert found.by_class.tolist() == pytest.approx([(1 + 0.5) / 3])
    assert found.mean == pytest.approx(0.5)
    every = location_precision(scores, truth, rows, classes, np.ones((3, 2), bool))
    assert every.mean == pytest.approx((1 + 1 + 3 / 4) / 3)  # then it is average precision


def test_a_thing_nobody_knows_the_place_of_is_left_out() -> None:
    scores = np.array([[0.9], [0.8], [0.7]])
    truth = np.array([[1], [1], [0]], np.int8)
    found = location_precision(scores, truth, np.array([1]), np.array([0]), np.array([[True]]))
    assert found.mean == pytest.approx(1.0)


def test_classes_without_places_do_not_count() -> None:
    scores = np.array([[0.9, 0.1], [0.8, 0.2]])
    truth = np.array([[1, 0], [0, 0]], np.int8)
    found = location_precision(scores, truth, np.array([0]), np.array([0]), np.array([[True, False]]))
    assert found.by_class.tolist() == [0.5, 0]
    assert found.mean == 0.5
