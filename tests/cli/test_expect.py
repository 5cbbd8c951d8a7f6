import json
from pathlib import Path

import pytest

from sparselabel.config import Preparation
from tests.cli.conftest import Command
from tests.training.conftest import small_scenes


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sparselabel.expected_positives.from_features.REPEATS", 2)
    folder = tmp_path / "data"
    small_scenes(folder, 60, 10, Preparation(sparsify="single-positive"))
    return folder


def test_expected_positives_are_shown_beside_the_truth_and_kept(command: Command, prepared: Path) -> None:
    done = command(
        "expect", prepared, "--backbone", "test_efficientnet", "--weights", "none", "--views.size", 32,
        "--workers", 0, "--out", "expected.json",
    )  # fmt: skip
    assert done == 0, done.err
    assert "annotated" in done.out
    assert "truth" in done.out
    assert "K, classes per image: " in done.out
    assert "not trusted: " in done.out
    assert "only 48 images have a label" in done.out.replace("\n", " ")
    assert "what to do: label 40 random training images completely" in done.out
    assert "`sparselabel review RUN --goal count`" in done.out
    written = json.loads(Path("expected.json").read_text())
    assert written["how"] == "auto"
    assert written["images"] == 48
    assert len(written["classes"]) == 12


def test_counting_needs_a_table(command: Command, prepared: Path) -> None:
    done = command("expect", prepared, "--how", "counted", "--out", "expected.json")
    assert done == 2
    assert "name a table with --labels" in done.err
    assert not Path("expected.json").exists()
