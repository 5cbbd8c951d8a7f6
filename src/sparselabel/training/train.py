"""``sparselabel.train``: a run from Python, with everything that the command takes and more."""

import copy
from collections.abc import Iterable
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from sparselabel.config import Handling, Machine, TrainConfig, from_dict, load
from sparselabel.data.dataset import Dataset, open_prepared
from sparselabel.errors import ConfigError, nearest
from sparselabel.losses.registry import settings_of
from sparselabel.models.backbone import NONE, own_backbone
from sparselabel.run import Run
from sparselabel.training.hooks import Callback, Hooks, OptimizerFactory, SchedulerFactory
from sparselabel.training.resolve import resolve
from sparselabel.training.train_run import train_run

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
        What ``settings`` change: a configuration, or a TOML file of one; default: the defaults.
    model
        A backbone of your own instead of timm's: takes normalized images (B, 3, S, S), returns feature maps
        (B, D, h, w).
    optimizer
        Makes an optimizer of the parameters to train, as ``lambda p: torch.optim.Lion(p, lr=1e-4)``. Its
        learning rate follows the phase's schedule.
    scheduler
        Makes a scheduler of an optimizer and the number of steps; it is stepped after every step.
    callbacks
        Called while it trains.
    loggers
        Loggers of Lightning Fabric: CSV, TensorBoard, W&B, MLflow.
    settings
        Everything else that the command has, by name: ``method="pu"``, ``backbone="resnet50"``,
        ``frozen=True``, ``head={"epochs": 5}``, ``devices=2``, ``workers=4``, ``resume=True``; and the
        settings of the method, as ``expected_positives=2.9``.
    """
    prepared = data if isinstance(data, Dataset) else open_prepared(Path(data))
    own, machine, handling = _by_kind(settings)
    chosen = _configuration(config, own, prepared)
    backbone = None
    if model is not None:
        backbone, name = own_backbone(copy.deepcopy(model), chosen.views.size)
        chosen = replace(chosen, backbone=name, weights=NONE)
    if prepared.temporary is not None:
        prepared = prepared.keep(Path(f"{out}-data"), handling.force or handling.resume)
    hooks = Hooks(tuple(callbacks), tuple(loggers), optimizer, scheduler)
    train_run(prepared, chosen, Path(out), machine, handling, backbone=backbone, hooks=hooks)
    return Run(Path(out), prepared if prepared.temporary is not None else None, model)


def _by_kind(settings: dict[str, Any]) -> tuple[dict[str, Any], Machine, Handling]:
    """The settings of the outcome, and where and how to run."""
    names = {kind: {one.name for one in fields(kind)} for kind in (Machine, Handling)}
    machine, handling = (
        {name: value for name, value in settings.items() if name in names[kind]} for kind in names
    )
    own = {name: value for name, value in settings.items() if name not in {*machine, *handling}}
    return own, Machine(**machine), Handling(**handling)


def _configuration(
    config: TrainConfig | str | Path | None, settings: dict[str, Any], data: Dataset
) -> TrainConfig:
    """A configuration with some of its fields changed; settings of the method may stand beside them."""
    base = config if isinstance(config, TrainConfig) else load(TrainConfig, Path(config)) if config else None
    values = asdict(base or TrainConfig())
    known = {one.name for one in fields(TrainConfig)}
    for name, value in settings.items():
        table, _, key = name.partition(".")
        if key and isinstance(values.get(table), dict):
            values[table][key] = value
        elif name in known:
            plain = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
            values[name] = values[name] | plain if isinstance(plain, dict) else plain
    method = str(values["method"])
    if method == "auto":
        method = resolve(data, _filled(values)).config.method
    own = {*settings_of(method)}
    for name, value in settings.items():
        if name not in known and "." not in name:
            if name not in own:
                problem = f"train() has no parameter {name!r}, and {method} no such setting"
                raise ConfigError(problem, nearest(name, own, known), what=name, value=value)
            values["settings"] = values["settings"] | {name: value}
    return _filled(values)


def _filled(values: dict[str, Any]) -> TrainConfig:
    """A configuration from nested dictionaries, in which None means what is not set."""
    given = {
        name: {key: one for key, one in value.items() if one is not None}
        if isinstance(value, dict)
        else value
        for name, value in values.items()
        if value is not None
    }
    return from_dict(TrainConfig, given, "train()")
