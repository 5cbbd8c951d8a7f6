"""Methods by name with their settings and presets: losses worked by hand, and what is refused."""

import math
from fractions import Fraction

import pytest

from sparselabel.errors import ConfigError
from sparselabel.losses.entropy_max import EntropyMaximization
from sparselabel.losses.large_loss import LargeLoss
from sparselabel.losses.registry import METHODS, make_method, settings_of
from tests.losses.authors_numbers import (
    OBSERVED,
    SCORES,
    entropy,
    evaluated,
)
from tests.losses.steps import build_method, rule_of


def moved(p: float, by: float) -> float:
    """σ(logit p − by)."""
    return 1 / (1 + (1 - p) / p * math.exp(by))


M, N = moved(0.8, 1.0), moved(0.8, 0.3)


@pytest.mark.parametrize(
    ("name", "settings", "by_hand"),
    [
        ("focal", {}, (-(0.2**2) * math.log(0.8) - 0.3**2 * math.log(0.7) - 0.1**2 * math.log(0.9)) / 3),
        ("asl", {}, -math.log(0.8) - 0.25**4 * math.log(0.75) - 0.05**4 * math.log(0.95)),
        (
            "asl",
            {"gamma_pos": 1.0, "gamma_neg": 2.0, "margin": 0.0},
            -0.2 * math.log(0.8) - 0.3**2 * math.log(0.7) - 0.1**2 * math.log(0.9),
        ),
        ("hill", {}, -((1 - M) ** 2) * math.log(M) + 1.2 * 0.3**2 - math.log(0.9)),
        ("splc", {}, -((1 - M) ** 2) * math.log(M) - 0.3**2 * math.log(0.7) - math.log(0.9)),
        ("splc", {"threshold": 0.2}, -((1 - M) ** 2) * math.log(M) - 0.7**2 * math.log(0.3) - math.log(0.9)),
        ("splc", {"margin": 0.3}, -((1 - N) ** 2) * math.log(N) - 0.3**2 * math.log(0.7) - math.log(0.9)),
        ("ll-r", {"share": 0.1}, (-math.log(0.8) - math.log(0.9)) / 3),
        ("ll-ct", {"share": 0.1}, (-math.log(0.8) - math.log(0.3) - math.log(0.9)) / 3),
        ("ll-cp", {"share": 0.1}, (-math.log(0.8) - math.log(0.3) - math.log(0.9)) / 3),
        ("ll-cp", {"share": 0.0}, (-math.log(0.8) - math.log(0.7) - math.log(0.9)) / 3),
        ("em", {}, (-math.log(0.8) - 0.1 * entropy(0.3) - math.log(0.9)) / 3),
        ("em+apl", {}, (-math.log(0.8) - 0.1 * entropy(0.3) - math.log(0.9)) / 3),
    ],
)
def test_by_hand(name: str, settings: dict[str, float], by_hand: float) -> None:
    loss, _ = evaluated(build_method(name, OBSERVED, **settings), SCORES.logit(), OBSERVED, epoch=1)
    assert float(loss) == pytest.approx(by_hand, abs=1e-12)


def test_wrong_settings_are_refused() -> None:
    for name, settings, why in (
        ("focal", {"gamma_pos": -1.0}, "gamma_pos must be a number that is not negative, not -1.0"),
        (
            "asl",
            {"gamma_neg": math.nan},
            "gamma_neg must be .* not nan",
        ),
        ("asl", {"margin": 1.0}, r"margin of asl is taken off a score: it must be in \[0, 1\), not 1.0"),
        ("hill", {"margin": -0.5}, "margin must be a number that is not negative, not -0.5"),
        ("splc", {"threshold": 1.2}, r"threshold must be in \[0, 1\], not 1.2"),
        ("ll-r", {"share": 20}, r"share must be in \[0, 1\], not 20"),
        ("em", {"entropy_weight": -0.1}, "entropy_weight must be a number that is not negative"),
        ("em+apl", {"soft_weight": -0.1}, "soft_weight must be a number that is not negative, not -0.1"),
        ("gr", {"belief_slope": math.nan}, "belief_slope must be a finite number, not nan"),
        ("gr", {"belief_offset": -math.inf}, "belief_offset must be a finite number, not -inf"),
        ("ll-r", {"preset": "vok"}, "ll-r has no preset 'vok': did you mean 'voc'"),
        ("an", {"preset": "voc"}, "'an' has no setting 'preset': presets are for asl, splc, ll-r"),
    ):
        with pytest.raises(ConfigError, match=why):
            make_method(name, **settings)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.presets])
def test_presets_are_settings_and_what_is_given_beats_them(name: str) -> None:
    known = {"asl": {"q2l"}, "splc": {"coco-75"}}
    data = {"voc", "coco", "nus", "cub"} | ({"boostlu"} if name.startswith("ll-") else set())
    assert set(METHODS[name].presets) == known.get(name, data)
    for values in METHODS[name].presets.values():
        assert set(values) <= set(settings_of(name))
        make_method(name, **values)
    assert float(vars(rule_of(make_method("ll-ct", preset="boostlu")))["share"]) == 0.002
    assert vars(rule_of(make_method("splc+cl", preset="coco-75")))["threshold"] == 0.65
    rule = rule_of(make_method("ll-r", preset="coco", share=0.01))
    assert isinstance(rule, LargeLoss)
    assert rule.share == Fraction(1, 100)
    label_loss = make_method("em+apl", preset="cub").label_loss
    assert isinstance(label_loss, EntropyMaximization)
    assert label_loss.soft_labels is not None
    assert (label_loss.entropy_weight, label_loss.soft_weight) == (0.01, 0.4)
    assert label_loss.soft_labels.warm_up == 3
