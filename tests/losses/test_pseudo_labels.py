"""splc, tied to the numbers of the authors' program."""

import pytest
import torch

from sparselabel.losses.base import (
    ComposedLoss,
    TargetLoss,
    batch_sum,
)
from sparselabel.losses.focal_asl_hill import Focal
from sparselabel.losses.pseudo_labels import ConfidentNow
from tests.conftest import Golden
from tests.losses import reweighted_reference as reference
from tests.losses.authors_numbers import cases_of, differentiated, evaluated, golden_numbers, inputs, same
from tests.losses.steps import build_method, make_step, targets_of


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


def test_pseudo_turns_confident_scores_positive() -> None:
    observed = torch.tensor([[1, -1, 0]], dtype=torch.int8)
    method = build_method("pseudo", observed, threshold=0.6, momentum=0.5)
    logits = torch.full((1, 3), 10.0, dtype=torch.float64)
    step = make_step(logits, observed)
    for expected in ([1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]):  # s of the unknown: 0, ½, ¾
        targets = targets_of(method, step)
        assert targets.value.tolist() == [expected]
        method.update(step)
    estimates = method.estimates()
    assert estimates is not None
    assert estimates[0, 1] == pytest.approx(1 - 0.5**3, abs=1e-4)
