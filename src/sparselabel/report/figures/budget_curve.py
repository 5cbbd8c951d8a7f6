"""What annotation budgets bring: mAP against the share of the full cost, for each kind (P2 fig. 1c)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sparselabel.data.dataset import open_prepared
from sparselabel.errors import ConfigError, RunError
from sparselabel.json_file import read_json
from sparselabel.report.figures.alike import Conditions, conditions_of, refuse_unlike
from sparselabel.report.figures.style import COLOURS, MARKERS, Table, new_figure, save, style
from sparselabel.run import RunFolder

Measure = Literal["mAP", "mAP-loc"]
COLUMNS = ("method", "annotation", "spent_percent", "hours", "answers", "points", "boxes", "measure", "value")


@dataclass(frozen=True)
class Point:
    """A run: its method, what its data's budget was and bought, and how good it is, in per cent."""

    path: Path
    method: str
    size: tuple[Any, ...]
    bought: dict[str, Any]
    value: float
    conditions: Conditions

    @property
    def name(self) -> str:
        """Whose curve it is on."""
        return f"{self.bought['kind']}, {self.method}"

    @property
    def spent(self) -> float:
        """Per cent of what an answer for every picture and class costs."""
        return float(100 * self.bought["seconds"] / self.bought["seconds_of_all_answers"])


def draw_budgets(runs: Sequence[Path], measure: Measure, split: str, out: Path) -> Path:
    """A curve for each kind of annotation and method; runs of one budget are its mean and spread."""
    if not runs:
        raise ConfigError("there is nothing to draw: name runs on data prepared with --sparsify budget")
    points = [_point(path, measure, split) for path in runs]
    refuse_unlike([point.conditions for point in points])
    with style():
        figure = new_figure(5.2, 3.7)
        axes = figure.subplots()
        for number, name in enumerate(dict.fromkeys(point.name for point in points)):
            own = [point for point in points if point.name == name]
            drawn = sorted(_means(own))
            axes.errorbar(
                [spent for spent, _, _ in drawn],
                [mean for _, mean, _ in drawn],
                yerr=[spread for _, _, spread in drawn],
                label=name,
                capsize=2,
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
            )
        axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))  # a spread may reach below what there can be
        axes.set_xscale("log", subs=[2, 5])
        for axis_format in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            axis_format(lambda value, _: f"{value:g}")
        axes.tick_params(axis="x", which="minor", labelsize=7)
        axes.set_xlabel("annotation budget, % of the cost of every label")
        axes.set_ylabel(f"{split} {measure}, %")
        figure.legend(loc="outside upper center", ncols=3)
        rows = [[*_numbers(point), measure, point.value] for point in points]
        return save(figure, Table(COLUMNS, rows), out)


def _numbers(point: Point) -> list[object]:
    bought = point.bought
    counts = (bought[name] for name in ("answers", "points", "boxes"))
    return [point.method, bought["kind"], point.spent, bought["seconds"] / 3600, *counts]


def _means(points: Sequence[Point]) -> list[tuple[float, float, float]]:
    """For each size of budget what was spent, the mean value, and its standard deviation over runs."""
    found = []
    for size in dict.fromkeys(point.size for point in points):
        same = [point for point in points if point.size == size]
        values = [point.value for point in same]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        found.append((float(np.mean([point.spent for point in same])), float(np.mean(values)), spread))
    return found


def _point(path: Path, measure: Measure, split: str) -> Point:
    run = RunFolder(path)
    result, about = run.result(), run.about()
    folder = Path(about["data"])
    if not (folder / "dataset.json").is_file():
        raise RunError(f"the data of {path} is no longer in {folder}: its budget is not known")
    data = open_prepared(folder)
    made = data.made
    bought = made.get("bought", {}).get("train")
    if bought is None:
        raise RunError(
            f"{path} was trained on {folder}, which no budget bought: prepare data with --sparsify budget"
        )
    how = made["preparation"]
    size = (how["budget"], how["answers"], how["cost"])
    method = str(result["method"])
    value, located = _value(run, result, measure, split)
    conditions = conditions_of(run, method, data, split, located)
    return Point(path, method, size, bought, 100 * value, conditions)


def _value(
    run: RunFolder, result: dict[str, Any], measure: Measure, split: str
) -> tuple[float, dict[str, Any] | None]:
    """The measure, and for mAP-loc what evaluation says of it."""
    if measure == "mAP" and split == "test" and result.get("test"):
        return float(result["test"]["value"]), None
    file, write_it = (
        run.evaluation_file(split),
        f"`sparselabel evaluate {run.path} --split {split}` writes it",
    )
    if not file.is_file():
        raise RunError(f"there is no {file}: {write_it}")
    measured = read_json(file, "remove it, and `sparselabel evaluate` makes it anew")
    if measure == "mAP":
        return float(measured["mean_average_precision"]["sklearn"]["mean"]), None
    if not measured.get("location"):
        raise RunError(f"{file} has no mAP-loc: {write_it} anew, where the data has boxes or masks")
    return float(measured["location"]["mean"]), measured["location"]
