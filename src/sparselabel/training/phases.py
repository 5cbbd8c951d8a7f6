"""A phase made ready: what is trained, by which optimizer, on which batches."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from sparselabel.config import FinetunePhase, Phase
from sparselabel.data.loaders import Batch, Loader, epoch_batches
from sparselabel.models.classifier import HEAD, Output
from sparselabel.training.micro_batches import MicroBatches, norms_at_rest
from sparselabel.training.schedule import lr_at, momentum

if TYPE_CHECKING:
    from lightning_fabric import Fabric

AHEAD = 4  # batches that a memory on the disk may fetch before their turn
MULTIPLE = "multiple"  # of the phase's learning rate, in a group of the optimizer


class Forward(NamedTuple):
    """The model's output for a step, and what takes the gradients of a loss of it back to the model."""

    output: Output
    backward: Callable[[Tensor], None]


@dataclass
class Stage:
    """A phase at work: ``module`` is trained (the head on features, or the classifier on views)."""

    name: str
    phase: Phase
    first_epoch: int
    module: nn.Module
    wrapped: Any
    optimizer: Any
    average: nn.Module | None
    loader: Loader
    rows: int
    fabric: "Fabric"
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch, the same in all processes."""
        return -(-self.rows // self.phase.batch_size)

    def batches(self, epoch: int, prefetch: Callable[[Tensor], None]) -> Iterator[tuple[float, Batch]]:
        """The batches of an epoch, each with its learning rate; the optimizer is set to it and its momentum.

        ``prefetch`` is told the rows of batches to come, so that what is on the disk can be fetched in time.
        """
        rows = epoch_batches(
            self.rows,
            self.phase.batch_size,
            self.seed,
            epoch,
            self.fabric.global_rank,
            self.fabric.world_size,
        )
        steps = self.steps_per_epoch * self.phase.epochs
        first = (epoch - self.first_epoch) * self.steps_per_epoch
        for soon in rows[:AHEAD]:
            prefetch(torch.from_numpy(soon))
        for number, batch in enumerate(self.loader(rows, epoch)):
            if number + AHEAD < len(rows):
                prefetch(torch.from_numpy(rows[number + AHEAD]))
            rate = lr_at(self.phase, first + number, steps)
            self._set(rate, momentum(self.phase, first + number, steps))
            yield rate, batch

    def _set(self, rate: float, momentum: float | None) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get(MULTIPLE, 1.0)
            if momentum is not None and "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            elif momentum is not None:
                group["momentum"] = momentum

    def forward(self, views: Tensor, *, maps: bool, features: bool) -> Forward:
        """The model's output for a step's views, all at once or in micro-batches, and the way back."""
        if self.phase.micro_batches == 1:
            return Forward(self.wrapped(views, maps=maps), self._backward)
        parts = self.phase.micro_batches
        micro_batches = MicroBatches(
            self.wrapped, self.module, self.fabric, views, parts, maps=maps, features=features
        )
        return Forward(micro_batches.output, lambda loss: micro_batches.backward(loss, self._backward))

    def optimizer_step(self) -> None:
        """One step of the optimizer by the gradients that are there, and of the running average."""
        if self.phase.grad_clip:
            self.fabric.clip_gradients(self.wrapped, self.optimizer, max_norm=self.phase.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.average is not None:
            self.average.update(self.module)  # type: ignore[operator]

    def _backward(self, loss: Tensor) -> None:
        again = isinstance(self.phase, FinetunePhase) and self.phase.grad_checkpointing
        with norms_at_rest(self.module) if again else nullcontext():
            if self.wrapped is self.module:
                loss.backward()  # type: ignore[no-untyped-call]
            else:
                self.fabric.backward(loss)

    @property
    def eval_module(self) -> nn.Module:
        """What is evaluated and kept: the running average of the weights, if there is one."""
        return self.module if self.average is None else self.average.module  # type: ignore[return-value]


def make_stage(
    name: str,
    phase: Phase,
    first_epoch: int,
    module: nn.Module,
    loader: Loader,
    rows: int,
    fabric: "Fabric",
    seed: int,
    precision: str,
) -> Stage:
    """Give a phase its optimizer and, if wanted, a running average of its weights."""
    wrapped, optimizer = fabric.setup(module, make_optimizer(phase, _groups(phase, module)))
    if fabric.world_size == 1 and precision == "32-true":
        wrapped = module  # Fabric's wrapper has nothing to add there, and takes a tenth of a small step
    average = None
    if phase.ema_decay:
        from timm.utils.model_ema import ModelEmaV3

        average = ModelEmaV3(module, decay=phase.ema_decay)
    return Stage(name, phase, first_epoch, module, wrapped, optimizer, average, loader, rows, fabric, seed)


def _groups(phase: Phase, module: nn.Module) -> list[nn.Parameter] | list[dict[str, Any]]:
    """What is trained: all at one rate, or the head at a multiple of it."""
    multiple = phase.head_rate if isinstance(phase, FinetunePhase) else 1.0
    named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    if multiple == 1:
        return [parameter for _, parameter in named]
    head = [parameter for name, parameter in named if name.startswith(HEAD)]
    rest = [parameter for name, parameter in named if not name.startswith(HEAD)]
    return [{"params": rest, MULTIPLE: 1.0}, {"params": head, MULTIPLE: multiple}]


def make_optimizer(
    phase: Phase, parameters: list[nn.Parameter] | list[Tensor] | list[dict[str, Any]]
) -> torch.optim.Optimizer:
    """The phase's optimizer; the learning rate is set step by step."""
    # A fused optimizer undoes loss scaling by itself, after gradients could have been clipped.
    common: dict[str, Any] = {
        "lr": phase.lr,
        "weight_decay": phase.weight_decay,
        "fused": not phase.grad_clip,
    }
    match phase.optimizer:
        case "adam":
            return torch.optim.Adam(parameters, **common)
        case "adamw":
            return torch.optim.AdamW(parameters, **common)
        case "sgd":
            return torch.optim.SGD(parameters, momentum=0.9, **common)
