"""Making a Step of given logits, for tests."""

import torch
from torch import Tensor

from sparselabel.data.frame import Frame
from sparselabel.method.base import Method, Progress, Step
from sparselabel.model.output import Output

PROGRESS = Progress(epoch=0, epochs=1, warm_up=0, learning_rate=1e-3)


def make_step(
    logits: Tensor,
    observed: Tensor,
    truth: Tensor | None = None,
    rows: Tensor | None = None,
    progress: Progress = PROGRESS,
) -> Step:
    rows = torch.arange(len(logits)) if rows is None else rows
    frames = (Frame.whole(len(logits)),)
    return Step(rows, observed, (Output(logits),), frames, progress, truth=truth)


def value_and_gradient(
    method: Method, logits: Tensor, observed: Tensor, truth: Tensor | None
) -> tuple[Tensor, Tensor]:
    logits = logits.clone().requires_grad_()
    losses, _ = method(make_step(logits, observed, truth))
    loss = torch.stack([*losses.values()]).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), gradient
