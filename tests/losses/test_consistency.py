"""Consistency, worked by hand (Verelst 2023 eq. 6–8), and its distances against plain formulas."""

import math

import pytest
import torch
from torch import Tensor

from sparselabel.errors import ConfigError
from sparselabel.losses.consistency import DISTANCES, DistanceName
from sparselabel.losses.registry import make_method
from sparselabel.losses.step import Progress
from tests.losses.steps import build_method, make_step


def plain_jsd(p: float, q: float) -> float:
    def entropy(x: float) -> float:
        return -sum(v * math.log(v) for v in (x, 1 - x) if v > 0)

    return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2


PLAIN = {"l1": lambda p, q: abs(p - q), "l2": lambda p, q: (p - q) ** 2, "jsd": plain_jsd}


def distance(name: DistanceName, logits: Tensor, target: Tensor) -> Tensor:
    return DISTANCES[name](logits, torch.sigmoid(logits), target)


@pytest.mark.parametrize("name", DISTANCES)
def test_distances_equal_their_formulas(name: DistanceName) -> None:
    for score in (0.02, 0.3, 0.5, 0.97):
        for target in (0.0, 0.1, 0.5, 0.9, 1.0):
            logits = torch.tensor(score, dtype=torch.float64).logit()
            found = distance(name, logits, torch.tensor(target, dtype=torch.float64))
            assert float(found) == pytest.approx(PLAIN[name](score, target), abs=1e-12)


@pytest.mark.parametrize("name", DISTANCES)
def test_gradients_are_right_and_finite_everywhere(name: DistanceName) -> None:
    logits = torch.randn(40, dtype=torch.float64, generator=torch.manual_seed(0)).requires_grad_()
    targets = torch.rand(40, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: distance(name, x, targets), logits)
    for value in (100.0, -100.0, 1e4, -1e4):
        for target in (0.0, 0.5, 1.0):
            for dtype in (torch.float32, torch.float64):
                far = torch.tensor(value, dtype=dtype, requires_grad=True)
                found = distance(name, far, torch.tensor(target, dtype=dtype))
                (gradient,) = torch.autograd.grad(found, far)
                assert torch.isfinite(found)
                assert torch.isfinite(gradient)


@pytest.mark.parametrize("name", DISTANCES)
def test_a_target_that_rounding_carried_beyond_1_counts_as_1(name: DistanceName) -> None:
    beyond = torch.tensor(1 + 2**-23)  # as a weighted sum of full cells may end
    found = distance(name, torch.tensor(0.0), beyond)
    assert float(found) == pytest.approx(PLAIN[name](0.5, 1.0), abs=1e-6)


OBSERVED = torch.tensor([[1, -1, 0], [-1, 1, -1]], dtype=torch.int8)
SCORES = [[0.7, 0.4, 0.2], [0.1, 0.9, 0.6]]


def test_cl_by_hand() -> None:
    method = build_method("an+cl", OBSERVED, weight=0.5, momentum=0.8)
    logits = torch.tensor(SCORES, dtype=torch.float64).logit()
    losses = method(make_step(logits, OBSERVED))
    # The running scores are still at their start: 1 for the annotated, 0 elsewhere.
    assert float(losses["consistency"]) == pytest.approx(0.5 * (0.3 + 0.4 + 0.2 + 0.1 + 0.1 + 0.6) / 6)
    method.update(make_step(logits, OBSERVED))
    # s = .8·s + .2·f; the observed negative stays 0.
    running = [[0.94, 0.08, 0.0], [0.02, 0.98, 0.12]]
    again = method(make_step(logits, OBSERVED))["consistency"]
    by_hand = sum(
        abs(f - s) for fs, ss in zip(SCORES, running, strict=True) for f, s in zip(fs, ss, strict=True)
    )
    assert float(again) == pytest.approx(0.5 * by_hand / 6, abs=1e-7)  # s is kept in float32


@pytest.mark.parametrize("name", ["an+cl", "an+scl"])
def test_consistency_joins_after_the_head_epochs_or_the_first_epoch(name: DistanceName) -> None:
    method = build_method(name, OBSERVED)
    logits = torch.zeros(2, 3)
    for epoch, head_epochs, there in ((0, 0, False), (1, 0, True), (2, 3, False), (3, 3, True)):
        step = make_step(logits, OBSERVED, progress=Progress(epoch, 9, head_epochs, 1e-3))
        assert (float(method(step)["consistency"]) > 0) == there


def test_the_target_carries_no_gradient_and_the_term_is_added() -> None:
    logits = torch.tensor(SCORES, dtype=torch.float64).logit().requires_grad_()
    method = build_method("an+scl", OBSERVED, distance="l2", weight=2.0)
    losses = method(make_step(logits, OBSERVED))
    assert set(losses) == {"labels", "consistency"}
    (gradient,) = torch.autograd.grad(losses["consistency"], logits)
    f = torch.tensor(SCORES, dtype=torch.float64)
    start = (OBSERVED == 1).double()
    torch.testing.assert_close(gradient, 2.0 * 2 * (f - start) * f * (1 - f) / 6)


def test_a_method_and_its_term_share_one_memory_of_scores() -> None:
    for name in ("en+cl", "en+scl"):
        memories = build_method(name, OBSERVED, expected_positives=1.5).row_stores()
        assert [key for key in memories if key.endswith("scores")] == [
            "label_loss.rule.expected.scores.scores"
        ]
    assert "terms.consistency.scores.scores" in build_method("an+cl", OBSERVED).row_stores()


def test_epr_keeps_its_own_weight() -> None:
    logits = torch.zeros(2, 3)
    losses = build_method("epr+cl", OBSERVED, expected_positives=1.2, weight=0.0)(make_step(logits, OBSERVED))
    assert float(losses["count"]) == pytest.approx(0.01)  # λ = 1
    assert float(losses["consistency"]) == 0


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="distance` cannot be 'l3': known: jsd, l1, l2"):
        make_method("an+cl", distance="l3")
    with pytest.raises(ConfigError, match="weight must be a number that is not negative, not -1"):
        make_method("an+scl", weight=-1)
    with pytest.raises(ConfigError, match=r"role does not combine with cl, as its label estimates"):
        make_method("role+cl")
