"""PatchML's equations 1 to 5 by hand, in float64, through the registered methods."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError, DataWarning
from sparselabel.losses.base import ComposedLoss, batch_mean, counted_mean
from sparselabel.losses.patch_cluster import ClusterLabels, nearest_cosine
from sparselabel.losses.registry import make_method
from sparselabel.losses.step import Progress, Step
from sparselabel.models.classifier import Output
from tests.losses.steps import build_method, make_step

PROGRESS = Progress(1, 10, 0, 0.1)
FIRST = Progress(0, 10, 0, 0.1)
# Three images, three classes. Image 0: class 0 there with a point, class 1 absent. Image 1: class 2
# there, without a point. Image 2 has no label: it is D^u.
OBSERVED = torch.tensor([[1, 0, -1], [-1, -1, 1], [-1, -1, -1]], dtype=torch.int8)
ZERO = np.zeros((1, 2), np.float32)
POINT = SpatialLabels(np.array([0]), np.array([0], np.int32), np.array([[0.75, 0.25]], np.float32), ZERO)
MAPS = torch.tensor(
    [
        [[[0.0, 2.0], [-1.0, 1.0]], [[1.0, -1.0], [0.0, 0.5]], [[0.0, 0.0], [0.0, 0.0]]],
        [[[3.0, 1.0], [0.0, 0.0]], [[-2.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [2.0, -1.0]]],
        [[[5.0, 5.0], [5.0, 5.0]], [[-4.0, 0.0], [0.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]],
    ],
    dtype=torch.float64,
)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def focal(p: float, gamma: float) -> float:
    """PatchML's L_F with its sign: −(1−p)^γ log p."""
    return -float((1 - p) ** gamma) * math.log(p)


def step(
    maps: Tensor = MAPS,
    observed: Tensor = OBSERVED,
    spatial_labels: SpatialLabels = POINT,
    features: Tensor | None = None,
    progress: Progress = PROGRESS,
    rows: Tensor | None = None,
) -> Step:
    rows = torch.arange(len(maps)) if rows is None else rows
    output = Output(maps.mean(dim=(2, 3)), maps, features)
    return Step(rows, observed, (output,), (ViewGeometry.whole(len(maps)),), progress, spatial_labels)


def losses_of(method: ComposedLoss, **changes: object) -> dict[str, float]:
    losses = method(step(**changes))  # type: ignore[arg-type]
    return {name: float(value) for name, value in losses.items()}


F = torch.sigmoid(MAPS.mean(dim=(2, 3))).tolist()  # image scores
SEEN = [focal(F[0][0], 0), focal(1 - F[0][1], 1), focal(F[1][2], 0)]  # the three observed entries


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


# Features of two numbers on 2 × 2 cells, so that angles can be seen.
def pointing(*degrees: float) -> Tensor:
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()]).view(2, 2, 2)


CELLS = torch.stack([pointing(90, 0, 90, 90), pointing(45, 45, 45, 45), pointing(30, 100, 120, 140)]) * 3.0


def clustered(name: str, **settings: object) -> tuple[ComposedLoss, Step]:
    method = build_method(name, OBSERVED, **settings)
    seen = step(features=CELLS)
    method.begin_epoch(PROGRESS)

    def scan(rows: Tensor | None) -> list[Step]:
        assert rows is not None
        spatial_labels = POINT.take(rows.numpy())
        return [step(MAPS[rows], OBSERVED[rows], spatial_labels, CELLS[rows], rows=rows)]

    method.scan(scan)
    return method, seen


def test_prototypes_are_means_of_annotated_cells_and_make_labels() -> None:
    # Class 0's prototype is its one cell, at 0°; class 1 is absent and class 2 has no mark: no prototypes.
    # Image 2's nearest cell is at 30°: cos 30° = .866, a distance of .134.
    method, _ = clustered("patchml+cluster", near=0.15)
    labels = method.logged_state(torch.tensor([0, 1, 2]))["pseudo_labels"]
    assert labels.tolist() == [[-1, -1, -1], [-1, -1, -1], [1, -1, -1]]
    method, _ = clustered("patchml+cluster", near=0.1)
    assert method.logged_state(torch.tensor([2]))["pseudo_labels"].tolist() == [[-1, -1, -1]]
    method, _ = clustered("patchml+cluster", near=0.1, far=0.13)
    assert method.logged_state(torch.tensor([2]))["pseudo_labels"].tolist() == [[0, -1, -1]]


def test_prototypes_of_whole_images() -> None:
    # Mean features: of image 0 (0.25, 0.75)·3, of image 1 at 45°. Image 2's mean points elsewhere.
    method, _ = clustered("patchml+cluster", prototypes="images", near=0.3)
    mean = CELLS[2].flatten(1).mean(dim=1)
    cosines = [
        float(torch.nn.functional.cosine_similarity(mean, torch.tensor(other, dtype=torch.float64), dim=0))
        for other in ([0.25, 0.75], [1.0, 1.0])
    ]
    wanted = [1 if 1 - c <= 0.3 else 0 if 1 - c > 0.7 else -1 for c in cosines]
    assert method.logged_state(torch.tensor([2]))["pseudo_labels"].tolist() == [[wanted[0], -1, wanted[1]]]
    assert wanted == [1, -1]


def test_equations_4_and_5() -> None:
    method, seen = clustered("patchml+cluster", near=0.15, pseudo_weight=2.0)
    losses = method(seen)
    assert float(losses["labels"]) == pytest.approx(sum(SEEN) / 3, abs=1e-12)
    assert float(losses["pseudo"]) == pytest.approx(2 * focal(F[2][0], 0), abs=1e-12)
    far, seen = clustered("patchml+cluster", near=0.1, far=0.13)
    losses = far(seen)
    assert float(losses["pseudo"]) == pytest.approx(focal(1 - F[2][0], 1), abs=1e-12)  # γ₋, not γ_u
    # In selective mode an unlabeled image has its pseudo labels and nothing else.
    chosen, seen = clustered("csl-i+cluster", near=0.05, far=0.06, prototypes="images")
    assert not chosen.label_loss(seen).counted[2].any()


def test_images_without_labels_take_no_places_of_the_likeliest() -> None:
    # Two annotated images, one place each: (1, 0) at 1 and (0, 2) at 0 are left out, (1, 1) at -.5 is not.
    # Image 2, with 5 and .5, would take two places of three.
    chosen, seen = clustered("csl-i+cluster", likeliest=1)
    assert chosen.label_loss(seen).counted.int().tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 0]]


def test_nobody_looks_where_every_image_has_a_label() -> None:
    with pytest.warns(DataWarning, match="has nothing to do"):
        method = build_method("patchml+cluster", OBSERVED[:2])
    method.begin_epoch(PROGRESS)
    method.scan(lambda rows: pytest.fail("there is nothing to label"))
    losses = losses_of(method, maps=MAPS[:2], observed=OBSERVED[:2], features=CELLS[:2])
    assert losses["pseudo"] == 0


def test_pseudo_labels_begin_when_training_has_settled() -> None:
    method = build_method("patchml+cluster", OBSERVED)
    method.begin_epoch(FIRST)
    method.scan(lambda rows: pytest.fail("nobody looks in the first epoch"))
    assert losses_of(method, progress=FIRST, features=CELLS)["pseudo"] == 0
    with pytest.raises(ConfigError, match=r"PatchCluster looks at all .* criterion\.scan\(predict\)"):
        losses_of(method, features=CELLS)


def test_the_nearest_cell_in_any_batch() -> None:
    generator = torch.manual_seed(0)
    prototypes = torch.randn(5, 16, generator=generator, dtype=torch.float64)
    features = torch.randn(7, 16, 9, generator=generator, dtype=torch.float64)
    wanted = torch.nn.functional.cosine_similarity(prototypes[None, :, :, None], features[:, None], dim=2)
    torch.testing.assert_close(nearest_cosine(prototypes, features), wanted.amax(dim=2))


def test_fixmatch_by_hand() -> None:
    weak = torch.logit(torch.tensor([[0.95, 0.02, 0.5, 0.97]], dtype=torch.float64))
    strong = torch.logit(torch.tensor([[0.6, 0.3, 0.9, 0.2]], dtype=torch.float64)).requires_grad_()
    observed = torch.tensor([[-1, -1, -1, 0]], dtype=torch.int8)
    seen = make_step(weak, observed)
    outputs = (seen.outputs[0], Output(strong))
    seen = Step(seen.rows, observed, outputs, seen.geometries, PROGRESS, seen.spatial_labels)
    losses = build_method("fixmatch", observed, strong_weight=2.0)(seen)
    # Two of three unknown labels are sure; the observed negative has its own loss, in the weak view.
    wanted = 2 * (-math.log(0.6) - math.log(0.7)) / 3
    assert float(losses["strong"].detach()) == pytest.approx(wanted, abs=1e-12)
    assert float(losses["labels"]) == pytest.approx(focal(0.03, 1), abs=1e-12)
    (gradient,) = torch.autograd.grad(losses["strong"], strong)
    torch.testing.assert_close(
        gradient, torch.tensor([[0.6 - 1, 0.3, 0, 0]], dtype=torch.float64) * 2 / 3, rtol=0, atol=1e-12
    )


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
    with pytest.raises(ConfigError, match="fixmatch compares two views"):
        build_method("fixmatch", OBSERVED)(step())
