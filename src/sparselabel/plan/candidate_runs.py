"""The runs of a plan: kinds of annotation × fractions of the budget × draws, with simulated labels."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparselabel.comparison.planned_runs import (
    Outcome,
    PlannedRun,
    RunsCallback,
    in_comparison,
    settings_known,
)
from sparselabel.comparison.runner import outcome_of, write_error
from sparselabel.config import Handling, Machine, Sparsify, TrainConfig
from sparselabel.data.annotation_budget import Kind, annotate
from sparselabel.data.dataset import Dataset
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import POSITIVE
from sparselabel.data.prepared_files import SPATIAL_LABEL_COLUMNS
from sparselabel.data.readers.raw_dataset import RawSplit
from sparselabel.errors import ConfigError, SparselabelError, counted, listing, param
from sparselabel.file_formats import read_json
from sparselabel.files import require_folder_to_write
from sparselabel.plan.budget import Budget
from sparselabel.run import Evaluation, Run
from sparselabel.training.resolve import needs_of

if TYPE_CHECKING:
    from sparselabel.models.backbone import Backbone


@dataclass(frozen=True)
class Candidate:
    """A run of a plan, with the annotations that its share of the budget buys."""

    kind: Kind
    fraction: float
    draw: int
    run: PlannedRun
    bought: dict[str, Any]


def fraction_in_words(fraction: float) -> str:
    """A fraction of the budget: 1/8 of the budget, the budget."""
    if fraction == 1:
        return "the budget"
    exact = Fraction(fraction).limit_denominator(1000)
    simple = exact.denominator <= 16 and float(exact) == fraction
    return f"{exact if simple else f'{100 * fraction:g} %'} of the budget"


def candidates_of(
    data: Dataset,
    budget: Budget,
    kinds: Sequence[Kind],
    draws: int,
    base: TrainConfig,
    methods: tuple[str, str],
    out: Path,
) -> list[Candidate]:
    """All runs; ``methods`` are that for answers alone and that for answers with points or boxes."""
    if draws < 1:
        raise ConfigError(f"{param('draws')} must be 1 or more, not {draws}")
    configs = dict(zip(("I", "spatial"), _configs(base, methods), strict=True))
    if any(kind != "I" for kind in kinds) and not needs_of(configs["spatial"]).spatial_labels:
        raise ConfigError(
            f"{param('spatial_method', methods[1])} does not look at points or boxes, so that the plan would "
            "compare methods and not annotations",
            "give patchml, csl-p, or one of these with +cluster",
        )
    candidates = []
    for fraction in budget.fractions:
        for kind in kinds:
            config = configs["I" if kind == "I" else "spatial"]
            for draw in range(draws):
                name = f"{kind} for {fraction_in_words(fraction)}, draw {draw}"
                path = out / f"{kind}-{fraction:g}-draw{draw}"
                run = PlannedRun(config.method, config.seed, config, path, name)
                bought = simulate(data, budget, kind, fraction, draw)[1]
                candidates.append(Candidate(kind, fraction, draw, run, bought))
    return candidates


def _configs(base: TrainConfig, methods: tuple[str, str]) -> Iterator[TrainConfig]:
    """The configuration with each method, which takes those of the settings that it has."""
    known = settings_known(methods)
    given = base.settings
    for name in given:
        if not any(name in settings for settings in known.values()):
            raise ConfigError(f"none of the methods {listing(methods)} has a setting {name!r}")
    for method in methods:
        own = {name: value for name, value in given.items() if name in known[method]}
        if method == "csl-i":  # what PatchML compares points with, and what patchml does with whole images
            own.setdefault("unknown", "ignore")
        yield replace(base, method=method, settings=own)


def simulate(
    data: Dataset, budget: Budget, kind: Kind, fraction: float, draw: int
) -> tuple[Dataset, dict[str, Any]]:
    """The data with the labels, points and boxes that a fraction of the budget buys, and their numbers.

    Nothing is written: the images are the same, so their stored features are too.
    """
    train = data.train
    spent = budget.spent(fraction, kind)
    how = Sparsify("budget", annotate=kind, budget=spent, label_seed=draw, cost="per-positive")
    split = RawSplit(train.truth, train.paths, train.spatial_labels, masks=train.masks)
    annotated = annotate(split, how, prices=budget.prices)
    digest = hashlib.blake2b(train.digest.encode(), digest_size=16)
    for array in (annotated.observed, *(getattr(annotated.seen, column) for column in SPATIAL_LABEL_COLUMNS)):
        digest.update(np.ascontiguousarray(array).tobytes())
    observed = LabelTable(train.truth.ids, train.truth.classes, annotated.observed, check=False)
    bought = replace(train, observed=observed, seen=annotated.seen, digest=digest.hexdigest())
    unseen = int((~(annotated.observed == POSITIVE).any(axis=0)).sum())
    counts = annotated.bought | {"classes_unseen": unseen}
    return replace(data, splits=data.splits | {"train": bought}), counts


def check_candidates(
    data: Dataset, budget: Budget, candidates: Sequence[Candidate], machine: Machine
) -> None:
    """Refuse now what would be refused when one of the runs begins."""
    from sparselabel.training.train_run import check_run

    backbone: Backbone | None = None
    require_folder_to_write(candidates[0].run.path.parent)
    for one in candidates:
        _refuse_nothing(one)
        own, _ = simulate(data, budget, one.kind, one.fraction, one.draw)
        try:
            backbone = check_run(own, one.run.config, one.run.path, machine, backbone)
        except SparselabelError as error:
            raise in_comparison(error, one.run) from error


def _refuse_nothing(one: Candidate) -> None:
    """Raise if there is nothing to learn from: no yes, or no point or box of one."""
    spatial_labels = one.bought["points"] + one.bought["boxes"]
    if one.bought["positive"] and (one.kind == "I" or spatial_labels):
        return
    lacking = "a yes" if not one.bought["positive"] else "a yes to something whose place is known"
    raise ConfigError(
        f"{one.run}: {counted(one.bought['answers'], 'answer')} for the sample, and none is {lacking}, so "
        "there is nothing to learn from",
        f"give a larger {param('budget')}",
        f"leave small {param('fractions')} out",
    )


def train_candidates(
    data: Dataset,
    budget: Budget,
    candidates: Sequence[Candidate],
    machine: Machine,
    callback: RunsCallback,
    command: Sequence[str] = (),
) -> list[Outcome]:
    """Train what is not finished; those that failed."""
    from sparselabel.training.train_run import train_run

    left = [one for one in candidates if not Run(one.run.path).finished]
    callback.on_skipped(len(candidates) - len(left))
    failed = []
    for one in left:
        run = one.run
        callback.on_start(run)
        own, _ = simulate(data, budget, one.kind, one.fraction, one.draw)
        again = Handling(resume=True)
        train = partial(train_run, own, run.config, run.path, machine, again, command, run.path.name)
        outcome = outcome_of(run, train)
        write_error(outcome)
        callback.on_end(outcome)
        if outcome.error:
            failed.append(outcome)
    return failed


def scores_of(one: Candidate, split: str) -> tuple[float | None, float | None]:
    """The mAP and mAP-loc of a candidate, 0..1; None where it failed, or without points and boxes."""
    run = Run(one.run.path)
    if not run.finished:
        return None, None
    measured = run.result()["test" if split == "test" else "validation"]
    file = run.evaluation_file(split)
    located = read_json(file, Evaluation).get("location") if file.is_file() else None
    return float(measured["value"]), None if not located else float(located["mean"])
