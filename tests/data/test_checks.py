from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import Preparation
from sparselabel.data.checks import Problem, label_problems
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.describe import count_all
from sparselabel.data.label_table import LabelTable
from sparselabel.data.sparsify import sparsify
from sparselabel.data.spatial_labels import SpatialLabels


def made(
    classes: tuple[str, ...], splits: dict[str, list[list[int]]], spatial_labels: SpatialLabels | None = None
) -> Dataset:
    """Data that is nowhere on the disk, fully observed."""
    return Dataset(
        Path("data"),
        "made",
        classes,
        {
            name: split(name, classes, np.array(values, np.int8), np.array(values, np.int8), spatial_labels)
            for name, values in splits.items()
        },
    )


def split(
    name: str,
    classes: tuple[str, ...],
    truth: np.ndarray,
    observed: np.ndarray,
    spatial_labels: SpatialLabels | None = None,
) -> PreparedSplit:
    ids = np.array([f"{name}-{row}" for row in range(len(truth))])
    known, seen = (LabelTable(ids, classes, values) for values in (truth, observed))
    paths = np.char.add(ids, ".jpg")
    digests = np.arange(len(ids), dtype=np.uint64)
    return PreparedSplit(
        name, Path("images"), paths, known, seen, spatial_labels or SpatialLabels.none(), digests, ""
    )


def found(data: Dataset) -> dict[str, Problem]:
    return {problem.name: problem for problem in label_problems(data, count_all(data))}


def test_a_line_says_all() -> None:
    problem = Problem("few", "3 things", "mend them", ("a",))
    assert str(problem) == "few: 3 things → mend them"
    assert problem.as_json() == {"name": "few", "what": "3 things", "remedy": "mend them", "items": ["a"]}


def test_good_data_has_no_problems() -> None:
    values = np.random.default_rng(0).integers(0, 2, (60, 3)).tolist()
    assert found(made(("ant", "bee", "cow"), {"train": values, "val": values[:20]})) == {}


def test_rare_classes_are_named() -> None:
    train = [[1, 0, 0, 1, int(row < 4)] for row in range(8)]
    problems = found(
        made(
            ("ant", "bee", "cow", "dog", "elk"), {"train": train, "test": [[1, 0, 1, 1, 0], [0, 0, 1, 1, 1]]}
        )
    )
    assert {name: problem.items for name, problem in problems.items()} == {
        "empty-classes": ("bee",),
        "never-observed": ("cow",),
        "few-positives": ("elk (4)",),
        "always-positive": ("ant", "dog"),
    }
    assert str(problems["never-observed"]) == (
        "never-observed: 1 class never observed as positive in training, though there are positives: cow → "
        "training cannot learn them: annotate some, or leave them out"
    )


def test_classes_that_a_split_cannot_judge() -> None:
    train = [[1, 0], [0, 1]] * 5
    problem = found(made(("ant", "bee"), {"train": train, "val": train, "test": [[0, 1]]}))["not-evaluated"]
    assert problem.what == "1 class without a positive in test: ant"


def test_names_that_differ_in_how_they_are_written() -> None:
    classes = ("Tv monitor", "cat", "tv_monitor", "TV-Monitor", "C", "c++", "Straße", "STRASSE")
    eye = (np.arange(48)[:, None] % 8 == np.arange(8)).astype(np.int8).tolist()
    problem = found(made(classes, {"train": eye}))["similar-names"]
    assert problem.items == (["Tv monitor", "tv_monitor", "TV-Monitor"], ["Straße", "STRASSE"])
    assert problem.what.endswith("underscores: Tv monitor = tv_monitor = TV-Monitor, Straße = STRASSE")


def test_classes_with_the_same_positives() -> None:
    train = [[row % 2, row % 2, 1 - row % 2, int(row == 0), int(row == 0)] for row in range(12)]
    classes = ("ant", "bee", "cow", "dog", "elk")
    problems = found(made(classes, {"train": train}))
    assert problems["same-positives"].items == (["ant", "bee"],)  # one image may be chance: not dog and elk
    told_apart = made(classes, {"train": train, "test": [[1, 0, 0, 0, 0]]})
    assert "same-positives" not in found(told_apart)


def test_observed_labels_that_are_not_true() -> None:
    truth = np.array([[1, 0], [0, 1]] * 5, np.int8)
    observed = truth.copy()
    observed[3] = (1, 0)
    data = made(("ant", "bee"), {"train": truth.tolist()})
    data.splits["train"] = split("train", ("ant", "bee"), truth, observed)
    problem = found(data)["wrong-labels"]
    assert problem.what == (
        "2 observed labels of train are not the true ones, as ant of train-3.jpg (observed 1, truth 0)"
    )
    assert problem.items[1] == {
        "split": "train",
        "image": "train-3.jpg",
        "class": "bee",
        "observed": 0,
        "truth": 1,
    }


def test_marks_of_what_is_not_there() -> None:
    spatial_labels = SpatialLabels(
        np.array([0, 1, 99]),
        np.array([0, 0, 0]),
        np.full((3, 2), 0.5, np.float32),
        np.zeros((3, 2), np.float32),
    )
    problem = found(made(("ant", "bee"), {"train": [[1, 0], [0, 1]] * 5}, spatial_labels))["stray-marks"]
    assert problem.what.startswith("2 points or boxes of train are of classes that are not labeled present")
    assert problem.items == ("train-1.jpg",)


def test_images_without_any_label() -> None:
    problem = found(made(("ant", "bee"), {"train": [[1, 0], [0, 1]] * 5 + [[-1, -1], [0, 0]]}))["unlabeled"]
    assert problem.items == ("train-10.jpg",)
    assert problem.what == "1 of 12 training images have no observed label at all: train-10.jpg"


@pytest.mark.parametrize(("prefer", "biased"), [("any", False), ("frequent", True)])
def test_an_annotator_with_a_preference_is_found(prefer: str, biased: bool) -> None:
    random = np.random.default_rng(1)
    truth = (random.random((600, 3)) < (0.7, 0.4, 0.3)).astype(np.int8)
    data = made(("ant", "bee", "cow"), {"train": truth.tolist()})
    observed = sparsify(truth, Preparation("single-positive", prefer=prefer))  # type: ignore[arg-type]
    data.splits["train"] = split("train", data.classes, truth, observed)
    problems = found(data)
    assert ("preference" in problems) is biased
    if biased:
        kept = {item["class"]: item for item in problems["preference"].items}
        assert kept["ant"]["kept"] == 1.0
        both = truth[:, 0] == 1
        assert kept["ant"]["kept_if_uniform"] == pytest.approx((1 / truth[both].sum(1)).mean())
        assert kept["cow"]["kept"] < kept["cow"]["kept_if_uniform"] - 0.2
        assert "no random choice of each image's" in problems["preference"].what
        assert f"ant 100% instead of {kept['ant']['kept_if_uniform']:.0%}" in problems["preference"].what
