from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sparselabel.data import label_table
from sparselabel.data.label_table import LabelTable, refuse_duplicates
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.errors import DataError

tables = hnp.arrays(
    np.int8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(-1, 1)
)


def named(values: Labels) -> LabelTable:
    ids = [f"{row}.jpg" for row in range(len(values))]
    return LabelTable(np.asarray(ids), tuple("abcdefgh"[: values.shape[1]]), values)


@pytest.fixture
def table() -> LabelTable:
    values = [[1, 0, -1], [1, 1, 0], [-1, 0, 0], [1, -1, -1]]
    return LabelTable(np.array(["d", "c", "b", "a"]), ("ant", "bee", "cow"), np.array(values, np.int8))


def test_counts(table: LabelTable) -> None:
    assert len(table) == 4
    assert table.counts().tolist() == [3, 1, 0]
    assert table.counts(NEGATIVE).tolist() == [0, 2, 2]
    assert table.counts(UNKNOWN).tolist() == [1, 1, 2]
    assert table.per_image().tolist() == [1, 2, 0, 1]
    assert table.per_image(UNKNOWN).tolist() == [1, 0, 1, 2]
    assert table.counts().dtype == table.per_image().dtype == np.int64


@given(tables)
def test_counts_add_up(values: Labels) -> None:
    table = named(values)
    for axis, counts in ((0, table.counts), (1, table.per_image)):
        whole = counts(POSITIVE) + counts(NEGATIVE) + counts(UNKNOWN)
        assert (whole == values.shape[axis]).all()
        assert counts(POSITIVE).tolist() == [
            list(line).count(1) for line in np.moveaxis(values, axis, -1).tolist()
        ]
    assert table.complete == (table.counts(UNKNOWN).sum() == 0)


def test_counts_beyond_int8() -> None:
    table = named(np.ones((300, 1), np.int8))
    assert table.counts().tolist() == [300]


def test_complete_means_no_label_is_unknown(table: LabelTable) -> None:
    assert not table.complete
    assert table.take([1]).complete
    assert named(np.zeros((0, 3), np.int8)).complete


def test_take_keeps_the_order_given(table: LabelTable) -> None:
    taken = table.take([3, 0])
    assert taken.ids.tolist() == ["a", "d"]
    assert taken.values.tolist() == [[1, -1, -1], [1, 0, -1]]
    assert taken.classes == table.classes
    assert table.take(np.array([2])).ids.tolist() == ["b"]
    nothing = table.take([])
    assert (len(nothing), nothing.values.shape) == (0, (0, 3))


def test_take_does_not_share_memory(table: LabelTable) -> None:
    table.take([0, 1]).values[:] = UNKNOWN
    assert table.values[:2].tolist() == [[1, 0, -1], [1, 1, 0]]


def test_take_refuses_a_row_twice_and_one_that_is_not_there(table: LabelTable) -> None:
    with pytest.raises(DataError, match=r"every image must be named once; .*: c$"):
        table.take([1, 1])
    with pytest.raises(IndexError, match="4"):
        table.take([4])


@given(tables, st.data())
def test_take_gives_each_row_its_own_labels(values: Labels, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(values) - 1), unique=True))
    taken = named(values).take(rows)
    assert taken.ids.tolist() == [f"{row}.jpg" for row in rows]
    assert taken.values.tolist() == [values[row].tolist() for row in rows]


@pytest.mark.parametrize("values", [np.zeros((3, 2)), np.zeros((2, 3)), np.zeros(4), np.zeros((2, 2, 1))])
def test_a_wrong_shape_is_refused(values: Any) -> None:
    shape = str(values.shape).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(DataError, match=rf"2 images and 2 classes must have shape \(2, 2\), not {shape}"):
        LabelTable(np.array(["a", "b"]), ("x", "y"), values)


def test_names_must_differ() -> None:
    values = np.zeros((2, 2), np.int8)
    with pytest.raises(DataError, match=r"every image must be named once; these occur more often: a$"):
        LabelTable(np.array(["a", "a"]), ("x", "y"), values)
    with pytest.raises(DataError, match=r"every class must be named once; these occur more often: x$"):
        LabelTable(np.array(["a", "b"]), ("x", "x"), values)
    with pytest.raises(DataError, match=r"more often: n00, n01, .*, n09 and 2 more$"):
        refuse_duplicates("name", np.array([f"n{number:02}" for number in range(12)] * 2))


@given(st.lists(st.text("ab", max_size=3), max_size=6))
def test_duplicates_are_found_wherever_they_are(names: list[str]) -> None:
    array = np.asarray(names, dtype=np.str_)
    if len({*names}) == len(names):
        refuse_duplicates("name", array)
        table = LabelTable(array, (), np.empty((len(names), 0), np.int8))
        assert table.ids.tolist() == names
    else:
        with pytest.raises(DataError, match="every name must be named once"):
            refuse_duplicates("name", array)


def test_unchecked_labels_are_not_looked_at() -> None:
    values = np.full((1, 1), 7, np.int8)
    table = LabelTable(np.array(["a", "a"]), ("x",), values, check=False)
    assert table.values is values
    assert len(table) == 2


def test_lists_are_taken_too() -> None:
    table = LabelTable(["a", "b"], ["x"], [[1], [0.0]])  # type: ignore[arg-type]
    assert table.classes == ("x",)
    assert table.ids.dtype.kind == "U"
    assert table.values.dtype == np.int8


def test_labels_that_are_int8_are_not_copied() -> None:
    values = np.array([[1, 0, -1]], np.int8)
    table = LabelTable(np.array(["a"]), ("x", "y", "z"), values)
    assert table.values is values


def test_many_names_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_table, "MANY_NAMES", 4)
    names = np.array([f"{number}.jpg" for number in range(11)])
    refuse_duplicates("image", names)
    names[9] = names[2]
    with pytest.raises(DataError, match=r"more often: 2\.jpg"):
        refuse_duplicates("image", names)
