"""``sparselabel.train``: train a run from Python."""

import copy
import os
import shutil
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from sparselabel.config import AUTO, HeadPhase, Machine, TrainConfig, configure, load, nested_remedies
from sparselabel.data.answers import with_files
from sparselabel.data.dataset import Dataset
from sparselabel.data.prepared_files import open_prepared
from sparselabel.errors import ConfigError, DataError, nearest, param
from sparselabel.files import atomic_write
from sparselabel.losses.registry import settings_of
from sparselabel.models.backbone import NONE, own_backbone
from sparselabel.run import Run
from sparselabel.training.callbacks import Callback, OptimizerFactory, SchedulerFactory, checked_hooks
from sparselabel.training.resolve import AUTO_METHODS
from sparselabel.training.train_run import train_somewhere

if TYPE_CHECKING:
    from lightning_fabric.loggers.logger import Logger


def train(
    data: Dataset | str | Path,
    out: str | Path = "runs/run",
    *,
    config: TrainConfig | str | Path | None = None,
    model: nn.Module | None = None,
    optimizer: OptimizerFactory | None = None,
    scheduler: SchedulerFactory | None = None,
    callbacks: Iterable[Callback] = (),
    loggers: "Iterable[Logger]" = (),
    answers: str | Path | Iterable[str | Path] = (),
    cluster: str | None = None,
    processes: int | None = None,
    scores: object = None,
    **settings: Any,
) -> Run:
    """Train a classifier and evaluate its best epoch, as ``sparselabel train`` does.

    Parameters
    ----------
    data
        A ``Dataset``, or the folder of prepared data.
    out
        Folder of the run.
    config
        A configuration, or a TOML file of one, which ``settings`` change; by default the defaults.
    model
        Your own module instead of a timm network: takes normalized images (B, 3, S, S), returns feature maps
        (B, D, h, w), on which a head is trained, or logits (B, L), for methods that need no more. A model of
        logits has no head phase: give ``finetune={"epochs": ...}``.
    optimizer
        A function that makes an optimizer of parameters, as ``lambda p: torch.optim.Lion(p, lr=1e-4)``. Its
        learning rate follows the phase's schedule.
    scheduler
        A function that makes a scheduler from an optimizer and the number of steps; it steps every step.
    callbacks
        Objects whose hooks are called during training.
    loggers
        Loggers of Lightning Fabric: CSV, TensorBoard, W&B, MLflow.
    answers
        The file of answers that ``Run.review`` returns, or several: they add to the observed labels.
    cluster
        Address of a Ray cluster to train on, or ``"auto"`` for the one that this machine belongs to. Data and
        ``out`` are on a disk that its nodes share. Callbacks and loggers are copied to the run's processes.
    processes
        Processes on the cluster; default: one per GPU, or one per node without GPUs.
    scores
        Another model's scores of the training images, as evidence for pu and en: a file by image and class,
        an array (N, L) in the order of ``data.train`` (NaN for none), or ``"text:MODEL"``, which scores the
        classes' names by open_clip.
    settings
        Every other setting of the command, by name: ``method="pu"``, ``backbone="resnet50"``,
        ``frozen=True``, ``head={"epochs": 5}``, ``devices=2``, ``workers=4``, ``resume=True``; and the
        settings of the method, as ``expected_positives=2.9``.
    """
    if not isinstance(data, Dataset | str | os.PathLike):
        raise DataError(
            f"data must be a Dataset, or the folder of prepared data, not {type(data).__name__}",
            "make one, as Dataset.from_arrays(images, labels) or Dataset.from_torch(dataset)",
            what="data",
            value=type(data).__name__,
        )
    hooks = checked_hooks(callbacks, loggers, optimizer, scheduler)
    prepared = data if isinstance(data, Dataset) else open_prepared(Path(data))
    base = config if isinstance(config, TrainConfig) or config is None else load(TrainConfig, Path(config))
    chosen, machine, handling = configure(settings, base)
    if scores is not None:
        chosen = replace(chosen, settings=chosen.settings | {"scores": _scores(scores, prepared, Path(out))})
    _refuse_unknown(settings, chosen)
    backbone = None
    if model is not None:
        for setting in ("backbone", "weights"):
            if setting in settings:
                raise ConfigError(
                    f"{param(setting)} is about timm's networks, and a model of your own is given",
                    "leave one of them out",
                    what=setting,
                    value=settings[setting],
                )
        backbone, name, gives_logits = own_backbone(
            copy.deepcopy(model), chosen.views.size, len(prepared.classes)
        )
        chosen = replace(chosen, backbone=name, weights=NONE)
        if gives_logits:
            chosen = _without_head(chosen)
    beside = Path(f"{out}-data")
    is_new = prepared.temporary is not None and not beside.exists()
    if prepared.temporary is not None:
        _refuse_processes(machine)
        prepared = prepared.keep(beside, handling.force or handling.resume)
    try:
        files = [answers] if isinstance(answers, str | Path) else answers
        prepared = with_files(prepared, [Path(file) for file in files])
        train_somewhere(
            prepared, chosen, Path(out), machine, handling, (), backbone, hooks, cluster, processes
        )
    except BaseException:
        if is_new and not Run(Path(out)).config_file.exists():  # refused before the run began
            shutil.rmtree(beside)
        raise
    return Run(Path(out), prepared if prepared.temporary is not None else None, model)


def _scores(given: object, data: Dataset, out: Path) -> str:
    """The file of scores, written beside the run if they are in memory; or text:MODEL."""
    if isinstance(given, str | Path):
        return str(given)
    scores, train = np.asarray(given, dtype=np.float32), data.train.observed
    if scores.shape != train.values.shape:
        raise DataError(
            f"scores must be {train.values.shape}, a row for each training image and a column for each "
            f"class, not {scores.shape}",
            f"take {param('scores')} of the training set",
            what="scores",
            value=scores.shape,
            allowed=train.values.shape,
        )
    file = out.with_name(f"{out.name}-scores.npz")
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as partial, partial.open("wb") as stream:
        np.savez(stream, images=train.ids, classes=np.asarray(data.classes), scores=scores)
    return str(file)


def _without_head(config: TrainConfig) -> TrainConfig:
    """The configuration of a model that returns logits, without the default phase of a head."""
    if config.classifier != "linear" or config.boost is not None:
        setting = "boost" if config.boost is not None else "classifier"
        raise ConfigError(
            f"{param(setting)} is about the head, and a model that returns logits has none of ours",
            "leave it out",
            "let the model return feature maps (B, D, h, w)",
            what=setting,
            value=getattr(config, setting),
        )
    default = config.head == HeadPhase() and not config.frozen
    if default and not config.finetune.epochs:
        raise ConfigError(
            "a model that returns logits is trained as a whole",
            f"say for how many epochs ({param('finetune.epochs', 5)}; its {param('finetune.lr')} is "
            f"{config.finetune.lr:g})",
            what="finetune.epochs",
            value=0,
        )
    return replace(config, classifier="none", head=replace(config.head, epochs=0) if default else config.head)


def _refuse_processes(machine: Machine) -> None:
    """Raise if several processes would each have temporary data of their own."""
    processes = max(machine.devices, int(os.environ.get("WORLD_SIZE", "1")))
    if processes > 1:
        raise ConfigError(
            f"{processes} processes cannot share data that is in memory or in a temporary folder",
            "keep it in a folder (Dataset.from_table(..., out=folder)) and train on that",
            what="devices",
            value=processes,
            allowed=1,
        )


def _refuse_unknown(keywords: dict[str, Any], config: TrainConfig) -> None:
    """Raise if a keyword is neither a field of the configuration nor a setting of the method."""
    methods = AUTO_METHODS if config.method == AUTO else (config.method,)
    known = {setting for method in methods for setting in settings_of(method)}
    for name, value in keywords.items():
        if name in config.settings and name not in known:
            problem = f"train() has no parameter {name!r}, and method {config.method} no such setting"
            remedies = nested_remedies(name, value) or [
                nearest(name, known, [one.name for one in fields(TrainConfig)])
            ]
            raise ConfigError(problem, *remedies, what=name, value=value)
