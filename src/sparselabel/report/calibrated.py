"""Calibration and the classes' own thresholds in a report."""

from dataclasses import dataclass
from typing import Any

from sparselabel.report.charts import Chart, Drawn, Line, draw
from sparselabel.report.run_data import Reported

FEWEST = 10  # entries of a bin that say something
PERFECT = 6  # the number of the colour of the diagonal
TICKS = (0, 3, 6, 9)


@dataclass(frozen=True)
class CalibratedRun:
    """A run's numbers at its own thresholds, in per cent; errors are None where labels are incomplete."""

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
