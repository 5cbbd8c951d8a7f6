"""mAP against the annotation budget, a curve for each kind of annotation (PatchML fig. 1c)."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, RunError, command, param
from sparselabel.file_formats import read_json
from sparselabel.report.figures.style import log_curves, save, style
from sparselabel.run import Evaluation, Run, flat_settings

BOUGHT = ("sparsify", "annotate", "budget", "answers", "cost", "label_seed")
OF_THE_METHOD = ("lr", "batch_size")
OF_A_FILE = ("prior", "expected_positives")
COUNTED = ("pairs", "masks", "boxes")


@dataclass(frozen=True)
class Conditions:
    """What a run's number depends on beside its labels: of every run of a figure, and of its method's."""

    path: Path
    method: str
    everywhere: dict[str, Any]
    of_method: dict[str, Any]


def conditions_of(
    run: Run, method: str, data: Dataset, split: str, evaluated: dict[str, Any] | None
) -> Conditions:
    """Those of a run; ``evaluated`` says by how many masks and boxes, for mAP-loc."""
    about, config = run.metadata(), run.config()
    images = hashlib.blake2b(digest_size=4)  # and all that is known of their labels
    for array in (data.train.truth.ids, data.train.digests, data.train.truth.matrix):
        images.update(np.ascontiguousarray(array).view(np.uint8).data)
    everywhere: dict[str, Any] = {
        "classes": list(data.classes),
        "training images and their labels": f"{data.name} {images.hexdigest()}",
        f"split {split!r}": "" if split == "train" else about["data_digest"].get(split, "missing"),
        "reviewers' answers": about.get("answers", 0),
    }
    made = data.made["preparation"]
    everywhere |= {param(name): made[name] for name in made if name not in BOUGHT}
    of_method: dict[str, Any] = {}
    for name, value in flat_settings(asdict(config)).items():
        table, _, key = name.rpartition(".")
        if name not in ("method", "seed", "watch", "weights"):
            # A file of these is made for the labels of a draw, so each run has its own.
            from_file = key in OF_A_FILE and isinstance(value, str) and value != "auto"
            group = of_method if table == "settings" or key in OF_THE_METHOD else everywhere
            group[param(name)] = "a file" if from_file else value
    weights = about.get("weights_identity", config.weights)  # a file's content, wherever it is
    everywhere[param("weights")] = weights.removesuffix(f"-{config.seed}")
    if evaluated is not None:
        name = f"{param('ground_truth')} of {command('evaluate')}: {', '.join(COUNTED)}"
        everywhere[name] = [evaluated.get(count) for count in COUNTED]
    return Conditions(run.path, method, everywhere, of_method)


def refuse_unlike(everyone: Sequence[Conditions]) -> None:
    """Raise unless the runs belong together; names two of them and in what they differ."""
    first_of: dict[str, Conditions] = {}
    for one in everyone:
        like = first_of.setdefault(one.method, one)
        _refuse(everyone[0], one, everyone[0].everywhere, one.everywhere, "a figure")
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


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


BUDGET = command("prepare", "READER", "SOURCE", sparsify="budget")
Measure = Literal["mAP", "mAP-loc"]
COLUMNS = ("method", "annotation", "spent_percent", "hours", "answers", "points", "boxes", "measure", "value")


@dataclass(frozen=True)
class Point:
    """A run: its method, its data's budget and what that bought, and its metric in percent."""

    method: str
    size: tuple[Any, ...]
    bought: dict[str, Any]
    value: float
    conditions: Conditions

    @property
    def name(self) -> str:
        """The name of its curve."""
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
    curves: dict[str, list[Point]] = {}
    for point in points:
        curves.setdefault(point.name, []).append(point)
    rows = []
    for point in points:
        counts = (point.bought[name] for name in ("answers", "points", "boxes"))
        spent = (point.spent, point.bought["seconds"] / 3600)
        rows.append([point.method, point.bought["kind"], *spent, *counts, measure, point.value])
    with style():
        means = {name: sorted(_means(own)) for name, own in curves.items()}
        label = "annotation budget, % of the cost of every label"
        return save(log_curves(means, label, f"{split} {measure}, %", "g"), COLUMNS, rows, out)


def _means(points: Sequence[Point]) -> Iterator[tuple[float, float, float]]:
    """For each size of budget what was spent, the mean value, and its standard deviation over runs."""
    for size in dict.fromkeys(point.size for point in points):
        same = [point for point in points if point.size == size]
        values = [point.value for point in same]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        yield float(np.mean([point.spent for point in same])), float(np.mean(values)), spread


def _point(path: Path, measure: Measure, split: str) -> Point:
    run = Run(path)
    result, about = run.result(), run.metadata()
    folder = Path(about["data"])
    if not (folder / "dataset.json").is_file():
        raise RunError(f"the data of {path} is no longer in {folder}: its budget is not known", what=folder)
    data = run.data()
    bought = data.made.get("bought", {}).get("train")
    if bought is None:
        raise RunError(
            f"{path} was trained on {folder}, which no budget bought", f"prepare data with {BUDGET}"
        )
    size = tuple(data.made["preparation"][name] for name in ("budget", "answers", "cost"))
    method = str(result["method"])
    value, located = _value(run, result, measure, split)
    return Point(method, size, bought, 100 * value, conditions_of(run, method, data, split, located))


def _value(
    run: Run, result: dict[str, Any], measure: Measure, split: str
) -> tuple[float, dict[str, Any] | None]:
    """The measure, and for mAP-loc what evaluation says of it."""
    if measure == "mAP" and split == "test" and result.get("test"):
        return float(result["test"]["value"]), None
    file, evaluate = run.evaluation_file(split), command("evaluate", run.path, split=split)
    if not file.is_file():
        raise RunError(f"there is no {file}", f"{evaluate} writes it", what=file)
    measured = read_json(file, Evaluation, f"remove it, and {evaluate} writes it again")
    if measure == "mAP":
        return measured["mean_average_precision"]["sklearn"]["mean"], None
    located = measured.get("location")
    if not located:
        raise RunError(
            f"{file} has no mAP-loc", f"{evaluate} writes it again, where the data has boxes or masks"
        )
    return located["mean"], {**located}
