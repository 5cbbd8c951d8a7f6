"""Hooks of ``sparselabel.train``: callbacks, loggers, and your own optimizer and scheduler."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from sparselabel.errors import ConfigError, param

if TYPE_CHECKING:
    from lightning_fabric.loggers.logger import Logger

    from sparselabel.run import Run
    from sparselabel.training.trainer import Trainer

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]
SchedulerFactory = Callable[[Optimizer, int], LRScheduler]


class Callback:
    """Hooks that are called while a run trains; override the ones you need.

    To end training, set ``trainer.should_stop``: the epoch is finished, and the best one is kept.
    """

    def on_fit_start(self, trainer: "Trainer") -> None:
        """Called before the first epoch, and when a run is resumed."""

    def on_step_end(self, trainer: "Trainer", losses: dict[str, Tensor]) -> None:
        """Called after every optimizer step, with the losses of the step by name."""

    def on_epoch_end(self, trainer: "Trainer", record: dict[str, Any]) -> None:
        """Called after every epoch, with its line of metrics.jsonl: epoch, phase, losses, validation."""

    def on_fit_end(self, run: "Run") -> None:
        """Called when the run is finished and its files are written."""


@dataclass(frozen=True)
class Hooks:
    """The hooks given to ``train`` besides its configuration.

    Parameters
    ----------
    callbacks
        Called during training.
    loggers
        Fabric's loggers (CSV, TensorBoard, W&B, MLflow): they get losses and validation after every epoch.
    optimizer
        Makes the optimizer of each phase from the parameters to train. Its learning rate follows the phase's
        schedule.
    scheduler
        Makes a scheduler of an optimizer and the phase's number of steps; it is stepped after every step.
    """

    callbacks: "tuple[Callback, ...]" = ()
    loggers: "tuple[Logger, ...]" = ()
    optimizer: OptimizerFactory | None = None
    scheduler: SchedulerFactory | None = None


def checked_hooks(
    callbacks: Iterable[Callback],
    loggers: "Iterable[Logger]",
    optimizer: OptimizerFactory | None,
    scheduler: SchedulerFactory | None,
) -> Hooks:
    """The hooks given to ``train``, with their types checked."""
    for name, several in (("callbacks", callbacks), ("loggers", loggers)):
        if not isinstance(several, Iterable):
            kind = type(several).__name__
            raise ConfigError(f"{param(name)} must be a list, not {kind}", what=name, value=kind)
    hooks = Hooks(tuple(callbacks), tuple(loggers), optimizer, scheduler)
    for one in hooks.callbacks:
        if not isinstance(one, Callback):
            kind = one.__name__ if isinstance(one, type) else type(one).__name__
            problem = (
                f"{param('callbacks')} must be objects of a subclass of sparselabel.Callback, not {kind}"
            )
            raise ConfigError(problem, what="callbacks", value=kind)
    makers = (
        ("optimizer", optimizer, "lambda parameters: torch.optim.Adam(parameters, lr=1e-3)"),
        ("scheduler", scheduler, "lambda optimizer, steps: torch.optim.lr_scheduler.LinearLR(optimizer)"),
    )
    for name, maker, example in makers:
        if maker is not None and not callable(maker):
            kind = type(maker).__name__
            problem = f"{param(name)} must be a function that makes one for each phase, not {kind}"
            raise ConfigError(problem, f"give {example}", what=name, value=kind)
    return hooks
