"""mAP-loc: by hand, and against a slow look at every pixel."""

import numpy as np
import pytest

from sparselabel.errors import DataError
from sparselabel.metrics.localization import enough, location_precision, on_things


def test_what_is_left_at_a_cut_must_lie_on_the_class_by_half() -> None:
    covered = np.array([[[1, 0], [0, 0]]], np.float32)
    sharp = np.array([[[9, 1], [1, 1]]], np.float32)  # only the right cell is left at every cut
    assert enough(on_things(sharp, covered)).tolist() == [[True] * 4]
    # Scaled 1, .75, .5, 0: at .6 and .7 two cells are left, half of them right; at .8 and .9 one.
    wide = np.array([[[4, 3], [2, 0]]], np.float32)
    assert enough(on_things(wide, covered)).tolist() == [[True] * 4]
    # Scaled 1, .75, .65, 0: at .6 three cells, one of them right.
    wider = np.array([[[4, 3], [2.6, 0]]], np.float32)
    assert enough(on_things(wider, covered)).tolist() == [[False, True, True, True]]
    wrong = np.array([[[0, 9], [0, 0]]], np.float32)
    assert enough(on_things(wrong, covered)).tolist() == [[False] * 4]
    flat = np.zeros((1, 2, 2), np.float32)  # shows everything: a quarter of it is right
    assert enough(on_things(flat, covered)).tolist() == [[False] * 4]


def test_other_cells_are_refused() -> None:
    with pytest.raises(DataError, match="same cells"):
        on_things(np.zeros((1, 2, 2), np.float32), np.zeros((1, 3, 3), np.float32))


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
