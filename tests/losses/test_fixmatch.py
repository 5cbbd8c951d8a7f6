import math

import pytest
import torch

from sparselabel.errors import ConfigError
from sparselabel.losses.step import Step
from sparselabel.models.classifier import Output
from tests.losses.patch_steps import (
    OBSERVED,
    PROGRESS,
    focal,
    step,
)
from tests.losses.steps import build_method, make_step


def test_fixmatch_by_hand() -> None:
    weak = torch.logit(torch.tensor([[0.95, 0.02, 0.5, 0.97]], dtype=torch.float64))
    strong = torch.logit(torch.tensor([[0.6, 0.3, 0.9, 0.2]], dtype=torch.float64)).requires_grad_()
    observed = torch.tensor([[-1, -1, -1, 0]], dtype=torch.int8)
    seen = make_step(weak, observed)
    outputs = (seen.outputs[0], Output(strong))
    seen = Step(seen.rows, observed, outputs, seen.geometries, PROGRESS, seen.spatial_labels)
    losses = build_method("fixmatch", observed, strong_weight=2.0)(seen)
    # Two of three unknown labels are sure; the observed negative has its own loss, in the weak view.
    wanted = 2 * (-math.log(0.6) - math.log(0.7)) / 3
    assert float(losses["strong"].detach()) == pytest.approx(wanted, abs=1e-12)
    assert float(losses["labels"]) == pytest.approx(focal(0.03, 1), abs=1e-12)
    (gradient,) = torch.autograd.grad(losses["strong"], strong)
    torch.testing.assert_close(
        gradient, torch.tensor([[0.6 - 1, 0.3, 0, 0]], dtype=torch.float64) * 2 / 3, rtol=0, atol=1e-12
    )


def test_one_view_is_not_enough() -> None:
    with pytest.raises(ConfigError, match="fixmatch compares two views"):
        build_method("fixmatch", OBSERVED)(step())
