"""Losses that weigh or correct unknown labels, tied to the numbers of the authors' programs."""

import math
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, UNKNOWN
from sparselabel.errors import ConfigError
from sparselabel.losses.base import (
    ComposedLoss,
    Progress,
    ScaledMean,
    TargetLoss,
    batch_mean,
    batch_sum,
    cross_entropy,
)
from sparselabel.losses.entropy_max import AsymmetricPseudoLabels, EntropyMaximization
from sparselabel.losses.focal_asl_hill import Asymmetric, Focal, Hill
from sparselabel.losses.generalized_robust import GeneralizedRobust, Line
from sparselabel.losses.large_loss import LargeLoss
from sparselabel.losses.pseudo_labels import ConfidentNow
from sparselabel.losses.registry import METHODS, make_method, settings_of
from sparselabel.losses.target_rules import AssumedNegative
from tests.conftest import Golden
from tests.losses import reference as single_positive
from tests.losses import reweighted_reference as reference
from tests.losses.steps import build_method, make_step, rule_of, showing, value_and_gradient

Case = dict[str, Any]


def our_coding(labels: np.ndarray[Any, Any]) -> Tensor:
    """The programs' +1, 0 (unknown), -1 (negative) as 1, -1, 0; hill and asl know 1 and 0 only."""
    return torch.from_numpy(np.select([labels == 1, labels == -1], [1, 0], UNKNOWN)).to(torch.int8)


def inputs(case: Case) -> tuple[Tensor, Tensor]:
    labels = case["inputs"]["labels"]
    observed = torch.from_numpy(labels).to(torch.int8) if "openimages" in case["id"] else our_coding(labels)
    return torch.from_numpy(case["inputs"]["logits"]).double(), observed


def cases_of(golden: Golden, start: str) -> list[Case]:
    found = [case for case in golden.of_kind("loss") if case["id"].startswith(start)]
    assert found
    return found


def evaluated(
    method: ComposedLoss, logits: Tensor, observed: Tensor, epoch: int = 0
) -> tuple[Tensor, Tensor]:
    x = logits.clone().requires_grad_()
    losses = method(make_step(x, observed, progress=Progress(epoch, 100, 0, 1e-3)))
    (gradient,) = torch.autograd.grad(losses["labels"], x)
    return losses["labels"].detach(), gradient


def differentiated(function: Any, logits: Tensor, *arguments: Any, **settings: Any) -> tuple[Tensor, Tensor]:
    x = logits.clone().requires_grad_()
    value = function(x, *arguments, **settings)
    (gradient,) = torch.autograd.grad(value, x)
    return value.detach(), gradient


def same(found: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor], tolerance: float) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def golden_numbers(case: Case) -> tuple[Tensor, Tensor]:
    loss = torch.tensor(case["values"]["loss64"], dtype=torch.float64)
    return loss, torch.from_numpy(case["outputs"]["grad64"])


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


def test_splc(reweighting: Golden) -> None:
    for case in cases_of(reweighting, "hill/splc"):
        logits, observed = inputs(case)
        hyper = case["hyper"]
        entry_loss = Focal(hyper["gamma"], hyper["gamma"], hyper["margin"], plain_negatives=True)
        rule = ConfidentNow(hyper["tau"], first=hyper["change_epoch"])
        method = ComposedLoss(TargetLoss(rule, entry_loss), reduction=batch_sum)
        found = evaluated(method, logits, observed, hyper["epoch"])
        same(found, golden_numbers(case), 1e-9)
        correcting = hyper["epoch"] >= hyper["change_epoch"]
        plain = differentiated(
            reference.splc, logits, observed, hyper["tau"], hyper["gamma"], hyper["margin"], correcting
        )
        same(found, plain, 1e-12)
        if hyper["change_epoch"] == 1:
            named = build_method("splc", observed, threshold=hyper["tau"], margin=hyper["margin"])
            same(evaluated(named, logits, observed, hyper["epoch"]), plain, 1e-12)


@pytest.mark.parametrize("peer", ["llm", "boost"])
def test_large_losses(reweighting: Golden, peer: str) -> None:
    seen = set()
    for case in cases_of(reweighting, f"{peer}/LL-"):
        if "as_released" in case["id"]:  # runs LL-Ct under the name of LL-Cp
            continue
        logits, observed = inputs(case)
        hyper, values = case["hyper"], case["values"]
        name = hyper["scheme"].lower()
        # With the k that the program's rounding gives, it is the reference; ours is it with the exact k.
        theirs = differentiated(reference.large_loss, logits, name, observed, values["k"])
        same(theirs, golden_numbers(case), 1e-9)
        exact = values["k_exact_arithmetic"]
        plain = differentiated(reference.large_loss, logits, name, observed, exact)
        method = build_method(name, observed, share=hyper["delta_rel_percent"] / 100)
        same(evaluated(method, logits, observed, hyper["epoch"] - 1), plain, 1e-12)
        seen.add((name, values["k"] == exact))
    assert seen == {(name, True) for name in ("ll-r", "ll-ct", "ll-cp")} | {("ll-r", False), ("ll-ct", False)}


@pytest.mark.parametrize(("name", "change"), [("LL-R", "drop"), ("LL-Ct", "turn")])
def test_large_losses_beside_observed_negatives(name: str, change: Literal["drop", "turn"]) -> None:
    """mlcpl counts otherwise (a share of the unknown labels, of which it changes one less), so k is given."""
    counts = []
    for case in cases_of(Golden("mlcpl"), f"mlcpl/{name}_"):
        labels = case["inputs"]["labels"]
        observed = torch.from_numpy(np.where(np.isnan(labels), UNKNOWN, labels)).to(torch.int8)
        assert (observed == NEGATIVE).any()
        logits = torch.from_numpy(case["inputs"]["logits"]).double()
        changed = case["values"]["k"] - 1
        share = max(changed - 0.5, 0) / logits.numel()  # is rounded up
        rule = LargeLoss(share, change)
        assert rule.count(torch.ones(len(logits), dtype=torch.bool), observed == UNKNOWN, 1) == changed
        same(
            evaluated(ComposedLoss(TargetLoss(rule, cross_entropy)), logits, observed, 1),
            golden_numbers(case),
            1e-9,
        )
        counts.append(changed)
    assert (len(counts), max(counts)) == (24, 17)


@pytest.mark.parametrize("peer", ["llm", "boost"])
@pytest.mark.parametrize("name", ["LL-R", "LL-Ct"])
def test_more_large_losses_than_unknown_labels(reweighting: Golden, peer: str, name: str) -> None:
    """The programs go on with observed positives: a defect. Here all unknown labels change, and no other."""
    case = reweighting.cases[f"{peer}/k_over_unknown_{name}"]
    logits, observed = inputs(case)
    assert case["values"]["k"] == 11
    assert int((observed == UNKNOWN).sum()) == case["values"]["n_unknown"] == 9
    way = torch.where(observed == 1, 1.0, -1.0) * (name == "LL-Ct")  # each label the other way round, or none
    released = differentiated(lambda x: (torch.nn.functional.softplus(way * x) * way.abs()).mean(), logits)
    same(released, golden_numbers(case), 1e-9)
    method = build_method(name.lower(), observed, share=case["hyper"]["delta_rel_percent"] / 100)
    intended = differentiated(reference.large_loss, logits, name.lower(), observed, 9)
    found = evaluated(method, logits, observed, case["hyper"]["epoch"] - 1)
    same(found, intended, 1e-12)
    positive = observed == 1
    torch.testing.assert_close(found[1][positive], (torch.sigmoid(logits) - 1)[positive] / logits.numel())
    assert not torch.allclose(found[1], golden_numbers(case)[1])


def test_large_losses_with_observed_negatives(reweighting: Golden) -> None:
    for case in cases_of(reweighting, "boost/openimages"):
        logits, observed = inputs(case)
        assert (observed == 0).any()
        name, epoch = case["hyper"]["scheme"].lower(), case["hyper"]["epoch"] - 1
        exact, rounded = {"ll-cp": (3, 3)}.get(name, (6, 7))  # of 60 entries; 60·(1 − .8999…) is above 6
        theirs = differentiated(reference.large_loss, logits, name, observed, rounded)
        same(theirs, golden_numbers(case), 1e-9)
        method = build_method(name, observed, share=0.05)
        plain = differentiated(reference.large_loss, logits, name, observed, exact)
        same(evaluated(method, logits, observed, epoch), plain, 1e-12)


@pytest.mark.parametrize(
    ("name", "case_id"),
    [
        ("ll-r", "llm/loop_LL-R"),
        ("ll-ct", "llm/loop_LL-Ct"),
        ("ll-r", "boost/loop_LL-R"),
        ("ll-ct", "boost/loop_LL-Ct"),
        ("ll-cp", "boost/loop_LL-Cp"),  # llm's program never stores corrections
    ],
)
def test_loops_of_large_losses(reweighting: Golden, name: str, case_id: str) -> None:
    case = reweighting.cases[case_id]
    observed = our_coding(case["inputs"]["labels"])
    before = observed.clone()
    method = build_method(name, observed, share=case["hyper"]["delta_rel_percent"] / 100)
    for epoch, order in enumerate(torch.from_numpy(case["inputs"]["order"]).long()):
        logits = torch.from_numpy(case["inputs"]["logits"][epoch])
        progress = Progress(epoch, 5, 0, 0.0)
        method.begin_epoch(progress)
        losses = []
        for rows in order.split(case["hyper"]["batch_size"]):
            step = make_step(logits[rows], observed[rows], rows=rows, progress=progress)
            found = method(step)
            method.update(step)
            losses.append(float(found["labels"]))
        assert losses == pytest.approx(case["outputs"]["losses"][epoch].tolist(), rel=1e-6)
        if name == "ll-cp":
            stored = torch.from_numpy(case["outputs"]["labels_after"][epoch]) == 1
            corrected = method.logged_state(torch.arange(len(observed)))["corrected_labels"]
            assert torch.equal(corrected | (observed == 1), stored)
            assert not (corrected & (observed == 1)).any()
    assert torch.equal(observed, before)


def test_em(reweighting: Golden) -> None:
    for case in cases_of(reweighting, "em/em_s"):
        logits, observed = inputs(case)
        alpha, none = case["hyper"]["alpha"], torch.full_like(logits, -1)
        theirs = differentiated(reference.em, logits, observed, 1e-5, alpha, none, 0.0)
        same(theirs, golden_numbers(case), 1e-9)
        plain = differentiated(reference.em, logits, observed, 0.0, alpha, none, 0.0)
        method = build_method("em", observed, entropy_weight=alpha)
        same(evaluated(method, logits, observed), plain, 1e-12)


@pytest.mark.parametrize("name", ["an", "iun"])
def test_baselines_of_em(reweighting: Golden, name: str) -> None:
    cases = cases_of(reweighting, f"em/{name}_s")
    for case in cases:
        logits, observed = inputs(case)
        truth = torch.from_numpy(case["inputs"].get("true_labels", case["inputs"]["labels"])).to(torch.int8)
        theirs, plain = (
            differentiated(
                lambda x, e=epsilon, o=observed, t=truth: single_positive.loss(name, x, o, t, e), logits
            )
            for epsilon in (1e-5, 0.0)
        )
        same(theirs, golden_numbers(case), 1e-9)
        same(value_and_gradient(build_method(name, observed), logits, observed, truth), plain, 1e-12)
    assert len(cases) == 3


def test_em_apl(reweighting: Golden) -> None:
    for case in cases_of(reweighting, "em/em_apl"):
        logits = torch.from_numpy(case["inputs"]["logits"]).double()
        labels = torch.from_numpy(case["inputs"]["labels"]).double()
        observed = torch.where(labels == 1, 1, UNKNOWN).to(torch.int8)
        soft = torch.where(labels < 0, -labels, -1.0)
        assert (soft >= 0).any()
        weights = case["hyper"]["alpha"], soft, case["hyper"]["beta"]
        theirs = differentiated(reference.em, logits, observed, 1e-5, *weights)
        same(theirs, golden_numbers(case), 1e-9)
        single = soft.float().double()  # as they are kept
        plain = differentiated(reference.em, logits, observed, 0.0, weights[0], single, weights[2])
        method = build_method("em+apl", observed, entropy_weight=weights[0], soft_weight=weights[2])
        kept_soft_labels(method).rows.write(torch.arange(len(labels)), soft.float())
        same(evaluated(method, logits, observed), plain, 1e-12)


def kept_soft_labels(method: ComposedLoss) -> AsymmetricPseudoLabels:
    return next(part for part in method.parts() if isinstance(part, AsymmetricPseudoLabels))


@pytest.mark.parametrize("case_id", ["em/apl_select0", "em/apl_select1"])
def test_soft_labels_go_to_the_lowest_scores(reweighting: Golden, case_id: str) -> None:
    case = reweighting.cases[case_id]
    hyper, observed = case["hyper"], our_coding(case["inputs"]["labels"])
    method = build_method("em+apl", observed, warm_up=hyper["warmup_epoch"])
    soft = kept_soft_labels(method)
    for number in range(hyper["rounds"]):
        logits = torch.from_numpy(case["inputs"]["logits"][number])
        progress = Progress(hyper["warmup_epoch"] + number, hyper["num_epochs"], 0, 0.0)
        method.begin_epoch(progress)
        order = torch.randperm(len(logits), generator=torch.manual_seed(number))
        steps = [
            make_step(logits[rows], observed[rows], rows=rows, progress=progress)
            for rows in torch.tensor_split(order, 6)
        ]
        method.scan(showing(steps))
        labeled, values = soft(make_step(logits, observed, progress=progress))
        wanted = torch.from_numpy(case["outputs"]["labels_after"][number])
        assert torch.equal(labeled, wanted < 0)
        torch.testing.assert_close(values[labeled].double(), -wanted[wanted < 0], rtol=1e-6, atol=1e-9)
        if "per_round" in case["values"]:
            assert soft.num_to_select.tolist() == case["values"]["per_round"]


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


# Worked by hand, at scores where the numbers are short. One image: positive at p = .8, unknown at .3,
# observed negative at .1.
OBSERVED = torch.tensor([[1, -1, 0]], dtype=torch.int8)
SCORES = torch.tensor([[0.8, 0.3, 0.1]], dtype=torch.float64)


def entropy(p: float) -> float:
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


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


def test_soft_labels_may_weigh_more_than_labels() -> None:
    # ⌊.9·2⌋ of the two unknown labels get a soft one: the lower, .1; the other costs −.1 times its entropy.
    observed = torch.tensor([[-1], [-1], [1]], dtype=torch.int8)
    logits = torch.tensor([[0.3], [0.1], [0.8]], dtype=torch.float64).logit()
    method = build_method("em+apl", observed, soft_weight=2.0, warm_up=1)
    progress = Progress(1, 2, 0, 1e-3)
    method.begin_epoch(progress)
    method.scan(showing([make_step(logits, observed, progress=progress)]))
    loss, _ = evaluated(method, logits, observed, epoch=1)
    by_hand = (2 * entropy(0.1) - 0.1 * entropy(0.3) - math.log(0.8)) / 3
    assert float(loss) == pytest.approx(by_hand, abs=1e-7)  # soft labels are kept in float32


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


def test_gradients_of_em_and_gr_by_hand() -> None:
    logits = torch.tensor([[0.7]], dtype=torch.float64)
    unknown = torch.tensor([[-1]], dtype=torch.int8)
    p = torch.sigmoid(logits)
    _, gradient = evaluated(build_method("em", unknown, entropy_weight=0.2), logits, unknown)
    torch.testing.assert_close(gradient, 0.2 * logits * p * (1 - p))  # dH/dx = −x·p·(1−p)
    robust_loss = build_method("gr", unknown)
    robust_loss.begin_epoch(Progress(0, 100, 1, 1e-3))
    _, gradient = evaluated(robust_loss, logits, unknown)
    belief, weight = torch.sigmoid(torch.tensor(-2.0, dtype=torch.float64)), torch.exp(-((p - 0.5) ** 2) / 8)
    wanted = weight * (-belief * p**0.01 * (1 - p) + (1 - belief) * p * (1 - p))
    torch.testing.assert_close(gradient, wanted)


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
