"""Compressed rows give the same results as an array of the same labels."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sparselabel.data import labels
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import (
    NEGATIVE,
    POSITIVE,
    UNKNOWN,
    ContradictionError,
    Labels,
    SparseLabels,
    compact,
    count_known,
    count_per_class,
    count_per_image,
    has_value,
    known_entries,
    positives_of,
    take_rows,
)
from sparselabel.errors import DataError, ResourceError

matrices = hnp.arrays(
    np.int8,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=7),
    elements=st.sampled_from([-1, -1, -1, 0, 1]),
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "KNOWN_BLOCK", 5)
    monkeypatch.setattr(labels, "BLOCK", 5)  # so that every loop over blocks has several
    monkeypatch.setattr(labels, "SPARSE_FROM", 1)


def entries_of(values: Labels) -> tuple[Any, Any, Any]:
    rows, columns = np.nonzero(np.ones(values.shape))
    return rows, columns, values[rows, columns]


@settings(max_examples=40)
@given(matrices, st.data())
def test_an_index_gives_what_it_gives_of_the_array(values: Labels, data: st.DataObject) -> None:
    sparse = SparseLabels.of_array(values)
    count, classes = values.shape
    row, column = data.draw(st.integers(-count, count - 1)), data.draw(st.integers(0, classes - 1))
    some = np.asarray(data.draw(st.lists(st.integers(-count, count - 1), max_size=6)), np.intp)
    columns = np.asarray(data.draw(st.lists(st.integers(0, classes - 1), max_size=6)), np.intp)
    pairs = min(len(some), len(columns))
    for key in (
        row,
        slice(None),
        slice(1, None),
        some,
        (row, column),
        (some[:pairs], columns[:pairs]),
        (some, column),
        (row, columns),
        (slice(None), column),
        (slice(None), slice(column, column + 3)),
        (slice(None), columns),
        (slice(1, 3), column),
        (some, slice(0, 2)),
        values[:, 0] == POSITIVE,
    ):
        assert np.array_equal(sparse[key], values[key]), key
        assert sparse[key].dtype == np.int8
    assert np.array_equal(np.asarray(sparse), values)
    assert (sparse.shape, len(sparse), sparse.size) == (values.shape, len(values), values.size)


def parts(labels: SparseLabels) -> list[list[int]]:
    return [labels.starts.tolist(), labels.columns.tolist(), labels.known.tolist()]


@settings(max_examples=40)
@given(matrices, st.integers(0, 2**32 - 1))
def test_entries_come_in_any_order_and_twice(values: Labels, seed: int) -> None:
    rows, columns, known = entries_of(values)
    order = np.random.default_rng(seed).integers(0, len(rows), 3 * len(rows))
    order = np.random.default_rng(seed).permutation(np.concatenate([np.arange(len(rows)), order]))
    sparse = SparseLabels.of_entries(rows[order], columns[order], known[order], values.shape)
    assert parts(sparse) == parts(SparseLabels.of_array(values))
    assert len(sparse.known) == np.count_nonzero(values != UNKNOWN)


def test_two_values_of_a_label_are_refused() -> None:
    with pytest.raises(ContradictionError) as caught:
        SparseLabels.of_entries(
            np.array([2, 0, 1, 2]), np.array([1, 0, 1, 1]), np.array([1, 1, 0, 0]), (3, 2)
        )
    assert caught.value.where == (0, 3)


@settings(max_examples=40)
@given(matrices)
def test_counts(values: Labels) -> None:
    sparse = SparseLabels.of_array(values)
    for value in (POSITIVE, NEGATIVE, UNKNOWN):
        assert count_per_class(sparse, value).tolist() == count_per_class(values, value).tolist()
        assert count_per_image(sparse, value).tolist() == count_per_image(values, value).tolist()
        assert has_value(sparse, value) == has_value(values, value)
    assert count_known(sparse) == count_known(values)
    for ours, theirs in zip(positives_of(sparse), np.nonzero(values == POSITIVE), strict=True):
        assert ours.tolist() == theirs.tolist()
    for matrix in (sparse, values):
        found = [np.concatenate(part).tolist() for part in zip(*known_entries(matrix), strict=True)]
        rows, columns = np.nonzero(values != UNKNOWN)
        assert found in ([], [rows.tolist(), columns.tolist(), values[rows, columns].tolist()])


@settings(max_examples=40)
@given(matrices, st.data())
def test_rows_are_taken_in_compressed_form(values: Labels, data: st.DataObject) -> None:
    rows = np.asarray(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=9)), np.intp)
    taken = take_rows(SparseLabels.of_array(values), rows)
    assert isinstance(taken, SparseLabels)
    assert np.array_equal(np.asarray(taken), values[rows])


@settings(max_examples=40)
@given(matrices, st.data())
def test_entries_are_replaced_in_a_copy(values: Labels, data: st.DataObject) -> None:
    sparse, expected = SparseLabels.of_array(values), values.copy()
    places = data.draw(
        st.lists(st.tuples(st.integers(0, len(values) - 1), st.integers(0, values.shape[1] - 1)), unique=True)
    )
    new = [data.draw(st.sampled_from([UNKNOWN, NEGATIVE, POSITIVE])) for _ in places]
    for place, value in zip(places, new, strict=True):
        expected[place] = value
    changed = sparse.with_entries([row for row, _ in places], [column for _, column in places], new)
    assert np.array_equal(np.asarray(changed), expected)
    assert np.array_equal(np.asarray(sparse), values)
    assert parts(changed) == parts(SparseLabels.of_array(expected))  # sorted, and nothing is there twice


def test_the_form_follows_from_size_and_density(monkeypatch: pytest.MonkeyPatch) -> None:
    few = np.full((10, 1000), UNKNOWN, np.int8)
    few[:, 0] = POSITIVE
    assert isinstance(compact(few), SparseLabels)
    assert isinstance(compact(SparseLabels.of_array(few)), SparseLabels)
    many = np.zeros((10, 1000), np.int8)
    assert compact(many) is many
    assert isinstance(compact(SparseLabels.of_array(many)), np.ndarray)
    monkeypatch.setattr(labels, "SPARSE_FROM", 10_001)
    assert compact(few) is few
    assert isinstance(compact(SparseLabels.of_array(few)), np.ndarray)


def test_an_array_that_is_too_large_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "LARGEST_ARRAY", 50)
    table = LabelTable(np.array(["a", "b", "c"]), tuple(map(str, range(20))), SparseLabels.of_array(
        np.full((3, 20), UNKNOWN, np.int8)
    ))  # fmt: skip
    assert table.matrix[[0, 2]].shape == (2, 20)
    with pytest.raises(ResourceError) as caught:
        _ = table.values
    assert (caught.value.what, caught.value.value, caught.value.allowed) == ("labels", 60, 50)


def test_a_table_has_one_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.array([[1, -1, -1], [-1, 0, -1], [-1, -1, -1], [1, 0, 1]], np.int8)
    ids = np.array(["d", "c", "b", "a"])
    dense = LabelTable(ids, ("x", "y", "z"), values)
    sparse = LabelTable(ids, ("x", "y", "z"), SparseLabels.of_array(values))
    assert (dense.sparse, sparse.sparse) == (False, True)
    assert sparse.counts().tolist() == dense.counts().tolist()
    assert sparse.known == dense.known == 5
    assert (sparse.complete, sparse.take([3]).complete) == (False, True)
    assert sparse.take([3, 0]).values.tolist() == dense.take([3, 0]).values.tolist()
    with pytest.raises(DataError, match="must have shape"):
        LabelTable(ids[:3], ("x", "y", "z"), SparseLabels.of_array(values))


def test_whole_matrices_are_not_compared() -> None:
    with pytest.raises(TypeError, match="not compared"):
        _ = SparseLabels.of_array(np.zeros((1, 1), np.int8)) == POSITIVE
