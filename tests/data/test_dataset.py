from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import Preparation
from sparselabel.data.dataset import Dataset
from sparselabel.data.prepare import prepare
from sparselabel.errors import DataError
from tests.data.images import read_table


@pytest.fixture
def prepared(tmp_path: Path) -> Dataset:
    source = read_table(tmp_path / "photos", np.ones((5, 3), np.int8), ["train"] * 4 + ["test"])
    return prepare(source, tmp_path / "out", Preparation("single-positive", validation=0))


def test_splits(prepared: Dataset) -> None:
    train = prepared.train
    assert train is prepared.split("train")
    folder = str(prepared.folder)
    assert repr(prepared) == f"Dataset({folder!r}: 3 classes; 4 images in train, 1 image in test)"
    assert repr(train) == "PreparedSplit('train': 4 images)"


def test_an_unknown_split_is_named(prepared: Dataset) -> None:
    with pytest.raises(
        DataError, match=r"out has no split 'tst', only train, test: name one of them with `split`"
    ):
        prepared.split("tst")
