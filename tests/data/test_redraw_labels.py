import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparselabel.config import Preparation
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelTable
from sparselabel.data.prepare import prepare
from sparselabel.data.redraw_labels import redraw_labels
from sparselabel.data.scenes import generate as scenes
from sparselabel.errors import DataError


def made(folder: Path, **how: Any) -> Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes without positives in so few images
        source = scenes.make(folder, train=40, test=5, size=32, seed=0)
        return prepare(source, folder, Preparation(**how))


@pytest.mark.parametrize(
    "how",
    [
        {"sparsify": "single-positive"},
        {"sparsify": "uniform", "share": 0.3, "validation_labels": "observed"},
        {"sparsify": "per-class", "positives": 3, "negatives": 2},
        {"sparsify": "budget", "annotate": "SP", "budget": 0.3},
    ],
    ids=lambda how: str(how["sparsify"]),
)
def test_another_draw_of_the_same_kind(tmp_path: Path, how: dict[str, Any]) -> None:
    data = made(tmp_path, **how)
    other = redraw_labels(data, 7)
    before, after = data.train.observed.values, other.train.observed.values
    assert (data.label_seed, other.label_seed) == (None, 7)
    assert not np.array_equal(before, after)
    known = after != UNKNOWN
    assert np.array_equal(after[known], data.train.truth.values[known])
    assert other.train.digest != data.train.digest
    assert np.array_equal(other.train.digests, data.train.digests)  # the same images: the same features
    again = redraw_labels(data, 7)
    assert np.array_equal(again.train.observed.values, after)
    assert again.train.digest == other.train.digest
    assert other.splits["test"] is data.splits["test"]
    assert (other.splits["val"] is data.splits["val"]) == ("validation_labels" not in how)
    if how["sparsify"] == "single-positive":
        assert ((after == POSITIVE).sum(axis=1) == (before == POSITIVE).sum(axis=1)).all()
    if how["sparsify"] == "per-class":
        for value in (POSITIVE, NEGATIVE):
            assert ((after == value).sum(axis=0) == (before == value).sum(axis=0)).all()
    assert (len(other.train.seen) > 0) == (how["sparsify"] == "budget")


def test_the_preparations_own_seed_is_the_data_as_it_is(tmp_path: Path) -> None:
    data = made(tmp_path, sparsify="single-positive", label_seed=5)
    assert redraw_labels(data, 5) is data


def test_what_cannot_be_redrawn(tmp_path: Path) -> None:
    data = made(tmp_path)
    with pytest.raises(DataError, match="hid none") as refused:
        redraw_labels(data, 1)
    assert (refused.value.what, refused.value.value) == ("label_seeds", "none")
    assert refused.value.parameters == ["sparsify", "label_seeds"]
    truth = np.array(data.train.truth.values)
    truth[0, :2] = UNKNOWN
    table = LabelTable(data.train.truth.ids, data.classes, truth)
    hidden = replace(data, splits=data.splits | {"train": replace(data.train, truth=table)})
    with pytest.raises(DataError, match="2 training labels") as refused:
        redraw_labels(hidden, 1)
    assert (refused.value.what, refused.value.value) == ("label_seeds", 2)
    scored = {"preparation": {"sparsify": "single-positive", "scores": "other.csv"}}
    with pytest.raises(DataError, match="set by another model's scores"):
        redraw_labels(replace(data, made=scored), 1)
