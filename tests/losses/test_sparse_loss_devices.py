"""Logits on another device, with labels on the CPU: the same losses and gradients, for every method."""

import pytest
import torch
from torch import Tensor

from sparselabel.losses.registry import METHODS
from sparselabel.losses.sparse_loss import SparseLoss
from sparselabel.models.classifier import Output
from tests.losses.other_device import Device, OnDevice
from tests.losses.test_sparse_loss import EPOCHS, Model, batches, criterion_of, geometry

COMBINATIONS = ("en+cl", "pu+scl", "en+asl+scl", "patchml+cluster", "csl-p+cluster")


def steps(criterion: SparseLoss, on_device: bool) -> list[float]:
    """The loss of every step, and the sum of its gradient."""
    model, told = Model(), []

    def there(value: Tensor) -> Tensor:
        return OnDevice(value.detach().clone()) if on_device else value.detach().clone()

    def outputs(index: Tensor) -> Output:
        output = model(index)
        return Output(*(None if one is None else there(one) for one in output))  # type: ignore[arg-type]

    for epoch in range(EPOCHS):
        criterion.set_epoch(epoch)
        if criterion.needs.scan:
            criterion.scan(outputs)
        for index in batches(epoch):
            output = outputs(index)
            logits = output.logits.requires_grad_()
            views = (logits,) * max(criterion.needs.views, 1)
            torch.manual_seed(epoch)
            maps = output.maps if criterion.needs.maps else None
            features = output.features if criterion.needs.features else None
            loss = criterion(views, there(index), maps, geometry(index), features)
            (gradient,) = torch.autograd.grad(loss, logits)
            told += [loss.item(), gradient.abs().sum().item()]
    return told


CASES = [*((name, False) for name in (*METHODS, *COMBINATIONS)), ("en+scl", True), ("pu", True)]


@pytest.mark.parametrize(("name", "moved"), CASES)
def test_a_loss_works_on_another_device(name: str, moved: bool) -> None:
    wanted = steps(criterion_of(name), False)
    criterion = criterion_of(name)
    with Device():  # type: ignore[no-untyped-call]
        for module in criterion.modules() if moved else ():  # what criterion.to(device) does
            for key, buffer in module._buffers.items():
                module._buffers[key] = OnDevice(buffer)  # type: ignore[arg-type]
        found = steps(criterion, True)
    assert found == pytest.approx(wanted, rel=1e-6)
