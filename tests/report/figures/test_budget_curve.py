"""Runs that differ in their settings are not averaged."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparselabel.cli.figure import budgets
from sparselabel.config import HeadPhase, Preparation, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes
from sparselabel.errors import DataWarning, RunError
from sparselabel.files import write_json
from tests.report.figures.made_up import EVALUATION, RESULT, make_run

BUDGET = Preparation("budget", budget=0.4, validation=0)
CONFIG = TrainConfig(method="csl-i", settings={"unknown": "ignore"})


def bought(folder: Path, how: Preparation, train: int = 8) -> Dataset:
    source = scenes.make(folder, train=train, test=4, size=32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # of classes that nobody bought
        return prepare(source, folder, how)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return bought(tmp_path_factory.mktemp("data"), BUDGET)


def finished(path: Path, data: Dataset, config: TrainConfig = CONFIG, **location: Any) -> Path:
    run = make_run(path, data, config=config)
    write_json(run.result_file, RESULT | {"method": config.method, "test": {"name": "mAP", "value": 0.5}})
    write_json(run.evaluation_file("test"), EVALUATION | {"location": {"mean": 0.25} | location})
    return path


def test_draws_seeds_and_other_methods_belong_together(data: Dataset, tmp_path: Path) -> None:
    runs = [
        finished(tmp_path / "a", data),
        finished(tmp_path / "b", data, replace(CONFIG, seed=1, watch=0)),
        finished(tmp_path / "c", bought(tmp_path / "draw", replace(BUDGET, label_seed=7))),
        finished(tmp_path / "d", data, TrainConfig(method="patchml", head=HeadPhase(lr=0.01))),
    ]
    budgets(*runs, out=tmp_path / "out.png")
    assert (tmp_path / "out.csv").read_text().count("\n") == 5


def test_other_settings_are_refused(data: Dataset, tmp_path: Path) -> None:
    first = finished(tmp_path / "first", data)
    others = {
        r"a figure, .* \(`backbone`: resnet50 and resnet18\): draw them apart": replace(
            CONFIG, backbone="resnet18"
        ),
        r"a figure, .* \(`head.epochs`: 25 and 3\)": replace(CONFIG, head=HeadPhase(epochs=3)),
        r"a figure, .* \(`weights`: pretrained and none\)": replace(CONFIG, weights="none"),
        r"a curve of csl-i, .* \(`unknown`: ignore and None\)": replace(CONFIG, settings={}),
        r"a curve of csl-i, .* \(`head.lr`: 0.001 and 0.1\)": replace(CONFIG, head=HeadPhase(lr=0.1)),
    }
    for number, (said, config) in enumerate(others.items()):
        other = finished(tmp_path / f"other{number}", data, config)
        with pytest.raises(RunError, match=rf"first and .*other{number} do not belong in {said}"):
            budgets(first, other, out=tmp_path / "out.png")


def test_other_data_and_places_are_refused(data: Dataset, tmp_path: Path) -> None:
    first = finished(tmp_path / "first", data, pairs=9, masks=4, boxes=0)
    more = finished(tmp_path / "more", bought(tmp_path / "larger", BUDGET, train=9))
    with pytest.raises(RunError, match=r"first and .*more do not .* \(training images and their labels: sc"):
        budgets(first, more, out=tmp_path / "out.png")
    held = finished(tmp_path / "held", bought(tmp_path / "held-out", replace(BUDGET, validation=0.5)))
    with pytest.raises(RunError, match=r"first and .*held do not .*`validation`: 0 and 0.5"):
        budgets(first, held, out=tmp_path / "out.png")
    boxes = finished(tmp_path / "boxes", data, pairs=9, masks=0, boxes=4)
    budgets(first, boxes, out=tmp_path / "out.png")
    with pytest.raises(RunError, match=r"boxes do not .*`ground_truth` of .* \[9, 4, 0\] and \[9, 0, 4\]"):
        budgets(first, boxes, measure="mAP-loc", out=tmp_path / "out.png")
