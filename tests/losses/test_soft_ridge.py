"""Soft labels and the head that is computed from them."""

import numpy as np
import pytest
import torch
from torch import Tensor

from sparselabel.errors import ConfigError, DataWarning
from sparselabel.losses.soft_ridge import Ridge, soft, solve_head
from sparselabel.losses.sparse_loss import SparseLoss
from sparselabel.losses.step import LabelRows
from sparselabel.metrics.average_precision import average_precision


def made_up(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features (N, 24), and labels (N, 6) that they tell up to noise: 2.3 in an image."""
    random = torch.Generator().manual_seed(seed)
    weight = torch.randn(24, 6, generator=torch.Generator().manual_seed(5))
    features = torch.randn(count, 24, generator=random)
    logits = features @ weight / 2 - 1
    return features, (torch.rand(count, 6, generator=random) < torch.sigmoid(2 * logits)).to(torch.int8)


def one_label(truth: Tensor) -> Tensor:
    """One positive of each image that has some; all else is unknown."""
    noise = torch.rand(truth.shape, generator=torch.Generator().manual_seed(7))
    chosen = (noise * truth).argmax(1)
    observed = torch.full_like(truth, -1)
    some = truth.any(1)
    observed[some, chosen[some]] = 1
    return observed


FEATURES, TRUTH = made_up(1500)
OBSERVED = one_label(TRUTH)


def test_scores_without_an_image_are_those_of_a_model_that_never_saw_it() -> None:
    features, targets = FEATURES[:60].double(), TRUTH[:60].double()
    fit = Ridge(features).fit(targets, 2.0)
    unit = (features - features.mean(0)).square().sum() / 60
    for left_out in (0, 37):
        # The center is that of all features, as leaving one out moves it by a sixtieth.
        rest = torch.arange(60) != left_out
        x = torch.cat([features - features.mean(0), torch.ones(60, 1, dtype=torch.float64)], dim=1)
        penalty = 2.0 * unit * torch.eye(25, dtype=torch.float64)
        penalty[-1, -1] = 0
        solved = torch.linalg.solve(x[rest].T @ x[rest] + penalty, x[rest].T @ targets[rest])
        torch.testing.assert_close(fit.scores[left_out], x[left_out] @ solved, atol=1e-6, rtol=1e-6)


def test_logits_have_the_least_penalized_cross_entropy() -> None:
    features = FEATURES[:300].double() * torch.logspace(-1, 1, 24, dtype=torch.float64)
    targets = torch.rand(300, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    targets[:, 0] = targets[:, 0] > 0.99  # rare: gradients are slow there
    ridge = Ridge(features)
    weight, offset = (part.clone().requires_grad_() for part in ridge.logistic(targets, 0.5))
    penalty = 0.5 * (features - features.mean(0)).square().sum() / 300 / 2
    logits = (features - features.mean(0)) @ ridge.vectors @ weight + offset
    entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="sum")
    slopes = torch.autograd.grad(entropy + penalty * weight.square().sum(), (weight, offset))
    # The weights' curvature is at least the penalty's, so no others gain more than this.
    assert float(slopes[0].square().sum() / (4 * penalty)) < 1e-4 * len(features)
    assert float(slopes[1].abs().max()) < 0.5  # positives counted too many or too few


def test_cross_entropy_counts_for_more_with_more_images() -> None:
    def distance(images: int) -> float:
        features, labels = FEATURES[:images], TRUTH[:images]
        ridge = Ridge(features)
        weight = (ridge.vectors @ ridge.logistic(labels.float(), 0.5)[0]).T
        solved = solve_head(features, labels).weight
        return float((solved - weight).norm() / weight.norm())

    assert distance(1500) < distance(150)


def test_one_label_in_each_image_is_enough_to_rank_and_to_count() -> None:
    solved = solve_head(FEATURES, OBSERVED)
    test_features, test_truth = made_up(2000, seed=1)
    logits = test_features @ solved.weight.T + solved.bias
    negative = Ridge(FEATURES)
    assumed = negative.vectors @ negative.fit((OBSERVED == 1).float(), 1.0).coefficients
    best = solve_head(FEATURES, TRUTH)
    of_soft, of_an, of_all = (
        average_precision(one.numpy(), test_truth.numpy()).mean()
        for one in (logits, test_features @ assumed, test_features @ best.weight.T + best.bias)
    )
    assert of_an < of_soft < of_all
    assert of_soft == pytest.approx(0.88, abs=0.01)
    counted = float(torch.sigmoid(logits).sum(1).mean())
    assert counted == pytest.approx(float(test_truth.sum(1).float().mean()), rel=0.3)


@pytest.mark.parametrize("of_class", [True, False])
def test_expected_positives_are_counted_on_for_the_most_part(of_class: bool) -> None:
    present, observed = TRUTH.sum(0), (OBSERVED == 1).sum(0)
    told = present if of_class else float(present.sum()) / len(TRUTH)
    solved = solve_head(FEATURES, OBSERVED, told)
    counted = torch.sigmoid(FEATURES @ solved.weight.T + solved.bias).sum(0)
    expected = present if of_class else observed * present.sum() / observed.sum()
    believed = observed + 0.7 * (expected - observed)
    torch.testing.assert_close(counted, believed, rtol=0.05, atol=0)
    few = solve_head(FEATURES, OBSERVED, 0.5)  # fewer than are observed: nothing is hidden
    counted = torch.sigmoid(FEATURES @ few.weight.T + few.bias).sum(0)
    torch.testing.assert_close(counted, observed.float(), rtol=0.05, atol=0)


def test_expected_positives_that_are_refused() -> None:
    with pytest.raises(ConfigError, match="above 0") as raised:
        soft(expected_positives=-1)
    assert raised.value.what == "expected_positives"
    for too_many, allowed in ((6.5, 6), ((2000.0,) * 6, 1500)):
        with pytest.warns(DataWarning), pytest.raises(ConfigError, match="at most") as raised:
            SparseLoss("soft", OBSERVED, expected_positives=too_many)
        assert raised.value.allowed == allowed


def test_complete_labels_are_learned_as_they_are() -> None:
    solved = solve_head(FEATURES, TRUTH)
    scores = torch.sigmoid(FEATURES @ solved.weight.T + solved.bias)
    torch.testing.assert_close(scores.mean(0), TRUTH.float().mean(0), atol=0.01, rtol=0)


def test_observed_negatives_are_no_evidence_of_hidden_positives() -> None:
    negatives = torch.where(TRUTH == 0, 0, OBSERVED).to(torch.int8)
    solved, plain = solve_head(FEATURES, negatives), solve_head(FEATURES, OBSERVED)
    right, other = (
        float((torch.sigmoid(FEATURES @ one.weight.T + one.bias) - TRUTH).square().mean())
        for one in (solved, plain)
    )
    assert right < other


def test_what_is_never_observed_or_constant_is_no_number_that_is_not_finite() -> None:
    features, observed = FEATURES[:40].clone(), OBSERVED[:40].clone()
    features[:, 3] = 7.0
    observed[:, 2] = -1
    observed[:, 4] = 1
    solved = solve_head(features, observed)
    assert bool(solved.weight.isfinite().all() and solved.bias.isfinite().all())
    scores = torch.sigmoid(features @ solved.weight.T + solved.bias)
    assert float(scores[:, 2].max()) < 0.1
    assert float(scores[:, 4].min()) > 0.9


def test_labels_that_do_not_vary_are_learned_as_they_are() -> None:
    for features, observed in ((FEATURES[:1], OBSERVED[:1]), (FEATURES[:40], torch.ones_like(OBSERVED[:40]))):
        solved = solve_head(features, observed)
        scores = torch.sigmoid(features @ solved.weight.T + solved.bias)
        assert float(scores[observed == 1].min()) > 0.5


def test_more_features_than_images_have_the_regression_of_the_features_alone() -> None:
    features, targets = FEATURES[:40], OBSERVED[:40].float()
    wide = torch.cat([features, torch.zeros(40, 24)], dim=1)
    narrow, widened = Ridge(features).fit(targets, 2.0), Ridge(wide).fit(targets, 2.0)
    torch.testing.assert_close(widened.scores, narrow.scores)
    weight = Ridge(wide).vectors @ widened.coefficients
    torch.testing.assert_close(weight[:24], Ridge(features).vectors @ narrow.coefficients)


def test_classes_in_blocks_and_labels_in_rows_change_little(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparselabel.data.labels import SparseLabels

    whole = solve_head(FEATURES, OBSERVED)
    images, classes = np.nonzero(OBSERVED.numpy() >= 0)
    known = OBSERVED.numpy()[images, classes]
    rows = LabelRows(SparseLabels.of_entries(images, classes, known, (len(OBSERVED), OBSERVED.shape[1])))
    torch.testing.assert_close(solve_head(FEATURES, rows), whole)
    monkeypatch.setattr("sparselabel.losses.soft_ridge.LABELS_AT_ONCE", 3 * len(FEATURES))
    halves = solve_head(FEATURES, OBSERVED)
    correlation = np.corrcoef(halves.weight.flatten(), whole.weight.flatten())[0, 1]
    assert correlation > 0.99
