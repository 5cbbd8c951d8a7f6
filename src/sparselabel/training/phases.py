"""``Stage``: a phase with its module, optimizer, learning rates and batches."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from sparselabel.config import FinetunePhase, Phase, TrainConfig
from sparselabel.data.loaders import Batch, FeatureLoader, Loader, epoch_batches
from sparselabel.errors import ConfigError, ResourceError, RunError, param
from sparselabel.losses.base import Needs
from sparselabel.losses.step import in_chunks
from sparselabel.models.classifier import HEAD, LinearHead, Output
from sparselabel.resources import available_memory
from sparselabel.slow_imports import import_timm
from sparselabel.training.callbacks import Hooks
from sparselabel.training.micro_batches import Backward, MicroBatches, paused_norm_statistics
from sparselabel.training.schedule import lr_at, momentum_at

if TYPE_CHECKING:
    from lightning_fabric import Fabric

AHEAD = 4  # batches whose rows are prefetched from row stores on disk
SHARE_OF_RAM = 0.25  # of what is available, that a copy of stored features may take
MULTIPLE = "multiple"  # key of an optimizer's parameter group: its multiple of the phase's learning rate


@dataclass
class Stage:
    """A phase being trained: ``module`` is the head (on stored features) or the whole classifier (on views).

    ``fabric_module`` is the module as Fabric wraps it (in DDP with several processes), or the module itself
    if no wrapper is needed. ``average`` is the EMA of the weights, if the phase has one.
    """

    name: str
    phase: Phase
    first_epoch: int
    module: nn.Module
    loader: Loader
    rows: int
    fabric: "Fabric"
    seed: int
    precision: str
    hooks: Hooks = field(default_factory=Hooks)
    compile: bool = False

    def __post_init__(self) -> None:
        optimizer = self._optimizer()
        self.scheduler: LRScheduler | None = None
        if self.hooks.scheduler is not None:
            self.scheduler = self.hooks.scheduler(optimizer, self.steps_per_epoch * self.phase.epochs)
        self.fabric_module: Any
        self.optimizer: Any
        self.fabric_module, self.optimizer = self.fabric.setup(self.module, optimizer)
        if self.fabric.world_size == 1 and self.precision == "32-true":
            # Fabric's wrappers would only add overhead: a tenth of a small step.
            self.fabric_module, self.optimizer = self.module, optimizer
        self._parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
        self._backward_by_fabric = self.fabric_module is not self.module
        if self.compile:  # it shares the module's parameters; the saved and evaluated module is not compiled
            self.fabric_module = torch.compile(self.fabric_module)
        self._of_standardized: Callable[[Tensor], tuple[Tensor, Backward]] | None = None
        self.average: nn.Module | None = None
        if self.phase.ema_decay:
            import_timm()
            from timm.utils.model_ema import ModelEmaV3

            self.average = ModelEmaV3(self.module, decay=self.phase.ema_decay)

    def standardize_once(self) -> None:
        """Let the head see stored pooled features standardized now, not in every step: the bits are the same.

        On a CPU, and where the copy does not take much RAM.
        """
        head, loader = self.module, self.loader
        if (
            self.fabric_module is not head
            or self.fabric.device.type != "cpu"
            or self.phase.micro_batches > 1
            or not (isinstance(head, LinearHead) and head.boost is None)
            or not (isinstance(loader, FeatureLoader) and loader.features.ndim == 2)
            or loader.features.nbytes > SHARE_OF_RAM * available_memory()
        ):
            return
        standardized = torch.empty_like(loader.features)
        for some, into in zip(in_chunks(loader.features), in_chunks(standardized), strict=True):
            into.copy_(head.standardized(some))
        self.loader, self._of_standardized = FeatureLoader(standardized), head.of_standardized

    def _optimizer(self) -> torch.optim.Optimizer:
        if self.hooks.optimizer is None:
            return make_optimizer(self.phase, _parameter_groups(self.phase, self.module))
        optimizer = self.hooks.optimizer(
            [weight for weight in self.module.parameters() if weight.requires_grad]
        )
        if not isinstance(optimizer, torch.optim.Optimizer):
            kind = type(optimizer).__name__
            problem = f"{param('optimizer')} must return a torch.optim.Optimizer, not {kind}"
            raise ConfigError(problem, what="optimizer", value=kind)
        for group in optimizer.param_groups:
            group[MULTIPLE] = group["lr"] / self.phase.lr
        return optimizer

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch, the same in all processes."""
        return -(-self.rows // self.phase.batch_size)

    def batches(self, epoch: int, prefetch: Callable[[Tensor], None]) -> Iterator[tuple[float, Batch]]:
        """The batches of an epoch, each with its learning rate, which is set in the optimizer.

        The momentum is set too. ``prefetch`` gets the rows of the next batches, to read their row stores from
        disk in time.
        """
        rank, processes = self.fabric.global_rank, self.fabric.world_size
        rows = epoch_batches(self.rows, self.phase.batch_size, self.seed, epoch, rank, processes)
        steps = self.steps_per_epoch * self.phase.epochs
        first = (epoch - self.first_epoch) * self.steps_per_epoch
        for soon in rows[:AHEAD]:
            prefetch(torch.from_numpy(soon))
        for number, batch in enumerate(self.loader(rows, epoch)):
            if number + AHEAD < len(rows):
                prefetch(torch.from_numpy(rows[number + AHEAD]))
            if self.scheduler is not None:
                yield self.optimizer.param_groups[0]["lr"], batch
                continue
            yield set_rate(self.optimizer, self.phase, first + number, steps), batch

    def forward(self, views: Tensor, needs: Needs) -> tuple[Output, Backward]:
        """The model's output for a step's views, and the function that runs backward.

        The views go through the model at once or in micro-batches.
        """
        if self._of_standardized is not None:
            logits, backward = self._of_standardized(views)
            return Output(logits, None, views), backward
        model = self.fabric_module
        if self.phase.micro_batches == 1:
            return model(views, maps=needs.maps), self._backward
        micro_batches = MicroBatches(model, self.module, self.fabric, views, self.phase.micro_batches, needs)
        return micro_batches.output, lambda loss: micro_batches.backward(loss, self._backward)

    def optimizer_step(self) -> None:
        """Clip gradients, step the optimizer and the scheduler, and update the EMA of the weights."""
        if self.phase.grad_clip:
            self.fabric.clip_gradients(self.fabric_module, self.optimizer, max_norm=self.phase.grad_clip)
        self.optimizer.step()
        for parameter in self._parameters:  # optimizer.zero_grad() takes four times as long
            parameter.grad = None
        if self.scheduler is not None:
            self.scheduler.step()
        if self.average is not None:
            self.average.update(self.module)  # type: ignore[operator]

    def _backward(self, loss: Tensor) -> None:
        recomputes = isinstance(self.phase, FinetunePhase) and self.phase.grad_checkpointing
        with paused_norm_statistics(self.module) if recomputes else nullcontext():
            if self._backward_by_fabric:
                self.fabric.backward(loss)
            else:
                loss.backward()  # type: ignore[no-untyped-call]

    @property
    def eval_module(self) -> nn.Module:
        """The module that is evaluated and saved: the EMA of the weights, if there is one."""
        return self.module if self.average is None else self.average.module  # type: ignore[return-value]


def _parameter_groups(phase: Phase, module: nn.Module) -> list[nn.Parameter] | list[dict[str, Any]]:
    """The trained parameters: all at one rate, or the head at a multiple of it."""
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


def set_rate(optimizer: torch.optim.Optimizer, phase: Phase, step: int, steps: int) -> float:
    """Set learning rate and momentum for a step of the phase's ``steps``; returns the rate."""
    lr = lr_at(phase, step, steps)
    beta = momentum_at(phase, step, steps)
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get(MULTIPLE, 1.0)
        if beta is not None:
            adam = "betas" in group
            group.update({"betas": (beta, group["betas"][1])} if adam else {"momentum": beta})
    return lr


def refuse_uneven_batches(config: TrainConfig, processes: int) -> None:
    """Raise if a phase has batches that so many processes cannot share evenly."""
    for name, phase in config.phases.items():
        size = phase.batch_size
        if size % processes:
            raise ConfigError(
                f"phase {name}: a batch of {size} cannot be shared evenly by {processes} processes",
                f"take {param(f'{name}.batch_size', -(-size // processes) * processes)}",
                f"take a number of processes that divides {size}",
                what=f"{name}.batch_size",
                value=size,
            )


def diverged(config: TrainConfig, phase: str, sign: str) -> RunError:
    """The error to raise when losses or scores are no longer numbers."""
    lr = config.phases[phase].lr
    return RunError(
        f"training diverged in phase {phase} (learning rate {lr:g}), as {sign}",
        f"begin anew ({param('force', True)}) with a smaller {param(f'{phase}.lr')}",
        f"limit the norm of the gradient ({param(f'{phase}.grad_clip', 1)})",
    )


def does_not_fit(config: TrainConfig, phase: str, error: Exception) -> ResourceError:
    """The error to raise when a step does not fit into the memory of the device."""
    now, reason = config.phases[phase], str(error).partition(". ")[0]
    more = min(now.batch_size, 2 * now.micro_batches)
    remedies = [f"split the batch with {param(f'{phase}.micro_batches', more)}"]
    if phase == "finetune" and not config.finetune.grad_checkpointing:
        remedies.insert(0, f"take {param('finetune.grad_checkpointing', True)}")
    if config.precision == "32-true":
        remedies.append(f"take {param('precision', 'bf16-mixed')}")
    if config.query.width is not None:
        remedies.append(f"a {param('query.width')} below {config.query.width}")
    return ResourceError(
        f"a step of phase {phase} ({now.batch_size} images of {config.views.size} pixels, "
        f"{config.backbone}) does not fit ({reason})",
        *remedies,
        f"a smaller {param(f'{phase}.batch_size')} or {param('views.size')} ({param('dry_run', True)} "
        "measures each)",
    )


COMPILERS = ("torch._dynamo", "torch._inductor")


def not_compiled(error: Exception) -> ConfigError:
    """The error to raise when ``torch.compile`` fails, for example without a C++ compiler."""
    reason = " ".join(str(error).split())[:200]
    return ConfigError(
        f"the network cannot be compiled ({type(error).__name__}: {reason})",
        f"leave {param('compile')} out",
        what="compile",
        value=True,
    )
