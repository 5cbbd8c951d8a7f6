"""PatchML's equations 4 and 5 by hand, in float64, through the registered methods."""

import pytest
import torch
from torch import Tensor

from sparselabel.errors import ConfigError, DataWarning
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.patch_cluster import nearest_cosine
from sparselabel.losses.step import Step
from tests.losses.patch_steps import FIRST, MAPS, OBSERVED, POINT, PROGRESS, SEEN, F, focal, losses_of, step
from tests.losses.steps import build_method


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
