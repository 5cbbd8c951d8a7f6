"""The runs of a plan, and what their budgets buy."""

from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import Preparation, TrainConfig
from sparselabel.data.annotation_budget import Prices
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import UNKNOWN
from sparselabel.errors import ConfigError
from sparselabel.plan.budget import Budget, budget_of
from sparselabel.plan.candidate_runs import candidates_of, fraction_in_words, simulate
from tests.training.conftest import small_scenes

METHODS = ("csl-i", "patchml")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_scenes(tmp_path_factory.mktemp("data"), 40, 6, Preparation())


@pytest.fixture(scope="module")
def budget(data: Dataset) -> Budget:
    """100 s of the 384 that all answers cost."""
    return budget_of(data, 100 / 3600, None, Prices(point=2, box=5), (0.5, 1))


def test_what_is_bought(data: Dataset, budget: Budget) -> None:
    answers, about = simulate(data, budget, "I", 1, 0)
    assert about["answers"] == int((answers.train.observed.values != UNKNOWN).sum()) == 100
    assert len(answers.train.seen) == 0
    points, with_points = simulate(data, budget, "SP", 1, 0)
    assert with_points["points"] == with_points["positive"] == len(points.train.seen)
    spent = with_points["answers"] + 2 * with_points["points"]
    assert spent == with_points["seconds"]
    assert 97 < spent <= 100
    _, boxes = simulate(data, budget, "AB", 0.5, 0)
    assert boxes["seconds"] == boxes["answers"] + 5 * boxes["boxes"] <= 50


def test_the_same_draw_asks_the_same_questions(data: Dataset, budget: Budget) -> None:
    answers = simulate(data, budget, "I", 1, 3)[0].train.observed.values
    boxes = simulate(data, budget, "SB", 1, 3)[0].train.observed.values
    asked = boxes != UNKNOWN
    assert 0 < asked.sum() < (answers != UNKNOWN).sum()
    np.testing.assert_array_equal(boxes[asked], answers[asked])
    other = simulate(data, budget, "I", 1, 4)[0].train
    assert (other.observed.values != answers).any()
    assert other.digest != simulate(data, budget, "I", 1, 3)[0].train.digest


def test_labels_and_features_beside_the_data_stay(data: Dataset, budget: Budget) -> None:
    bought = simulate(data, budget, "SP", 1, 0)[0]
    assert bought.folder == data.folder
    assert bought.splits["test"] is data.splits["test"]
    np.testing.assert_array_equal(bought.train.digests, data.train.digests)
    assert (data.train.observed.values != UNKNOWN).all()


def test_methods_and_settings_of_the_runs(data: Dataset, budget: Budget, tmp_path: Path) -> None:
    base = TrainConfig(settings={"patch_weight": 2.0}, seed=7)
    found = candidates_of(data, budget, ["I", "SB"], 2, base, METHODS, tmp_path)
    assert [(one.kind, one.fraction, one.draw, one.run.path.name) for one in found[:5]] == [
        ("I", 0.5, 0, "I-0.5-draw0"),
        ("I", 0.5, 1, "I-0.5-draw1"),
        ("SB", 0.5, 0, "SB-0.5-draw0"),
        ("SB", 0.5, 1, "SB-0.5-draw1"),
        ("I", 1, 0, "I-1-draw0"),
    ]
    assert (found[0].run.method, found[0].run.config.settings) == ("csl-i", {"unknown": "ignore"})
    assert (found[2].run.method, found[2].run.config.settings) == ("patchml", {"patch_weight": 2.0})
    assert str(found[2].run) == "patchml with SB for 1/2 of the budget, draw 0, seed 7"
    told = TrainConfig(settings={"unknown": "selective"})
    assert (
        candidates_of(data, budget, ["I"], 1, told, METHODS, tmp_path)[0].run.config.settings == told.settings
    )
    with pytest.raises(ConfigError, match="csl-i, patchml has a setting 'momentum'"):
        candidates_of(data, budget, ["I"], 1, TrainConfig(settings={"momentum": 0.5}), METHODS, tmp_path)
    with pytest.raises(ConfigError, match="`draws` must be 1 or more, not 0"):
        candidates_of(data, budget, ["I"], 0, base, METHODS, tmp_path)


def test_a_method_that_does_not_look_at_marks_compares_no_annotations(data: Dataset, budget: Budget) -> None:
    for method in ("an", "pu"):  # pu also wants K, which is no help here
        with pytest.raises(ConfigError, match=f"`spatial_method={method}` does not look at points or boxes"):
            candidates_of(data, budget, ("I", "SP"), 1, TrainConfig(), ("csl-i", method), Path("runs"))
    assert candidates_of(data, budget, ["I"], 1, TrainConfig(), ("csl-i", "an"), Path("runs"))  # not used


def test_fractions_in_words() -> None:
    assert [fraction_in_words(value) for value in (0.125, 0.33, 1.0)] == [
        "1/8 of the budget",
        "33 % of the budget",
        "the budget",
    ]
