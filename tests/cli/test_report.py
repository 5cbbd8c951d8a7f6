"""``sparselabel report`` with real models."""

import re
import shutil
from pathlib import Path

import pytest

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation
from sparselabel.training.train_run import train_run
from tests.cli.conftest import Command
from tests.report.runs import Tables
from tests.training.conftest import small_scenes, tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and two runs."""
    folder = tmp_path_factory.mktemp("trained")
    data = small_scenes(folder / "data", 40, 12, Preparation("single-positive"))
    for method in ("an", "bce"):
        config = tiny(method, frozen=True, head=HeadPhase(epochs=2, lr=0.1), finetune=FinetunePhase(epochs=0))
        here = Machine(accelerator="cpu", workers=0)
        train_run(data, config, folder / method, here, Handling(quiet=True))
    return folder


def test_one_run(command: Command, trained: Path, tmp_path: Path) -> None:
    done = command("report", trained / "an", "--out", "new/report.html", "--workers", 0)
    assert (done, re.sub(r"[\d.]+ MB", "1 MB", done.out)) == (0, "written: new/report.html (1 MB)\n")
    page = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    assert page.count('alt="Where an sees') > 12  # images of the test split, and likely missing labels
    assert "Without heat maps" not in page
    tables = Tables(page).found
    assert [row[0] for row in tables["Numbers: an"]] == ["epoch", "1", "2"]
    listed = tables["Likely missing labels"]
    assert 0 < len(listed) - 1 <= 100
    assert {row[3] for row in listed[1:]} <= {"yes", "no"}
    assert [*(tmp_path / "new").iterdir()] == [tmp_path / "new" / "report.html"]


def test_a_report_of_other_runs_is_not_replaced(command: Command, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<p>mine</p>")
    here = ("--workers", 0, "--out", "report.html")
    done = command("report", trained / "an", *here)
    assert done == 1
    assert "report.html exists and is not a report of these runs: choose another --out, or" in done.err
    assert command("report", trained / "an", *here, "--force") == 0
    assert command("report", trained / "an", *here) == 0  # the same again
    assert command("report", trained / "bce", *here) == 1


def test_two_runs_one_of_which_has_no_scores(command: Command, trained: Path, tmp_path: Path) -> None:
    (trained / "bce" / "scores-test.npz").unlink()
    done = command("report", trained / "an", trained / "bce", "--workers", 0)
    assert done == 0
    assert "scoring test, bce" in done.err
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('alt="Where bce sees') == page.count('alt="Where an sees') > 12
    assert (trained / "bce" / "scores-test.npz").exists()


def test_damaged_files_are_written_anew(command: Command, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "an"
    shutil.copytree(trained / "an", run)
    for name in ("maps-test.npz", "maps-train.npz", "missing-labels.npz", "scores-test.npz"):
        (run / name).write_bytes(b"damaged")
    done = command("report", run, "--workers", 0)
    assert (done, "left out" in done.out, done.err) == (0, False, "scoring test, an ...\nscoring train ...\n")
    assert (run / "report.html").is_file()  # of one run: in the run


def test_images_that_have_moved(command: Command, trained: Path, tmp_path: Path) -> None:
    run, data = tmp_path / "an", tmp_path / "data"
    shutil.copytree(trained / "an", run)
    shutil.copytree(trained / "data", data)
    for name in ("maps-test.npz", "maps-train.npz", "missing-labels.npz"):
        (run / name).unlink(missing_ok=True)
    shutil.rmtree(data / "images")
    done = command("report", run, "--data", data, "--workers", 0)
    assert done == 0
    assert "left out:" in done.out
    assert f"is gone: there is no folder {data / 'images'}" in done.out
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Without heat maps:" in page
    assert "They could not be looked for:" in page
    assert "Table of classes" in page


def test_a_run_whose_model_is_gone(command: Command, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "an"
    shutil.copytree(trained / "an", run)
    for name in ("maps-test.npz", "maps-train.npz", "missing-labels.npz", "model.safetensors"):
        (run / name).unlink(missing_ok=True)
    done = command("report", run, "--workers", 0)
    assert done == 0
    assert done.out.splitlines()[0] == f"left out: {run} has no model.safetensors: train it again"


def test_what_cannot_be_reported(command: Command, trained: Path, tmp_path: Path) -> None:
    done = command("report")
    assert (done, done.err) == (
        2, "sparselabel: error: there is nothing to report on: name one or more finished runs\n"
    )  # fmt: skip
    assert command("report", "nothing").err.startswith("sparselabel: error: nothing is not a run")
    assert "--out must end in .html" in command("report", trained / "an", "--out", "report.pdf").err
    (tmp_path / "file").touch()
    done = command("report", trained / "an", "--out", "file/report.html")
    assert (done, "file is a file, not a folder" in done.err, done.err.count("\n")) == (1, True, 1)
