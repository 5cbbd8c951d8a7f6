"""splc, tied to the numbers of the authors' program."""

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
from tests.losses.steps import build_method


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
