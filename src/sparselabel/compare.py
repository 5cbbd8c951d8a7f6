"""Several methods on one data set: train all, choose the learning rate on validation, make a table.

One run after the other; finished ones are skipped, so a comparison that was stopped goes on where it was.
"""

import csv
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparselabel.config import Handling, Machine, Settings, TrainConfig
from sparselabel.errors import ConfigError, listing

if TYPE_CHECKING:
    from sparselabel.data.dataset import Prepared

BASELINE, ORACLE = "an", "bce"


@dataclass(frozen=True)
class Planned:
    """A run that a comparison is made of."""

    method: str
    learning_rate: float
    seed: int
    config: TrainConfig
    path: Path


@dataclass(frozen=True)
class Row:
    """What a method reached: with the learning rate of its best mean validation, the test mAP of every seed.

    ``recovered`` is the share of the gap between ``an`` and the oracle ``bce`` that it closes; None without
    both.
    """

    method: str
    learning_rate: float
    validation: list[float]
    test: list[float]
    recovered: float | None = None

    @property
    def mean(self) -> float:
        """Mean test mAP over the seeds; there must be a test split."""
        return statistics.fmean(self.test)

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None for a single one."""
        return statistics.stdev(self.test) if len(self.test) > 1 else None


def plan(
    base: TrainConfig,
    methods: Sequence[str],
    learning_rates: Sequence[float],
    seeds: Sequence[int],
    out: Path,
) -> list[Planned]:
    """All runs of a comparison: methods × learning rates (of the first phase that there is) × seeds.

    Each method takes those of the settings that it has.
    """
    if not methods:
        raise ConfigError("there is nothing to compare: give --methods")
    _refuse_repeated("methods", methods)
    _refuse_repeated("learning-rates", [f"{rate:g}" for rate in learning_rates])  # as their folders are named
    _refuse_repeated("seeds", seeds)
    settings = _settings_by_method(base.settings, methods)
    phase = next(iter(base.phases))
    rates = tuple(learning_rates) or (base.phases[phase].learning_rate,)
    planned = []
    for method in methods:
        for rate in rates:
            for seed in seeds:
                tuned: Any = replace(base.phases[phase], learning_rate=rate)
                config = replace(base, method=method, settings=settings[method], seed=seed, **{phase: tuned})
                path = out / f"{method}-{rate:g}-seed{seed}"
                planned.append(Planned(method, rate, seed, config, path))
    return planned


def _refuse_repeated(flag: str, values: Sequence[object]) -> None:
    """A run that is there twice would count twice in the means."""
    repeated = [value for value, times in Counter(values).items() if times > 1]
    if repeated:
        raise ConfigError(f"--{flag} names {listing(repeated)} more than once: name each once")


def _settings_by_method(settings: Settings, methods: Sequence[str]) -> dict[str, Settings]:
    """What each method takes of the settings; a wrong name is found now, not after hours of training."""
    from sparselabel.method.catalog import settings_of

    given, known = settings.given(), {method: settings_of(method) for method in methods}
    for name in given:
        if not any(name in known[method] for method in methods):
            raise ConfigError(f"none of the methods {listing(methods)} has a setting {name!r}")
    return {
        method: Settings(**{name: value for name, value in given.items() if name in known[method]})
        for method in methods
    }


def compare(
    data: "Prepared",
    planned: Sequence[Planned],
    machine: Machine,
    report: Callable[[Planned, int, int], None] | None = None,
    command: Sequence[str] = (),
) -> list[Row]:
    """Train what is not finished yet, and sum up."""
    from sparselabel.train.run import checked, train_run

    if len({run.learning_rate for run in planned}) > 1 and "val" not in data.splits:
        raise ConfigError("a learning rate is chosen by validation, but the data has no validation split")
    for run in planned:  # what cannot work is refused before the first hour is spent
        checked(data, run.config)
    resume = Handling(resume=True)
    results: dict[tuple[str, float], dict[int, dict[str, Any]]] = {}
    for number, run in enumerate(planned):
        if report is not None:
            report(run, number, len(planned))
        result = train_run(data, run.config, run.path, machine, resume, command, run.path.name)
        results.setdefault((run.method, run.learning_rate), {})[run.seed] = result
    return with_share(list(_best_rates(results)))


def _best_rates(results: dict[tuple[str, float], dict[int, dict[str, Any]]]) -> Iterator[Row]:
    for method in dict.fromkeys(method for method, _ in results):
        rows = [
            Row(method, rate, _values(by_seed, "validation"), _values(by_seed, "test"))
            for (name, rate), by_seed in results.items()
            if name == method
        ]
        yield max(rows, key=lambda row: statistics.fmean(row.validation or [0.0]))


def _values(by_seed: dict[int, dict[str, Any]], split: str) -> list[float]:
    return [result[split]["value"] for result in by_seed.values() if result[split] is not None]


def with_share(rows: list[Row]) -> list[Row]:
    """Add the share of the gap between the baseline and the oracle, where both are there."""
    means = {row.method: row.mean for row in rows if row.test}
    if BASELINE not in means or ORACLE not in means or means[ORACLE] == means[BASELINE]:
        return rows
    gap = means[ORACLE] - means[BASELINE]
    return [replace(row, recovered=(row.mean - means[BASELINE]) / gap) for row in rows]


def write_table(rows: Sequence[Row], path: Path) -> None:
    """The rows as CSV: mAP in per cent, one column for each seed's test."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        seeds = [f"test_{number}" for number in range(max((len(row.test) for row in rows), default=0))]
        writer.writerow(["method", "learning_rate", "validation", "test", "spread", "gap_recovered", *seeds])
        for row in rows:
            validation = f"{100 * statistics.fmean(row.validation):.2f}" if row.validation else ""
            writer.writerow(
                [
                    row.method,
                    f"{row.learning_rate:g}",
                    validation,
                    f"{100 * row.mean:.2f}" if row.test else "",
                    "" if row.spread is None else f"{100 * row.spread:.2f}",
                    "" if row.recovered is None else f"{row.recovered:.3f}",
                    *(f"{100 * value:.2f}" for value in row.test),
                ]
            )
