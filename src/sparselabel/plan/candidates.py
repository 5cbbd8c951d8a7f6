"""The runs of a plan: kinds of annotation × fractions of the budget × draws, each with what it would buy."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from sparselabel.compare.planned_runs import Planned, settings_known
from sparselabel.config import Settings, Sparsify, TrainConfig
from sparselabel.data.annotate import annotate
from sparselabel.data.annotation_budget import Kind
from sparselabel.data.dataset import MARK_COLUMNS, Prepared
from sparselabel.data.labels import POSITIVE, LabelTable
from sparselabel.data.readers.source import Split
from sparselabel.errors import ConfigError, listing
from sparselabel.plan.hours import Budget
from sparselabel.training.resolve import needs_of


@dataclass(frozen=True)
class Candidate:
    """A run of a plan, and what its annotation would be."""

    kind: Kind
    fraction: float
    draw: int
    run: Planned
    bought: dict[str, Any]


def in_words(fraction: float) -> str:
    """A fraction of the budget: 1/8 of the budget, the budget."""
    if fraction == 1:
        return "the budget"
    exact = Fraction(fraction).limit_denominator(1000)
    simple = exact.denominator <= 16 and float(exact) == fraction
    return f"{exact if simple else f'{100 * fraction:g} %'} of the budget"


def candidates_of(
    data: Prepared,
    budget: Budget,
    kinds: Sequence[Kind],
    draws: int,
    base: TrainConfig,
    methods: tuple[str, str],
    out: Path,
) -> list[Candidate]:
    """All runs; ``methods`` are that for answers alone and that for answers with points or boxes."""
    if draws < 1:
        raise ConfigError(f"--draws must be 1 or more, not {draws}")
    configs = dict(zip(("I", "marks"), _configs(base, methods), strict=True))
    if any(kind != "I" for kind in kinds) and not needs_of(configs["marks"]).marks:
        raise ConfigError(
            f"--mark-method {methods[1]} does not look at points or boxes, so that the plan would compare "
            "methods and not annotations: give patchml, csl-p, or one of these with +cluster"
        )
    found = []
    for fraction in budget.fractions:
        for kind in kinds:
            config = configs["I" if kind == "I" else "marks"]
            for draw in range(draws):
                said = f"{kind} for {in_words(fraction)}, draw {draw}"
                path = out / f"{kind}-{fraction:g}-draw{draw}"
                run = Planned(config.method, config.seed, config, path, said)
                bought = simulate(data, budget, kind, fraction, draw)[1]
                found.append(Candidate(kind, fraction, draw, run, bought))
    return found


def _configs(base: TrainConfig, methods: tuple[str, str]) -> Iterator[TrainConfig]:
    """The configuration with each method, which takes those of the settings that it has."""
    known = settings_known(methods)
    given = base.settings.given()
    for name in given:
        if not any(name in settings for settings in known.values()):
            raise ConfigError(f"none of the methods {listing(methods)} has a setting {name!r}")
    for method in methods:
        own = {name: value for name, value in given.items() if name in known[method]}
        if method == "csl-i":  # what P2 compares points with, and what patchml does with whole pictures
            own = {"unknown": "ignore"} | own
        yield replace(base, method=method, settings=Settings(**own))


def simulate(
    data: Prepared, budget: Budget, kind: Kind, fraction: float, draw: int
) -> tuple[Prepared, dict[str, Any]]:
    """The data with the labels and marks that a part of the budget buys, and what that was.

    Nothing is written: the pictures are the same, so their stored features are too.
    """
    train = data.train
    how = Sparsify(
        sparsify="budget",
        annotate=kind,
        budget=budget.spent(fraction, kind),
        label_seed=draw,
        cost="per-positive",
    )
    split = Split(train.truth, train.paths, train.marks, masks=train.masks)
    found = annotate(split, how, prices=budget.prices)
    digest = hashlib.blake2b(train.digest.encode(), digest_size=16)
    for array in (found.observed, *(getattr(found.seen, column) for column in MARK_COLUMNS)):
        digest.update(np.ascontiguousarray(array).tobytes())
    observed = LabelTable(train.truth.ids, train.truth.classes, found.observed, check=False)
    bought = replace(train, observed=observed, seen=found.seen, digest=digest.hexdigest())
    unseen = int((~(found.observed == POSITIVE).any(axis=0)).sum())
    return replace(data, splits=data.splits | {"train": bought}), found.bought | {"classes_unseen": unseen}
