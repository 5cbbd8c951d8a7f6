import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from sparselabel.data import labels
from sparselabel.data.label_conversion import label_matrix_of, labels_of
from sparselabel.data.labels import SparseLabels
from sparselabel.errors import DataError


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_labels_of_every_kind() -> None:
    wanted = np.array([[1, -1, 0], [-1, 1, -1], [1, 0, -1], [-1, -1, 1]], np.int8)
    given_tensor = torch.from_numpy(wanted)
    floats = np.where(wanted == -1, np.nan, wanted)
    known = np.nonzero(wanted != -1)
    stored = sparse.coo_array((wanted[known].astype(float), known), shape=wanted.shape)
    frame = pd.DataFrame(floats)
    frames = (frame, frame.astype("Int64"), frame.astype("Int64").astype(object))
    place = torch.from_numpy(np.stack(known))
    in_torch = torch.sparse_coo_tensor(
        place, torch.from_numpy(wanted[known]), wanted.shape, check_invariants=True
    )
    tensors = (given_tensor, given_tensor.bfloat16(), in_torch, in_torch.to_sparse_csr())
    for given in (*tensors, wanted, wanted.tolist(), floats, *frames, stored, stored.tocsr()):
        np.testing.assert_array_equal(labels_of(given), wanted)


def test_a_strange_label_is_a_plain_number() -> None:
    with pytest.raises(DataError, match=r"row 0, column 1 has 2$") as raised:
        labels_of(np.array([[0, 2]]))
    assert (raised.value.where, raised.value.value) == ((0, 1), 2)


@pytest.mark.parametrize(("known", "stays"), [(2, True), (400, False)])
def test_a_scipy_matrix_stays_sparse_where_that_is_smaller(
    known: int, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "SPARSE_FROM", 1)
    values = np.full((20, 40), -1, np.int8)
    values.ravel()[:known] = np.arange(known) % 2
    rows, columns = np.nonzero(values != -1)
    matrix = label_matrix_of(sparse.csr_array((values[rows, columns], (rows, columns)), shape=values.shape))
    assert np.array_equal(np.asarray(matrix), values)
    assert isinstance(matrix, SparseLabels) == stays
