"""What Python adds to a run: callbacks, loggers, an optimizer and a scheduler of one's own."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

if TYPE_CHECKING:
    from lightning_fabric.loggers.logger import Logger

    from sparselabel.run import Run
    from sparselabel.training.trainer import Trainer

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]
SchedulerFactory = Callable[[Optimizer, int], LRScheduler]


class Callback:
    """Called while a run trains; a subclass overrides what it wants to see.

    To end training, set ``trainer.should_stop``: the epoch is finished, and the best one is kept.
    """

    def on_fit_start(self, trainer: "Trainer") -> None:
        """Before the first epoch, also of a run that is resumed."""

    def on_step_end(self, trainer: "Trainer", losses: dict[str, Tensor]) -> None:
        """After every step of the optimizer, with the losses of the step by name."""

    def on_epoch_end(self, trainer: "Trainer", record: dict[str, Any]) -> None:
        """After every epoch, with what metrics.jsonl says of it: epoch, phase, losses, validation."""

    def on_fit_end(self, run: "Run") -> None:
        """When the run is finished and its files are written."""


@dataclass(frozen=True)
class Hooks:
    """What was given to ``train`` besides its configuration.

    Parameters
    ----------
    callbacks
        Called while it trains.
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
