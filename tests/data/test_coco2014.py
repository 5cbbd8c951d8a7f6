"""COCO 2014 as Cole 2021 splits it: the totals and class shares of Verelst 2023's table K.2 (supplement).

`COCO2014` names a prepared folder (`sparselabel prepare table labels.csv --images images --sparsify
single-positive --out coco`); without it there is nothing to check.
"""

import os

import numpy as np
import pytest

from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import POSITIVE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("COCO2014" not in os.environ, reason="COCO2014 names no prepared folder"),
]


def test_the_papers_rows_and_observed_labels() -> None:
    data = Dataset.open(os.environ["COCO2014"])
    train, val, test = (data.split(name) for name in ("train", "val", "test"))
    assert (len(train), len(val), len(test)) == (65_665, 16_416, 39_850)
    truth, observed = np.asarray(train.truth.values), np.asarray(train.observed.values)
    assert (truth == POSITIVE).sum() == 193_078
    assert (np.asarray(val.truth.values) == POSITIVE).sum() == 47_957
    assert ((observed == POSITIVE).sum(axis=1) == 1).all()
    images, kept = ((table == POSITIVE).sum(axis=0) for table in (truth, observed))
    column = {name: data.classes.index(name) for name in ("person", "chair", "zebra", "toaster", "toilet")}
    assert {name: int(images[j]) for name, j in column.items()} == {
        "person": 36_192,
        "chair": 7_138,
        "zebra": 1_065,
        "toaster": 125,
        "toilet": 1_842,  # the table has 1,847; its total is that of 1,842
    }
    shares = {name: int(100 * kept[j] / images[j]) for name, j in column.items() if name != "toilet"}
    assert shares == {"person": 34, "chair": 22, "zebra": 86, "toaster": 28}
