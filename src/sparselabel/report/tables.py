"""The tables of a report: runs, measures, classes; and charts of mAP by labels, by size and of scores."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparselabel.report.charts import Chart, Drawn, Line, draw
from sparselabel.report.examples import Scored
from sparselabel.report.figures.score_histogram import EDGES, RANKS
from sparselabel.report.run_data import SPLITS, Reported, ShownRun

NUMBERS = ("1", "2", "3", "4", "5", "6", "7+")
FEW_NUMBERS = ("1", "2", "3", "4+")  # where no more is known


@dataclass(frozen=True)
class Number:
    """A cell: what is shown, what it is sorted by, its bar (0..100), its distance from the reference."""

    text: str
    value: float | None = None
    bar: float | None = None
    difference: float | None = None


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


def run_rows(about: Reported) -> list[RunRow]:
    """What each run reached."""
    values = [_mean(about, run) for run in about.runs]
    oracles = [about.hidden and run.oracle for run in about.runs]
    # The best run is one that could have been trained; oracles count only among themselves.
    fair = [v for v, oracle in zip(values, oracles, strict=True) if v is not None and oracle == all(oracles)]
    rows = []
    for number, (run, value) in enumerate(zip(about.runs, values, strict=True)):
        difference = None
        if number and value is not None and values[0] is not None:
            difference = value - values[0]
        validation = (run.result.get("validation") or {}).get("value")
        recovery = run.result.get("recovery") or {}
        rows.append(
            RunRow(
                run,
                number,
                oracle=oracles[number],
                best=bool(fair) and oracles[number] == all(oracles) and value == max(fair),
                measured=percent(value, bar=True, difference=difference),
                validation=percent(validation),
                recovered=percent(recovery.get("model")),
                epoch=f"{run.result['best_epoch']} of {run.result['epochs']}",
            )
        )
    return rows


def class_rows(about: Reported) -> list[ClassRow]:
    """Every class: one run's AP, precision, recall and F1; of several runs the AP of each."""
    if about.split is None:
        return []
    measured = [run.measured(about.split) for run in about.runs]
    labels = about.data.train.observed.counts().tolist()
    rows = []
    for index, name in enumerate(about.data.classes):
        found = [None if one is None else one["classes"][index] for one in measured]
        first = found[0]
        positives = next((one["positive"] for one in found if one is not None), 0)
        if len(found) == 1 and first is not None:
            others = [percent(first[key]) for key in ("precision", "recall", "f1")]
            numbers = [percent(_precision(first), bar=True), *others]
        else:
            own = [None if one is None else _precision(one) for one in found]
            numbers = [
                percent(
                    value,
                    bar=True,
                    difference=None if not n or value is None or own[0] is None else value - own[0],
                )
                for n, value in enumerate(own)
            ]
        rows.append(ClassRow(name, labels[index], positives, numbers))
    return rows


def measure_rows(about: Reported) -> list[tuple[str, list[Number]]]:
    """All other measures of the split: a name, and a number of each run."""
    if about.split is None:
        return []
    rows: dict[str, list[Number]] = {}
    for number, run in enumerate(about.runs):
        for name, value in _measures(run.measured(about.split)).items():
            rows.setdefault(name, [percent(None)] * len(about.runs))[number] = percent(value)
    return list(rows.items())


def by_labels(about: Reported) -> Drawn | None:
    """The mAP on images with one, two, ... labels; None where their number is not known."""
    if about.split is None:
        return None
    found = [(run.measured(about.split) or {}).get("by_number_of_labels") or {} for run in about.runs]
    numbers = NUMBERS if any("4" in one for one in found) else FEW_NUMBERS
    present = [name for name in numbers if any(_subset(one, name) is not None for one in found)]
    if not present:
        return None
    counts = {name: next(one[name]["images"] for one in found if name in one) for name in present}
    lines = [
        Line(run.name, number, [_subset(one, name) for name in present])
        for number, (run, one) in enumerate(zip(about.runs, found, strict=True))
    ]
    names = [f"{name} ({counts[name]:,})" if len(present) < 6 else name for name in present]
    label = "labels of the image" + (" (images)" if len(present) < 6 else "")
    return draw(Chart("By number of labels", label, "mAP, %", names, lines, slots=True))


def by_size(about: Reported, scored: Scored) -> Drawn | None:
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


def distributions(about: Reported, scored: Scored) -> list[Drawn]:
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


def percent(value: float | None, bar: bool = False, difference: float | None = None) -> Number:
    """A share as percent with one decimal, or a dash."""
    if value is None:
        return Number("–")
    shown = 100 * value
    return Number(
        f"{shown:.1f}", shown, shown if bar else None, None if difference is None else 100 * difference
    )


def _mean(about: Reported, run: ShownRun) -> float | None:
    measured = None if about.split is None else run.measured(about.split)
    value: float | None = None if measured is None else measured["value"]
    return value


def name_of_split(about: Reported) -> str:
    """What the split is called in the text."""
    return SPLITS.get(about.split or "", "")


def _precision(found: dict[str, Any]) -> float | None:
    """The AP of a class; None if it has no positive."""
    value: float | None = found["average_precision"] if found["positive"] else None
    return value


def _area(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.0995 else f"{100 * share:.1g}"


def _subset(subsets: dict[str, Any], name: str) -> float | None:
    mean = subsets[name]["average_precision"]["mean_of_present"] if name in subsets else None
    return None if mean is None else 100 * mean


def _measures(measured: dict[str, Any] | None) -> dict[str, float]:
    if measured is None:
        return {}
    names = {"sklearn": "mAP", "voc": "mAP, all-point rule of VOC", "hits": "mAP, rule of ASL's program"}
    found = {names[rule]: mean["mean"] for rule, mean in measured["mean_average_precision"].items()}
    threshold = measured["threshold"]
    found |= {f"{name} at {threshold}": value for name, value in measured["at_threshold"].items()}
    top = measured["at_threshold_top_3"]
    found |= {f"{name} at {threshold}, top 3": value for name, value in top.items()}
    for at in measured["at_k"]:
        found |= {f"{what} at {at['k']}": at[what] for what in ("recall", "precision")}
    return found


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


def calibrated_runs(about: Reported) -> list[CalibratedRun]:
    """The runs that chose thresholds, in their order; runs of older versions have not."""
    rows = []
    for name, decided in _decided(about):
        calibration = decided["calibration"] or {}
        error, raw = calibration.get("ece"), calibration.get("ece_of_raw_scores")
        rows.append(
            CalibratedRun(
                name,
                100 * decided["micro_f1"],
                100 * decided["macro_f1"],
                None if error is None else 100 * error,
                None if raw is None else 100 * raw,
            )
        )
    return rows


def class_thresholds(about: Reported) -> list[dict[str, Any]]:
    """The thresholds of the reference run, class by class."""
    found = dict(_decided(about)).get(about.reference.name)
    rows: list[dict[str, Any]] = [] if found is None else found["classes"]
    return rows


def reliability_charts(about: Reported) -> list[Drawn]:
    """Of scores of a tenth, how many are really there: calibrated, and as the model gives them."""
    numbers = {run.name: number for number, run in enumerate(about.runs)}
    charts = []
    for key, title in (("bins", "Calibrated scores"), ("bins_of_raw_scores", "The model's own scores")):
        lines = [
            Line(name, numbers[name], [_share(row) for row in decided["calibration"][key]])
            for name, decided in _decided(about)
            if decided["calibration"] is not None
        ]
        if not lines:
            return []
        middles = [5.0 + 10 * place for place in range(10)]
        perfect = Line("perfect", PERFECT, middles)
        names = [f"{middle / 100:.2f}" for middle in middles]
        chart = Chart(
            title,
            "score",
            "% really there",
            names,
            [perfect, *lines],
            from_zero=True,
            ticks=TICKS,
            slots=True,
        )
        charts.append(draw(chart))
    return charts


def _share(row: dict[str, Any]) -> float | None:
    return 100 * row["share_there"] if row["count"] >= FEWEST else None


def _decided(about: Reported) -> list[tuple[str, dict[str, Any]]]:
    if about.split is None:
        return []
    found = ((run.name, run.measured(about.split)) for run in about.runs)
    return [(name, measured["decided"]) for name, measured in found if measured and measured.get("decided")]
