"""Retraining with the answers of a review, from its page."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation
from sparselabel.data.answers import HEADER, Answer
from sparselabel.review.retrain import Retraining, difference, free_folder, why_not
from sparselabel.run import Run
from sparselabel.training.train_run import train_run
from tests.training.conftest import small_scenes, tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("trained")
    data = small_scenes(folder / "data", 40, 12, Preparation("single-positive"))
    config = tiny(frozen=True, head=HeadPhase(epochs=2, lr=0.1), finetune=FinetunePhase(epochs=0))
    train_run(data, config, folder / "run", Machine(accelerator="cpu", workers=0), Handling(quiet=True))
    return Run(folder / "run")


def test_a_new_folder_beside_the_run(run: Run, tmp_path: Path) -> None:
    moved = replace(run, path=tmp_path / "run")
    assert free_folder(moved) == tmp_path / "run-reviewed"
    (tmp_path / "run-reviewed").mkdir()
    assert free_folder(moved) == tmp_path / "run-reviewed-2"


def test_what_cannot_be_trained_from_a_page(run: Run) -> None:
    assert why_not(run) == ""
    assert "in memory" in why_not(replace(run, moved=run.data()))


def test_the_same_model_makes_no_difference(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    change = difference(run, Run(tmp_path / "run"))
    assert change["complete"] == run.data().split("test").truth.complete
    assert (change["split"], change["before"], change["low"], change["high"]) == (
        "test", change["after"], 0, 0
    )  # fmt: skip
    assert change["trusted_before"] == change["trusted_after"] <= change["classes"]


def test_modules_of_the_current_folder_are_not_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may review in a folder of images from elsewhere, with a numpy.py among them."""
    (tmp_path / "sparselabel.py").write_text("open('run', 'w')")
    monkeypatch.chdir(tmp_path)
    retraining = Retraining(replace(run, moved=tmp_path / "no-data"), [])
    retraining.start()
    while (status := retraining.status())["state"] == "running":
        time.sleep(0.05)
    assert (status["state"], "no-data" in status["error"]) == ("failed", True)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_training_in_a_process_of_its_own(run: Run, tmp_path: Path) -> None:
    train = run.split("train")
    row, column = np.argwhere(train.observed.values == -1)[0].tolist()
    file = tmp_path / "answers.csv"
    file.write_bytes(HEADER + Answer(str(train.paths[row]), train.truth.classes[column], 1).line())
    retraining = Retraining(run, [tmp_path / "none.csv", file])
    assert retraining.status() == {"state": "none"}
    retraining.start()
    while (status := retraining.status())["state"] == "running":
        assert status["epochs"] == 2
        time.sleep(0.1)
    assert (status["state"], status["epoch"]) == ("done", 2)
    second = Run(Path(status["run"]))
    assert second.split("train").observed.values[row, column] == 1
    assert status["change"]["classes"] == len(run.classes)
    file.write_bytes(HEADER + Answer("elsewhere.jpg", train.truth.classes[column], 1).line())
    retraining.start()
    while (status := retraining.status())["state"] == "running":
        time.sleep(0.1)
    assert (status["state"], "elsewhere.jpg" in status["error"]) == ("failed", True)
    retraining.start()
    assert retraining.stop()
    assert not retraining.stop()
