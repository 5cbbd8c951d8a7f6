"""The generalized robust loss, tied to the numbers of the authors' program."""

import math
from typing import Any

import pytest
import torch

from sparselabel.errors import ConfigError
from sparselabel.losses.base import ComposedLoss, cross_entropy
from sparselabel.losses.generalized_robust import GeneralizedRobust, Line
from sparselabel.losses.step import Progress
from tests.conftest import Golden
from tests.losses import reweighted_reference as reference
from tests.losses.authors_numbers import (
    OBSERVED,
    SCORES,
    cases_of,
    differentiated,
    evaluated,
    golden_numbers,
    inputs,
    same,
)
from tests.losses.steps import build_method, make_step


def robust(hyper: dict[str, Any]) -> GeneralizedRobust:
    slope, offset = (Line(*hyper["beta_w0_w1_b0_b1"][i : i + 2]) for i in (0, 2))
    first_center, first_width, last_center, last_width = hyper["alpha_mu0_s0_mu1_s1"]
    lines = (slope, offset, Line(first_center, last_center), Line(first_width, last_width))
    return GeneralizedRobust(*lines, hyper["q2"], hyper["q3"])


def test_gr(reweighting: Golden) -> None:
    for case in cases_of(reweighting, "gr/"):
        logits, observed = inputs(case)
        hyper, values = case["hyper"], case["values"]
        moving = (values["w"], values["b"], values["mu"], values["sigma"])
        powers = (hyper["q2"], hyper["q3"])
        theirs = differentiated(reference.gr, logits, observed, 1e-7, *moving, powers)
        same(theirs, golden_numbers(case), 1e-9)
        method = ComposedLoss(robust(hyper))
        method.begin_epoch(Progress(hyper["epoch"] - 1, hyper["num_epochs"], hyper["linear_init"], 0.0))
        plain = differentiated(reference.gr, logits, observed, 0.0, *moving, powers)
        same(evaluated(method, logits, observed, hyper["epoch"] - 1), plain, 1e-12)


@pytest.mark.parametrize("number", range(3))
def test_loops_of_gr(reweighting: Golden, number: int) -> None:
    case = reweighting.cases[f"gr/schedule{number}"]
    logits, observed = inputs(case)
    hyper, label_loss = case["hyper"], robust(case["hyper"])
    method = ComposedLoss(label_loss)
    for epoch in range(hyper["num_epochs"]):
        progress = Progress(epoch, hyper["num_epochs"], hyper["linear_init"], 0.0)
        method.begin_epoch(progress)
        torch.testing.assert_close(
            torch.tensor(label_loss.at, dtype=torch.float64),
            torch.from_numpy(case["outputs"]["w_b_mu_sigma"][epoch]),
            rtol=1e-9,
            atol=1e-12,
        )
        loss = method(make_step(logits.float(), observed, progress=progress))["labels"]
        assert float(loss) == pytest.approx(case["outputs"]["losses"][epoch], rel=1e-5)


def test_gr_by_its_name_has_the_papers_numbers(reweighting: Golden) -> None:
    for preset, hyper in (("voc", "gr/schedule0"), ("coco", "gr/schedule1")):
        observed = torch.tensor([[1, -1]], dtype=torch.int8)
        label_loss = build_method("gr", observed, preset=preset).label_loss
        assert isinstance(label_loss, GeneralizedRobust)
        assert label_loss.lines == robust(reweighting.cases[hyper]["hyper"]).lines
        assert (label_loss.positive_power, label_loss.negative_power) == (0.01, 1.0)


def test_gr_of_a_known_label_is_cross_entropy() -> None:
    logits = torch.tensor([[0.3, -1.2, 2.0]], dtype=torch.float64)
    observed = torch.tensor([[1, 0, 0]], dtype=torch.int8)
    target = (observed == 1).double()
    method, step = build_method("gr", observed), make_step(logits, observed)
    method.begin_epoch(step.progress)
    torch.testing.assert_close(method.label_loss(step).value, cross_entropy(logits, target, observed))


def test_gr_by_hand() -> None:
    # The second of four epochs: w = 2·¼, b = −2, m = .5 + .3·½, s = 2 − 1.5·½.
    method = build_method("gr", OBSERVED)
    method.begin_epoch(Progress(1, 4, 0, 1e-3))
    belief = 1 / (1 + math.exp(-(0.5 * 0.3 - 2)))
    weight = math.exp(-((0.3 - 0.65) ** 2) / (2 * 1.25**2))
    unknown = weight * (belief * (1 - 0.3**0.01) / 0.01 + (1 - belief) * 0.3)
    loss, _ = evaluated(method, SCORES.logit(), OBSERVED, epoch=1)
    assert float(loss) == pytest.approx((-math.log(0.8) + unknown - math.log(0.9)) / 3, abs=1e-12)


def test_gr_refuses_an_epoch_that_nobody_began() -> None:
    method = build_method("gr", OBSERVED)
    steps = [make_step(SCORES.logit(), OBSERVED, progress=Progress(epoch, 4, 0, 1e-3)) for epoch in (0, 1)]
    with pytest.raises(ConfigError, match="a step of epoch 1 came before that epoch began"):
        method(steps[0])
    method.begin_epoch(steps[0].progress)
    method(steps[0])
    with pytest.raises(ConfigError, match="a step of epoch 2 came before that epoch began"):
        method(steps[1])


def test_the_gradient_of_gr_by_hand() -> None:
    logits = torch.tensor([[0.7]], dtype=torch.float64)
    unknown = torch.tensor([[-1]], dtype=torch.int8)
    p = torch.sigmoid(logits)
    method = build_method("gr", unknown)
    method.begin_epoch(Progress(0, 100, 1, 1e-3))
    _, gradient = evaluated(method, logits, unknown)
    belief, weight = torch.sigmoid(torch.tensor(-2.0, dtype=torch.float64)), torch.exp(-((p - 0.5) ** 2) / 8)
    wanted = weight * (-belief * p**0.01 * (1 - p) + (1 - belief) * p * (1 - p))
    torch.testing.assert_close(gradient, wanted)
