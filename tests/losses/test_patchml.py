"""The patch loss by hand, in float64."""

import math

import numpy as np
import pytest
import torch

from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError, DataError
from sparselabel.losses.class_selective import Unknown
from sparselabel.losses.patchml import PatchLoss
from sparselabel.losses.step import Progress, Step
from sparselabel.models.classifier import Output

# One image, three classes: 0 has a point in the upper left of 2 × 2 cells, 1 is absent, 2 is unknown.
OBSERVED = torch.tensor([[1, 0, -1]], dtype=torch.int8)
ZERO = np.zeros((1, 2), np.float32)
POINT = SpatialLabels(np.array([0]), np.array([0], np.int32), ZERO + np.float32(0.25), ZERO)
PROGRESS = Progress(0, 1, 0, 0.1)


def step(maps: torch.Tensor, spatial_labels: SpatialLabels = POINT, rows: int = 0) -> Step:
    output = Output(maps.mean(dim=(2, 3)), maps)
    return Step(torch.tensor([rows]), OBSERVED, (output,), (ViewGeometry.whole(1),), PROGRESS, spatial_labels)


def test_labeled_cells_are_counted_and_others_left_out() -> None:
    maps = torch.zeros(1, 3, 2, 2, dtype=torch.float64)
    # Class 0: one cell, log 2. Class 1: four cells, f^1·log 2 = log 2 / 2 each. Together over five cells.
    assert float(PatchLoss()(step(maps))) == pytest.approx((math.log(2) + 4 * math.log(2) / 2) / 5)
    assert float(PatchLoss(weight=3)(step(maps))) == pytest.approx(3 * (3 * math.log(2)) / 5)


def test_the_gradient_reaches_labeled_cells_alone() -> None:
    maps = torch.zeros(1, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(PatchLoss()(step(maps)), maps)
    # −(1−f)/5 at the point, f·f/5 (the power carries no gradient) on the absent class.
    expected = torch.zeros(1, 3, 2, 2, dtype=torch.float64)
    expected[0, 0, 0, 0] = -0.5 / 5
    expected[0, 1] = 0.25 / 5
    torch.testing.assert_close(gradient, expected)


def test_selective_takes_unlikely_cells_of_a_marked_class_for_negative() -> None:
    maps = torch.zeros(1, 3, 2, 2, dtype=torch.float64)
    maps[0, 0] = torch.tensor([[0.0, 3.0], [-1.0, 1.0]])
    # Of three unknown cells of class 0 the likeliest (a quarter of four) is left out; −1 and 1 are negative.
    scores = 1 / (1 + math.e), 1 / (1 + 1 / math.e)
    own = math.log(2) + sum(score**4 * -math.log(1 - score) for score in scores)
    assert float(PatchLoss(unknown="selective")(step(maps))) == pytest.approx((own + 2 * math.log(2)) / 7)


@pytest.mark.parametrize("unknown", ["selective", "negative", "ignore"])
def test_what_a_hole_hides_of_a_marked_thing_is_not_called_absent(unknown: Unknown) -> None:
    """A box over the left of 4 × 4 cells, whose upper half is hidden, and a hidden point in a seen cell."""
    maps = torch.zeros(1, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    hole = torch.tensor([[0.0, 0.0, 0.6, 0.5]])  # of the third column's cells no center
    spatial_labels = SpatialLabels(
        np.array([0, 0]),
        np.array([0, 0], np.int32),
        np.array([[0.25, 0.5], [0.55, 0.3]], np.float32),
        np.array([[0.5, 1.0], [0.0, 0.0]], np.float32),
    )
    whole = ViewGeometry.whole(1)
    seen = Step(
        torch.tensor([0]),
        OBSERVED,
        (Output(maps.mean(dim=(2, 3)), maps),),
        (ViewGeometry(whole.box, whole.flip, hole),),
        PROGRESS,
        spatial_labels,
    )
    (gradient,) = torch.autograd.grad(PatchLoss(unknown=unknown)(seen), maps)
    signs = gradient[0, 0].sign().int().tolist()
    right = {"selective": 0, "negative": 1, "ignore": 0}[unknown]
    # Seen cells of the box are positive, hidden ones and that of the point nothing.
    assert [row[:2] for row in signs] == [[0, 0], [0, 0], [-1, -1], [-1, -1]]
    assert signs[1][2] == 0
    if unknown == "selective":  # of seven unknown cells that are seen four, a quarter of all, are left out
        others = [signs[down][across] for down in range(4) for across in (2, 3)]
        assert (others.count(1), others.count(0)) == (3, 5)
    else:
        assert [row[2:] for row in signs] == [[right, right], [0, right], [right, right], [right, right]]
    # What is absent is absent also where nobody sees it.
    assert (gradient[0, 1] > 0).all()


def test_a_batch_without_labeled_cells_costs_nothing() -> None:
    maps = torch.zeros(1, 3, 2, 2, dtype=torch.float64)
    assert float(PatchLoss()(step(maps, rows=-1))) == 0  # padding


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="patch_weight must be a number that is not negative, not -1"):
        PatchLoss(weight=-1)
    nothing = Step(
        torch.tensor([0]), OBSERVED, (Output(torch.zeros(1, 3)),), (ViewGeometry.whole(1),), PROGRESS
    )
    with pytest.raises(ConfigError, match="give maps="):
        PatchLoss()(nothing)


def test_spatial_labels_that_contradict_the_labels_are_refused() -> None:
    maps = torch.zeros(1, 3, 2, 2)

    def at(row: int, index: int, size: float = 0) -> SpatialLabels:
        return SpatialLabels(np.array([row]), np.array([index], np.int32), ZERO + 0.25, ZERO + size)

    with pytest.raises(DataError, match=r"a point at 0.25, 0.25 of class 1 in row 0 of the step, .* absent"):
        step(maps, at(0, 1))
    with pytest.raises(DataError, match=r"a box at 0.25, 0.25 of class 1 in row 0"):
        step(maps, at(0, 1, 0.5))
    with pytest.raises(
        DataError, match=r"a spatial label has row 5 and class 0, but the labels of the step are 1 × 3"
    ):
        step(maps, at(5, 0))
    with pytest.raises(
        DataError, match=r"a spatial label has row 0 and class 3, but the labels of the step are 1 × 3"
    ):
        step(maps, at(0, 3))
    assert (
        step(maps, at(0, 2)).spatial_labels is not None
    )  # of an unknown class: nobody says that it is not there
