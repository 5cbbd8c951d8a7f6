"""What can be set for a phase of training."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from sparselabel.errors import ConfigError


@dataclass(frozen=True)
class Phase:
    """One phase of training.

    Parameters
    ----------
    epochs
        Epochs; 0 leaves the phase out.
    learning_rate
        Learning rate at the start.
    batch
        Pictures in a step, over all processes.
    accumulate
        Parts of a process's batch that go through the model one after the other, which add up to the same
        gradients in less memory; the model sees every picture twice. Live batch norm and dropout see a part
        at a time, and a run says so.
    optimiser
        Optimiser (sgd has momentum .9).
    schedule
        How the learning rate goes on, step by step; one-cycle moves the momentum (Adam's β₁) too, from .95 to
        .85 and back, as torch's does.
    weight_decay
        Weight decay.
    clip
        Largest norm of the gradient; 0: not clipped.
    weight_average
        Decay of a running average of the weights, which is then evaluated and kept; 0: none.
    patience
        Stop after so many epochs without a better validation; 0: never.
    start
        Start from the last or the best epoch of the phase before.
    """

    called: ClassVar[str] = "phase"

    epochs: int = 0
    learning_rate: float = 1e-3
    batch: int = 16
    accumulate: int = 1
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"
    schedule: Literal["constant", "cosine", "one-cycle"] = "constant"
    weight_decay: float = 0.0
    clip: float = 0.0
    weight_average: float = 0.0
    patience: int = 0
    start: Literal["last", "best"] = "last"

    def __post_init__(self) -> None:
        # Written so that not-a-number is refused too.
        for name in ("epochs", "weight_decay", "clip", "patience"):
            value = getattr(self, name)
            flag = f"{self.called}.{name.replace('_', '-')}"
            refuse(not value >= 0, f"{flag} must not be negative, but is {value}")
        rate, average = self.learning_rate, self.weight_average
        refuse(not 0 < rate < math.inf, f"{self.called}.learning-rate must be above 0, not {rate}")
        refuse(self.batch < 1, f"{self.called}.batch must be at least 1, not {self.batch}")
        refuse(not 0 <= average < 1, f"{self.called}.weight-average must be in [0, 1), not {average}")
        refuse(
            not 1 <= self.accumulate <= self.batch,
            f"{self.called}.accumulate must be from 1 to the pictures of a batch, {self.batch}, "
            f"not {self.accumulate}",
        )


@dataclass(frozen=True)
class HeadPhase(Phase):
    """The head alone, on a frozen backbone. See Phase."""

    called: ClassVar[str] = "head"

    epochs: int = 25


@dataclass(frozen=True)
class FullPhase(Phase):
    """Everything, backbone included. See Phase.

    Parameters
    ----------
    recompute
        Compute what is inside the backbone again on the way back instead of keeping it (activation
        checkpointing): the same gradients in much less memory and about a third more time.
    frozen_norm
        Batch norm stays as it is: its statistics and its scales (Query2Label on ResNets).
    frozen_stages
        First stages of the backbone that stay as they are: 1 is the stem, 2 the stem and the first stage
        (Query2Label on ResNets).
    head_rate
        Learning rate of the head as a multiple of the backbone's.
    """

    called: ClassVar[str] = "full"

    learning_rate: float = 1e-5
    schedule: Literal["constant", "cosine", "one-cycle"] = "cosine"
    batch: int = 16
    recompute: bool = False
    frozen_norm: bool = False
    frozen_stages: int = 0
    head_rate: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        stages, rate = self.frozen_stages, self.head_rate
        refuse(stages < 0, f"full.frozen-stages must not be negative, but is {stages}")
        refuse(not 0 < rate < math.inf, f"full.head-rate must be above 0, not {rate}")


def refuse(wrong: bool, why: str) -> None:
    """Raise where something is wrong."""
    if wrong:
        raise ConfigError(why)
