"""The class-aware selective loss against the numbers of its authors' program, and by hand."""

import math
from typing import Any

import pytest
import torch

from sparselabel.errors import ConfigError
from sparselabel.method.base import Method, batch_sum
from sparselabel.method.layout import Layout
from sparselabel.method.selective import SelectiveFocal, SelectiveUnknown
from tests.conftest import Golden
from tests.method.steps import make_step

CASES = Golden("csl").cases


def method_of(case: dict[str, Any]) -> Method:
    hyper = case["hyper"]
    prior = case["inputs"]["prior"].tolist() if hyper.get("use_prior") else None
    reading = SelectiveUnknown(
        hyper["mode"], hyper.get("likelihood_topk", 5), prior, hyper.get("prior_threshold", 0.5)
    )
    element = SelectiveFocal(
        hyper["gamma_pos"],
        hyper["gamma_neg"],
        hyper["gamma_unann"],
        hyper["alpha_pos"],
        hyper["alpha_neg"],
        hyper["alpha_unann"],
        hyper["clip"],
    )
    return Method(reading, element, reduction=batch_sum)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_authors_program(name: str) -> None:
    case = CASES[name]
    logits = torch.from_numpy(case["inputs"]["logits"]).double().requires_grad_()
    observed = torch.from_numpy(case["inputs"]["labels"]).to(torch.int8)
    losses, targets = method_of(case)(make_step(logits, observed))
    # Their weights and exponents here are exact in float32; the clamp of scores at 1e-8 moves nothing.
    assert float(losses["labels"].detach()) == pytest.approx(case["values"]["loss64"], rel=1e-12)
    (gradient,) = torch.autograd.grad(losses["labels"], logits)
    expected = torch.from_numpy(case["outputs"]["grad64"])
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12 * float(expected.abs().max()))
    if "weights" in case["outputs"]:
        assert torch.equal(targets.weight.float(), torch.from_numpy(case["outputs"]["weights"]).float())


def test_by_hand() -> None:
    # Scores ½ everywhere; positive, negative and unknown with exponents 1, 2, 3: ½, ¼, ⅛ of log 2.
    logits, observed = torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[1, 0, -1]], dtype=torch.int8)
    losses = SelectiveFocal(1, 2, 3)(logits, (observed == 1).double(), observed)
    assert losses.tolist()[0] == pytest.approx([math.log(2) / 2, math.log(2) / 4, math.log(2) / 8])


@pytest.mark.parametrize("margin", [0.0, 0.03])
def test_numbers_that_float32_does_not_have(margin: float) -> None:
    logits, observed = (
        torch.tensor([[0.7, -0.4, 1.1]], dtype=torch.float64),
        torch.tensor([[1, 0, -1]], dtype=torch.int8),
    )
    element = SelectiveFocal(0.1, 1.3, 2.7, 0.9, 0.6, 0.2, margin)
    found = element(logits, (observed == 1).double(), observed).tolist()[0]
    positive, negative, unknown = (1 / (1 + math.exp(-logit)) for logit in (0.7, -0.4, 1.1))
    negative, unknown = negative - margin, unknown - margin
    assert found == pytest.approx(
        [
            -0.9 * (1 - positive) ** 0.1 * math.log(positive),
            -0.6 * negative**1.3 * math.log(1 - negative),
            -0.2 * unknown**2.7 * math.log(1 - unknown),
        ],
        rel=1e-14,
    )


def test_finite_at_large_logits() -> None:
    logits = torch.tensor([[100.0, -100.0, 100.0, -100.0, 100.0]], requires_grad=True)
    observed = torch.tensor([[1, 1, 0, 0, -1]], dtype=torch.int8)
    losses = SelectiveFocal()(logits, (observed == 1).float(), observed)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert torch.isfinite(losses).all()
    assert torch.isfinite(gradient).all()


def test_refusals() -> None:
    with pytest.raises(
        ConfigError, match="likeliest is a number of unknown labels a picture, 0 or more, not -1: 0 leaves"
    ):
        SelectiveUnknown(likeliest=-1)
    with pytest.raises(ConfigError, match="prior must have a number for each of 2 classes, not 1"):
        SelectiveUnknown(prior=[0.1]).prepare(Layout(torch.arange(1), torch.zeros(1, 2, dtype=torch.int8), 1))
