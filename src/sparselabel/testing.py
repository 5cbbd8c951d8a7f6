"""Checks that every loss should pass, for authors of losses.

def test_my_loss():
    sparselabel.testing.check_loss("my-loss", weight=2.0)
"""

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import DataWarning
from sparselabel.losses.registry import needs_of, settings_of
from sparselabel.losses.sparse_loss import SparseLoss
from sparselabel.models.classifier import Output

COUNT, CLASSES, EPOCHS = 12, 4, 3


def check_loss(name: str, **settings: Any) -> None:
    """Raise an AssertionError that says what is wrong with a registered loss, or with a combination.

    Its values and gradients are finite at |logit| = 100; the order of images and padding (index -1) do not
    matter; a saved and loaded state continues to the same bits.
    """
    _check(isinstance(name, str), f"check_loss takes the name of a registered loss, not {name!r}")
    if "expected_positives" in settings_of(name):
        settings = {"expected_positives": 1.5} | settings
    if "warm_up" in settings_of(name):
        settings = {"warm_up": 1} | settings
    for logit in (100.0, -100.0):
        loss, gradient = _last(_criterion(name, settings), [torch.full((COUNT, CLASSES), logit)] * EPOCHS)
        _check(loss.isfinite(), f"{name} is {loss} at logits of {logit:g}")
        _check(gradient.isfinite().all(), f"{name} has gradients that are not finite at logits of {logit:g}")
    logits = [torch.randn(COUNT, CLASSES, dtype=torch.float64, generator=_seeded(n)) for n in range(EPOCHS)]
    loss, gradient = _last(_criterion(name, settings), logits)
    order = torch.randperm(COUNT, generator=_seeded(9))
    other, moved = _last(_criterion(name, settings), logits, order)
    _check(torch.allclose(loss, other), f"{name} depends on the order of images in a batch")
    _check(torch.allclose(gradient, moved), f"the gradient of {name} depends on the order of images")
    padded, rest = _last(_criterion(name, settings), logits, padding=2)
    _check(torch.allclose(loss, padded), f"images with index -1, which are padding, count in {name}")
    _check((rest[COUNT:] == 0).all(), f"images with index -1, which are padding, have gradients of {name}")
    half = _criterion(name, settings)
    _last(half, logits[:1])
    again = _criterion(name, settings)
    again.load_state_dict(copy.deepcopy(half.state_dict()))
    resumed, _ = _last(again, logits, first=1)
    _check(torch.equal(resumed, loss), f"{name} goes on otherwise from its state_dict")


def _check(right: object, wrong: str) -> None:
    if not right:
        raise AssertionError(wrong)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _labels() -> Tensor:
    """One positive and one negative of most images, nothing of the last two."""
    values = torch.full((COUNT, CLASSES), UNKNOWN, dtype=torch.int8)
    for row in range(COUNT - 2):
        values[row, row % CLASSES], values[row, (row + 1) % CLASSES] = POSITIVE, NEGATIVE
    return values


def _criterion(name: str, settings: dict[str, Any]) -> SparseLoss:
    needs, labels = needs_of(name, settings), _labels()
    truth = labels.masked_fill(labels == UNKNOWN, NEGATIVE) if needs.truth else None
    known = COUNT - 2
    points = SpatialLabels(
        np.arange(known),
        np.arange(known, dtype=np.int32) % CLASSES,
        np.full((known, 2), 0.3, np.float32),
        np.zeros((known, 2), np.float32),
    )
    located = points if needs.spatial_labels else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return SparseLoss(
            name, labels, epochs=EPOCHS, lr=0.1, truth=truth, spatial_labels=located, **settings
        )


def _last(
    criterion: SparseLoss,
    logits: Sequence[Tensor],
    order: Tensor | None = None,
    padding: int = 0,
    first: int = 0,
) -> tuple[Tensor, Tensor]:
    """Loss and gradient of the last epoch, whose one batch has all images; the gradient in their order."""
    order = torch.arange(COUNT) if order is None else order
    index = torch.cat([order, torch.full((padding,), -1)])
    loss, gradient = torch.zeros(()), torch.zeros(())
    for epoch, values in list(enumerate(logits))[first:]:
        criterion.set_epoch(epoch)
        if criterion.needs.scan:
            criterion.scan(lambda some, values=values: _output(values[some]))  # type: ignore[misc]
        torch.manual_seed(epoch)
        batch = torch.cat([values[order], values[:1].repeat(padding, 1)]).requires_grad_()
        output = _output(batch)
        views = (output.logits,) * max(criterion.needs.views, 1)
        maps = output.maps if criterion.needs.maps else None
        loss = criterion(views, index, maps, ViewGeometry.whole(len(index)), output.features)
        _check(loss.requires_grad, f"{criterion.method_name} has no gradient: does it detach the logits?")
        (gradient,) = torch.autograd.grad(loss, batch)
    back = torch.zeros_like(gradient)
    back[torch.cat([order, torch.arange(COUNT, COUNT + padding)])] = gradient
    return loss.detach(), back


def _output(logits: Tensor) -> Output:
    maps = logits[:, :, None, None].expand(-1, -1, 2, 2)
    return Output(logits, maps, maps.detach())
