"""Micro-batches: gradients of the whole batch in less memory.

    first pass, without gradients:  views ─ a few ─▶ outputs ─┐
    the method, on the whole batch:                           └─▶ losses ─▶ their gradients by the outputs
    second pass, with gradients:    views ─ a few ─▶ outputs ─▶ ◀─ back, by the outputs' gradients, added up

The method sees the outputs of the whole batch, so its losses are exact even if they couple images (epr, role,
large losses). The price is a second forward pass. Only the model itself differs from a whole batch: active
batch norm uses the statistics of a micro-batch, and dropout draws its masks per micro-batch.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sparselabel.config import Phase
from sparselabel.losses.base import Needs
from sparselabel.models.backbone import Norm, norms
from sparselabel.models.classifier import Output

if TYPE_CHECKING:
    from lightning_fabric import Fabric

DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
Backward = Callable[[Tensor], None]


class MicroBatches:
    """The output of a step's views, computed in parts, and the backward pass through the same parts."""

    def __init__(
        self, model: Any, module: nn.Module, fabric: "Fabric", views: Tensor, parts: int, needs: Needs
    ) -> None:
        self._model, self._fabric, self._maps = model, fabric, needs.maps
        # As even as possible: the largest part determines the memory.
        self._parts = [part for part in views.tensor_split(parts) if len(part)]
        self._states, outputs = [], []
        with torch.no_grad(), paused_norm_statistics(module):  # the second pass counts
            for part in self._parts:
                self._states.append(_random_state(fabric.device))
                output = model(part, maps=needs.maps)
                outputs.append(output if needs.features else output._replace(features=None))
        self.output = Output(*map(_joined, zip(*outputs, strict=True)))  # type: ignore[arg-type]

    def backward(self, loss: Tensor, backward: Backward) -> None:
        """Add the gradients of ``loss``, which was computed from ``output``, to the model's."""
        leaves = {name: value for name, value in self.output._asdict().items() if value is not None}
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        sizes = [len(part) for part in self._parts]
        by_part = {
            name: torch.split(gradient, sizes)
            for name, gradient in zip(leaves, gradients, strict=True)
            if gradient is not None
        }
        after = _random_state(self._fabric.device)
        for number, (part, state) in enumerate(zip(self._parts, self._states, strict=True)):
            _set_random_state(state, self._fabric.device)  # the same masks as in the first pass
            with self._gradient_sync(last=number + 1 == len(self._parts)):
                again = self._model(part, maps=self._maps)
                products = [(getattr(again, name) * own[number]).sum() for name, own in by_part.items()]
                backward(functools.reduce(torch.add, products))
        _set_random_state(after, self._fabric.device)

    def _gradient_sync(self, last: bool) -> AbstractContextManager[None]:
        """Processes synchronize gradients once, with the last part."""
        if last or self._fabric.world_size == 1:
            return nullcontext()
        return self._fabric.no_backward_sync(self._model)


def _joined(values: tuple[Tensor | None, ...]) -> Tensor | None:
    """The parts' outputs as one leaf tensor that requires gradients."""
    return None if values[0] is None else torch.cat(values).requires_grad_()  # type: ignore[arg-type]


def active_norms(module: nn.Module) -> list[Norm]:
    """The normalization layers that use the statistics of the batch."""
    return [layer for layer in norms(module) if layer.training]


def has_dropout(module: nn.Module) -> bool:
    """Whether it drops activations at random: dropout, attention dropout or timm's drop path."""
    return any(
        isinstance(value := getattr(layer, name, 0), float) and value > 0
        for layer in module.modules()
        for name in (("p",) if isinstance(layer, DROPOUTS) else ("dropout", "drop_prob"))
    )


def differences_from_whole_batch(module: nn.Module, phase: Phase, processes: int) -> Iterator[str]:
    """Notes on how the model's results differ from those with the whole batch at once."""
    few = -(-phase.batch_size // processes // phase.micro_batches)
    if active_norms(module.train()):
        yield (
            f"batch norm sees {few} images at a time, so that this is not the same as a batch of "
            f"{phase.batch_size} at once; with frozen norms (`finetune.frozen_norm`) it would be"
        )
    if has_dropout(module):
        yield (
            f"dropout draws its masks for {few} images at a time: gradients are those of other masks "
            f"than with a batch of {phase.batch_size} at once, and the same on average"
        )


@contextmanager
def paused_norm_statistics(module: nn.Module) -> Iterator[None]:
    """Keep batch norm from updating its running statistics: it sees each image a second time."""
    layers = active_norms(module)
    before = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    own = torch.get_device_module(device).get_rng_state() if device.type in ("cuda", "mps") else None
    return torch.get_rng_state(), own


def _set_random_state(state: tuple[Tensor, Tensor | None], device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.get_device_module(device).set_rng_state(state[1])
