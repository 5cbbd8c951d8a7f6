"""Settings for training, and how a Python function takes them as keywords."""

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal

from sparselabel.errors import ConfigError, param
from sparselabel.schema import from_dict


@dataclass(frozen=True)
class Phase:
    """One phase of training.

    Parameters
    ----------
    epochs
        Number of epochs; 0 skips the phase.
    lr
        Learning rate at the start.
    batch_size
        Images per step, summed over all processes.
    micro_batches
        Split each process's batch into this many parts and add up their gradients: the same gradients in less
        memory, but the model sees every image twice. Batch norm and dropout that are active see one part at
        a time; a run warns about that.
    optimizer
        Optimizer; sgd has momentum 0.9.
    schedule
        How the learning rate changes from step to step; one-cycle also moves the momentum (Adam's β₁) from
        0.95 to 0.85 and back, as in PyTorch.
    weight_decay
        Weight decay.
    grad_clip
        Maximum norm of the gradient; 0 does not clip.
    ema_decay
        Decay of an exponential moving average of the weights, which is then evaluated and saved; 0: none.
    patience
        Stop after this many epochs without a better validation metric; 0 never stops early.
    start
        Start from the last or the best epoch of the previous phase.
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
        Train on stored features as they are, from random weights, as in the papers. By default, without
        fine-tuning, a linear head sees features of norm 1, standardized to mean 0 and equal variance; its
        weights start at 0, its biases at the share of images in which each class is annotated.
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
        Recompute the backbone's activations in the backward pass instead of storing them: the same gradients
        in much less memory and about a third more time.
    frozen_norm
        Freeze batch norm: its statistics and its scales (Query2Label on ResNets).
    frozen_stages
        Freeze the first stages of the backbone: 1 is the stem, 2 the stem and the first stage (Query2Label
        on ResNets).
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
"""The value of a setting that is to be chosen or estimated."""
TEXT = "text:"
"""Prefix of an image-text model that scores images by the classes' names."""


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
        Smallest share of the image area that a random training crop keeps; 1 does not crop.
    flip
        Probability of a horizontal flip in training.
    rand_augment
        Number of RandAugment operations on a training view (Query2Label takes 2; with fixmatch only on the
        strong view). Methods that need to know where things are leave out operations that move pixels.
    magnitude
        Strength of the RandAugment operations, from 0 to 30.
    cutout
        Side of the square that cutout covers in a training view, as a share of the view's side (Query2Label
        takes 0.5; with fixmatch only in the strong view); 0: no cutout. Heat maps are not updated there.
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
        refuse(not 16 <= self.size <= 16_384, "views.size", "must be from 16 to 16,384 pixels", self.size)
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
        Width of the transformer, to which a 1 × 1 convolution projects the backbone's features. By default
        the features' own width, without a projection.
    self_attention
        Decoder layers with self-attention between the queries: none, the default of the authors' code; all,
        as in Query2Label eq. 12; the first, or only later ones.
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
        How unknown labels are treated (`sparselabel methods`); auto is soft on stored features (of very many
        images gr, or pu if K is given), en+scl with fine-tuning, else pu.
    settings
        Settings of the method (`sparselabel methods METHOD`). expected-positives is K: a number, a file of
        `sparselabel expect`, or auto, which estimates it; default: counted in fully labeled validation data,
        else auto.
    backbone
        Any timm network whose features are a grid of cells.
    weights
        Backbone's weights: pretrained (downloaded), none, or a safetensors or torch file.
    partial_weights
        Accept a weights file that fits only part of the backbone.
    output_stride
        Pixels per cell of a convolutional backbone; default: its own, usually 32.
    classifier
        The head, which turns the backbone's features into logits. linear: a linear layer on each cell; tscam:
        a 3 × 3 convolution (TS-CAM); token: a linear layer on a transformer's class token; query2label: a
        transformer decoder with one query per class; none: for your own module that returns logits (Python's
        `train(model=...)`).
    boost
        Multiply positive cell logits by this before averaging (BoostLU takes 5); by default off.
    frozen
        Compute the backbone's features once, store them beside the data, and train the head on them;
        fine-tuning (`finetune.epochs`) then trains all.
    seed
        Random seed of the head's initial weights, the order of images and their crops.
    precision
        Floating-point precision, as Lightning Fabric names it.
    watch
        Number of training images whose scores (and maps) are saved after every epoch.
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
        """The phases that have epochs, in order."""
        return {
            name: phase for name, phase in (("head", self.head), ("finetune", self.finetune)) if phase.epochs
        }

    @property
    def epochs(self) -> int:
        """Epochs of all phases together."""
        return self.head.epochs + self.finetune.epochs

    @property
    def has_attention(self) -> bool:
        """Whether its maps show attention (where it looked for a class), not scores of cells."""
        return self.classifier == "query2label"


Engine = Literal["auto", "openvino", "onnxruntime", "torch"]
ShardFormat = Literal["parquet", "jsonl", "csv"]
"""What predictions of a cluster are written as."""


@dataclass(frozen=True)
class Machine:
    """Where to run. It affects results only by rounding, and by how images are divided over processes.

    Parameters
    ----------
    accelerator
        Device to run on; auto takes a GPU if there is one.
    devices
        Processes on this machine, one per device. Under `torchrun` it is ignored.
    workers
        Processes that load images, per device. By default one per core and at most 8 for a GPU, and none for
        a CPU, where threads load each batch before the network uses all cores.
    memories
        Where methods store what they remember about each image: in RAM, or in files in the run's folder. auto
        takes RAM if at most half of the free memory is needed.
    engine
        What runs the network for inference on a CPU: openvino, onnxruntime or torch. auto takes the first one
        that is installed, and torch for few images.
    compile
        Compile the network with `torch.compile` where it trains on images: a minute or more at the start,
        then faster steps on most GPUs and some CPUs.
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
    """What to do with an existing run, and what to print.

    Parameters
    ----------
    resume
        Continue the run in the folder, if there is one.
    force
        Replace the run in the folder.
    quiet
        Print nothing but errors.
    tensorboard
        Also write TensorBoard files (needs the extra `tensorboard`).
    dry_run
        Only measure what the run would need: take a few steps of each phase, print memory, disk and time, and
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


def configure(
    keywords: Mapping[str, Any], config: TrainConfig | None = None
) -> tuple[TrainConfig, Machine, Handling]:
    """The three configurations from keywords, training's on top of ``config``.

    A nested one is given whole (``head=HeadPhase(epochs=5)``), in part (``head={"epochs": 5}``) or by its
    dotted name. A keyword that no configuration has is a setting of the method.
    """
    tables: dict[type[Any], dict[str, Any]] = {
        TrainConfig: without_none(asdict(config or TrainConfig())),
        Machine: {},
        Handling: {},
    }
    for keyword, value in keywords.items():
        name, _, rest = keyword.partition(".")
        kind = next((kind for kind in tables if name in {field.name for field in fields(kind)}), None)
        if kind is None:
            tables[TrainConfig].setdefault("settings", {})[keyword] = value
        else:
            _put(tables[kind], [name, *rest.split(".")] if rest else [name], value)
    train, machine, handling = (
        from_dict(kind, without_none(values), "the configuration") for kind, values in tables.items()
    )
    return train, machine, handling


def nested_remedies(name: str, value: object) -> list[str]:
    """Remedies for a keyword of nested settings, such as ``epochs`` of ``head`` and ``finetune``."""
    inner = {one.name: getattr(TrainConfig(), one.name) for one in fields(TrainConfig)}
    homes = [one for one, table in inner.items() if is_dataclass(table) and hasattr(table, name)]
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    return [f"give {param(f'{home}.{name}', value)}" for home in homes]


def _put(table: dict[str, Any], keys: list[str], value: Any) -> None:
    *tables, last = keys
    for key in tables:
        table = table.setdefault(key, {})
    if is_dataclass(value) and not isinstance(value, type):
        table[last] = asdict(value)
    elif isinstance(value, Mapping):
        table[last] = {**table.get(last, {}), **value}
    else:
        table[last] = value


def without_none(values: dict[str, Any]) -> dict[str, Any]:
    """Nested settings without those that are not given."""
    return {
        key: without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }
