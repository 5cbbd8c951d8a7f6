"""Labels as people have them in Python, such as arrays, tensors and DataFrames, to our codes."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import (
    NEGATIVE,
    POSITIVE,
    UNKNOWN,
    LabelMatrix,
    Labels,
    SparseLabels,
    array_of,
    compact,
)
from sparselabel.errors import DataError


def label_matrix_of(given: object) -> LabelMatrix:
    """(N, L) int8 labels from an array, tensor, DataFrame or sparse matrix, compressed if that is smaller."""
    if isinstance(given, LabelTable):
        return given.matrix
    if isinstance(given, SparseLabels):
        return given
    if hasattr(given, "tocoo"):  # a SciPy sparse matrix, or array
        entries = given.tocoo()
        return _of_stored(entries.row, entries.col, entries.data, entries.shape)
    if hasattr(given, "detach"):  # a tensor
        tensor = cast("Any", given).detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":  # NumPy has none
            tensor = tensor.float()
        if str(tensor.layout) != "torch.strided":  # COO, CSR and the like
            tensor = tensor.to_sparse_coo().coalesce()
            _refuse_shape(tuple(tensor.shape))
            rows, columns = tensor.indices().numpy()
            return _of_stored(rows, columns, tensor.values().numpy(), tuple(tensor.shape))
        values = tensor.numpy()
    else:
        try:
            values = given.to_numpy() if hasattr(given, "to_numpy") else np.asarray(given)
        except ValueError as error:  # lists of different lengths
            raise _not_a_table("lists of different lengths") from error
        if values.dtype == object and hasattr(given, "isna"):  # pandas' NA is no number
            values = np.where(given.isna(), np.nan, values)
    _refuse_shape(values.shape)
    return _as_codes(values, lambda at: (int(at[0]), int(at[1])))


def _of_stored(rows: Any, columns: Any, data: npt.NDArray[Any], shape: tuple[int, int]) -> LabelMatrix:
    """Labels of a sparse matrix: stored entries are known, others unknown."""
    _refuse_shape(shape)
    rows, columns = np.asarray(rows), np.asarray(columns)
    data = data.astype(np.int8) if data.dtype == bool else data
    values = _as_codes(data, lambda at: (int(rows[at[0]]), int(columns[at[0]])))
    return compact(SparseLabels.of_entries(rows, columns, values, shape))


def labels_of(given: object) -> Labels:
    """(N, L) int8 labels as an array, from an array, tensor or DataFrame."""
    return array_of(label_matrix_of(given))


def _refuse_shape(shape: tuple[int, ...]) -> None:
    if len(shape) == 1:
        raise DataError(
            "labels must be (N, L), a column for each class, and these are one for each row",
            "give 1 for the row's class and -1 for others, where those may be there too",
            "0 for others, where they are not",
            what="labels",
            value=shape,
        )
    if not shape:
        raise _not_a_table("one object")
    if len(shape) != 2 or 0 in shape:
        problem = f"labels must be (N, L), with at least one of each, not of shape {shape}"
        raise DataError(problem, what="labels", value=shape)


def _not_a_table(what: str) -> DataError:
    return DataError(
        f"labels must be (N, L), a row for each image and a column for each class, not {what}",
        "start with numpy.full((N, L), -1), and set labels[row, classes] = 1",
        what="labels",
    )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _as_codes(values: npt.NDArray[Any], place: Callable[[tuple[Any, ...]], tuple[int, int]]) -> Labels:
    """Labels as int8 from numbers with NaN for unknown; ``place`` returns the row and class of an entry."""
    if values.dtype == bool:
        raise DataError(
            "labels are booleans, which say nothing of what is unknown",
            "give 1, 0 and -1 (or NaN), as numpy.where(positive, 1, -1)",
            what="labels",
        )
    if not values.size:
        return values.astype(np.int8)
    if values.dtype.kind in "iu" and values.min() >= UNKNOWN and values.max() <= POSITIVE:
        return np.asarray(values.astype(np.int8))  # a million images are not copied as floats
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        first = next(at for at in np.ndindex(values.shape) if not _is_number(values[at]))
        row, column = place(first)
        raise DataError(
            f"labels must be numbers, but row {row}, column {column} has {str(values[first])!r:.40}",
            "leave columns of names out",
            "give 1, 0, and -1 or NaN for unknown",
            what="labels",
            where=(row, column),
            value=values[first],
        ) from error
    numbers[np.isnan(numbers)] = UNKNOWN
    strange = ~np.isin(numbers, (POSITIVE, NEGATIVE, UNKNOWN))
    if strange.any():
        first = tuple(one[0] for one in np.nonzero(strange))
        row, column = place(first)
        raise DataError(
            f"labels must be 1, 0, and -1 or NaN for unknown, but row {row}, column {column} has "
            f"{numbers[first]:g}",
            what="labels",
            where=(row, column),
            value=float(numbers[first]),
        )
    return numbers.astype(np.int8)
