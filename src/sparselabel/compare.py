"""Several methods on one data set: train all, choose the learning rate on validation, make a table.

One run after the other; finished ones are skipped, so a comparison that was stopped goes on where it was.
"""

import csv
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparselabel.config import Handling, Machine, Settings, TrainConfig
from sparselabel.errors import ConfigError, listing
from sparselabel.vary import Varied

if TYPE_CHECKING:
    from sparselabel.data.dataset import Prepared

BASELINE, ORACLE = "an", "bce"
Results = dict[tuple[str, str], dict[float, dict[int, dict[str, Any]]]]
"""Results by method and varied value, by learning rate, and by seed."""


@dataclass(frozen=True)
class Planned:
    """A run that a comparison is made of."""

    method: str
    learning_rate: float
    seed: int
    config: TrainConfig
    path: Path
    value: str = ""
    """Of the setting that is varied; "" for a method that does not have it, or where none is."""


@dataclass(frozen=True)
class Row:
    """What a method reached: with the learning rate of its best mean validation, the test mAP of every seed.

    ``recovered`` is the share of the gap between ``an`` and the oracle ``bce`` that it closes; None without
    both. ``by_labels`` has the mAP on pictures with so many labels, by split and that number, of every seed.
    """

    method: str
    learning_rate: float
    validation: list[float]
    test: list[float]
    recovered: float | None = None
    value: str = ""
    by_labels: dict[tuple[str, str], list[float]] = field(default_factory=dict)

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
    varied: Varied | None = None,
) -> list[Planned]:
    """All runs of a comparison: methods × values × learning rates (of the first phase that there is) × seeds.

    Each method takes those of the settings that it has; one without the setting that is varied runs once.
    """
    if not methods:
        raise ConfigError("there is nothing to compare: give --methods")
    _refuse_repeated("methods", methods)
    _refuse_repeated("learning-rates", [f"{rate:g}" for rate in learning_rates])  # as their folders are named
    _refuse_repeated("seeds", seeds)
    known = _settings_known(methods)
    if varied is not None:
        _refuse_to_vary(varied, base, known)
    planned = []
    for method in methods:
        for value, common in _configurations(base, varied, known[method]).items():
            _refuse_settings_of_none(common.settings, known)
            own = {name: given for name, given in common.settings.given().items() if name in known[method]}
            phase = next(iter(common.phases))
            part = f"-{varied.folder(value)}" if varied is not None and value else ""
            for rate in learning_rates or (common.phases[phase].learning_rate,):
                tuned: dict[str, Any] = {phase: replace(common.phases[phase], learning_rate=rate)}
                for seed in seeds:
                    config = replace(common, method=method, settings=Settings(**own), seed=seed, **tuned)
                    path = out / f"{method}{part}-{rate:g}-seed{seed}"
                    planned.append(Planned(method, rate, seed, config, path, value))
    return planned


def _refuse_repeated(flag: str, values: Sequence[object]) -> None:
    """A run that is there twice would count twice in the means."""
    repeated = [value for value, times in Counter(values).items() if times > 1]
    if repeated:
        raise ConfigError(f"--{flag} names {listing(repeated)} more than once: name each once")


def _settings_known(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What settings each method has; a wrong name is found now, not after hours of training."""
    from sparselabel.method.catalog import settings_of

    return {method: settings_of(method) for method in methods}


def _configurations(
    base: TrainConfig, varied: Varied | None, known: dict[str, Any]
) -> dict[str, TrainConfig]:
    """A method's configurations by the varied value; the base alone where it has no such setting."""
    if varied is None or (varied.setting is not None and varied.setting not in known):
        return {"": base}
    return {value: varied.config(base, value) for value in varied.values}


def _refuse_settings_of_none(settings: Settings, known: dict[str, dict[str, Any]]) -> None:
    for name in settings.given():
        if not any(name in settings_known for settings_known in known.values()):
            raise ConfigError(f"none of the methods {listing(known)} has a setting {name!r}")


def _refuse_to_vary(varied: Varied, base: TrainConfig, known: dict[str, dict[str, Any]]) -> None:
    for value in varied.values:
        config = varied.config(base, value)  # refuses a wrong name
        _refuse_settings_of_none(config.settings, known)
        if {*config.phases} != {*base.phases}:
            raise ConfigError(f"--vary {varied.name} {value} would add or drop a phase: compare those apart")
    taken = {"method": "--methods", "seed": "--seeds"}
    taken |= {f"{phase}.learning_rate": "--learning-rates" for phase in [*base.phases][:1]}
    flag = taken.get(".".join(varied.keys))
    if flag is not None:
        raise ConfigError(f"--vary cannot be {varied.name}: give {flag}")


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
    results: Results = {}
    for number, run in enumerate(planned):
        if report is not None:
            report(run, number, len(planned))
        result = train_run(data, run.config, run.path, machine, resume, command, run.path.name)
        by_rate = results.setdefault((run.method, run.value), {})
        by_rate.setdefault(run.learning_rate, {})[run.seed] = result
    return with_share(list(_best_rates(results)))


def _best_rates(results: Results) -> Iterator[Row]:
    for (method, value), by_rate in results.items():
        rows = [
            Row(
                method,
                rate,
                _values(by_seed, "validation"),
                _values(by_seed, "test"),
                value=value,
                by_labels=_by_labels(by_seed),
            )
            for rate, by_seed in by_rate.items()
        ]
        yield max(rows, key=lambda row: statistics.fmean(row.validation or [0.0]))


def _values(by_seed: dict[int, dict[str, Any]], split: str) -> list[float]:
    return [result[split]["value"] for result in by_seed.values() if result[split] is not None]


def _by_labels(by_seed: dict[int, dict[str, Any]]) -> dict[tuple[str, str], list[float]]:
    """The mAP on pictures with one, two, ... labels, of every seed; nothing where labels are incomplete."""
    found: dict[tuple[str, str], list[float]] = {}
    for result in by_seed.values():
        for split in ("validation", "test"):
            subsets = (result[split] or {}).get("by_number_of_labels") or {}
            for labels, subset in subsets.items():
                mean = subset["average_precision"]["mean_of_present"]
                if mean is not None:
                    found.setdefault((split, labels), []).append(mean)
    return found


def with_share(rows: list[Row]) -> list[Row]:
    """Add the share of the gap between the baseline and the oracle, where both are there.

    Where a setting of theirs is varied, the gap is that of the row's own value.
    """
    means = {(row.method, row.value): row.mean for row in rows if row.test}

    def shared(row: Row) -> Row:
        low, high = (means.get((name, row.value), means.get((name, ""))) for name in (BASELINE, ORACLE))
        if low is None or high is None or low == high:
            return row
        return replace(row, recovered=(row.mean - low) / (high - low))

    return [shared(row) if row.test else row for row in rows]


def write_table(rows: Sequence[Row], path: Path, varied: str | None = None) -> None:
    """The rows as CSV: mAP in per cent, one column for each seed's test, and the value of what was varied."""
    seeds = [f"test_{number}" for number in range(max((len(row.test) for row in rows), default=0))]
    columns = ["learning_rate", "validation", "test", "spread", "gap_recovered", *seeds]
    lines = []
    for row in rows:
        spread = "" if row.spread is None else f"{100 * row.spread:.2f}"
        share = "" if row.recovered is None else f"{row.recovered:.3f}"
        means = [_percent(row.validation), _percent(row.test), spread, share]
        lines.append([f"{row.learning_rate:g}", *means, *(f"{100 * value:.2f}" for value in row.test)])
    _write(path, rows, columns, lines, varied)


def write_by_labels(rows: Sequence[Row], path: Path, varied: str | None = None) -> None:
    """The mAP on pictures with 1, 2, ... labels as CSV, in per cent: mean and spread over the seeds."""
    owners, lines = [], []
    for row in rows:
        for (split, labels), found in row.by_labels.items():
            spread = f"{100 * statistics.stdev(found):.2f}" if len(found) > 1 else ""
            owners.append(row)
            lines.append([split, labels, _percent(found), spread])
    _write(path, owners, ["split", "labels", "mAP", "spread"], lines, varied)


def _write(
    path: Path, rows: Sequence[Row], columns: list[str], lines: Sequence[list[str]], varied: str | None
) -> None:
    """Lines beside the method and the varied setting that each belongs to."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["method", *(["varied", "value"] if varied else []), *columns])
        for row, line in zip(rows, lines, strict=True):
            writer.writerow([row.method, *([varied, row.value] if varied else []), *line])


def _percent(values: Sequence[float]) -> str:
    return f"{100 * statistics.fmean(values):.2f}" if values else ""
