"""The runs of a comparison: methods × values of a varied setting × choices × annotations × seeds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from sparselabel.comparison.grid import CHOOSE, VARY, Varied
from sparselabel.config import Setting, TrainConfig, nested_remedies
from sparselabel.errors import ConfigError, SparselabelError, command, listing, nearest, param

Chosen = tuple[tuple[str, str], ...]
"""The settings that validation chooses, each by its name with one value."""


RunKey = int | tuple[int, int]
"""Distinguishes runs of the same settings: the seed, or the label seed and the seed."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison."""

    method: str
    seed: int
    config: TrainConfig
    path: Path
    value: str = ""
    """Value of the varied setting; "" for a method that does not have it, or where nothing is varied."""
    chosen: Chosen = ()
    label_seed: int | None = None
    """Of the draw of labels that it is trained on; None for the data as it is."""
    annotation: str = ""
    """Kind of annotation that it is trained on; "" for that of the data."""

    @property
    def key(self) -> RunKey:
        """Its seeds, which distinguish runs with the same settings."""
        return self.seed if self.label_seed is None else (self.label_seed, self.seed)

    def __str__(self) -> str:
        settings = "".join(f", {name} {value}" for name, value in self.chosen)
        value = f" with {self.value}" if self.value else ""
        annotation = f", {self.annotation}" if self.annotation else ""
        labels = "" if self.label_seed is None else f", label seed {self.label_seed}"
        return f"{self.method}{value}{settings}{annotation}{labels}, seed {self.seed}"


def plan_runs(
    base: TrainConfig,
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    choose: Sequence[Varied] = (),
    varied: Varied | None = None,
    label_seeds: Sequence[int] = (),
    annotations: Sequence[str] = (),
) -> list[PlannedRun]:
    """All runs of a comparison, each on every draw (``label_seeds``) of every kind of labels.

    Each method takes those of the settings that it has, also of those to choose from. A method that does not
    have the varied setting runs once; one that does not have the preset keeps its defaults.
    """
    if not methods:
        raise ConfigError("there is nothing to compare", f"give {param('methods')}", what="methods")
    _refuse_repeated(param("methods"), methods)
    _refuse_repeated(param("seeds"), seeds)
    _refuse_repeated(param("label_seeds"), label_seeds)
    _refuse_repeated(param("annotations"), annotations)
    known = settings_known(methods)
    settings = [*([] if varied is None else [varied]), *choose]
    for setting in settings:
        _refuse(setting, base, known)
    planned = []
    for method in methods:
        own = [setting for setting in settings if setting.concerns(method, known[method])]
        _refuse_repeated(f"for {method}, {param(VARY)} or {param(CHOOSE)}", [setting.name for setting in own])
        for values in product(*(setting.values for setting in own)):
            combination = list(zip(own, values, strict=True))
            config = base
            for setting, value in combination:
                config = setting.config(config, value)
            _refuse_unknown_settings(config.settings, known)
            given = {name: value for name, value in config.settings.items() if name in known[method]}
            preset = given.get("preset")
            if preset == base.settings.get("preset") and not has_preset(method, preset):
                given.pop("preset", None)
            config = replace(config, method=method, settings=given)
            names = [method, *(setting.folder(value, settings) for setting, value in combination)]
            varied_value = next((value for setting, value in combination if setting is varied), "")
            chosen = tuple((setting.name, value) for setting, value in combination if setting is not varied)
            for annotation, labels, seed in product(annotations or ("",), label_seeds or (None,), seeds):
                kind = [annotation] if annotation else []
                draw = [] if labels is None else [f"labels{labels}"]
                path = out / "-".join([*names, *kind, *draw, f"seed{seed}"])
                seeded = replace(config, seed=seed)
                planned.append(
                    PlannedRun(method, seed, seeded, path, varied_value, chosen, labels, annotation)
                )
    _refuse_repeated("a run's folder", [run.path for run in planned])
    return planned


def settings_known(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The settings of each method; a wrong name is an error now, not after hours of training."""
    from sparselabel.losses.registry import settings_of

    return {method: settings_of(method) for method in methods}


def has_preset(method: str, preset: object) -> bool:
    """Whether a method has settings by this name."""
    from sparselabel.losses.registry import presets_of

    return preset in presets_of(method)


def note_on_preset(methods: Sequence[str], preset: object) -> list[str]:
    """Which methods do not have the preset that was asked for, as a note; none where all have it."""
    others = [method for method in methods if not has_preset(method, preset)]
    if preset is None or not others:
        return []
    return [f"preset {preset}: {listing(others, 30)} keep their defaults, as they have none"]


def _refuse_repeated(what: str, values: Sequence[object]) -> None:
    """Raise for a run that occurs twice: it would count twice in the means."""
    repeated = [value for value, times in Counter(values).items() if times > 1]
    if repeated:
        raise ConfigError(f"{what} names {listing(repeated)} more than once", "name each once")


def _refuse_unknown_settings(settings: dict[str, Setting], known: dict[str, dict[str, Any]]) -> None:
    names = {name for of_method in known.values() for name in of_method}
    none = f"none of the methods {listing(known)}"
    for name, value in settings.items():
        if name not in names:
            remedies = nested_remedies(name, value) or [nearest(name, names)]
            raise ConfigError(f"{none} has a setting {name!r}", *remedies, what=name)
    preset = settings.get("preset")
    if preset is not None and not any(has_preset(method, preset) for method in known):
        see = f"see {command('methods', 'NAME')} for what a method has"
        raise ConfigError(f"{none} has a preset {preset!r}", "leave it out", see)


def _refuse(one: Varied, base: TrainConfig, known: dict[str, dict[str, Any]]) -> None:
    """Refuse names and values that cannot be varied or chosen from, before anything is trained."""
    for value in one.values:
        config = one.config(base, value)  # refuses a wrong name
        _refuse_unknown_settings(config.settings, known)
        if {*config.phases} != {*base.phases}:
            problem = f"{param(one.flag, f'{one.name} {value}')} would add or drop a phase"
            raise ConfigError(problem, "compare those apart")
    if not any(one.concerns(method, settings) for method, settings in known.items()):
        problem = (
            f"{param(one.flag, f'{one.methods}:{one.name}')} is for none of the methods {listing(known)}"
        )
        raise ConfigError(problem, "name one that has it", "leave it out")
    if one.name in ("method", "seed"):
        raise ConfigError(f"{param(one.flag)} cannot be {one.name}", f"give {param(f'{one.name}s')}")


@dataclass(frozen=True)
class Outcome:
    """A run that was trained: its result, or the error that it failed with."""

    run: PlannedRun
    result: dict[str, Any] | None
    error: SparselabelError | None = None

    def __str__(self) -> str:
        return f"{self.run}: {self.error}" if self.error else str(self.run)


def in_comparison(error: SparselabelError, run: PlannedRun | None = None) -> SparselabelError:
    """A run's error with the remedies that a comparison has: it has no ``force`` for one of its runs."""
    remedies = [text for text in error.remedies if "force" not in SparselabelError("", text).parameters]
    if len(remedies) < len(error.remedies):
        remedies.append("delete its folder, so that it begins anew")
    fields = {name: getattr(error, name) for name in ("what", "where", "value", "allowed")}
    return type(error)(f"{run}: {error.problem}" if run else error.problem, *remedies, **fields)


class RunsCallback:
    """Callbacks on the progress of a comparison; these do nothing."""

    def on_skipped(self, finished: int) -> None:
        """So many runs were finished before."""

    def on_start(self, run: PlannedRun, others: int = 0) -> None:
        """A run begins on this machine, with ``others`` beside it; not called on a cluster."""

    def on_end(self, outcome: Outcome) -> None:
        """A run is finished or has failed."""
