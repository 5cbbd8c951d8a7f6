import math

import pytest
import torch

from tests.losses.steps import build_method, make_step, targets_of, value_and_gradient


def test_smoothing_worked_by_hand() -> None:
    # One image: positive at f = .8, unknown at f = .3, observed negative at f = .1; ε = .1.
    observed = torch.tensor([[1, -1, 0]], dtype=torch.int8)
    logits = torch.logit(torch.tensor([[0.8, 0.3, 0.1]], dtype=torch.float64))
    loss, gradient = value_and_gradient(build_method("an-ls", observed), logits, observed, None)
    positive = -0.95 * math.log(0.8) - 0.05 * math.log(0.2)
    unknown = -0.05 * math.log(0.3) - 0.95 * math.log(0.7)
    assert float(loss) == pytest.approx((positive + unknown - math.log(0.9)) / 3, abs=1e-12)
    expected = torch.tensor([[0.8 - 0.95, 0.3 - 0.05, 0.1]], dtype=torch.float64) / 3
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


def test_sampled_negatives_are_one_per_image_and_fair() -> None:
    observed = torch.tensor([[1, -1, -1, 0, -1]], dtype=torch.int8).repeat(6000, 1)
    torch.manual_seed(0)
    targets = targets_of(
        build_method("wan", observed, sampled_negatives=True), make_step(torch.zeros(6000, 5), observed)
    )
    assert (targets.weight.sum(dim=1) == 3).all()  # positive, observed negative, one drawn
    assert (targets.weight[:, [0, 3]] == 1).all()
    torch.testing.assert_close(targets.weight.mean(0)[[1, 2, 4]], torch.full((3,), 1 / 3), atol=0.03, rtol=0)
