"""Focal, asymmetric and Hill loss, tied to the numbers of the authors' programs."""

import math

import pytest
import torch

from sparselabel.data.labels import UNKNOWN
from sparselabel.errors import ConfigError
from sparselabel.losses.base import (
    ComposedLoss,
    ScaledMean,
    TargetLoss,
    batch_mean,
    batch_sum,
)
from sparselabel.losses.focal_asl_hill import Asymmetric, Hill
from sparselabel.losses.registry import make_method
from sparselabel.losses.target_rules import AssumedNegative
from tests.conftest import Golden
from tests.losses import reweighted_reference as reference
from tests.losses.authors_numbers import (
    cases_of,
    differentiated,
    evaluated,
    golden_numbers,
    inputs,
    same,
)
from tests.losses.steps import build_method, make_step


def test_asl(reweighting: Golden) -> None:
    settings_seen = set()
    for case in cases_of(reweighting, "asl/"):
        logits, observed = inputs(case)
        hyper = case["hyper"]
        settings = (hyper["gamma_pos"], hyper["gamma_neg"], hyper["clip"])
        detached = hyper["detach_focal_weight"]
        settings_seen.add((*settings, detached))
        theirs = differentiated(reference.asl, logits, observed, 1e-8, *settings, detached)
        same(theirs, golden_numbers(case), 1e-9)
        method = ComposedLoss(
            TargetLoss(AssumedNegative(), Asymmetric(*settings, detached)), reduction=batch_sum
        )
        plain = differentiated(reference.asl, logits, observed, 0.0, *settings, detached)
        same(evaluated(method, logits, observed), plain, 1e-12)
        if detached:
            names = ("gamma_pos", "gamma_neg", "margin")
            named = build_method("asl", observed, **dict(zip(names, settings, strict=True)))
            same(evaluated(named, logits, observed), plain, 1e-12)
    assert len(settings_seen) == 12


@pytest.mark.parametrize("margin", [0.0, 1e-300, 1e-45, 1e-8, 0.05, 0.5, 0.999999])
def test_asl_keeps_its_gradient_in_float32(margin: float) -> None:
    logits = torch.tensor([[-100.0, -17, -1, 0, 1, 5, 17, 30, 60, 100]])
    entry_loss = Asymmetric(margin=margin)
    found = []
    for exact in (logits, logits.double()):
        x = exact.clone().requires_grad_()
        losses = entry_loss(x, torch.zeros_like(x), torch.full(x.shape, UNKNOWN))
        (gradient,) = torch.autograd.grad(losses.sum(), x)
        assert torch.isfinite(losses).all()
        assert torch.isfinite(gradient).all()
        found.append((losses.detach(), gradient))
    torch.testing.assert_close(found[0][0].double(), found[1][0], rtol=1e-5, atol=1e-6)
    p, q = torch.sigmoid(logits.double()), torch.sigmoid(-logits.double())
    by_hand = (p - margin).clamp(min=0) ** 4 * q * p / (q + margin)  # (f−m)^γ·d(−log(1−f+m))
    torch.testing.assert_close(found[1][1], by_hand, rtol=1e-12, atol=1e-40)
    if margin < 0.9:  # above, 1 − m has few digits in float32
        torch.testing.assert_close(found[0][1].double(), by_hand, rtol=1e-5, atol=1e-37)


def test_asl_at_its_margin() -> None:
    """A negative costs nothing up to a score of m; from there its gradient is that of −log(1−f+m)."""
    edge = math.log(0.05 / 0.95)
    for dtype, step in ((torch.float32, 1e-3), (torch.float64, 1e-6)):
        logits = torch.tensor([[edge - step, edge + step]], dtype=dtype, requires_grad=True)
        entry_loss = Asymmetric(gamma_neg=0.0)  # other exponents are 0 there
        losses = entry_loss(logits, torch.zeros_like(logits), torch.full(logits.shape, UNKNOWN))
        (gradient,) = torch.autograd.grad(losses.sum(), logits)
        assert losses.tolist()[0] == [0, pytest.approx(0.0475 * step, rel=5e-3)]  # m·(1−m)·step
        assert gradient.tolist()[0] == [0, pytest.approx(0.0475, rel=2e-3)]


def test_asl_of_query2label() -> None:
    """Their own copy of asl: 1000 times the mean, scores clamped at 1e-5; they train it detached."""
    cases = cases_of(Golden("q2l"), "q2l/asl_")
    for case in cases:
        logits, observed = inputs(case)
        hyper = case["hyper"]
        settings = (hyper["gamma_pos"], hyper["gamma_neg"], hyper["clip"])
        detached, scale = hyper["detach_focal_weight"], 1000 / logits.numel()
        theirs = differentiated(reference.asl, logits, observed, hyper["eps"], *settings, detached)
        same((scale * theirs[0], scale * theirs[1]), golden_numbers(case), 1e-9)
        plain = differentiated(reference.asl, logits, observed, 0.0, *settings, detached)
        method = ComposedLoss(
            TargetLoss(AssumedNegative(), Asymmetric(*settings, detached)), reduction=ScaledMean(1000.0)
        )
        found = evaluated(method, logits, observed)
        same(found, (scale * plain[0], scale * plain[1]), 1e-9)
        if detached and settings == (0, 2, 0):
            same(evaluated(build_method("asl", observed, preset="q2l"), logits, observed), found, 1e-12)
    assert len(cases) == 18


def test_query2labels_scale_of_asl() -> None:
    """The sum times 1000 / (B·L), with γ 0 and 2 and no margin (the authors' program)."""
    logits, observed = (
        torch.tensor([[0.3, -1.0], [2.0, 0.5]]),
        torch.tensor([[1, -1], [-1, 1]]).to(torch.int8),
    )
    method = build_method("asl", observed, preset="q2l")
    losses = method(make_step(logits, observed))
    p = torch.sigmoid(logits.double())
    entries = torch.where(observed == 1, -p.log(), -(p**2) * (1 - p).log())
    assert float(losses["labels"]) == pytest.approx(1000 * float(entries.mean()), rel=1e-6)
    with pytest.raises(ConfigError, match="method 'en\\+asl' has no setting 'scale'"):
        make_method("en+asl", scale=1000.0, expected_positives=1.0)
    with pytest.raises(ConfigError, match="scale must be a number above 0, not 0"):
        make_method("asl", scale=0.0)


def test_focal_is_asl_without_margin_and_with_a_gradient_through_the_focus(reweighting: Golden) -> None:
    logits, observed = inputs(reweighting.cases["asl/asl_s0_h1_full"])
    found = evaluated(build_method("focal", observed), logits, observed)
    same(found, differentiated(reference.focal, logits, observed), 1e-12)
    entry_loss = ComposedLoss(TargetLoss(AssumedNegative(), Asymmetric(2.0, 2.0, 0.0, detached=False)))
    same(found, evaluated(entry_loss, logits, observed), 1e-12)


def test_hill(reweighting: Golden) -> None:
    cases = cases_of(reweighting, "hill/hill")
    assert {case["hyper"]["reduction"] for case in cases} == {"sum", "mean"}
    for case in cases:
        logits, observed = inputs(case)
        hyper = case["hyper"]
        mean = hyper["reduction"] == "mean"
        entry_loss = Hill(hyper["gamma"], hyper["margin"], hyper["lamb"])
        method = ComposedLoss(
            TargetLoss(AssumedNegative(), entry_loss), reduction=batch_mean if mean else batch_sum
        )
        same(evaluated(method, logits, observed), golden_numbers(case), 1e-9)
        if not mean:
            plain = differentiated(
                reference.hill, logits, observed, hyper["gamma"], hyper["margin"], hyper["lamb"]
            )
            same(evaluated(method, logits, observed), plain, 1e-12)
        if hyper["lamb"] == 1.5:
            # Alone it is a sum, in a combination the mean.
            settings = {"gamma_pos": hyper["gamma"], "margin": hyper["margin"]}
            named = build_method("an+hill" if mean else "hill", observed, **settings)
            same(evaluated(named, logits, observed), golden_numbers(case), 1e-9)
