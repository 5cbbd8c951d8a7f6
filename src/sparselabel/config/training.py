"""What can be set for training."""

import math
import os
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from sparselabel.config.settings import Settings
from sparselabel.errors import ConfigError

CORES = os.cpu_count() or 1
WORKERS = min(8, CORES) if CORES > 2 else 0  # where cores are few, the model needs them all


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
    optimiser
        Optimiser (sgd has momentum .9).
    schedule
        How the learning rate goes on, step by step.
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
            _refuse(not value >= 0, f"{flag} must not be negative, but is {value}")
        rate, average = self.learning_rate, self.weight_average
        _refuse(not 0 < rate < math.inf, f"{self.called}.learning-rate must be above 0, not {rate}")
        _refuse(self.batch < 1, f"{self.called}.batch must be at least 1, not {self.batch}")
        _refuse(not 0 <= average < 1, f"{self.called}.weight-average must be in [0, 1), not {average}")


@dataclass(frozen=True)
class HeadPhase(Phase):
    """The head alone, on a frozen backbone. See Phase."""

    called: ClassVar[str] = "head"

    epochs: int = 25


@dataclass(frozen=True)
class FullPhase(Phase):
    """Everything, backbone included. See Phase."""

    called: ClassVar[str] = "full"

    learning_rate: float = 1e-5
    schedule: Literal["constant", "cosine", "one-cycle"] = "cosine"
    batch: int = 16


@dataclass(frozen=True)
class Views:
    """How pictures become the model's input.

    Parameters
    ----------
    size
        Side of a view in pixels.
    geometry
        squashed: pictures become squares, as in the papers on VOC, COCO, NUS and CUB; imagenet: random
        resized crops of any aspect in training, the central square in evaluation.
    smallest_crop
        Smallest share of the area that a random crop in training keeps; 1: no crop.
    flip
        Chance of a mirrored view in training.
    """

    size: int = 224
    geometry: Literal["squashed", "imagenet"] = "squashed"
    smallest_crop: float = 0.25
    flip: float = 0.5

    def __post_init__(self) -> None:
        _refuse(self.size < 16, f"views.size must be at least 16 pixels, not {self.size}")
        _refuse(
            not 0 < self.smallest_crop <= 1,
            f"views.smallest-crop must be in (0, 1], not {self.smallest_crop}",
        )
        _refuse(not 0 <= self.flip <= 1, f"views.flip must be in [0, 1], not {self.flip}")


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides the outcome of a training run.

    Parameters
    ----------
    method
        How unknown labels are read (`sparselabel methods` lists all).
    backbone
        Any timm network.
    weights
        Backbone's weights: pretrained (downloaded), none, or a safetensors or torch file.
    partial_weights
        Allow a weights file that fits only a part of the backbone.
    output_stride
        Pixels a cell of a convolutional backbone; default: its own, usually 32.
    classifier
        What makes logits of the backbone's cells: linear, a linear layer on each cell; tscam, a 3 × 3
        convolution (TS-CAM); token, a linear layer on the class token of a transformer; query2label, a
        transformer in which a query for each class looks for it in the cells.
    boost
        Multiply cell logits above 0 by this before their mean (BoostLU, which takes 5); default: not.
    frozen
        Compute the backbone's features once, keep them beside the data, and train the head on them; with
        --full.epochs everything is trained afterwards, on pictures.
    seed
        Of the head's start, the order of pictures and their crops.
    precision
        Of the model's numbers: 32-true, 16-mixed, bf16-mixed, 64-true.
    watch
        How many training pictures to follow: their scores (and maps) are kept for every epoch.
    """

    method: str = "an"
    settings: Settings = field(default_factory=Settings)
    backbone: str = "resnet50"
    weights: str = "pretrained"
    partial_weights: bool = False
    output_stride: int | None = None
    classifier: Literal["linear", "tscam", "token", "query2label"] = "linear"
    boost: float | None = None
    frozen: bool = False
    views: Views = field(default_factory=Views)
    head: HeadPhase = field(default_factory=HeadPhase)
    full: FullPhase = field(default_factory=FullPhase)
    seed: int = 0
    precision: Literal["32-true", "16-mixed", "bf16-mixed", "64-true"] = "32-true"
    watch: int = 8

    def __post_init__(self) -> None:
        _refuse(
            self.head.epochs + self.full.epochs == 0,
            "there is nothing to train: --head.epochs and --full.epochs are both 0",
        )
        _refuse(self.seed < 0, f"seed must not be negative, but is {self.seed}")
        _refuse(self.watch < 0, f"watch must not be negative, but is {self.watch}")
        _refuse(
            self.frozen and self.head.epochs == 0,
            "--frozen trains the head on stored features: give --head.epochs",
        )
        _refuse(
            self.boost is not None and not 0 < self.boost < math.inf,
            f"boost must be a number above 0, not {self.boost}: BoostLU takes 5",
        )

    @property
    def phases(self) -> dict[str, Phase]:
        """The phases that have epochs, in their order."""
        return {name: phase for name, phase in (("head", self.head), ("full", self.full)) if phase.epochs}

    @property
    def epochs(self) -> int:
        """Epochs of all phases together."""
        return self.head.epochs + self.full.epochs


@dataclass(frozen=True)
class Machine:
    """Where to run; it changes the outcome by rounding, and by the order of pictures that processes share.

    Parameters
    ----------
    accelerator
        auto takes a GPU if there is one.
    devices
        Processes on this machine, one a device. Under `torchrun` it is torchrun's business.
    workers
        Processes that load pictures, per device.
    memories
        Where methods keep what they remember of every picture: in RAM, in files of the run's folder, or,
        auto, in RAM if it takes at most half of what is free.
    """

    accelerator: Literal["auto", "cpu", "gpu", "mps"] = "auto"
    devices: int = 1
    workers: int = WORKERS
    memories: Literal["auto", "ram", "file"] = "auto"

    def __post_init__(self) -> None:
        _refuse(self.devices < 1, f"devices must be at least 1, not {self.devices}")
        _refuse(self.workers < 0, f"workers must not be negative, but is {self.workers}")


@dataclass(frozen=True)
class Handling:
    """How to treat what is there, and what to say.

    Parameters
    ----------
    resume
        Go on with the run in --out, if there is one.
    force
        Replace the run in --out.
    quiet
        Say nothing but errors.
    tensorboard
        Write TensorBoard files too (needs the extra `tensorboard`).
    """

    resume: bool = False
    force: bool = False
    quiet: bool = False
    tensorboard: bool = False

    def __post_init__(self) -> None:
        _refuse(self.resume and self.force, "--resume goes on with a run, --force replaces it: give one")


def _refuse(wrong: bool, why: str) -> None:
    if wrong:
        raise ConfigError(why)
