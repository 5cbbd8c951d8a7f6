"""The rows of a comparison's table: chosen settings, mean and spread over the seeds, differences."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparselabel.comparison.planned_runs import Chosen, Outcome, RunKey
from sparselabel.errors import RunError
from sparselabel.file_formats import read_json
from sparselabel.losses.registry import needs_of
from sparselabel.run import Evaluation, Run

if TYPE_CHECKING:
    from sparselabel.metrics.bootstrap import Difference, Drawn, Interval


BASELINE, ORACLE = "an", "bce"
MAP_LOC = "mAP-loc"


@dataclass(frozen=True)
class Row:
    """A method's results with the settings of its best mean validation.

    Values are by seed, or by label seed and seed. ``recovered`` is the share of the gap between ``an``
    and the oracle ``bce`` that it closes, ``difference`` a paired bootstrap over labels, seeds and test
    images; None where there is nothing to compare with. ``by_labels`` has the mAP on images with so many
    labels, by split and that number. ``hidden`` has the mAP of the model and of the method's estimates on
    all training labels (Cole 2021 table 2), observed ones included. ``failed`` are the runs that failed,
    those of settings that were not chosen included. ``labels`` is how many labels training saw; an
    ``oracle`` saw all. ``names`` says by split what is measured (mAP, observed-label mAP), ``measures``
    has others by their names in recipes. ``annotation`` is the kind of labels that it was trained on, ""
    for that of the data.
    """

    method: str
    validation: dict[RunKey, float] = field(default_factory=dict)
    test: dict[RunKey, float] = field(default_factory=dict)
    value: str = ""
    chosen: Chosen = ()
    by_labels: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    hidden: dict[str, list[float]] = field(default_factory=dict)
    recovered: float | None = None
    difference: "Difference | None" = None
    interval: "Interval | None" = None
    """Of the test mAP: what other labels, seeds and test images would do to it."""
    paths: dict[RunKey, Path] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    labels: int | None = None
    oracle: bool = False
    names: dict[str, str] = field(default_factory=dict)
    measures: dict[str, list[float]] = field(default_factory=dict)
    failed: tuple[Outcome, ...] = ()
    annotation: str = ""

    @property
    def mean(self) -> float:
        """Mean test mAP over the seeds; there must be a test split."""
        return statistics.fmean(self.test.values())

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None for a single one."""
        return statistics.stdev(self.test.values()) if len(self.test) > 1 else None

    @property
    def validation_spread(self) -> float | None:
        """The standard deviation of the validation metric over the runs."""
        return statistics.stdev(self.validation.values()) if len(self.validation) > 1 else None


def rows_of(outcomes: Sequence[Outcome]) -> list[Row]:
    """A row for each kind of annotation, in it for each method and varied value, in the order of the plan."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        run = outcome.run
        groups.setdefault((run.annotation, run.method, run.value), []).append(outcome)
    kinds = list(dict.fromkeys(kind for kind, _, _ in groups))
    in_order = sorted(groups, key=lambda key: kinds.index(key[0]))
    return with_share([_best(groups[key]) for key in in_order])


def _best(group: Sequence[Outcome]) -> Row:
    """The row of the choice with the best mean validation, among those of which the fewest runs failed."""
    by_choice: dict[Chosen, list[Outcome]] = {}
    for outcome in group:
        by_choice.setdefault(outcome.run.chosen, []).append(outcome)
    failed = tuple(outcome for outcome in group if outcome.result is None)
    rows = [_row(outcomes) for outcomes in by_choice.values()]
    best = max(rows, key=lambda row: (len(row.paths), statistics.fmean(row.validation.values() or [0.0])))
    return replace(best, failed=failed, chosen=best.chosen if best.paths else ())


def _row(outcomes: Sequence[Outcome]) -> Row:
    run = outcomes[0].run
    finished = {outcome.run.key: outcome.result for outcome in outcomes if outcome.result is not None}
    paths = {outcome.run.key: outcome.run.path for outcome in outcomes if outcome.result is not None}
    costs = [Run(path).cost() for path in paths.values()]
    return Row(
        run.method,
        {seed: result["validation"]["value"] for seed, result in finished.items() if result["validation"]},
        {seed: result["test"]["value"] for seed, result in finished.items() if result["test"]},
        run.value,
        run.chosen,
        by_labels=_gathered(_by_labels(result) for result in finished.values()),
        hidden=_gathered((result.get("recovery") or {}).items() for result in finished.values()),
        paths=paths,
        seconds=[cost["seconds"] for cost in costs if cost],
        memory=[cost["peak_memory"] for cost in costs if cost],
        oracle=needs_of(run.method).truth,
        names={
            split: result[split].get("name", "mAP")
            for result in finished.values()
            for split in ("validation", "test")
            if result[split]
        },
        measures=_gathered(
            (_real(result) | _map_loc(Run(paths[key]))).items() for key, result in finished.items()
        ),
        annotation=run.annotation,
    )


def _gathered(pairs: Any) -> dict[Any, list[float]]:
    """Values of all seeds by name, without None."""
    by_name: dict[Any, list[float]] = {}
    for of_one_seed in pairs:
        for name, value in of_one_seed:
            if value is not None:
                by_name.setdefault(name, []).append(value)
    return by_name


def _by_labels(result: dict[str, Any]) -> Iterator[tuple[tuple[str, str], float | None]]:
    """The mAP on images with one, two, ... labels; nothing where labels are incomplete."""
    for split in ("validation", "test"):
        for labels, subset in ((result[split] or {}).get("by_number_of_labels") or {}).items():
            yield (split, labels), subset["average_precision"]["mean_of_present"]


def _real(result: dict[str, Any]) -> dict[str, float | None]:
    """The columns of Verelst 2023 table 3, as its recipe calls them; nothing without ReaL labels."""
    real = (result["test"] or {}).get("real")
    if real is None:
        return {}
    subsets = {"1": "1 label", "2": "2 labels", "3": "3 labels", "4+": "4 labels or more"}
    return {
        "top-1": real["top_1_single"],
        "ReaL top-1": real["top_1"],
        "ReaL mAP": real["mean_average_precision"]["mean"],
    } | {
        f"ReaL mAP, {name}": real["by_number_of_labels"][number]["average_precision"]["mean_of_present"]
        for number, name in subsets.items()
    }


def _map_loc(run: Run) -> dict[str, float]:
    """The mAP-loc of the test images, where maps were evaluated by boxes or masks."""
    file = run.evaluation_file("test")
    location = read_json(file, Evaluation).get("location") if file.is_file() else None
    return {MAP_LOC: location["mean"]} if location else {}


def with_share(rows: Sequence[Row]) -> list[Row]:
    """Add the share of the gap between the baseline and the oracle, where both are there.

    The gap is that of the row's own kind of annotation, and of its own value of a setting that is varied.
    """

    def shared(row: Row) -> Row:
        low, high = (beside(rows, name, row) for name in (BASELINE, ORACLE))
        if low is None or high is None or low.mean == high.mean:
            return row
        return replace(row, recovered=(row.mean - low.mean) / (high.mean - low.mean))

    return [shared(row) if row.test else row for row in rows]


def beside(rows: Sequence[Row], method: str, row: Row) -> Row | None:
    """The tested row of a method on the same labels: at the varied value, or its only one without it."""
    alike = [one for one in rows if one.method == method and one.annotation == row.annotation and one.test]
    by_value = {one.value: one for one in alike}
    return by_value.get(row.value, by_value.get(""))


class TestDraws:
    """The test mAP of runs on draws of the test images, the same for all; each run is measured once."""

    __test__ = False  # not a test, whatever its name

    def __init__(self, samples: int = 2000) -> None:
        self.samples = samples
        self._of_run: dict[Path, Drawn] = {}

    def __call__(self, path: Path) -> "Drawn":
        """The draws of one run; raises RunError where its scores are not there."""
        from sparselabel.inference.saved_scores import saved_scores
        from sparselabel.metrics.bootstrap import drawn

        if path not in self._of_run:
            saved = saved_scores(Run(path), "test")
            self._of_run[path] = drawn(saved.array, saved.positive, self.samples)
        return self._of_run[path]


def difference_of(row: Row, base: Row, draws: TestDraws) -> "Difference | None":
    """The test mAP of a row minus that of another one; None where they have no seed in common."""
    from sparselabel.metrics.bootstrap import difference

    keys = [key for key in row.test if key in base.test]
    if not keys:
        return None
    first, second = ([draws(one.paths[key]) for key in keys] for one in (base, row))
    return difference(first, second, label_draws(keys))


def label_draws(keys: Sequence[RunKey]) -> list[int | None]:
    """The draw of labels of each run."""
    return [None if isinstance(key, int) else key[0] for key in keys]


def with_intervals(rows: Sequence[Row], draws: TestDraws) -> list[Row]:
    """Add the interval of each row's test mAP, where its runs have their scores."""
    from sparselabel.metrics.bootstrap import interval

    def added(row: Row) -> Row:
        if not row.test:
            return row
        try:
            bounds = interval([draws(row.paths[key]) for key in row.test], label_draws([*row.test]))
        except RunError:  # reported where differences are computed
            return row
        return replace(row, interval=bounds)

    return [added(row) for row in rows]


def with_differences(
    rows: Sequence[Row], against: str, say: Callable[[str], None], draws: TestDraws | None = None
) -> list[Row]:
    """Add each row's difference to the row of ``against`` on the same labels, where both were tested."""
    measured = draws or TestDraws()

    def added(row: Row) -> Row:
        base = beside(rows, against, row)
        if base is None or base is row:
            return row
        try:
            return replace(row, difference=difference_of(row, base, measured))
        except RunError as error:  # files were removed
            say(f"no bootstrap for {row.method}: {error}")
            return row

    return [added(row) for row in rows]


@dataclass(frozen=True)
class Pair:
    """Two rows, and the test mAP of the first minus that of the second."""

    row: Row
    other: Row
    difference: "Difference"


def pairs_of(rows: Sequence[Row], say: Callable[[str], None], draws: TestDraws | None = None) -> list[Pair]:
    """All pairs of tested rows that differ in the method, or else in the kind of annotation.

    They have the same varied value; a method without the setting is in all of them.
    """
    measured, pairs = draws or TestDraws(), []
    for row, other in combinations([row for row in rows if row.test], 2):
        if row.value and other.value and row.value != other.value:
            continue
        if row.method != other.method and row.annotation != other.annotation:
            continue
        try:
            difference = difference_of(row, other, measured)
        except RunError as error:
            say(f"no bootstrap for {row.method} and {other.method}: {error}")
            continue
        if difference is not None:
            pairs.append(Pair(row, other, difference))
    return pairs


def with_labels(rows: Sequence[Row], observed: Mapping[str, int], everything: int) -> list[Row]:
    """Add how many labels training saw: those observed, by kind of annotation; an oracle saw all."""
    return [replace(row, labels=everything if row.oracle else observed[row.annotation]) for row in rows]
