"""Budgets of a plan: the share of the sample, and refusals before training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import Preparation
from sparselabel.data.annotation_budget import KINDS, Prices
from sparselabel.data.dataset import Dataset
from sparselabel.data.label_table import LabelTable
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import ConfigError, DataError
from sparselabel.plan.budget import FRACTIONS, budget_of, refuse_data, validation_of
from sparselabel.plan.candidate_runs import simulate
from tests.training.conftest import small_scenes


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """16 training, 4 validation and 6 test scenes of 12 classes."""
    return small_scenes(tmp_path_factory.mktemp("data"), 20, 6, Preparation())


def test_the_sample_gets_the_same_seconds_a_image(data: Dataset) -> None:
    budget = budget_of(data, 10, 16_000, Prices(), FRACTIONS)
    assert budget.seconds == 36.0  # 2.25 s for each of 16 images, as for each of 16,000
    assert budget.everything == pytest.approx(16_000 * 12 / 3600)
    assert budget.share(0.5) == pytest.approx(18 / (16 * 12))
    alone = budget_of(data, 0.01, None, Prices(answer=2), (1, 0.5))
    assert (alone.images, alone.seconds, alone.fractions) == (16, 36.0, (0.5, 1))
    assert alone.share(1) == pytest.approx(36 / (2 * 16 * 12))


@pytest.mark.parametrize(
    ("hours", "images", "fractions", "said", "what", "allowed"),
    [
        (0, None, FRACTIONS, "hours of annotation above 0, not 0: give hours", "budget", None),
        (1, 15, FRACTIONS, "are fewer than the 16 training images", "images", 16),
        (0.06, None, FRACTIONS, "0.05333 hours answer .* 16 images with annotation I", "budget", 0.0533),
        (0.002, None, FRACTIONS, "0.125 of it are 0.9 s for the sample", "budget", 0.0023),
        (0.01, None, (0.5, 2, 1), r"are shares of the budget in \(0, 1\], not 2", "fractions", None),
        (0.01, None, (0.5,), "must have 1", "fractions", None),
        (0.01, None, (1, 1), "names one more than once", "fractions", None),
    ],
)
def test_refused_budgets(
    data: Dataset,
    hours: float,
    images: int | None,
    fractions: tuple[float, ...],
    said: str,
    what: str,
    allowed: float | None,
) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        budget_of(data, hours, images, Prices(), fractions, ["I"])
    assert (error.value.what, error.value.allowed) == (what, allowed)


def test_everything_of_the_dearest_kind_can_be_bought(data: Dataset) -> None:
    assert budget_of(data, 16 * 12 / 3600, None, Prices(), FRACTIONS, ["I"]).share(1) == 1
    spatial_labels, truth = data.train.spatial_labels, data.train.truth.values
    asked, pairs, things = truth.size, int(truth.sum()), len(spatial_labels)
    assert (asked, pairs, things) == (192, 38, 55)
    costs = {"I": 192, "SP": 192 + 1.4 * 38, "SB": 192 + 6 * 38, "AP": 192 + 1.4 * 55, "AB": 192 + 6 * 55}
    budget = budget_of(data, costs["AB"] / 3600, None, Prices(), FRACTIONS)
    assert budget.complete == pytest.approx({kind: cost / 192 for kind, cost in costs.items()})
    assert budget.spent(1, "I") == 1
    assert budget.spent(1, "SP") == pytest.approx(costs["SP"] / 192)
    assert budget.spent(0.5, "AB") == pytest.approx(costs["AB"] / 192 / 2)
    for kind in KINDS:
        bought = simulate(data, budget, kind, 1, 0)[1]
        assert (bought["answers"], bought["seconds"]) == (192, pytest.approx(costs[kind]))
    assert simulate(data, budget, "AB", 1, 0)[1]["boxes"] == 55
    said = "0.145 hours answer every question about 16 images with annotation AB, the dearest"
    with pytest.raises(ConfigError, match=said) as error:
        budget_of(data, 0.16, None, Prices(), FRACTIONS)
    assert (error.value.allowed, error.value.parameters) == (0.145, ["budget", "images"])


def test_judged_by_the_test_split_else_validation(data: Dataset) -> None:
    assert refuse_data(data, ["I", "AB"]) == "test"
    without = replace(data, splits={name: data.splits[name] for name in ("train", "val")})
    assert refuse_data(without, ["I"]) == "val"
    with pytest.raises(DataError, match="neither a test nor a validation split"):
        refuse_data(replace(data, splits={"train": data.train}), ["I"])


def test_validation_is_counted(data: Dataset) -> None:
    assert validation_of(data) == (4, 48)
    assert validation_of(replace(data, splits={"train": data.train})) == (0, 0)


def test_labels_must_be_complete(data: Dataset) -> None:
    values = np.array(data.train.truth.values)
    values[3, 2] = -1
    truth = LabelTable(data.train.truth.ids, data.classes, values)
    incomplete = replace(data, splits=data.splits | {"train": replace(data.train, truth=truth)})
    with pytest.raises(DataError, match="split 'train': 1 of 192 labels are unknown"):
        refuse_data(incomplete, ["I"])


def test_kinds_need_their_marks(data: Dataset) -> None:
    def marked(spatial_labels: SpatialLabels) -> Dataset:
        return replace(
            data, splits=data.splits | {"train": replace(data.train, spatial_labels=spatial_labels)}
        )

    with pytest.raises(DataError, match=r"kind SP needs points or boxes, and .* x, y, w, h\)$"):
        refuse_data(marked(SpatialLabels.none()), ["I", "SP", "AB"])
    old = data.train.spatial_labels
    points = marked(SpatialLabels(old.rows, old.classes, old.centers, np.zeros_like(old.sizes)))
    assert refuse_data(points, ["I", "SP", "AP"]) == "test"
    with pytest.raises(DataError, match=r"kind SB needs boxes, .* or give `kinds=I SP`$"):
        refuse_data(points, ["I", "SP", "SB"])
    with pytest.raises(ConfigError, match="`kinds` must name some of I, SP, SB, AP, AB, each once"):
        refuse_data(data, ["I", "I"])


def test_paths_are_named(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=str(tmp_path)):
        refuse_data(replace(data, folder=tmp_path, splits={"train": data.train}), ["I"])
