"""Which example images are chosen."""

import numpy as np
import pytest

from sparselabel.report.examples import Case, bits_of_surprise, choose, highest, spread_out

LABELS = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 1], [1, 0, -1]], np.int8)
SCORES = np.array(
    [[0.9, 0.1, 0.2], [0.8, 0.7, 0.1], [0.3, 0.6, 0.1], [0.2, 0.05, 0.5], [0.01, 0.2, 0.99]], np.float32
)


def test_different_images_and_classes() -> None:
    rows, classes = np.array([4, 4, 1, 2, 3]), np.array([0, 1, 0, 0, 2])
    assert spread_out(rows, classes, most=3, of_class=2) == [0, 2, 4]
    assert spread_out(rows, classes, most=9, of_class=1) == [0, 4]


def test_the_highest_of_each_class() -> None:
    found = highest(SCORES, LABELS == 1, of_class=1)
    assert [(case.row, case.classes) for case in found] == [(0, (0,)), (2, (1,)), (3, (2,))]
    assert [case.value for case in found] == pytest.approx([0.9, 0.6, 0.5])


def test_surprise_in_bits() -> None:
    bits = bits_of_surprise(np.array([[0.5, 0.25, 0.9]]), np.array([[1, 0, -1]], np.int8))
    assert bits.tolist() == pytest.approx([1 - np.log2(0.75)])  # the unknown label surprises nobody
    assert np.isfinite(bits_of_surprise(np.array([[0.0, 1.0]]), np.array([[1, 0]], np.int8))).all()


def test_the_groups_of_one_run() -> None:
    groups = {group.title: group.cases for group in choose(SCORES, LABELS)}
    assert [*groups] == ["Certain and right", "Certain and wrong", "Missed"]  # all images are shown by then
    assert groups["Certain and wrong"][0] == Case(1, (1,), float(np.float32(0.7)))
    assert [(case.row, case.classes) for case in groups["Certain and wrong"]] == [
        (1, (1,))
    ]  # of 0.5 at least
    assert [(case.row, case.classes) for case in groups["Missed"]] == [(4, (0,)), (3, (1,))]


def test_surprising_images_are_others() -> None:
    random = np.random.default_rng(0)
    labels = (random.random((200, 4)) < 0.5).astype(np.int8)
    scores = random.random(labels.shape)
    groups = choose(scores, labels)
    shown = {case.row for group in groups[:-1] for case in group.cases}
    bits = bits_of_surprise(scores, labels)
    order = [row for row in np.argsort(-bits).tolist() if row not in shown]
    assert groups[-1].title == "Least expected"
    assert [case.row for case in groups[-1].cases] == order[:6]
    case = groups[-1].cases[0]
    there = np.flatnonzero(labels[case.row] == 1)
    if len(there):
        assert case.classes[0] == there[scores[case.row, there].argmin()]


def test_where_runs_differ() -> None:
    apart = np.zeros_like(SCORES)
    apart[3, 1] = 0.5
    last = choose(SCORES, LABELS, apart)[-1]
    assert last.title == "Where the runs differ"
    assert last.cases[0] == Case(3, (1,), 0.5)
