"""The mixture over label sets, on scores drawn from the model itself."""

import pytest
import torch

from sparselabel.expected_positives.single_positive_em import Observations, fit, initial_parameters


def drawn(images: int = 600, classes: int = 4, rate: float = 0.25) -> tuple[Observations, torch.Tensor]:
    """Scores b + ρ_|y| Σ s_j (m_j − b) + noise of random sets y with one random member annotated, and y."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(3 * images, classes, generator=generator, dtype=torch.float64) < rate
    truth = truth[truth.any(1) & (truth.sum(1) <= 4)][:images]
    annotated = (truth * torch.rand(truth.shape, generator=generator)).argmax(1)
    means = torch.eye(classes, dtype=torch.float64)
    center = means.mean(0)
    diluted = torch.tensor([1.0, 0.7, 0.57, 0.5], dtype=torch.float64)[truth.sum(1) - 1]
    strength = 1 + 0.15 * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    scores = center + diluted[:, None] * ((truth * strength) @ (means - center))
    scores += 0.08 * torch.randn(scores.shape, generator=generator, dtype=torch.float64)
    return Observations(scores, annotated, None, torch.ones(len(truth), dtype=torch.float64)), truth


def test_sets_have_the_annotated_class_first_and_end_at_four() -> None:
    data, _ = drawn(classes=5)
    sets = initial_parameters(data).sets
    assert sorted(sets) == [0, 1, 2, 3, 4]
    assert [len(members) for members in sets[3]] == [1, 4, 6, 4]
    assert all((members[:, 0] == 3).all() for members in sets[3])
    data, _ = drawn(images=400, classes=20, rate=0.1)
    # Of 19 others all make pairs; the 12 that score best make larger sets.
    assert [len(members) for members in initial_parameters(data).sets[0]] == [1, 19, 66, 220]


def test_hidden_classes_are_found() -> None:
    data, truth = drawn()
    parameters = initial_parameters(data)
    posterior = fit(data, parameters, 12, settle=4)
    assert (posterior.present.gather(1, data.annotated[:, None]) > 1 - 1e-9).all()
    assert float(posterior.sizes.sum()) == pytest.approx(600, abs=1e-6)
    assert float(posterior.present.sum() / truth.sum()) == pytest.approx(1, abs=0.05)
    assert ((posterior.present > 0.5) == truth).double().mean() > 0.95
    assert float(parameters.dilution[1]) == pytest.approx(0.7, abs=0.05)
    torch.testing.assert_close(parameters.means, torch.eye(4, dtype=torch.float64), rtol=0, atol=0.1)


def test_a_class_known_to_be_absent_is_in_no_set() -> None:
    data, truth = drawn()
    data.absent = ~truth
    posterior = fit(data, initial_parameters(data), 6, settle=2)
    assert float(posterior.present[~truth].max()) < 1e-3


def test_a_weight_counts_as_so_many_images() -> None:
    data, _ = drawn(images=200)
    data.weight[:100] = 3
    posterior = fit(data, initial_parameters(data), 3, settle=1)
    assert float(posterior.sizes.sum()) == pytest.approx(400, abs=1e-6)
