"""What can be set for training."""

import math
import os
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from sparselabel.errors import ConfigError, param


@dataclass(frozen=True)
class Phase:
    """One phase of training.

    Parameters
    ----------
    epochs
        Epochs; 0 leaves the phase out.
    lr
        Learning rate at the start.
    batch_size
        Images in a step, over all processes.
    micro_batches
        Parts of a process's batch that go through the model one after the other, which add up to the same
        gradients in less memory; the model sees every image twice. Live batch norm and dropout see a part
        at a time, and a run says so.
    optimizer
        Optimizer (sgd has momentum .9).
    schedule
        How the learning rate goes on, step by step; one-cycle moves the momentum (Adam's β₁) too, from .95 to
        .85 and back, as torch's does.
    weight_decay
        Weight decay.
    grad_clip
        Largest norm of the gradient; 0: not clipped.
    ema_decay
        Decay of a running average of the weights, which is then evaluated and kept; 0: none.
    patience
        Stop after so many epochs without a better validation; 0: never.
    start
        Start from the last or the best epoch of the phase before.
    """

    called: ClassVar[str] = "phase"

    epochs: int = 0
    lr: float = 1e-3
    batch_size: int = 16
    micro_batches: int = 1
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    schedule: Literal["constant", "cosine", "one-cycle"] = "constant"
    weight_decay: float = 0.0
    grad_clip: float = 0.0
    ema_decay: float = 0.0
    patience: int = 0
    start: Literal["last", "best"] = "last"

    def __post_init__(self) -> None:
        # Written so that not-a-number is refused too.
        for name in ("epochs", "weight_decay", "grad_clip", "patience"):
            value = getattr(self, name)
            refuse(not value >= 0, f"{self.called}.{name}", "must not be negative", value)
        rate, size, average = self.lr, self.batch_size, self.ema_decay
        refuse(not 0 < rate < math.inf, f"{self.called}.lr", "must be above 0", rate)
        refuse(size < 1, f"{self.called}.batch_size", "must be at least 1", size)
        refuse(not 0 <= average < 1, f"{self.called}.ema_decay", "must be in [0, 1)", average)
        refuse(
            not 1 <= self.micro_batches <= size,
            f"{self.called}.micro_batches",
            f"must be from 1 to the images of a batch, {size}",
            self.micro_batches,
        )


@dataclass(frozen=True)
class HeadPhase(Phase):
    """The head alone, on a frozen backbone. See Phase.

    Parameters
    ----------
    raw_features
        On stored features, see them as they are and start from random weights, as in the papers. Default:
        where nothing is fine-tuned, a linear head sees features of norm 1, each of them with mean 0 and the
        same variance, and starts from weights 0 and the share of images that each class is annotated in.
    """

    called: ClassVar[str] = "head"

    epochs: int = 25
    raw_features: bool = False


@dataclass(frozen=True)
class FinetunePhase(Phase):
    """Everything, backbone included. See Phase.

    Parameters
    ----------
    grad_checkpointing
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

    called: ClassVar[str] = "finetune"

    lr: float = 1e-5
    schedule: Literal["constant", "cosine", "one-cycle"] = "cosine"
    batch_size: int = 16
    grad_checkpointing: bool = False
    frozen_norm: bool = False
    frozen_stages: int = 0
    head_rate: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        stages, rate = self.frozen_stages, self.head_rate
        refuse(stages < 0, "finetune.frozen_stages", "must not be negative", stages)
        refuse(not 0 < rate < math.inf, "finetune.head_rate", "must be above 0", rate)


def refuse(wrong: bool, name: str, rule: str, value: object) -> None:
    """Raise where a parameter breaks its rule."""
    if wrong:
        raise ConfigError(f"{param(name)} {rule}, not {value}", what=name, value=value)


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
AUTO = "auto"
"""The value of what is to be chosen, estimated or found out."""
TEXT = "text:"
"""Before a model of images and texts, whose scores of the classes' names are wanted."""


@dataclass(frozen=True)
class Views:
    """How images become the model's input.

    Parameters
    ----------
    size
        Side of a view in pixels.
    geometry
        squashed: images become squares, as in the papers on VOC, COCO, NUS and CUB; imagenet: random
        resized crops of any aspect in training, the central square in evaluation.
    smallest_crop
        Smallest share of the area that a random crop in training keeps; 1: no crop.
    flip
        Chance of a mirrored view in training.
    rand_augment
        Operations of RandAugment on a training view (Query2Label takes 2; of fixmatch's views on the strong
        one alone). For a method that needs to know where things are, those that move pixels are left out.
    magnitude
        Strength of these operations, from 0 to 30.
    cutout
        Side of a square that is covered in a training view, as a share of the view's (Query2Label takes .5);
        0: none; of fixmatch's views in the strong one alone. Heat maps are not written there.
    """

    size: int = 224
    geometry: Literal["squashed", "imagenet"] = "squashed"
    smallest_crop: float = 0.25
    flip: float = 0.5
    rand_augment: int = 0
    magnitude: int = 9
    cutout: float = 0.0

    def __post_init__(self) -> None:
        smallest, strength = self.smallest_crop, self.magnitude
        refuse(self.size < 16, "views.size", "must be at least 16 pixels", self.size)
        refuse(not 0 < smallest <= 1, "views.smallest_crop", "must be in (0, 1]", smallest)
        refuse(not 0 <= self.flip <= 1, "views.flip", "must be in [0, 1]", self.flip)
        refuse(self.rand_augment < 0, "views.rand_augment", "must not be negative", self.rand_augment)
        refuse(not 0 <= strength <= 30, "views.magnitude", "must be from 0 to 30", strength)
        refuse(not 0 <= self.cutout < 1, "views.cutout", "must be in [0, 1)", self.cutout)


@dataclass(frozen=True)
class Query:
    """How a Query2Label head (``classifier`` query2label) is built.

    Parameters
    ----------
    width
        Of its transformer: a 1 × 1 convolution projects the backbone's features to it. Default: their own
        width, without a projection.
    self_attention
        In which layers of the decoder queries see each other: none, as the authors' program has it by
        default; all, as in Query2Label eq. 12; the first, or later ones only.
    """

    width: int | None = None
    self_attention: Literal["none", "first", "later", "all"] = "none"

    def __post_init__(self) -> None:
        refuse(
            self.width is not None and (self.width < 4 or self.width % 4 > 0),
            "query.width",
            "must be a multiple of 4 above 0, as its four attention heads share it",
            self.width,
        )


Setting = float | str | bool
"""A setting of a method; its type, and what it may be, are checked where the method is."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides the outcome of a training run.

    Parameters
    ----------
    method
        How unknown labels are read (`sparselabel methods`); auto is gr on stored
        features (pu where K is given), pu+scl with fine-tuning, else pu.
    settings
        Settings of the method, which `sparselabel methods METHOD` lists. expected-positives is K: a number,
        a file of `sparselabel expect`, or auto, which estimates it; default: counted in fully labeled
        validation data, else auto.
    backbone
        Any timm network that makes a grid of cells of an image.
    weights
        Backbone's weights: pretrained (downloaded), none, or a safetensors or torch file.
    partial_weights
        Allow a weights file that fits only a part of the backbone.
    output_stride
        Pixels per cell of a convolutional backbone; default: its own, usually 32.
    classifier
        What makes logits of the backbone's cells: linear, a linear layer on each cell; tscam, a 3 × 3
        convolution (TS-CAM); token, a linear layer on the class token of a transformer; query2label, a
        transformer in which a query for each class looks for it in the cells; none, for a module of your own
        that returns logits (Python's `train(model=...)`).
    boost
        Multiply cell logits above 0 by this before their mean (BoostLU, which takes 5); default: not.
    frozen
        Compute the backbone's features once, keep them beside the data, and train the head on them;
        fine-tuning (`finetune.epochs`) then trains all.
    seed
        Of the head's start, the order of images and their crops.
    precision
        Of the model's numbers: 32-true, 16-mixed, bf16-mixed, 64-true.
    watch
        How many training images to follow: their scores (and maps) are kept for every epoch.
    """

    method: str = "auto"
    settings: dict[str, Setting] = field(default_factory=dict)
    backbone: str = "resnet50"
    weights: str = "pretrained"
    partial_weights: bool = False
    output_stride: int | None = None
    classifier: Literal["linear", "tscam", "token", "query2label", "none"] = "linear"
    query: Query = field(default_factory=Query)
    boost: float | None = None
    frozen: bool = False
    views: Views = field(default_factory=Views)
    head: HeadPhase = field(default_factory=HeadPhase)
    finetune: FinetunePhase = field(default_factory=FinetunePhase)
    seed: int = 0
    precision: Literal["32-true", "16-mixed", "bf16-mixed", "64-true"] = "32-true"
    watch: int = 8

    def __post_init__(self) -> None:
        settings = {key.replace("-", "_"): value for key, value in self.settings.items() if value is not None}
        object.__setattr__(self, "settings", settings)
        if self.head.epochs + self.finetune.epochs == 0:
            raise ConfigError(
                f"there is nothing to train: {param('head.epochs')} and {param('finetune.epochs')} are "
                "both 0",
                what="head.epochs",
                value=0,
            )
        stride, boost = self.output_stride, self.boost
        refuse(self.seed < 0, "seed", "must not be negative", self.seed)
        refuse(stride not in (None, 8, 16, 32), "output_stride", "must be 8, 16 or 32", stride)
        refuse(self.watch < 0, "watch", "must not be negative", self.watch)
        if self.frozen and self.head.epochs == 0:
            raise ConfigError(
                f"{param('frozen')} trains the head on stored features",
                f"give {param('head.epochs')}",
                what="head.epochs",
                value=0,
            )
        wrong = boost is not None and not 0 < boost < math.inf
        refuse(wrong, "boost", "must be a number above 0 (BoostLU takes 5)", boost)
        if self.query != Query() and self.classifier != "query2label":
            raise ConfigError(
                f"{param('query')} is for {param('classifier', 'query2label')}, not for {self.classifier}",
                "leave one out",
                what="query",
                value=self.classifier,
            )

    @property
    def phases(self) -> dict[str, Phase]:
        """The phases that have epochs, in their order."""
        return {
            name: phase for name, phase in (("head", self.head), ("finetune", self.finetune)) if phase.epochs
        }

    @property
    def epochs(self) -> int:
        """Epochs of all phases together."""
        return self.head.epochs + self.finetune.epochs

    @property
    def has_attention(self) -> bool:
        """Whether its maps are attention, where it looked for a class, and not scores of cells."""
        return self.classifier == "query2label"


Engine = Literal["auto", "openvino", "onnxruntime", "torch"]
ShardFormat = Literal["parquet", "jsonl", "csv"]
"""What predictions of a cluster are written as."""


@dataclass(frozen=True)
class Machine:
    """Where to run; it changes the outcome by rounding, and by the order of images that processes share.

    Parameters
    ----------
    accelerator
        auto takes a GPU if there is one.
    devices
        Processes on this machine, one per device. Under `torchrun` it is torchrun's business.
    workers
        Processes that load images, per device. By default one per core, at most 8, for a GPU; for a CPU
        none: threads load a batch, and then the network has all cores.
    memories
        Where methods keep what they remember of every image: in RAM, in files of the run's folder, or,
        auto, in RAM if it takes at most half of what is free.
    engine
        What runs the network where nothing is trained, on a CPU: openvino, onnxruntime or torch; auto takes
        the first of them that is installed, and torch for few images.
    compile
        Compile what is trained on images (`torch.compile`): a minute or more at the start, then faster steps
        on most GPUs, and on some CPUs.
    """

    accelerator: Literal["auto", "cpu", "gpu", "mps"] = "auto"
    devices: int = 1
    workers: int | None = None
    memories: Literal["auto", "ram", "file"] = "auto"
    engine: Engine = "auto"
    compile: bool = False

    def __post_init__(self) -> None:
        refuse(self.devices < 1, "devices", "must be at least 1", self.devices)
        refuse((self.workers or 0) < 0, "workers", "must not be negative", self.workers)


@dataclass(frozen=True)
class Handling:
    """How to treat what is there, and what to say.

    Parameters
    ----------
    resume
        Go on with the run in the folder, if there is one.
    force
        Replace the run in the folder.
    quiet
        Say nothing but errors.
    tensorboard
        Write TensorBoard files too (needs the extra `tensorboard`).
    dry_run
        Only measure what the run would need: take a few steps of each phase, tell memory, disk and time, and
        write nothing.
    """

    resume: bool = False
    force: bool = False
    quiet: bool = False
    tensorboard: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.resume and self.force:
            raise ConfigError(
                f"{param('resume')} goes on with a run, {param('force')} replaces it",
                "give one",
                what="resume",
            )
