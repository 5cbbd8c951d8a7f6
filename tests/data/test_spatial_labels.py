from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import DataError

Plain = list[tuple[int, int, tuple[float, float], tuple[float, float]]]

eighths = st.integers(1, 7).map(lambda number: number / 8)
plain_marks = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 3),
        st.tuples(eighths, eighths),
        st.just((0.0, 0.0)) | st.tuples(*[st.sampled_from([0.125, 0.25])] * 2),
    ),
    max_size=12,
)


def made(spatial_labels: Plain) -> SpatialLabels:
    names = ("rows", "classes", "centers", "sizes")
    columns: dict[str, Any] = {
        name: np.array([spatial_label[place] for spatial_label in spatial_labels])
        for place, name in enumerate(names)
    }
    return SpatialLabels(**columns)


def plain(spatial_labels: SpatialLabels) -> Plain:
    columns = (
        spatial_labels.rows,
        spatial_labels.classes,
        map(tuple, spatial_labels.centers.tolist()),
        map(tuple, spatial_labels.sizes.tolist()),
    )
    return [(int(r), int(c), center, size) for r, c, center, size in zip(*columns, strict=True)]


def one(**changes: Any) -> SpatialLabels:
    columns: dict[str, Any] = {"rows": [4], "classes": [2], "centers": [[0.5, 0.25]], "sizes": [[0.5, 0.5]]}
    return SpatialLabels(**(columns | changes))


@given(plain_marks)
def test_marks_are_sorted_by_row_and_else_keep_their_order(spatial_labels: Plain) -> None:
    built = made(spatial_labels)
    assert plain(built) == sorted(spatial_labels, key=lambda spatial_label: spatial_label[0])
    assert len(built) == len(spatial_labels)
    assert [column.dtype for column in (built.rows, built.classes, built.centers, built.sizes)] == [
        np.int64,
        np.int32,
        np.float32,
        np.float32,
    ]


@given(plain_marks, st.lists(st.integers(0, 8), max_size=8))
def test_take_equals_looking_for_every_row(spatial_labels: Plain, rows: list[int]) -> None:
    taken = made(spatial_labels).take(rows)
    assert plain(taken) == [
        (position, *spatial_label[1:])
        for position, row in enumerate(rows)
        for spatial_label in spatial_labels
        if spatial_label[0] == row
    ]


@given(plain_marks, st.lists(st.integers(0, 8), max_size=8), st.lists(st.integers(0, 7), max_size=5))
def test_take_twice_is_take_of_the_rows_taken(
    spatial_labels: Plain, rows: list[int], again: list[int]
) -> None:
    again = [position for position in again if position < len(rows)]
    twice = made(spatial_labels).take(rows).take(again)
    assert plain(twice) == plain(made(spatial_labels).take([rows[position] for position in again]))


def test_take_of_some_rows() -> None:
    spatial_labels = made(
        [(3, 0, (0.5, 0.5), (0, 0)), (1, 1, (0.25, 0.5), (0.5, 0.5)), (3, 2, (0.75, 0.75), (0.25, 0.25))]
    )
    taken = spatial_labels.take(np.array([3, 0, 1, 3]))
    assert taken.rows.tolist() == [0, 0, 2, 3, 3]
    assert taken.classes.tolist() == [0, 2, 1, 0, 2]
    assert taken.centers.tolist() == [[0.5, 0.5], [0.75, 0.75], [0.25, 0.5], [0.5, 0.5], [0.75, 0.75]]
    assert taken.is_point.tolist() == [True, False, False, True, False]


def test_no_marks() -> None:
    none = SpatialLabels.none()
    assert len(none) == 0
    assert none.is_point.tolist() == []
    assert (none.centers.shape, none.sizes.shape) == ((0, 2), (0, 2))
    assert len(none.take([0, 1])) == len(one().take([])) == 0


def test_a_point_has_no_size() -> None:
    spatial_labels = one(rows=range(2), classes=[0] * 2, centers=[[0.5, 0.5]] * 2, sizes=[[0, 0], [0.1, 0.1]])
    assert spatial_labels.is_point.tolist() == [True, False]


def test_a_mark_may_touch_the_edge() -> None:
    spatial_labels = one(
        rows=[0, 1, 2], classes=[0, 0, 0], centers=[[0, 0], [1, 1], [0.5, 0.5]], sizes=[[0, 0]] * 2 + [[1, 1]]
    )
    assert len(spatial_labels) == 3
    third = np.float32(1) / np.float32(3)
    assert len(one(centers=[[third / 2, third / 2]], sizes=[[third, third]])) == 1


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        (
            {"centers": [[0.5, 0.875]]},
            r"inside its image .*: row 4, class 2, center \[0.5, 0.875\], size \[0.5",
        ),
        (
            {"centers": [[-0.01, 0.5]], "sizes": [[0, 0]]},
            r"inside its image .*row 4, class 2, center \[-0.0",
        ),
        ({"centers": [[0.5, 120.0]]}, r"inside its image \(unit coordinates 0..1\): .*120.0"),
        ({"centers": [[float("nan"), 0.5]]}, r"inside its image .* row 4, class 2, center \[nan, 0.5\]"),
        ({"sizes": [[0.5, float("nan")]]}, r"inside its image .* size \[0.5, nan\]"),
        ({"sizes": [[-0.25, 0.5]]}, r"size must not be negative .*row 4, class 2, .*size \[-0.25, 0.5\]"),
        ({"sizes": [[0.5, 0]]}, r"a box must have an area, .*row 4, class 2, .*size \[0.5, 0.0\]"),
        ({"sizes": [[0, 0.5]]}, r"a box must have an area, .*row 4, class 2, .*size \[0.0, 0.5\]"),
        ({"rows": [-1]}, r"row and class must not be negative .*row -1, class 2"),
        ({"classes": [-1]}, r"row and class must not be negative .*row 4, class -1"),
    ],
)
def test_a_wrong_mark_is_named(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        one(**changes)


def test_the_wrong_one_of_several_is_named() -> None:
    with pytest.raises(DataError, match=r"row 1, class 8, center \[2.0, 0.5\]"):
        one(
            rows=[3, 1, 2],
            classes=[7, 8, 9],
            centers=[[0.5, 0.5], [2, 0.5], [0.5, 0.5]],
            sizes=np.zeros((3, 2)),
        )


@pytest.mark.parametrize(
    ("changes", "lengths"),
    [
        ({"classes": [2, 3]}, "'classes': 2"),
        ({"rows": [4, 5]}, "'rows': 2"),
        ({"centers": [[0.5, 0.25], [0.5, 0.25]]}, "'centers': 2"),
        ({"sizes": np.zeros((0, 2))}, "'sizes': 0"),
    ],
)
def test_columns_of_different_lengths_are_refused(changes: dict[str, Any], lengths: str) -> None:
    with pytest.raises(DataError, match=rf"must have one length, not .*{lengths}"):
        one(**changes)


def test_unchecked_marks_are_taken_as_they_are() -> None:
    rows = np.array([2, 1])
    spatial_labels = SpatialLabels(
        rows, rows.astype(np.int32), np.full((2, 2), 9, np.float32), rows, check=False
    )
    assert spatial_labels.rows is rows
    assert spatial_labels.sizes is rows
