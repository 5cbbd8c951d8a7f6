"""Large losses, tied to the numbers of the authors' programs."""

from typing import Literal

import numpy as np
import pytest
import torch

from sparselabel.data.labels import NEGATIVE, UNKNOWN
from sparselabel.losses.base import ComposedLoss, TargetLoss, cross_entropy
from sparselabel.losses.large_loss import LargeLoss
from sparselabel.losses.step import Progress
from tests.conftest import Golden
from tests.losses import reweighted_reference as reference
from tests.losses.authors_numbers import (
    cases_of,
    differentiated,
    evaluated,
    golden_numbers,
    inputs,
    our_coding,
    same,
)
from tests.losses.steps import build_method, make_step


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
