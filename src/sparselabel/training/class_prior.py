"""How often each class is there, for the class-aware selective loss: from a file, or from a run before.

CSL = Ben-Baruch et al. (2022), §3.3: where few labels are known, their counts say little of how often classes
are there; a model trained on the known labels alone says it better, by its mean scores.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from sparselabel.config import AUTO, TrainConfig
from sparselabel.files import write_json
from sparselabel.losses.base import SparseLoss, in_pieces
from sparselabel.losses.registry import parse, settings_of
from sparselabel.losses.selective import SelectiveUnknown
from sparselabel.run import Run
from sparselabel.training.phase_loaders import Inputs
from sparselabel.training.network import LazyBackbone, Network
from sparselabel.training.prior_file import read_prior
from sparselabel.training.validate import scores_of

SHORTER = 4  # a run for the prior has this part of the epochs (ours)

Train = Callable[[TrainConfig, Path], object]
"""Trains a configuration into a folder, or goes on there."""


def prior_of_run(config: TrainConfig, inputs: Inputs, run: Run, train: Train) -> tuple[float, ...] | None:
    """The prior of a run, kept in it so that it resumes with the very same; ``auto`` trains for it first."""
    given = config.settings.get("prior")
    if given is None or "prior" not in settings_of(config.method):
        return None
    classes, fabric = inputs.data.classes, inputs.fabric
    if not fabric.broadcast(run.prior_file.exists()):
        prior = (
            _mean_scores(config, inputs, run.path / "prior", train)
            if given == AUTO
            else read_prior(Path(str(given)), classes)
        )
        fabric.barrier()
        if fabric.is_global_zero:
            write_json(run.prior_file, dict(zip(classes, prior, strict=True)))
        fabric.barrier()
    if fabric.is_global_zero:
        shutil.rmtree(run.path / "prior", ignore_errors=True)
    return read_prior(run.prior_file, classes)


def take_prior(method: SparseLoss, prior: Sequence[float] | None) -> None:
    """Give a method its prior, once it is known."""
    for part in method.parts():
        if prior is not None and isinstance(part, SelectiveUnknown):
            part.take_prior(prior)


def run_before(config: TrainConfig) -> TrainConfig:
    """The run whose mean scores are the prior: the method alone, in ignore mode, a quarter of the epochs."""
    base = parse(config.method).base
    known = settings_of(base)
    settings = {name: value for name, value in config.settings.items() if name in known}
    return replace(
        config,
        method=base,
        settings={key: value for key, value in settings.items() if key != "prior"} | {"unknown": "ignore"},
        head=replace(config.head, epochs=-(-config.head.epochs // SHORTER)),
        finetune=replace(config.finetune, epochs=-(-config.finetune.epochs // SHORTER)),
        watch=0,
    )


def _mean_scores(config: TrainConfig, inputs: Inputs, folder: Path, train: Train) -> tuple[float, ...]:
    before = run_before(config)
    train(before, folder)
    backbone = LazyBackbone(before)
    own = Inputs(inputs.data, before, backbone, inputs.fabric, inputs.workers, inputs.log)
    width = own.feature_width if before.frozen else None
    network = Network(before, len(inputs.data.classes), backbone, width)
    network.load(load_file(Run(folder).model_file))
    phase = [*before.phases][-1]
    module = network.head if own.stored(phase) else network.classifier
    return _means(scores_of(module.to(inputs.fabric.device), own, phase, "train"))


def _means(scores: Tensor) -> tuple[float, ...]:
    """The mean of each column, block by block: torch would copy all scores to add them up precisely."""
    sums = torch.zeros(scores.shape[1], dtype=torch.float64)
    for some in in_pieces(scores):
        sums += some.sum(dim=0, dtype=torch.float64).cpu()
    return tuple((sums / len(scores)).tolist())
