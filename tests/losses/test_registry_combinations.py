"""Combined names: entry losses, consistency and other terms."""

import functools
import inspect
import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from sparselabel.errors import ConfigError
from sparselabel.losses.base import Needs, batch_mean
from sparselabel.losses.entropy_max import EntropyMaximization
from sparselabel.losses.focal_asl_hill import Asymmetric, Focal, Hill
from sparselabel.losses.registry import (
    CONSISTENCY,
    METHODS,
    UNLABELED,
    Combination,
    combinations,
    make_method,
    needs_of,
    parse,
    setting_docs,
    settings_of,
    with_entry_losses,
)
from sparselabel.losses.running_scores import RunningScores
from sparselabel.losses.step import Progress
from tests.losses.steps import (
    PROGRESS,
    build_method,
    entry_loss_of,
    make_step,
    rule_of,
    showing,
    targets_of,
    value_and_gradient,
)

OBSERVED = torch.tensor([[1, -1, 0], [-1, 1, -1]], dtype=torch.int8)
SCORES = torch.tensor([[0.7, 0.4, 0.2], [0.1, 0.9, 0.6]], dtype=torch.float64)
ALL = list(combinations())


def needed(name: str) -> dict[str, Any]:
    return {"expected_positives": 1.5} if "expected_positives" in settings_of(name) else {}


def test_names_are_taken_apart() -> None:
    assert parse("en") == Combination("en")
    assert parse("em+apl") == Combination("em+apl")
    assert parse("em+apl+scl") == Combination("em+apl", None, None, "scl")
    assert parse("asl") == Combination("asl")
    assert parse("en+asl") == Combination("en", "asl")
    assert parse("en+asl+scl") == Combination("en", "asl", None, "scl")
    assert parse("hill+cl") == Combination("hill", None, None, "cl")
    assert parse("fixmatch") == Combination("fixmatch")
    assert parse("patchml+cluster") == Combination("patchml", None, "cluster")
    assert parse("iu+asl+fixmatch+cl") == Combination("iu", "asl", "fixmatch", "cl")
    assert all(parse(name).name == name for name in [*METHODS, *ALL])
    assert len(set(ALL) | set(METHODS)) == len(ALL) + len(METHODS)


def test_what_combines() -> None:
    # 14 methods take 4 entry losses, 13 have only their own; all but role take consistency.
    # iu, csl-i, patchml and csl-p take cluster or fixmatch too.
    assert len(ALL) == 13 * (4 * 3 - 1) + (4 * 3 * 3 - 1) + 9 * 2 + 3 * (3 * 3 - 1)
    assert {"an+cl", "epr+scl", "en+asl+scl", "hill+scl", "bce+focal", "gr+cl", "ll-cp+scl"} <= set(ALL)
    assert {"splc+asl", "splc+hill+scl", "ll-r+focal", "ll-ct+asl+cl", "ll-cp+hill"} <= set(ALL)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "role+asl",
            r"role does not combine with the entry loss asl, as its estimates are those of cross-ent",
        ),
        ("epr+asl", r"epr does not combine with the entry loss asl, as it has no loss on unknown labels"),
        ("role+scl", r"role does not combine with scl, as its label estimates"),
        (
            "epr+hill",
            r"epr does not .*; these do: bce, bce-ls, iu, iun, an, an-ls, wan, pseudo, splc, en, ep, ll-r,",
        ),
        (
            "asl+focal",
            r"asl does not combine with the entry loss focal, as it brings an entry loss of its own",
        ),
        ("em+asl", r"em does not .* an unknown label costs its entropy there"),
        ("gr+asl+cl", r"gr does not combine with the entry loss asl"),
        (
            "patchml+asl",
            r"patchml does not combine with the entry loss asl, as it brings an entry loss of its own",
        ),
        ("an+cluster", r"an does not combine with cluster, .* leaves out, as iu, csl-i, patchml, csl-p can"),
        ("fixmatch+cluster", r"fixmatch does not combine with cluster"),
        ("patchml+scl+cluster", r"stand in the order METHOD\+.*: write patchml\+cluster\+scl "),
        ("en+slc", r"there is no method 'en\+slc': did you mean 'en\+scl'\? known: an, an-ls, asl,"),
        (
            "en+asl+focal",
            r"^en\+asl\+focal: asl and focal are each the loss of one entry, .*: take one",
        ),
        ("en+asl+hill+cl", r"asl and hill are each the loss of one entry"),
        (
            "en+cl+scl",
            r"^en\+cl\+scl: cl and scl each hold the model to what it said before, and a",
        ),
        ("iu+cluster+fixmatch", r"cluster and fixmatch each put images without labels to use"),
        ("en+splc", r"en and splc each say what an unknown label counts as, and a method has one: take one"),
        ("en+em+apl", r"en and em\+apl each say what an unknown label counts as"),
        ("pu+scl+en", r"pu and en each say what"),
        (
            "auto",
            r"^auto is what `train` chooses, and no method: soft or gr .*, en\+scl .*: name one of these$",
        ),
        ("scl+en", r"^scl\+en: the parts of a name stand in the order .*CONSISTENCY: write en\+scl "),
        ("asl+en+scl", r"write en\+asl\+scl "),
        ("asl+ll-r", r"write ll-r\+asl "),
        ("asl+epr", r"^epr\+asl: epr does not combine with the entry loss asl"),  # in neither order
        ("scl+role", r"^role\+scl: role does not combine with scl, as its label estimates"),
        ("en+boostlu+scl", r"BoostLU is a part of the head, .*: give `method=en\+scl` and `boost=5`"),
        ("boostlu", r"give `method=an` and `boost=5`"),
        ("scl+boost", r"^scl: scl is added to a method: name that first, as in en\+scl"),
        ("scl", r"^scl: scl is added to a method: name that first, as in en\+scl"),
        ("cluster", r"as in iu\+cluster"),
        ("en+xyz", r"there is no method 'en\+xyz'.*some combine: METHOD\+ENTRY_LOSS\+CONSISTENCY"),
        ("+scl", r"there is no method '\+scl'"),
        ("", r"there is no method ''"),
    ],
)
def test_the_rest_is_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_method(name)


def refusal(name: str) -> str:
    try:
        parse(name)
    except ConfigError as error:
        return str(error)
    return ""


def test_any_two_known_parts_are_a_method_or_refused_with_a_reason() -> None:
    known = [*METHODS, *CONSISTENCY, *UNLABELED, "boostlu"]
    said = [refusal(f"{one}+{two}") for one in known for two in known]
    assert not any("there is no method" in words for words in said)


def test_a_combination_by_hand() -> None:
    method = build_method("an+asl+cl", OBSERVED, weight=0.5, gamma_neg=2.0, margin=0.1)
    losses = method(make_step(SCORES.logit(), OBSERVED))
    positive = -math.log(0.7) - math.log(0.9)
    unknown = sum(-((p - 0.1) ** 2) * math.log(1.1 - p) for p in (0.4, 0.1, 0.6))
    negative = -math.log(0.8)  # the observed one
    assert float(losses["labels"]) == pytest.approx((positive + unknown + negative) / 6, abs=1e-12)  # a mean
    # The running scores are at their start: 1 for the annotated, 0 elsewhere.
    assert float(losses["consistency"]) == pytest.approx(0.5 * (0.3 + 0.4 + 0.2 + 0.1 + 0.1 + 0.6) / 6)


def moved(p: float) -> float:
    """σ(logit p − 1)."""
    return 1 / (1 + (1 - p) / p * math.e)


# Of the unknown scores .4, .1 and .6 the last is corrected, or the largest are chosen. .2 is observed absent.
PLAIN = -math.log(0.8)
CORRECTED = {
    "asl": -math.log(0.7 * 0.9 * 0.6) - 0.35**4 * math.log(0.65) - 0.05**4 * math.log(0.95) + PLAIN,
    "focal": sum(-((1 - p) ** 2) * math.log(p) for p in (0.7, 0.9, 0.6))
    + sum(-(p**2) * math.log(1 - p) for p in (0.4, 0.1))
    + PLAIN,
    "hill": sum(-((1 - p) ** 2) * math.log(p) for p in map(moved, (0.7, 0.9, 0.6)))
    + sum((1.5 - p) * p**2 for p in (0.4, 0.1))
    + PLAIN,
}
TWO_LEFT_OUT = {
    "asl": -math.log(0.7 * 0.9) - 0.05**4 * math.log(0.95) + PLAIN,
    "focal": -(0.3**2) * math.log(0.7) - 0.1**2 * math.log(0.9) - 0.1**2 * math.log(0.9) + PLAIN,
    "hill": sum(-((1 - p) ** 2) * math.log(p) for p in map(moved, (0.7, 0.9))) + 1.4 * 0.1**2 + PLAIN,
}


@pytest.mark.parametrize("entry_loss", ["asl", "focal", "hill"])
@pytest.mark.parametrize(
    ("base", "settings", "by_hand"),
    [
        ("splc", {"threshold": 0.5}, CORRECTED),
        ("ll-ct", {"share": 0.1}, CORRECTED),  # ⌈.6⌉ of six entries
        ("ll-cp", {"share": 0.1}, CORRECTED),
        ("ll-r", {"share": 0.2}, TWO_LEFT_OUT),  # ⌈1.2⌉
    ],
)
def test_corrections_with_an_entry_loss_by_hand(
    base: str, settings: dict[str, float], by_hand: dict[str, float], entry_loss: str
) -> None:
    method = build_method(f"{base}+{entry_loss}", OBSERVED, **settings)
    losses = method(make_step(SCORES.logit(), OBSERVED))
    assert float(losses["labels"]) == pytest.approx(by_hand[entry_loss] / 6, abs=1e-12)  # a mean


def test_what_was_corrected_for_good_stays_positive_in_an_element() -> None:
    method = build_method("ll-cp+focal", OBSERVED, share=0.1)
    step = make_step(SCORES.logit(), OBSERVED)
    method(step)
    method.update(step)
    later = SCORES.clone()
    later[1, 2], later[0, 1] = 0.3, 0.2  # .6 was corrected, so that .2 is the largest now
    losses = method(make_step(later.logit(), OBSERVED))
    positive = sum(-((1 - p) ** 2) * math.log(p) for p in (0.7, 0.9, 0.3, 0.2))
    assert float(losses["labels"]) == pytest.approx(
        (positive - 0.1**2 * math.log(0.9) + PLAIN) / 6, abs=1e-12
    )


def test_an_exchanged_entry_loss_takes_its_settings_along() -> None:
    assert settings_of("splc+asl") == {
        "threshold": 0.6,
        "gamma_pos": 0.0,
        "gamma_neg": 4.0,
        "margin": 0.05,
        "preset": None,
    }
    assert {*settings_of("splc+focal")} == {"threshold", "gamma_pos", "gamma_neg", "preset"}
    assert {*settings_of("splc+hill+cl")} >= {"threshold", "gamma_pos", "margin", "weight", "preset"}
    for name, setting in (("splc+hill", "gamma_neg"), ("splc+focal", "margin"), ("splc+asl", "scale")):
        with pytest.raises(ConfigError, match=f"'{re.escape(name)}' has no setting '{setting}'"):
            make_method(name, **{setting: 1.0})
    asymmetric = entry_loss_of(make_method("splc+asl", threshold=0.5, margin=0.1))
    assert asymmetric == Asymmetric(0.0, 4.0, 0.1, plain_negatives=True)
    assert (
        entry_loss_of(make_method("splc"))
        == entry_loss_of(make_method("splc+scl"))
        == Focal(2.0, 2.0, 1.0, True)
    )
    assert vars(rule_of(make_method("splc+asl", preset="coco-75")))["threshold"] == 0.65
    assert float(vars(rule_of(make_method("ll-r+asl", preset="boostlu")))["share"]) == 0.005


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("focal", {}),
        ("focal", {"gamma_neg": 0.0}),
        ("asl", {}),
        ("asl", {"margin": 0.0}),
        ("asl", {"margin": 0.6, "gamma_neg": 0.5}),
        ("hill", {}),
    ],
)
def test_the_largest_logit_is_the_largest_loss_of_a_negative(name: str, settings: dict[str, float]) -> None:
    """So that ll-* chooses by logits whatever the entry loss is."""
    logits = torch.linspace(-20, 20, 4001, dtype=torch.float64)[None]
    unknown = torch.full(logits.shape, -1, dtype=torch.int8)
    costs = entry_loss_of(make_method(name, **settings))(logits, torch.zeros_like(logits), unknown)
    assert float(costs.diff().min()) > -1e-15  # never falls
    assert float(costs[0, 0]) < 0.01
    assert float(costs[0, -1]) > 0.3


@pytest.mark.parametrize("entry_loss", ["asl", "focal", "hill"])
@pytest.mark.parametrize("base", ["an", "en", "wan", "splc", "ll-r", "ll-ct", "ll-cp"])
def test_observed_negatives_are_plain_in_combinations(base: str, entry_loss: str) -> None:
    name = f"{base}+{entry_loss}"
    method = build_method(name, OBSERVED, **needed(name))
    logits = SCORES.logit().requires_grad_()
    truth = torch.tensor([[1, 0, 0], [0, 1, 1]], dtype=torch.int8)
    losses = method(make_step(logits, OBSERVED, truth=truth, progress=Progress(0, 10, 0, 1e-3)))
    (gradient,) = torch.autograd.grad(losses["labels"], logits)
    assert float(gradient[0, 2]) == pytest.approx(0.2 / 6)  # of −log(1−f): f
    assert float(gradient[1, 2]) != pytest.approx(0.6 / 6)  # an unknown label is the entry loss's


@pytest.mark.parametrize("entry_loss", ["asl", "focal", "hill"])
@pytest.mark.parametrize("base", with_entry_losses())
def test_an_entry_loss_makes_a_difference_to_every_method_that_takes_it(base: str, entry_loss: str) -> None:
    truth = torch.tensor([[1, 0, 0], [0, 1, 1]], dtype=torch.int8)
    losses = [
        build_method(name, OBSERVED, **needed(name))(
            make_step(SCORES.logit(), OBSERVED, truth=truth, progress=Progress(0, 10, 0, 1e-3))
        )["labels"]
        for name in (base, f"{base}+{entry_loss}")
    ]
    assert float(losses[0]) != pytest.approx(float(losses[1]), rel=1e-3)


def test_an_oracle_with_an_entry_loss_is_that_loss_with_all_labels() -> None:
    truth = torch.tensor([[1, 0, 0], [0, 1, 1]], dtype=torch.int8)
    for labels in (OBSERVED, truth):
        for entry_loss in ("asl", "focal"):
            alone = build_method(entry_loss, truth)(make_step(SCORES.logit(), truth))
            oracle = build_method(f"bce+{entry_loss}", labels)(make_step(SCORES.logit(), labels, truth=truth))
            scale = 6 if entry_loss == "asl" else 1  # asl alone is a sum
            torch.testing.assert_close(oracle["labels"], alone["labels"] / scale)
    known = build_method("iu+asl", OBSERVED)(make_step(SCORES.logit(), OBSERVED))
    by_hand = -math.log(0.7) - math.log(0.9) - 0.15**4 * math.log(0.85)  # the observed negative has .2 − .05
    assert float(known["labels"]) == pytest.approx(by_hand / 6)


@pytest.mark.parametrize("name", ["asl", "focal"])
def test_losses_for_full_labels_keep_their_negative_side_alone(name: str) -> None:
    full, sparse = torch.tensor([[0]], dtype=torch.int8), torch.tensor([[-1]], dtype=torch.int8)
    logits = torch.tensor([[0.3]], dtype=torch.float64)
    found = [
        entry_loss_of(build_method(name, labels))(logits, logits * 0, labels) for labels in (full, sparse)
    ]
    assert torch.equal(*found)


def test_a_sum_becomes_a_mean_beside_consistency() -> None:
    for name in ("asl", "hill", "splc"):
        alone = build_method(name, OBSERVED)(make_step(SCORES.logit(), OBSERVED))
        beside = build_method(f"{name}+scl", OBSERVED)(make_step(SCORES.logit(), OBSERVED))
        torch.testing.assert_close(alone["labels"] / 6, beside["labels"])


@pytest.mark.parametrize("added", ["cl", "scl"])
def test_a_preset_does_not_bring_its_scale_into_a_combination(added: str) -> None:
    step = make_step(SCORES.logit(), OBSERVED)
    alone = build_method("asl", OBSERVED, preset="q2l")(step)
    beside = build_method(f"asl+{added}", OBSERVED, preset="q2l")(step)
    by_hand = sum(-(p**2) * math.log(1 - p) for p in (0.4, 0.2, 0.1, 0.6)) - math.log(0.7) - math.log(0.9)
    assert float(alone["labels"]) == pytest.approx(1000 * by_hand / 6)
    assert float(beside["labels"]) == pytest.approx(by_hand / 6)


def test_parts_of_a_combination() -> None:
    method = build_method(
        "en+hill+cl", OBSERVED, expected_positives=1.5, momentum=0.5, margin=0.3, weight=2.0
    )
    entry_loss = entry_loss_of(method)
    assert isinstance(entry_loss, Hill)
    assert entry_loss.margin == 0.3
    assert method.reduction is batch_mean
    scores = {part for part in method.parts() if isinstance(part, RunningScores)}
    assert [part.momentum for part in scores] == [0.5]  # one memory for both
    asymmetric = entry_loss_of(make_method("en+asl", expected_positives=1.5, gamma_neg=1.0))
    assert isinstance(asymmetric, Asymmetric)
    assert asymmetric.gamma_neg == 1.0
    both = make_method("epr+cl", expected_positives=1.5, weight=3.0, count_weight=2.0)
    assert both.terms["count"].weight == 2.0
    assert both.terms["consistency"].weight == 3.0


def test_an_expected_positive_is_left_out_of_any_element() -> None:
    observed = torch.tensor([[1, -1], [-1, 1], [-1, -1]], dtype=torch.int8)
    method = build_method("en+asl", observed, expected_positives=1.5)
    logits = torch.tensor([[3.0, -2.0], [-1.0, 3.0], [2.0, -3.0]], dtype=torch.float64)
    first = make_step(logits, observed, progress=Progress(0, 10, 0, 1e-3))
    method.begin_epoch(first.progress)
    method(first)
    method.update(first)
    method.begin_epoch(PROGRESS)
    targets = targets_of(method, make_step(logits, observed))
    assert targets.weight.tolist() == [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    _, gradient = value_and_gradient(method, logits, observed, None)
    assert gradient[2, 0] == 0


@pytest.mark.parametrize("name", ALL)
def test_every_combination_is_finite_at_large_logits(name: str) -> None:
    observed = torch.tensor([[1, -1, 0], [-1, 1, 0], [-1, -1, -1]], dtype=torch.int8)
    truth = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.int8)
    for logit in (100.0, -100.0):
        soft = "apl" in name
        method = build_method(name, observed, **needed(name), **({"warm_up": 1} if soft else {}))
        method.begin_epoch(replace(PROGRESS, epochs=2))  # the only epoch that em+apl labels in
        logits = torch.full((3, 3), logit)
        if method.needs.scan:
            method.scan(showing([make_step(logits, observed)]))
        if soft:  # one of the two unknown labels of either class
            assert isinstance(method.label_loss, EntropyMaximization)
            assert method.label_loss.soft_labels is not None
            labeled, labels = method.label_loss.soft_labels(make_step(logits, observed))
            assert labeled.sum(dim=0).tolist() == [1, 1, 0]
            assert torch.equal(labels[labeled], torch.sigmoid(logits)[labeled])
        loss, gradient = value_and_gradient(method, logits, observed, truth)
        assert torch.isfinite(loss)
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", [*METHODS, *ALL])
def test_needs_are_known_without_making_the_method(name: str) -> None:
    assert needs_of(name, needed(name)) == make_method(name, **needed(name)).needs


@pytest.mark.parametrize(
    ("name", "settings", "known"),
    [
        ("csl-i", {}, Needs()),
        ("csl-i", {"unknown": "ignore"}, Needs(negatives=True)),
        ("patchml", {"unknown": "selective"}, Needs(maps=True, spatial_labels=True)),
        ("csl-i+cluster", {}, Needs(scan=True, features=True)),
        (
            "csl-i+cluster",
            {"prototypes": "cells"},
            Needs(scan=True, features=True, maps=True, spatial_labels=True),
        ),
    ],
)
def test_needs_follow_the_settings(name: str, settings: dict[str, Any], known: Needs) -> None:
    assert needs_of(name, settings) == make_method(name, **settings).needs == known


@pytest.mark.parametrize(
    ("name", "setting", "value", "typed"),
    [("an+cl", "weight", 2, 2.0), ("em+apl", "warm_up", 3.0, 3), ("wan", "sampled_negatives", "true", True)],
)
def test_settings_have_their_types(name: str, setting: str, value: object, typed: object) -> None:
    seen: dict[str, Any] = {}
    parts = parse(name).methods
    method = parts[-1]
    object.__setattr__(method, "make", _spy(method.make, seen))
    try:
        make_method(name, **{setting: value})
    finally:
        object.__setattr__(method, "make", method.make.__wrapped__)  # type: ignore[attr-defined]
    assert (seen[setting], type(seen[setting])) == (typed, type(typed))


def _spy(make: Any, seen: dict[str, Any]) -> Any:
    @functools.wraps(make)
    def spied(*arguments: Any, **settings: Any) -> Any:
        seen.update(settings)
        return make(*arguments, **settings)

    return spied


@pytest.mark.parametrize(
    ("name", "setting", "value", "allowed"),
    [
        ("an+cl", "weight", "heavy", "a number"),
        ("em+apl", "warm_up", 2.5, "a whole number"),
        ("wan", "sampled_negatives", 1, "true or false"),
        ("an+scl", "distance", "l3", ["l1", "l2", "jsd"]),
    ],
)
def test_settings_of_another_type_are_refused(
    name: str, setting: str, value: object, allowed: object
) -> None:
    with pytest.raises(ConfigError) as raised:
        make_method(name, **{setting: value})
    assert (raised.value.what, raised.value.value) == (f"settings.{setting}", value)
    assert raised.value.allowed == allowed


def test_every_setting_is_documented_where_the_method_is() -> None:
    for method in (*METHODS.values(), *UNLABELED.values(), *CONSISTENCY.values()):
        assert list(setting_docs(method.make)) == list(inspect.signature(method.make).parameters), method.name
