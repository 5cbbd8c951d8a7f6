import json
from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import Preparation
from sparselabel.data import describe, labels
from sparselabel.data.dataset import Dataset
from sparselabel.data.describe import count, count_all, description, histogram
from sparselabel.data.prepare import prepare
from sparselabel.data.prepared_files import open_prepared
from sparselabel.errors import DataError
from tests.data.images import random_labels, read_table
from tests.prepared_data import write_checksums

VALUES = [[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]]


def replace(prepared: Dataset, split: str, name: str, values: list[list[int]]) -> Dataset:
    """The data with other labels, as if they had been written so."""
    np.save(prepared.folder / split / f"{name}.npy", np.array(values, np.int8))
    write_checksums(prepared.folder)
    return open_prepared(prepared.folder)


@pytest.fixture
def prepared(tmp_path: Path) -> Dataset:
    source = read_table(tmp_path / "photos", np.array(VALUES, np.int8), ["train"] * 4 + ["test"])
    found = prepare(source, tmp_path / "out", Preparation(validation=0))
    return replace(found, "train", "observed", [[1, -1, 0], [1, -1, -1], [-1, 1, 1], [-1, -1, 1]])


def test_complete_labels_have_no_unknown_ones_and_no_fewer(tmp_path: Path) -> None:
    values = np.array([[1] * 3] * 8 + [[0] * 3] * 2, np.int8)
    source = read_table(tmp_path / "photos", values, ["train"] * 10)
    counts = count_all(prepare(source, tmp_path / "out", Preparation(validation=0)))["train"]
    assert counts.shares == {"positive": 0.8, "negative": 0.2, "unknown": 0.0}  # 1 − .8 − .2 is below 0
    assert f"{counts.shares['unknown']:.1%}" == "0.0%"


def test_description(prepared: Dataset) -> None:
    told = description(prepared, count_all(prepared))
    assert (told["name"], list(told["splits"])) == ("photos", ["train", "test"])
    train = told["splits"]["train"]
    assert train["images"] == 4
    assert train["classes"] == [
        {
            "name": "ant",
            "positive": 2,
            "observed_positive": 2,
            "observed_negative": 0,
            "observed_positive_if_uniform": 1.5,  # sure in the first image, one of two in the second
        },
        {
            "name": "bee",
            "positive": 2,
            "observed_positive": 1,
            "observed_negative": 0,
            "observed_positive_if_uniform": 1.5,
        },
        {
            "name": "cow",
            "positive": 2,
            "observed_positive": 2,
            "observed_negative": 1,
            "observed_positive_if_uniform": 2.0,
        },
    ]
    assert train["complete"] is True
    assert train["observed"] == pytest.approx({"positive": 5 / 12, "negative": 1 / 12, "unknown": 6 / 12})
    assert train["per_image"] == {
        "positive": {"mean": 1.5, "min": 1, "max": 2, "histogram": [0, 2, 2]},
        "observed_positive": {"mean": 1.25, "min": 1, "max": 2, "histogram": [0, 3, 1]},
        "observed_negative": {"mean": 0.25, "min": 0, "max": 1, "histogram": [3, 1]},
    }
    test = told["splits"]["test"]["classes"]
    assert test[0] == {"name": "ant", "positive": 1, "observed_positive": 1, "observed_negative": 0}
    assert json.loads(json.dumps(told)) == told


def test_what_a_image_shows_is_not_known_where_labels_are_missing(prepared: Dataset) -> None:
    rest = replace(prepared, "train", "truth", [[1, -1, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1]])
    train = description(rest, count_all(rest))["splits"]["train"]
    assert (train["complete"], train["per_image"]["positive"]) == (False, None)


def test_blocks_of_rows_give_what_all_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = read_table(tmp_path / "photos", random_labels(30))
    split = prepare(source, tmp_path / "out", Preparation("uniform", share=0.4, validation=0)).train
    at_once = count(split, tmp_path)
    monkeypatch.setattr(labels, "BLOCK", 24)
    in_blocks = count(split, tmp_path)
    for what in describe.WHAT:
        assert in_blocks.per_class[what].tolist() == at_once.per_class[what].tolist()
        assert in_blocks.per_image[what].tolist() == at_once.per_image[what].tolist()
    assert in_blocks.uniform.tolist() == pytest.approx(at_once.uniform.tolist())
    assert in_blocks.spread.tolist() == pytest.approx(at_once.spread.tolist())
    assert in_blocks.columns == at_once.columns
    truth = source.splits["train"].labels
    assert at_once.per_class["positive"].tolist() == truth.counts(1).tolist()


def test_the_spread_of_a_random_choice(prepared: Dataset) -> None:
    counts = count(prepared.train, prepared.folder)
    assert counts.uniform.tolist() == [1.5, 1.5, 2.0]
    assert counts.spread.tolist() == [0.5, 0.5, 0.0]


def test_labels_that_are_none_are_refused(prepared: Dataset) -> None:
    broken = replace(prepared, "test", "observed", [[1, 0, 7]])
    with pytest.raises(
        DataError, match=r"out/test/observed.npy is damaged: it holds 7, and a label is 1, 0 or -1"
    ):
        count_all(broken)
    broken = replace(prepared, "test", "observed", [[1, 0, -2]])
    with pytest.raises(DataError, match=r"out/test/observed.npy is damaged: it holds -2"):
        count_all(broken)


def test_a_histogram() -> None:
    assert histogram(np.array([2, 5, 2])) == {
        "mean": 3.0,
        "min": 2,
        "max": 5,
        "histogram": [0, 0, 2, 0, 0, 1],
    }
