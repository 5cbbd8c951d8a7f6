"""PatchML's equations 1 to 5 by hand, in float64, through the registered methods."""

import math

import numpy as np
import pytest
import torch

from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import ConfigError, DataWarning
from sparselabel.losses.base import batch_mean, counted_mean
from sparselabel.losses.patch_cluster import ClusterLabels
from sparselabel.losses.registry import make_method
from tests.losses.patch_steps import MAPS, OBSERVED, SEEN, F, focal, losses_of, sigmoid
from tests.losses.steps import build_method


def test_equation_1_in_its_three_modes() -> None:
    ignore = build_method("csl-i", OBSERVED, unknown="ignore")
    assert losses_of(ignore)["labels"] == pytest.approx(sum(SEEN), abs=1e-12)
    unknown = {
        (row, c): focal(1 - F[row][c], 4) for row, c in [(0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    }
    negative = build_method("csl-i", OBSERVED, unknown="negative")
    assert losses_of(negative)["labels"] == pytest.approx(sum(SEEN) + sum(unknown.values()), abs=1e-12)
    # One an image: of six unknown entries the three likeliest are left out, f = 5, 1 and .5 here.
    chosen = build_method("csl-i", OBSERVED, likeliest=1)
    kept = sum(unknown[place] for place in [(0, 2), (1, 1), (2, 1)])
    assert losses_of(chosen)["labels"] == pytest.approx(sum(SEEN) + kept, abs=1e-12)
    # Class 1 is frequent: its unknown entries are left out too.
    prior = build_method("csl-i", OBSERVED, likeliest=1, prior=[0.1, 0.6, 0.5])
    assert losses_of(prior)["labels"] == pytest.approx(sum(SEEN) + unknown[0, 2], abs=1e-12)


def cells_of(place: tuple[int, int]) -> list[float]:
    return [sigmoid(x) for x in MAPS[place].flatten().tolist()]


def test_equations_2_and_3() -> None:
    found = losses_of(build_method("patchml", OBSERVED, patch_weight=0.5, positive_cell_weight=3.0))
    # The image level: three labels. Cells: one of class 0 (row 0, column 1: logit 2), four of class 1.
    assert found["labels"] == pytest.approx(sum(SEEN) / 3, abs=1e-12)
    cells = 3 * focal(sigmoid(2.0), 0) + sum(focal(1 - p, 1) for p in cells_of((0, 1)))
    assert found["patches"] == pytest.approx(0.5 * cells / 5, abs=1e-12)


def test_cells_that_nobody_has_labeled() -> None:
    labeled = focal(sigmoid(2.0), 0) + sum(focal(1 - p, 1) for p in cells_of((0, 1)))
    selective = losses_of(build_method("csl-p", OBSERVED))
    # Of class 0's unknown cells (0, −1, 1) one, a quarter of four, is left out: the likeliest.
    unlikely = focal(1 - sigmoid(0.0), 4) + focal(1 - sigmoid(-1.0), 4)
    assert selective["patches"] == pytest.approx((labeled + unlikely) / 7, abs=1e-12)
    negative = losses_of(
        build_method("patchml", OBSERVED, unknown_cells="negative", unknown_cell_weight=0.25)
    )
    places = [(0, 2), (1, 0), (1, 1), (1, 2)]  # the image without labels has no part in it
    unknown = [p for place in places for p in cells_of(place)] + [sigmoid(x) for x in (0.0, -1.0, 1.0)]
    wanted = labeled + 0.25 * sum(focal(1 - p, 4) for p in unknown)
    assert negative["patches"] == pytest.approx(wanted / (5 + 16 + 3), abs=1e-12)


@pytest.mark.parametrize("name", ["patchml", "csl-p", "csl-i", "patchml+cl"])
@pytest.mark.parametrize("unknown", ["ignore", "selective", "negative"])
def test_images_without_labels_change_nothing(name: str, unknown: str) -> None:
    """They are D^u of equation 5; the class-aware selective loss itself knows no such set."""
    if name == "csl-i" and unknown != "ignore":
        return
    settings = {"unknown": unknown, "likeliest": 1}
    with_them = losses_of(build_method(name, OBSERVED, **settings))
    without = losses_of(build_method(name, OBSERVED[:2], **settings), maps=MAPS[:2], observed=OBSERVED[:2])
    for key in without:
        if key != "consistency":
            assert with_them[key] == pytest.approx(without[key], abs=1e-12)


def test_boxes_and_points_together_and_the_rule_of_boxes() -> None:
    centers = np.array([[0.75, 0.25], [0.35, 0.7]], np.float32)
    sizes = np.array([[0, 0], [0.7, 0.6]], np.float32)
    spatial_labels = SpatialLabels(np.array([0, 1]), np.array([0, 2], np.int32), centers, sizes)
    absent = sum(focal(1 - p, 1) for p in cells_of((0, 1)))
    # The box (0..0.7, 0.4..1) covers the lower left cell; of its right neighbor and the upper left one less.
    half = losses_of(build_method("patchml", OBSERVED), spatial_labels=spatial_labels)["patches"]
    assert half == pytest.approx((focal(sigmoid(2.0), 0) + absent + focal(sigmoid(2.0), 0)) / 6, abs=1e-12)
    met = losses_of(build_method("patchml", OBSERVED, box_rule="any"), spatial_labels=spatial_labels)[
        "patches"
    ]
    cells = sum(focal(p, 0) for p in cells_of((1, 2)))
    assert met == pytest.approx((focal(sigmoid(2.0), 0) + absent + cells) / 9, abs=1e-12)


def test_scales_beside_other_terms() -> None:
    assert build_method("csl-i+cl", OBSERVED).reduction is counted_mean
    assert build_method("patchml+scl", OBSERVED).reduction is counted_mean
    assert make_method("iu+cluster").reduction is batch_mean
    box = make_method("patchml+cluster", box_rule="any")
    labels = next(part for part in box.parts() if isinstance(part, ClusterLabels))
    assert labels.box_rule == "any"
    assert str(box.terms["patches"].box_rule) == "any"
    assert labels.needs.spatial_labels
    assert not make_method("csl-i+cluster").needs.spatial_labels


def test_wrong_use_is_explained() -> None:
    for name, settings, why in (
        ("csl-i", {"unknown": "maybe"}, "unknown` cannot be 'maybe': known: ignore, negative, selective"),
        ("csl-i", {"prior": "auto"}, "prior must be a number for each class, not 'auto'"),
        ("patchml", {"unknown_cells": "no"}, "unknown_cells` cannot be 'no'"),
        ("patchml", {"box_rule": "all"}, "box_rule` cannot be 'all': known: any, half"),
        ("patchml+cluster", {"prototypes": "rows"}, "prototypes` cannot be 'rows': known: cells, images"),
        ("patchml+cluster", {"pseudo_weight": -1}, "pseudo_weight must be a number that is not negative"),
        ("fixmatch", {"sure_positive": 0.05}, "sure_negative must be below sure_positive, both scores"),
        ("fixmatch", {"strong_weight": math.nan}, "strong_weight must be a number that is not negative"),
    ):
        with pytest.raises(ConfigError, match=why):
            make_method(name, **settings)
    with pytest.raises(ConfigError, match=r"ignore mode leaves unknown labels out .* have none"):
        build_method("patchml", torch.tensor([[1, -1]]))
    with pytest.warns(DataWarning, match="every training image has an observed label"):
        build_method("patchml+cluster", OBSERVED[:2])
