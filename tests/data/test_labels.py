from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sparselabel.data.labels import as_labels
from sparselabel.errors import DataError


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int64, np.float32, np.float64, np.float16, np.int16], ids=lambda kind: kind.__name__
)
def test_labels_of_any_number_type_become_int8(dtype: Any) -> None:
    labels = as_labels(np.array([[1, 0, -1]], dtype))
    assert labels.dtype == np.int8
    assert labels.tolist() == [[1, 0, -1]]


def test_labels_that_are_int8_are_not_copied() -> None:
    values = np.array([[1, 0, -1]], np.int8)
    assert as_labels(values) is values


def test_truth_values_and_unsigned_numbers_are_labels() -> None:
    assert as_labels([True, False]).tolist() == [1, 0]
    assert as_labels(np.array([1, 0], np.uint8)).tolist() == [1, 0]
    assert as_labels([-0.0, 1.0]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        ([1, 0, 2], "2"),
        (np.array([1, -2], np.int8), "-2"),
        (np.array([1, 255], np.uint8), "255"),  # not -1
        (np.array([256], np.int64), "256"),  # not 0
        ([2**63], str(2**63)),
        ([0.0, 0.5], "0.5"),
        ([1.0, float("nan"), 3.0], "nan"),
        ([float("inf")], "inf"),
        ([1e300], r"1e\+300"),
        (["yes", "no"], "'yes'"),
        (["1"], "'1'"),
        (np.array([1, None], object), "None"),
        (np.array([1, 0], object), "values of type object"),
        (np.array([1 + 0j]), "values of type complex128"),
    ],
)
def test_an_odd_value_is_named(values: Any, odd: str) -> None:
    with pytest.raises(DataError, match=rf"^labels must be 1, 0 or -1 \(unknown\), not {odd}$"):
        as_labels(values)


@given(
    hnp.arrays(
        st.sampled_from([np.int8, np.uint8, np.int32, np.uint64, np.float32, np.float64]),
        hnp.array_shapes(max_dims=2, max_side=4),
    )
)
def test_values_are_labels_or_are_refused(values: Any) -> None:
    if all(value in (1, 0, -1) for value in values.ravel().tolist()):
        assert as_labels(values).tolist() == values.tolist()
    else:
        with pytest.raises(DataError, match="labels must be 1, 0 or -1"):
            as_labels(values)
