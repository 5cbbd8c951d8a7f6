"""Make a method, and a Step of given logits."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.losses.base import ComposedLoss, EntryLoss, TargetLoss, TargetRule, Targets
from sparselabel.losses.registry import make_method
from sparselabel.losses.step import Layout, Progress, Scan, Step
from sparselabel.models.classifier import Output

PROGRESS = Progress(epoch=1, epochs=10, head_epochs=0, lr=1e-3)  # consistency has joined


def make_step(
    logits: Tensor,
    observed: Tensor,
    truth: Tensor | None = None,
    rows: Tensor | None = None,
    progress: Progress = PROGRESS,
) -> Step:
    rows = torch.arange(len(logits)) if rows is None else rows
    geometries = (ViewGeometry.whole(len(logits)),) * 2
    maps = logits[:, :, None, None].expand(-1, -1, 2, 2)  # every cell says what the image says
    outputs = (Output(logits, maps, maps.detach()),) * 2
    return Step(rows, observed, outputs, geometries, progress, SpatialLabels.none(), truth)


def build_method(name: str, observed: Tensor, **settings: Any) -> ComposedLoss:
    """A method that knows the labels (N, L) of the training set, all of them of this process."""
    method = make_method(name, **settings)
    labels = observed.to(torch.int8)
    method.prepare(Layout(torch.arange(len(labels)), labels, len(labels)))
    return method


def showing(steps: list[Step]) -> Scan:
    """A scan that shows these steps, whatever rows are asked for."""
    return lambda rows: steps


def after_one_epoch(
    method: ComposedLoss, logits: Tensor, observed: Tensor, truth: Tensor | None
) -> ComposedLoss:
    """The method at the start of the second epoch, when the first one said these logits."""
    first = make_step(logits, observed, truth, progress=replace(PROGRESS, epoch=0))
    method.begin_epoch(first.progress)
    method(first)
    method.update(first)
    method.begin_epoch(PROGRESS)
    return method


def rule_of(method: ComposedLoss) -> TargetRule:
    assert isinstance(method.label_loss, TargetLoss)
    return method.label_loss.rule


def entry_loss_of(method: ComposedLoss) -> EntryLoss:
    assert isinstance(method.label_loss, TargetLoss)
    return method.label_loss.entry_loss


class Weighted(NamedTuple):
    """``Targets`` with the weight of every entry."""

    value: Tensor
    weight: Tensor


def targets_of(method: ComposedLoss, step: Step) -> Weighted:
    """What the target rule of a method says of a step."""
    targets: Targets = rule_of(method)(step)
    return Weighted(
        targets.value, torch.ones_like(targets.value) if targets.weight is None else targets.weight
    )


def value_and_gradient(
    method: ComposedLoss, logits: Tensor, observed: Tensor, truth: Tensor | None
) -> tuple[Tensor, Tensor]:
    logits = logits.clone().requires_grad_()
    losses = method(make_step(logits, observed, truth))
    loss = torch.stack([*losses.values()]).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), gradient
