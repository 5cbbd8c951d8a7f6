"""The class prior of the class-aware selective loss: from a file, or from an earlier run.

CSL = Ben-Baruch et al. (2022), §3.3: where few labels are known, their counts are a poor estimate of class
frequencies; the mean scores of a model trained on the known labels alone are a better one.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from sparselabel.config import AUTO, TrainConfig
from sparselabel.errors import ConfigError, DataError, listing, param
from sparselabel.file_formats import read_json
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.class_selective import SelectiveUnknown
from sparselabel.losses.registry import parse, settings_of
from sparselabel.losses.step import in_chunks
from sparselabel.schema import Share

SHORTER = 4  # a run for the prior has this part of the epochs (ours)


def take_prior(method: ComposedLoss, prior: Sequence[float] | None) -> None:
    """Give a method its prior, once it is known."""
    for part in method.parts():
        if prior is not None and isinstance(part, SelectiveUnknown):
            part.take_prior(prior)


def run_before(config: TrainConfig) -> TrainConfig:
    """The run whose mean scores are the prior: the method alone, in ignore mode, a quarter of the epochs."""
    base = parse(config.method).base
    known = settings_of(base)
    settings = {key: value for key, value in config.settings.items() if key in known and key != "prior"}
    return replace(
        config,
        method=base,
        settings=settings | {"unknown": "ignore"},
        head=replace(config.head, epochs=-(-config.head.epochs // SHORTER)),
        finetune=replace(config.finetune, epochs=-(-config.finetune.epochs // SHORTER)),
        watch=0,
    )


def column_means(scores: Tensor) -> tuple[float, ...]:
    """The mean of each column, block by block: torch would copy all scores to add them up precisely."""
    sums = torch.zeros(scores.shape[1], dtype=torch.float64)
    for some in in_chunks(scores):
        sums += some.sum(dim=0, dtype=torch.float64).cpu()
    return tuple((sums / len(scores)).tolist())


def read_prior(file: Path, classes: Sequence[str]) -> tuple[float, ...]:
    """A share in 0..1 for each class, from a JSON object or a table with columns class and prior."""
    if not file.is_file():
        hint = "; auto is written in small letters" if str(file).lower() == AUTO else ""
        rule = f"{param('settings.prior')} must be auto, or a JSON or CSV file"
        raise ConfigError(f"{rule}, and there is no file {str(file)!r}{hint}", what="settings.prior")
    shares = _of_json(file) if file.suffix.lower() == ".json" else _of_table(file)
    missing = [name for name in classes if name not in shares]
    strange = [name for name in shares if name not in classes]
    if missing or strange:
        what = f"lacks {listing(missing)}" if missing else f"has {listing(strange)}, which the data has not"
        raise DataError(f"{file} must have a prior for each of the data's {len(classes)} classes; it {what}")
    return tuple(shares[name] for name in classes)


def _of_json(file: Path) -> dict[str, float]:
    return read_json(file, dict[str, Share], 'write {"CLASS": SHARE, ...}', error=DataError)


def _of_table(file: Path) -> dict[str, float]:
    from sparselabel.data.readers.table_files import open_cells

    shares: dict[str, float] = {}
    with open_cells(file, "class") as cells:
        if not {"class", "prior"} <= {*cells.header}:
            raise DataError(f"{file} must have columns class and prior, not {listing(cells.header)}")
        name_at, prior_at = cells.header.index("class"), cells.header.index("prior")
        for line, row in cells.rows:
            name, text = row[name_at].strip(), row[prior_at].strip()
            if name in shares:
                raise cells.wrong(line, f"class {name!r} is there twice: keep one line")
            try:
                share = float(text)
            except ValueError:
                share = math.nan
            if not 0 <= share <= 1:
                raise cells.wrong(line, f"the prior of {name} must be a share in [0, 1], not {text!r}")
            shares[name] = share
    return shares
