"""``sparselabel plan`` from the shell, on a few scenes and a tiny network."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from sparselabel.cli.plan import PLANNED, with_defaults
from sparselabel.config import FinetunePhase, Preparation, TrainConfig
from sparselabel.errors import ConfigError
from tests.cli.conftest import Command
from tests.training.conftest import small_scenes

TINY = (
    "--backbone", "test_efficientnet", "--weights", "none", "--views.size", 64, "--head.epochs", 1,
    "--workers", 0, "--accelerator", "cpu", "--watch", 0,
)  # fmt: skip


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 images to train on, 12 classes: all answers cost 480 s."""
    return small_scenes(tmp_path_factory.mktemp("data"), 50, 14, Preparation()).folder


def test_a_plan_from_beginning_to_end(command: Command, sample: Path, tmp_path: Path) -> None:
    asked = ("plan", sample, "--budget", 1, "--images", 400, "--kinds", "I", "SP", "--fractions", 0.5, 1)
    done = command(*asked, "--draws", 1, *TINY)
    assert done == 0, done.err
    with (tmp_path / "plan/plan.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["kind"], line["method"], line["hours"], line["answers"]) for line in lines[:1]] == [
        ("I", "csl-i", "0.5", "180")
    ]
    assert [line["kind"] for line in lines] == ["I", "SP", "I", "SP"]
    assert all(0 < float(line["mAP"]) < 100 and line["mAP_loc"] for line in lines)
    assert "One draw says nothing of chance" in done.out
    assert (tmp_path / "plan/plan.png").is_file()
    page = (tmp_path / "plan/plan.html").read_text()
    assert "The sample got the same seconds per image, 0.1 hours in all." in page
    again = command(*asked, "--draws", 1, *TINY)
    assert again == 0
    assert "4 of 4 runs were finished before" in again.err
    assert "where they see things" not in again.err  # evaluated before
    other = command(*asked, "--draws", 1, "--point-seconds", 3, *TINY)
    assert other == 2
    assert "the runs in plan were bought with --point-seconds 1.4, not 3: give what they were" in other.err
    assert "or choose another --out" in other.err
    other = command("plan", sample, "--budget", 1.5, *asked[4:], "--draws", 1, *TINY)
    assert other == 2
    assert "the runs in plan were bought with --budget 1, not 1.5: give" in other.err


def test_refused_before_training(command: Command, sample: Path, tmp_path: Path) -> None:
    done = command("plan", sample, "--budget", 1, "--kinds", "I", *TINY)
    assert done == 2
    assert "0.1333 hours answer every question about 40 images with annotation I" in done.err
    done = command("plan", sample, "--budget", 0.005, *TINY, "--draws", 9)
    assert done == 2
    assert "none is a yes" in done.err
    assert "give a larger --budget, or leave small --fractions out" in done.err
    done = command("plan", sample, "--budget", 0.1, "--answer-seconds", 0)
    assert done == 2
    assert "an answer must cost something" in done.err
    assert "--kinds" in command("plan", sample, "--budget", 0.1, "--kinds", "XY").err
    assert not (tmp_path / "plan").exists()


def test_what_nobody_told() -> None:
    chosen = with_defaults(PLANNED, ())
    assert (chosen.backbone, chosen.frozen) == ("mobilenetv2_100", True)
    other = with_defaults(replace(PLANNED, backbone="resnet18"), ("--backbone",))
    assert other == replace(chosen, backbone="resnet18")
    whole = replace(PLANNED, finetune=FinetunePhase(epochs=1))
    assert not with_defaults(whole, ("--finetune.epochs",)).frozen
    with pytest.raises(ConfigError, match="--method an is for one run"):
        with_defaults(TrainConfig(method="an"), ("--method",))


def test_help_says_what_models_are(command: Command) -> None:
    told = " ".join(command("plan", "--help-all").out.split())
    assert "[default: mobilenetv2_100]" in told
    assert "--answer-method" in told
    assert "--method" not in told.replace("--answer-method", "").replace("--spatial-method", "")
