"""Tables of a report (runs, metrics, classes), and charts of mAP by labels, by size and of scores."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparselabel.inference.class_thresholds import Trust
from sparselabel.metrics.bootstrap import Difference
from sparselabel.report.charts import Chart, Drawn, Line, draw
from sparselabel.report.examples import Scored
from sparselabel.report.figures.score_histogram import EDGES, RANKS
from sparselabel.report.run_data import SPLITS, ReportData, ShownRun

NUMBERS = ("1", "2", "3", "4", "5", "6", "7+")
FEW_NUMBERS = ("1", "2", "3", "4+")  # where no more is known


@dataclass(frozen=True)
class Number:
    """A cell: what is shown, what it is sorted by, its bar (0..100), its distance from the reference.

    ``interval`` is that of the difference, in words; ``chance`` says that it contains 0.
    """

    text: str
    value: float | None = None
    bar: float | None = None
    difference: float | None = None
    interval: str = ""
    chance: bool = False


@dataclass(frozen=True)
class RunRow:
    """A line of the table of runs."""

    run: ShownRun
    number: int
    oracle: bool
    best: bool
    measured: Number
    validation: Number
    recovered: Number
    epoch: str


@dataclass(frozen=True)
class ClassRow:
    """A line of the table of classes: labels in training, positives of the split, numbers of the runs."""

    name: str
    labels: int
    positives: int
    numbers: list[Number]


@dataclass(frozen=True)
class ThresholdRow:
    """A class at its threshold: what of its suggested labels is right, and what of those there is found.

    ``precision`` and ``recall`` are expected ones where the labels of the split are sparse.
    """

    name: str
    labels: int
    positives: int
    precision: Number
    recall: Number
    threshold: Number
    trust: Trust
    why: str


def run_rows(about: ReportData, scored: Scored) -> list[RunRow]:
    """The rows of the table of runs."""
    values = [(measured or {}).get("value") for measured in _measured(about)]
    oracles = [about.hidden and run.oracle for run in about.runs]
    # The best run is one that could have been trained; oracles count only among themselves.
    fair = [v for v, oracle in zip(values, oracles, strict=True) if v is not None and oracle == all(oracles)]
    rows = []
    numbers = [
        number
        if n == 0 or run.name not in scored.differences
        else _judged(number, scored.differences[run.name])
        for n, (run, number) in enumerate(zip(about.runs, _compared(values), strict=True))
    ]
    for number, (run, value, oracle) in enumerate(zip(about.runs, values, oracles, strict=True)):
        best = bool(fair) and oracle == all(oracles) and value == max(fair)
        validation, recovery = (run.result.get(name) or {} for name in ("validation", "recovery"))
        others = percent(validation.get("value")), percent(recovery.get("model"))
        epoch = f"{run.result['best_epoch']} of {run.result['epochs']}"
        rows.append(RunRow(run, number, oracle, best, numbers[number], *others, epoch))
    return rows


def class_rows(about: ReportData) -> list[ClassRow]:
    """The AP of every class, of each run."""
    if about.split is None:
        return []
    labels = about.data.train.observed.counts().tolist()
    rows = []
    for index, name in enumerate(about.data.classes):
        by_run = [measured and measured["classes"][index] for measured in _measured(about)]
        positives = next((row["positive"] for row in by_run if row), 0)
        values = [row["average_precision"] if row and row["positive"] else None for row in by_run]
        rows.append(ClassRow(name, labels[index], positives, _compared(values)))
    return rows


def threshold_rows(about: ReportData) -> list[ThresholdRow]:
    """Every class of the first run at its own threshold; empty for runs that have none."""
    measured = None if about.split is None else about.reference.measured(about.split)
    decided = (measured or {}).get("decided")
    if measured is None or not decided:
        return []
    labels = about.data.train.observed.counts().tolist()
    kind = "" if measured["labels"] == "complete" else "expected_"
    rows = []
    for row, number, positives in zip(decided["classes"], labels, measured["classes"], strict=True):
        shown = positives["positive"]
        known = bool(kind or shown)  # else nothing is there to be found
        known = known and shown < measured["images"]  # else there is nothing to tell it from
        precision, recall = (
            _with_bar(row[f"{kind}{key}"] if known else None) for key in ("precision", "recall")
        )
        threshold = Number(f"{row['threshold']:.2f}", row["threshold"])
        rows.append(
            ThresholdRow(row["name"], number, shown, precision, recall, threshold, row["trust"], row["why"])
        )
    return rows


def measure_rows(about: ReportData) -> list[tuple[str, list[Number]]]:
    """All other measures of the split: a name, and a number of each run."""
    rows: dict[str, list[Number]] = {}
    for number, measured in enumerate(_measured(about)):
        for name, value in _measures(measured).items():
            rows.setdefault(name, [percent(None)] * len(about.runs))[number] = percent(value)
    return list(rows.items())


def by_labels(about: ReportData) -> Drawn | None:
    """The mAP on images with one, two, ... labels; None where their number is not known."""
    by_run = [(measured or {}).get("by_number_of_labels") or {} for measured in _measured(about)]
    numbers = NUMBERS if any("4" in subsets for subsets in by_run) else FEW_NUMBERS
    present = [name for name in numbers if any(_subset(subsets, name) is not None for subsets in by_run)]
    if not present:
        return None
    lines = [
        Line(run.name, number, [_subset(subsets, name) for name in present])
        for number, (run, subsets) in enumerate(zip(about.runs, by_run, strict=True))
    ]
    names, label = present, "labels of the image"
    if len(present) < 6:  # there is room to say how many images these are
        counts = [next(subsets[name]["images"] for subsets in by_run if name in subsets) for name in present]
        names = [f"{name} ({count:,})" for name, count in zip(present, counts, strict=True)]
        label += " (images)"
    return draw(Chart("By number of labels", label, "mAP, %", names, lines, slots=True))


def by_size(about: ReportData, scored: Scored) -> Drawn | None:
    """The mAP of small to large things; None without boxes."""
    if not scored.by_size:
        return None
    names = [f"{_area(size.smallest)}–{_area(size.largest)}" for size in scored.sizes]
    lines = [
        Line(run.name, number, [100 * value for value in scored.by_size[run.name]])
        for number, run in enumerate(about.runs)
    ]
    label = "area of the largest box, % of the image"
    return draw(Chart("By size of things", label, "mAP, %", names, lines, slots=True))


def distributions(about: ReportData, scored: Scored) -> list[Drawn]:
    """A chart for the 1st to the 4th highest score of an image."""
    if not scored.distribution:
        return []
    edges = [f"{edge:.2g}" for edge in EDGES]
    ticks = [int(np.abs(EDGES - value).argmin()) for value in (0, 0.2, 0.4, 0.6, 0.8, 1)]
    charts = []
    for rank in range(len(scored.distribution[about.reference.name])):
        lines = [
            Line(run.name, number, (100 * scored.distribution[run.name][rank]).tolist())
            for number, run in enumerate(about.runs)
        ]
        title = f"{RANKS[rank].capitalize()} score"
        chart = Chart(title, "score", "% of images", edges, lines, 2, from_zero=True, steps=True, ticks=ticks)
        charts.append(draw(chart))
    return charts


def percent(value: float | None) -> Number:
    """A share as percent with one decimal, or a dash."""
    return Number("–") if value is None else Number(f"{100 * value:.1f}", 100 * value)


def _with_bar(value: float | None) -> Number:
    """A share in whole percent, and its bar."""
    return Number("–") if value is None else Number(f"{100 * value:.0f}", 100 * value, 100 * value)


def _compared(values: list[float | None]) -> list[Number]:
    """Shares of the runs with bars, and their differences from the first."""
    numbers = [percent(value) for value in values]
    first = numbers[0].value
    return [
        replace(
            number,
            bar=number.value,
            difference=None if not n or number.value is None or first is None else number.value - first,
        )
        for n, number in enumerate(numbers)
    ]


def _judged(number: Number, measured: Difference) -> Number:
    """A difference with its interval, and whether that contains 0."""
    low, high = (f"{100 * value:+.1f}".replace("-", "−") for value in (measured.low, measured.high))
    return replace(number, interval=f"95 % interval {low} to {high}", chance=not measured.zero_outside)


def _measured(about: ReportData) -> list[dict[str, Any] | None]:
    """The measures of the runs on the split, if there is one."""
    return [None if about.split is None else run.measured(about.split) for run in about.runs]


def name_of_split(about: ReportData) -> str:
    """The name of the split in the text."""
    return SPLITS.get(about.split or "", "")


def _area(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.0995 else f"{100 * share:.1g}"


def _subset(subsets: dict[str, Any], name: str) -> float | None:
    mean = subsets[name]["average_precision"]["mean_of_present"] if name in subsets else None
    return None if mean is None else 100 * mean


def _measures(measured: dict[str, Any] | None) -> dict[str, float]:
    if measured is None:
        return {}
    names = {"sklearn": "mAP", "voc": "mAP, all-point rule of VOC", "hits": "mAP, rule of ASL's program"}
    threshold = measured["threshold"]
    values = {names[rule]: mean["mean"] for rule, mean in measured["mean_average_precision"].items()}
    for key, suffix in (("at_threshold", ""), ("at_threshold_top_3", ", top 3")):
        values |= {f"{name} at {threshold}{suffix}": value for name, value in measured[key].items()}
    for at in measured["at_k"]:
        values |= {f"{what} at {at['k']}": at[what] for what in ("recall", "precision")}
    return values


FEWEST = 10  # entries of a bin that say something
PERFECT = 6  # the number of the color of the diagonal
TICKS = (0, 3, 6, 9)


@dataclass(frozen=True)
class CalibratedRun:
    """A run's numbers at its own thresholds, in percent; errors are None where labels are incomplete."""

    name: str
    micro_f1: float
    macro_f1: float
    error: float | None
    error_of_raw: float | None


def calibrated_runs(about: ReportData) -> list[CalibratedRun]:
    """The runs with thresholds of their own, in their order."""
    rows = []
    for name, decided in _decided(about).items():
        calibration = decided["calibration"] or {}
        errors = (percent(calibration.get(key)).value for key in ("ece", "ece_of_raw_scores"))
        rows.append(CalibratedRun(name, 100 * decided["micro_f1"], 100 * decided["macro_f1"], *errors))
    return rows


def reliability_charts(about: ReportData) -> list[Drawn]:
    """Reliability diagrams: the share of positives in each tenth of the scores, calibrated and raw."""
    numbers = {run.name: number for number, run in enumerate(about.runs)}
    middles = [5.0 + 10 * tenth for tenth in range(10)]
    names = [f"{middle / 100:.2f}" for middle in middles]
    charts = []
    for key, title in (("bins", "Calibrated scores"), ("bins_of_raw_scores", "The model's own scores")):
        lines = [
            Line(name, numbers[name], [_share(row) for row in decided["calibration"][key]])
            for name, decided in _decided(about).items()
            if decided["calibration"] is not None
        ]
        if not lines:
            return []
        lines = [Line("perfect", PERFECT, middles), *lines]
        axes = (title, "score", "% really there")
        charts.append(draw(Chart(*axes, names, lines, from_zero=True, ticks=TICKS, slots=True)))
    return charts


def _share(row: dict[str, Any]) -> float | None:
    return 100 * row["share_there"] if row["count"] >= FEWEST else None


def _decided(about: ReportData) -> dict[str, dict[str, Any]]:
    """The metrics at the classes' own thresholds on the split, by run."""
    by_run = zip(about.runs, _measured(about), strict=True)
    return {run.name: measured["decided"] for run, measured in by_run if measured and measured.get("decided")}
