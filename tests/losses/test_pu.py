"""The likelihood of annotations, worked by hand."""

import math

import pytest
import torch

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.errors import ConfigError
from sparselabel.losses.pu import AnnotationLikelihood
from sparselabel.losses.registry import make_method
from sparselabel.losses.step import Layout
from tests.losses.steps import build_method, make_step


def of_counts(expected: list[float], **settings: float) -> AnnotationLikelihood:
    """Eight rows: class 0 observed twice, class 1 once with an observed negative, class 2 never."""
    observed = torch.full((8, 3), UNKNOWN, dtype=torch.int8)
    observed[:2, 0], observed[2, 1], observed[3, 1] = POSITIVE, POSITIVE, NEGATIVE
    chosen = {"unknown_weight": 1.0, "entropy_weight": 0.0, "margin": 0.0} | settings
    part = AnnotationLikelihood(
        expected, chosen["unknown_weight"], chosen["entropy_weight"], chosen["margin"]
    )
    part.prepare(Layout(torch.arange(8), observed, 8))
    return part


def test_chances_and_margins_follow_from_the_counts() -> None:
    part = of_counts([4, 4, 0], margin=0.5)
    assert part.observed_share.tolist() == [0.5, 0.25, 1.0]
    # Unknown labels: 6, 6 and 8; expected among them: 2, 3 and 0; half per image and one more.
    wanted = [0.5 * math.log(7 / 2.5), 0.5 * math.log(7 / 3.5), 0.5 * math.log(9 / 0.5)]
    assert part.margin.tolist() == pytest.approx(wanted, rel=1e-6)


def test_it_is_the_likelihood_of_the_annotations() -> None:
    part = of_counts([4, 4, 0])
    logits = torch.tensor([[0.3, -1.0, 2.0], [0.3, -1.0, 2.0]], dtype=torch.float64)
    observed = torch.tensor([[POSITIVE, NEGATIVE, UNKNOWN], [UNKNOWN, UNKNOWN, UNKNOWN]])
    f = [1 / (1 + math.exp(-x)) for x in (0.3, -1.0, 2.0)]
    wanted = [
        [-math.log(f[0]), -math.log(1 - f[1]), -math.log(1 - f[2])],
        [-math.log(1 - 0.5 * f[0]), -math.log(1 - 0.25 * f[1]), -math.log(1 - f[2])],
    ]
    got = part(make_step(logits, observed)).value
    assert torch.allclose(got, torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=1e-12)


def test_margin_entropy_and_weight() -> None:
    part = of_counts([4, 4, 0], unknown_weight=0.5, entropy_weight=0.2, margin=0.5)
    logits = torch.tensor([[0.3, 0.3, 0.3]], dtype=torch.float64)
    f = 1 / (1 + math.exp(-0.3))
    entropy = -f * math.log(f) - (1 - f) * math.log(1 - f)
    got = part(make_step(logits, torch.tensor([[POSITIVE, UNKNOWN, UNKNOWN]]))).value[0]
    margin = float(part.margin[0])
    assert got[0].item() == pytest.approx(math.log1p(math.exp(margin - 0.3)), rel=1e-9)
    assert got[1].item() == pytest.approx(-0.5 * math.log(1 - 0.25 * f) - 0.2 * entropy, rel=1e-9)
    assert got[2].item() == pytest.approx(-0.5 * math.log(1 - f) - 0.2 * entropy, rel=1e-9)


def test_where_everything_is_annotated_it_is_assumed_negative() -> None:
    observed = torch.full((6, 2), UNKNOWN, dtype=torch.int8)
    observed[:3, 0], observed[3:, 1] = POSITIVE, POSITIVE
    ours = build_method(
        "pu", observed, expected_positives=1.0, unknown_weight=1.0, entropy_weight=0.0, margin=0.0
    )
    plain = build_method("an", observed)
    logits = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    step = make_step(logits, observed)
    assert ours(step)["labels"].item() == pytest.approx(plain(step)["labels"].item(), rel=1e-12)


def test_a_model_that_says_yes_everywhere_is_pulled_down() -> None:
    observed = torch.full((40, 1), UNKNOWN, dtype=torch.int8)
    observed[:10] = POSITIVE  # of 20 that show it: a third of the unknown ones do
    method = build_method("pu", observed, expected_positives=[20.0])
    bias = torch.full((1,), 6.0, dtype=torch.float64, requires_grad=True)
    losses = method(make_step(bias.expand(40, 1), observed))
    losses["labels"].backward()
    assert bias.grad is not None
    assert bias.grad.item() > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"margin": 1.0}, "margin of pu must be in \\[0, 1\\), not 1.0"),
        ({"unknown_weight": -1.0}, "unknown_weight must be a number that is not negative, not -1.0"),
        ({"entropy_weight": math.nan}, "entropy_weight must be a number that is not negative, not nan"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_method("pu", expected_positives=1.5, **settings)


def test_it_needs_to_know_how_many() -> None:
    with pytest.raises(ConfigError, match="needs expected_positives"):
        make_method("pu")
