"""Inputs and numbers of the authors' programs, our losses on them, and an image to work by hand."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparselabel.data.labels import UNKNOWN
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.step import Progress
from tests.conftest import Golden
from tests.losses.steps import make_step

Case = dict[str, Any]

# An image whose losses are worked by hand, at scores where the numbers are short: positive at p = .8, unknown
# at .3, observed negative at .1.
OBSERVED = torch.tensor([[1, -1, 0]], dtype=torch.int8)
SCORES = torch.tensor([[0.8, 0.3, 0.1]], dtype=torch.float64)


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


def entropy(p: float) -> float:
    return -p * math.log(p) - (1 - p) * math.log(1 - p)
