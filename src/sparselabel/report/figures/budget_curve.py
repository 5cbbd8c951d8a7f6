"""What annotation budgets bring: mAP against the share of the full cost, for each kind (PatchML fig. 1c)."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sparselabel.config import TrainConfig
from sparselabel.data.dataset import Prepared, open_prepared
from sparselabel.errors import ConfigError, RunError, command, param
from sparselabel.files import read_json
from sparselabel.report.figures.style import COLORS, MARKERS, Table, new_figure, save, style
from sparselabel.run import Run

BOUGHT = ("sparsify", "annotate", "budget", "answers", "cost", "label_seed")
OF_THE_METHOD = ("lr", "batch_size")
OF_A_FILE = ("prior", "expected_positives")
PLACES = ("pairs", "masks", "boxes")


@dataclass(frozen=True)
class Conditions:
    """What a run's number depends on beside its labels: of every run of a figure, and of its method's."""

    path: Path
    method: str
    everywhere: dict[str, Any]
    of_method: dict[str, Any]


def conditions_of(
    run: Run, method: str, data: Prepared, split: str, judged: dict[str, Any] | None
) -> Conditions:
    """Those of a run; ``judged`` says by how many masks and boxes, for mAP-loc."""
    about, config = run.metadata(), run.config()
    everywhere: dict[str, Any] = {
        "classes": list(data.classes),
        "training images and their labels": _images(data),
        f"split {split!r}": "" if split == "train" else about["data_digest"].get(split, "missing"),
    }
    made = data.made["preparation"]
    everywhere |= {param(name): made[name] for name in made if name not in BOUGHT}
    everywhere["reviewers' answers"] = about.get("answers", 0)
    common, of_method = _settings(config)
    weights = about.get("weights_identity", config.weights)  # a file's content, wherever it is
    common[param("weights")] = weights.removesuffix(f"-{config.seed}")
    if judged is not None:
        common[f"{param('places')} of {command('evaluate')}: {', '.join(PLACES)}"] = [
            judged.get(n) for n in PLACES
        ]
    return Conditions(run.path, method, everywhere | common, of_method)


def refuse_unlike(everyone: Sequence[Conditions]) -> None:
    """Raise unless the runs belong together; names two of them and in what they differ."""
    first = everyone[0]
    of_method: dict[str, Conditions] = {}
    for one in everyone:
        like = of_method.setdefault(one.method, one)
        _refuse(first, one, first.everywhere, one.everywhere, "a figure")
        _refuse(like, one, like.of_method, one.of_method, f"a curve of {one.method}")


def _refuse(
    first: Conditions, second: Conditions, old: dict[str, Any], new: dict[str, Any], what: str
) -> None:
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if names:
        differ = "; ".join(f"{name}: {_short(old.get(name))} and {_short(new.get(name))}" for name in names)
        raise RunError(
            f"{first.path} and {second.path} do not belong in {what}, for they differ in more than what was "
            f"bought and the seed ({differ})",
            "draw them apart",
            "make them alike",
        )


def _images(data: Prepared) -> str:
    """Identifies the training images, and all that is known of their labels."""
    digest = hashlib.blake2b(digest_size=4)
    for array in (data.train.truth.ids, data.train.digests, data.train.truth.values):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return f"{data.name} {digest.hexdigest()}"


def _settings(config: TrainConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """What all runs must share, and what those of a method must, by parameter."""
    common: dict[str, Any] = {}
    of_method: dict[str, Any] = {}
    for name, value in asdict(config).items():
        if name in ("method", "seed", "watch", "weights"):
            continue
        for key, given in value.items() if isinstance(value, dict) else [("", value)]:
            # A file of these is made for the labels of a draw, so each run has its own.
            from_file = key in OF_A_FILE and isinstance(given, str) and given != "auto"
            own = "a file" if from_file else given
            setting = param(".".join(part for part in (name, key) if part))
            (of_method if name == "settings" or key in OF_THE_METHOD else common)[setting] = own
    return common, of_method


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


BUDGET = command("prepare", "READER", "SOURCE", sparsify="budget")
Measure = Literal["mAP", "mAP-loc"]
COLUMNS = ("method", "annotation", "spent_percent", "hours", "answers", "points", "boxes", "measure", "value")


@dataclass(frozen=True)
class Point:
    """A run: its method, what its data's budget was and bought, and how good it is, in percent."""

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
        """Percent of what an answer for every image and class costs."""
        return float(100 * self.bought["seconds"] / self.bought["seconds_of_all_answers"])


def draw_budgets(runs: Sequence[Path], measure: Measure, split: str, out: Path) -> Path:
    """A curve for each kind of annotation and method; runs of one budget are its mean and spread."""
    if not runs:
        raise ConfigError("there is nothing to draw", f"name runs on data prepared with {BUDGET}")
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
                color=COLORS[number % len(COLORS)],
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
    run = Run(path)
    result, about = run.result(), run.metadata()
    folder = Path(about["data"])
    if not (folder / "dataset.json").is_file():
        raise RunError(f"the data of {path} is no longer in {folder}: its budget is not known", what=folder)
    data = open_prepared(folder)
    made = data.made
    bought = made.get("bought", {}).get("train")
    if bought is None:
        raise RunError(
            f"{path} was trained on {folder}, which no budget bought", f"prepare data with {BUDGET}"
        )
    how = made["preparation"]
    size = (how["budget"], how["answers"], how["cost"])
    method = str(result["method"])
    value, located = _value(run, result, measure, split)
    conditions = conditions_of(run, method, data, split, located)
    return Point(path, method, size, bought, 100 * value, conditions)


def _value(
    run: Run, result: dict[str, Any], measure: Measure, split: str
) -> tuple[float, dict[str, Any] | None]:
    """The measure, and for mAP-loc what evaluation says of it."""
    if measure == "mAP" and split == "test" and result.get("test"):
        return float(result["test"]["value"]), None
    file, evaluate = run.evaluation_file(split), command("evaluate", run.path, split=split)
    if not file.is_file():
        raise RunError(f"there is no {file}", f"{evaluate} writes it", what=file)
    measured = read_json(file, f"remove it, and {evaluate} writes it again")
    if measure == "mAP":
        return float(measured["mean_average_precision"]["sklearn"]["mean"]), None
    if not measured.get("location"):
        raise RunError(
            f"{file} has no mAP-loc", f"{evaluate} writes it again, where the data has boxes or masks"
        )
    return float(measured["location"]["mean"]), measured["location"]
