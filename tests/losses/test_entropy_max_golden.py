"""em and em+apl, tied to the numbers of the authors' program."""

import math

import pytest
import torch

from sparselabel.data.labels import UNKNOWN
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.entropy_max import AsymmetricPseudoLabels
from sparselabel.losses.step import Progress
from tests.conftest import Golden
from tests.losses import reweighted_reference as reference
from tests.losses.authors_numbers import (
    cases_of,
    differentiated,
    entropy,
    evaluated,
    golden_numbers,
    inputs,
    our_coding,
    same,
)
from tests.losses.steps import build_method, make_step, showing


def test_em(reweighting: Golden) -> None:
    for case in cases_of(reweighting, "em/em_s"):
        logits, observed = inputs(case)
        alpha, none = case["hyper"]["alpha"], torch.full_like(logits, -1)
        theirs = differentiated(reference.em, logits, observed, 1e-5, alpha, none, 0.0)
        same(theirs, golden_numbers(case), 1e-9)
        plain = differentiated(reference.em, logits, observed, 0.0, alpha, none, 0.0)
        method = build_method("em", observed, entropy_weight=alpha)
        same(evaluated(method, logits, observed), plain, 1e-12)


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


def test_the_gradient_of_em_by_hand() -> None:
    logits = torch.tensor([[0.7]], dtype=torch.float64)
    unknown = torch.tensor([[-1]], dtype=torch.int8)
    p = torch.sigmoid(logits)
    _, gradient = evaluated(build_method("em", unknown, entropy_weight=0.2), logits, unknown)
    torch.testing.assert_close(gradient, 0.2 * logits * p * (1 - p))  # dH/dx = −x·p·(1−p)
