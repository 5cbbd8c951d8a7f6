import numpy as np
import pytest

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.metrics.label_metrics import map_name_of


@pytest.mark.parametrize(("value", "name"), [(NEGATIVE, "mAP"), (UNKNOWN, "observed-label mAP")])
def test_a_map_where_unknown_counts_as_absent_is_named_so(value: int, name: str) -> None:
    labels = LabelTable(np.array(["a"]), ("cat", "dog"), np.array([[POSITIVE, value]], dtype=np.int8))
    assert map_name_of(labels) == name
