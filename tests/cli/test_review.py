"""``sparselabel review`` of a real run, and ``train`` with its answers."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation
from sparselabel.data.answers import HEADER, Answer, read_answers
from sparselabel.data.prepared_files import open_prepared
from sparselabel.run import Run
from sparselabel.training.train_run import train_run
from tests.cli.conftest import Command
from tests.training.conftest import small_scenes, tiny

HERE = Machine(accelerator="cpu", workers=0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a run."""
    folder = tmp_path_factory.mktemp("trained")
    data = small_scenes(folder / "data", 40, 12, Preparation("single-positive"))
    config = tiny(frozen=True, head=HeadPhase(epochs=2, lr=0.1), finetune=FinetunePhase(epochs=0))
    train_run(data, config, folder / "run", HERE, Handling(quiet=True))
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained / "run", tmp_path / "run")
    return tmp_path / "run"


def test_a_review_and_training_with_it(command: Command, run: Path, trained: Path, person: Any) -> None:
    opened = person("yes", "no", "skip")
    done = command("review", run, "--reviewer", "ann", "--workers", 0)
    assert done == 0
    assert done.err == "scoring the training images ...\n"
    lines = done.out.splitlines()
    assert lines[0].startswith("review: http://127.0.0.1:") or lines[0].startswith("port 8765 is taken")
    assert opened == [lines[-5].removeprefix("review: ")]
    assert lines[-2] == f"3 answers in {run}/answers.csv"
    said = [(answer.value, answer.reviewer) for answer in read_answers(run / "answers.csv")]
    assert said == [(1, "ann"), (0, "ann"), (-2, "ann")]
    # The command to type next is there, and works.
    words = lines[-1].removeprefix("next: sparselabel ").split()
    assert words == [
        "train", str(trained / "data"), "--config", f"{run}/config.toml", "--answers", f"{run}/answers.csv",
        "--out", f"{run}-reviewed",
    ]  # fmt: skip
    done = command(*words, "--workers", 0, "--quiet")
    assert (done, done.err) == (0, "")
    second = Run(Path(f"{run}-reviewed"))
    before, after = Run(run).split("train"), second.split("train")
    changed = before.observed.values != after.observed.values
    assert sorted(after.observed.values[changed].tolist()) == [0, 1]
    assert np.array_equal(before.truth.values, after.truth.values)
    assert second.metadata()["answers"] == 3
    assert read_answers(second.given_answers_file) == read_answers(run / "answers.csv")
    # A review of that run goes on from there, with the answers it was given.
    person("yes")
    done = command("review", second.path, "--workers", 0, "--no-browser", "--port", 0)
    assert done.out.splitlines()[-1].endswith(
        f"--answers {second.given_answers_file} {second.answers_file} --out {second.path}-reviewed"
    )
    assert command("report", second.path, "--workers", 0) == 0  # its data is found again, answers and all


def test_a_review_from_python(run: Path, person: Any, capsys: pytest.CaptureFixture[str]) -> None:
    opened = person("yes", "no")
    file = Run.open(run).review(reviewer="ann", port=0)
    assert file == run / "answers.csv"
    assert [answer.value for answer in read_answers(file)] == [1, 0]
    assert capsys.readouterr().out.splitlines()[0] == f"review: {opened[0]}"
    assert opened[0].startswith("http://127.0.0.1:")


def test_scores_are_made_once(command: Command, run: Path, person: Any) -> None:
    person()
    assert "scoring" in command("review", run, "--workers", 0, "--no-browser").err
    done = command("review", run, "--workers", 0, "--no-browser")
    assert (done.err, "no answers yet: go on with" in done.out) == ("", True)
    kept = np.load(run / "review-scores.npy")
    assert (kept.dtype, kept.shape[0]) == (np.float16, 32)
    (run / "review-scores.npy").write_bytes(b"damaged")
    assert "scoring" in command("review", run, "--workers", 0, "--no-browser").err


def test_stored_features_and_images_give_the_same_scores(run: Path, trained: Path) -> None:
    from sparselabel.inference.review_scores import write_review_scores
    from sparselabel.review.run_review import stored_features

    folder = Run(run)
    part = folder.split("train")
    features = stored_features(folder, part)
    assert features is not None
    by_features = np.array(write_review_scores(folder, part, features=features))
    by_images = np.array(write_review_scores(folder, part))
    assert np.abs(by_features.astype(np.float32) - by_images).max() < 2e-3  # float16


@pytest.mark.filterwarnings("always::sparselabel.errors.DataWarning")
def test_images_that_are_gone_are_not_asked_about(
    command: Command, trained: Path, tmp_path: Path, person: Any
) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    shutil.copytree(trained / "data", tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "features")
    data = open_prepared(tmp_path / "data")
    data.train.path(3).unlink()
    data.train.path(4).write_bytes(b"broken")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps(about | {"data": str(tmp_path / "data")}))
    person("yes")
    done = command("review", "run", "--workers", 0, "--no-browser")
    assert done == 0
    assert "warning: 2 images cannot be read and will not be asked about" in done.err
    scores = np.load(tmp_path / "run" / "review-scores.npy")
    assert np.flatnonzero(np.isnan(scores).all(axis=1)).tolist() == [3, 4]


def test_whole_images_can_be_counted_in(command: Command, run: Path, trained: Path, person: Any) -> None:
    person(whole=5)
    done = command("review", run, "--goal", "count", "--workers", 0, "--no-browser")
    words = done.out.splitlines()[-1].removeprefix("next: sparselabel ").split()
    assert done.out.splitlines()[-2] == f"5 images with all labels in {run}/complete.csv"
    assert words[:1] + words[2:] == [
        "expect", "--how", "counted", "--labels", f"{run}/complete.csv", "--out", "expected.json"
    ]  # fmt: skip
    done = command(*words)
    assert (done, "K, classes per image: 1.0" in done.out) == (0, True)
    part = Run(run).split("train")
    few = run / "few.csv"
    few.write_bytes(HEADER + Answer(str(part.paths[0]), part.truth.classes[0], 1).line())
    done = command("expect", trained / "data", "--how", "counted", "--labels", few, "--out", "other.json")
    assert (done, "has no image of which every class was answered" in done.err) == (1, True)


def test_answers_belong_to_a_run(command: Command, run: Path, trained: Path, tmp_path: Path) -> None:
    part = Run(run).split("train")
    unknown = np.argwhere(part.observed.values == -1)[:2]
    lines = [Answer(str(part.paths[row]), part.truth.classes[column], 0).line() for row, column in unknown]
    (tmp_path / "a.csv").write_bytes(HEADER + lines[0])
    begin = ("train", trained / "data", "--config", run / "config.toml", "--workers", 0, "--quiet")
    assert command(*begin, "--answers", "a.csv", "--out", "second") == 0
    (tmp_path / "a.csv").write_bytes(HEADER + lines[0] + lines[1])
    done = command(*begin, "--answers", "a.csv", "--out", "second", "--resume")
    assert done == 1
    assert done.err == (
        "sparselabel: error: second was begun with other answers (1 answer) than these (2 answers), or on "
        "other data: resume it with those it was begun with (--answers second/given-answers.csv), or replace "
        "it (--force), or choose another --out\n"
    )
    assert "(1 answer) than these (none)" in command(*begin, "--out", "second", "--resume").err
    assert command(*begin, "--answers", "second/given-answers.csv", "--out", "second", "--resume") == 0
    assert (
        "with other answers (none) than these (2 answers)"
        in command(*begin, "--answers", "a.csv", "--out", run, "--resume").err
    )
    # What people answered survives --force, and several files are one after the other.
    (tmp_path / "second" / "answers.csv").write_bytes(HEADER + lines[1])
    files = ("--answers", "second/given-answers.csv", "second/answers.csv")
    assert command(*begin, *files, "--out", "second", "--force") == 0
    assert Run(tmp_path / "second").metadata()["answers"] == 2
    assert (tmp_path / "second" / "answers.csv").read_bytes() == HEADER + lines[1]


def test_what_cannot_be_reviewed(command: Command, run: Path, tmp_path: Path) -> None:
    assert command("review", "nothing").err.startswith("sparselabel: error: nothing is not a run")
    done = command("review", run, "--port", 99999)
    assert (done, done.err) == (
        2, "sparselabel: error: --port must be a number from 0 to 65535, not 99999\n"
    )  # fmt: skip
    (tmp_path / "mine.csv").write_text("image,label\na,b\n")
    assert "mine.csv is not a file of answers" in command("review", run, "--answers", "mine.csv").err
    (run / "result.json").unlink()
    assert "is not finished" in command("review", run).err


def test_a_review_of_images_that_are_all_gone_stops(command: Command, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    (tmp_path / "run" / "review-scores.npy").unlink(missing_ok=True)
    shutil.copytree(trained / "data", tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "features")
    data = open_prepared(tmp_path / "data")
    for row in range(len(data.train)):
        data.train.path(row).unlink()
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps(about | {"data": str(tmp_path / "data")}))
    done = command("review", "run", "--workers", 0, "--no-browser")
    assert done == 1
    assert "can be read" in done.err
    assert not [*(tmp_path / "run").glob("review-scores*")]


def test_answers_about_validation_make_thresholds(command: Command, trained: Path, person: Any) -> None:
    """On data whose validation labels are sparse."""
    folder = trained / "sparse"
    data = small_scenes(
        folder, 60, 12, Preparation("single-positive", validation=0.5, validation_labels="observed")
    )
    config = tiny(frozen=True, head=HeadPhase(epochs=2, lr=0.1), finetune=FinetunePhase(epochs=0))
    train_run(data, config, trained / "sparse-run", HERE, Handling(quiet=True))
    run = Run(trained / "sparse-run")
    before = run.thresholds_file.read_bytes()
    person(*["yes", "no"] * 12)
    done = command("review", run.path, "--goal", "thresholds", "--no-browser", "--port", 0)
    assert (done, done.err) == (0, "")
    asked = {answer.image for answer in read_answers(run.answers_file)}
    assert asked <= set(data.split("val").paths.tolist())
    rows = json.loads(run.thresholds_file.read_text())["classes"]
    assert run.thresholds_file.read_bytes() != before
    assert any(row["why"].startswith("chosen by 2") and row["trust"] == "fair" for row in rows)
    # The next command trains with them; its validation labels know them.
    words = done.out.splitlines()[-1].removeprefix("next: sparselabel ").split()
    assert command(*words, "--workers", 0, "--quiet") == 0
    second = Run(Path(f"{run.path}-reviewed"))
    changed = run.split("val").observed.values != second.split("val").observed.values
    assert changed.sum() == 24
    assert np.array_equal(run.split("train").observed.values, second.split("train").observed.values)


def test_what_a_review_refuses(command: Command, run: Path, tmp_path: Path) -> None:
    done = command("review", run, "--host", "box.example.org", "--no-browser")
    assert (done, "--tls-cert and --tls-key" in done.err) == (2, True)
    done = command("review", run, "--goal", "fame")
    assert (done, "fame" in done.err) == (2, True)


def test_scores_that_do_not_fit_on_the_disk(
    run: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in a mapped file: without its room taken first, writing would end the process (SIGBUS)."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    refused = command("review", run, "--no-browser")
    assert refused == 1
    assert "the scores of all training images take 0.00 MB and" in refused.err
    assert "copy the run to a larger disk" in refused.err
    assert not [*run.glob("review-scores*")]
