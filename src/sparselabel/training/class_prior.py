"""How often each class is there, for the class-aware selective loss: from a file, or from a run before.

CSL = Ben-Baruch et al. (2022), §3.3: where few labels are known, their counts say little of how often classes
are there; a model trained on the known labels alone says it better, by its mean scores.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from sparselabel.config import TrainConfig
from sparselabel.data.dataset import Prepared
from sparselabel.data.labels import NEGATIVE
from sparselabel.data.readers.csv_parquet import open_cells
from sparselabel.errors import ConfigError, DataError, listing
from sparselabel.files import write_json
from sparselabel.losses.base import in_pieces
from sparselabel.losses.registry import parse, settings_of
from sparselabel.losses.target_rules import no_negatives
from sparselabel.run import Run
from sparselabel.training.inputs import Inputs
from sparselabel.training.network import Learner
from sparselabel.training.validate import scores_of

AUTO = "auto"
SHORTER = 4  # a run for the prior has this part of the epochs (ours)

Train = Callable[[TrainConfig, Path], object]
"""Trains a configuration into a folder, or goes on there."""


def prior_file(config: TrainConfig) -> Path | None:
    """The file of a prior that the configuration names, if its method has a use for it."""
    given = config.settings.get("prior")
    return Path(str(given)) if given not in (None, AUTO) and "prior" in settings_of(config.method) else None


def refuse_prior(config: TrainConfig, data: Prepared) -> None:
    """Find what is wrong with a prior before anything slow begins."""
    given, known = config.settings.get("prior"), settings_of(config.method)
    if given is None or "prior" not in known:
        return
    mode = config.settings.get("unknown") or known["unknown"]
    if mode != "selective":
        raise ConfigError(
            f"a prior says which unknown labels to leave out in selective mode, but the mode is {mode}: give "
            "--settings.unknown selective, or leave --settings.prior out"
        )
    if given == AUTO:
        if not (data.train.observed.values == NEGATIVE).any():
            raise no_negatives("the run for --settings.prior auto")
    else:
        read_prior(Path(str(given)), data.classes)


def read_prior(file: Path, classes: Sequence[str]) -> tuple[float, ...]:
    """A share in 0..1 for each class, from a JSON object or a table with columns class and prior."""
    if not file.is_file():
        hint = "; auto is written in small letters" if str(file).lower() == AUTO else ""
        raise ConfigError(
            f"--settings.prior must be auto, or a JSON or CSV file, and there is no file {str(file)!r}{hint}"
        )
    found = _of_json(file) if file.suffix.lower() == ".json" else _of_table(file)
    missing = [name for name in classes if name not in found]
    strange = [name for name in found if name not in classes]
    if missing or strange:
        what = f"lacks {listing(missing)}" if missing else f"has {listing(strange)}, which the data has not"
        raise DataError(f"{file} must have a prior for each of the data's {len(classes)} classes; it {what}")
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise DataError(f"{file}: the prior of {name} must be a share in [0, 1], not {value!r}")
    return tuple(float(found[name]) for name in classes)


def _of_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f'{file} cannot be read as JSON ({error}): write {{"CLASS": SHARE, ...}}') from error
    if not isinstance(content, dict):
        raise DataError(f'{file} must be an object of shares by class, {{"CLASS": SHARE, ...}}')
    return content


def _of_table(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with open_cells(file, "class") as cells:
        absent = [name for name in ("class", "prior") if name not in cells.header]
        if absent:
            raise DataError(f"{file} must have columns class and prior, not {listing(cells.header)}")
        name_at, prior_at = cells.header.index("class"), cells.header.index("prior")
        for line, row in cells.rows:
            name, text = row[name_at].strip(), row[prior_at].strip()
            if name in found:
                raise cells.wrong(line, f"class {name!r} is there twice: keep one line")
            try:
                found[name] = float(text)
            except ValueError as error:
                raise cells.wrong(
                    line, f"the prior of {name} must be a share in [0, 1], not {text!r}"
                ) from error
    return found


def kept_prior(config: TrainConfig, inputs: Inputs, run: Run, train: Train) -> tuple[float, ...] | None:
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


def trains_for_prior(config: TrainConfig) -> bool:
    """Whether a run of its own comes first, to find the prior."""
    return config.settings.get("prior") == AUTO and "prior" in settings_of(config.method)


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
    learner = Learner(before, len(inputs.data.classes))
    own = Inputs(inputs.data, before, learner, inputs.fabric, inputs.workers, inputs.log)
    learner.load(load_file(Run(folder).model_file))
    phase = [*before.phases][-1]
    module = learner.head if own.stored(phase) else learner.classifier
    return _means(scores_of(module.to(inputs.fabric.device), own, phase, "train"))


def _means(scores: Tensor) -> tuple[float, ...]:
    """The mean of each column, block by block: torch would copy all scores to add them up precisely."""
    sums = torch.zeros(scores.shape[1], dtype=torch.float64)
    for some in in_pieces(scores):
        sums += some.sum(dim=0, dtype=torch.float64).cpu()
    return tuple((sums / len(scores)).tolist())
