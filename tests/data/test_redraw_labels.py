import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparselabel.config import Preparation, Sparsify
from sparselabel.data.dataset import Dataset
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.prepare import prepare
from sparselabel.data.redraw_labels import kinds_of_annotation, redraw_labels, setting_of
from sparselabel.data.scenes import generate as scenes
from sparselabel.errors import ConfigError, DataError


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
    assert refused.value.parameters == ["sparsify", "annotations", "label_seeds"]
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


def test_kinds_of_annotation_by_name() -> None:
    assert kinds_of_annotation(
        ["none", "single-positive,prefer=any/larger", "budget,annotate=I/SP,budget=.02/.050"]
    ) == [
        "none",
        "single-positive,prefer=any",
        "single-positive,prefer=larger",
        "budget,annotate=I,budget=0.02",
        "budget,annotate=I,budget=0.05",
        "budget,annotate=SP,budget=0.02",
        "budget,annotate=SP,budget=0.05",
    ]
    assert setting_of("positive-share,share=0.4") == Sparsify("positive-share", share=0.4)
    assert setting_of("budget,annotate=AB,answers=30") == Sparsify("budget", annotate="AB", answers=30)
    for wrong in (
        "single",  # no such kind
        "single-positive,larger",  # no value
        "single-positive,preference=larger",  # no such setting
        "single-positive,share=0.4",  # for another kind
        "uniform,share=2",
        "uniform,label_seed=2",
        "budget,annotate=XY,budget=0.1",
    ):
        with pytest.raises(ConfigError) as refused:
            kinds_of_annotation([wrong])
        assert (refused.value.what, refused.value.value) == ("annotations", wrong)


@pytest.mark.parametrize("hidden", ["none", "single-positive"])
def test_another_kind_of_labels(tmp_path: Path, hidden: str) -> None:
    data = made(tmp_path, sparsify=hidden)
    truth = data.train.truth.values
    everything = redraw_labels(data, annotation="none")
    assert np.array_equal(everything.train.observed.values, truth)
    assert (everything is data) == (hidden == "none")
    frequent = redraw_labels(data, annotation="single-positive,prefer=frequent")
    counts = np.where(truth == POSITIVE, data.train.truth.counts(), -1)
    kept = frequent.train.observed.values == POSITIVE
    assert (kept.sum(axis=1) == (truth == POSITIVE).any(axis=1)).all()
    assert (counts[kept] == counts.max(axis=1)[kept.any(axis=1)]).all()
    points = redraw_labels(data, 3, "budget,annotate=SP,budget=0.5")
    assert (points.label_seed, points.annotation) == (3, "budget,annotate=SP,budget=0.5")
    assert points.train.seen.is_point.all()
    assert points.made["bought"]["train"]["points"] == len(points.train.seen) > 0
    assert points.made["preparation"]["budget"] == 0.5
    assert redraw_labels(data, 4, points.annotation).train.digest != points.train.digest
    few = redraw_labels(data, annotation="per-class,positives=2,negatives=1")
    assert ((few.train.observed.values == POSITIVE).sum(axis=0) <= 2).all()
    assert (redraw_labels(data, annotation="single-positive") is data) == (hidden == "single-positive")
    with pytest.raises(ConfigError) as refused:
        redraw_labels(data, annotation="budget,annotate=SP,budget=50")
    assert refused.value.parameters[0] == "budget"
