import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparselabel.data.label_table import LabelTable
from sparselabel.inference.class_thresholds import ClassThreshold, ClassThresholds, threshold_metrics
from sparselabel.metrics.calibration import no_calibration
from sparselabel.metrics.imagenet_real import real_metrics
from sparselabel.metrics.label_metrics import label_metrics
from sparselabel.run import Run
from tests.cli.conftest import Command

CLASSES = ("cat [red]", "dog", "never")
LABELS = LabelTable(
    np.array(["a", "b", "c", "d"]),
    CLASSES,
    np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]], dtype=np.int8),
)
SCORES = np.array([[0.9, 0.2, 0.1], [0.8, 0.7, 0.2], [0.1, 0.6, 0.3], [0.4, 0.3, 0.1]], dtype=np.float32)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    def run(run: Run, split: str, **others: Any) -> dict[str, Any]:
        calls.append({"path": run.path, "data": run.moved, "split": split, **others})
        about = {"run": str(run.path), "split": split, "recovery": {"model": 0.5, "estimates": None}}
        about["engine"] = "torch"
        return about | label_metrics(SCORES, LABELS, others["threshold"])

    monkeypatch.setattr("sparselabel.inference.evaluate.evaluate_run", run)
    monkeypatch.setattr(Run, "require_finished", lambda self: None)
    monkeypatch.setattr(Run, "split", lambda self, name: range(4))
    monkeypatch.setattr(Run, "metadata", lambda self: {"data_digest": {"train": "1", "test": "2"}})
    return calls


def test_data_without_a_test_split_is_measured_on_val(
    command: Command, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "metadata", lambda self: {"data_digest": {"train": "1", "val": "2"}})
    done = command("evaluate", "run", "--json")
    assert json.loads(done.out)["split"] == asked[0]["split"] == "val"
    assert "the data has no test split: measured on val" in done.err
    monkeypatch.setattr(Run, "metadata", lambda self: {"data_digest": {"train": "1"}})
    assert "measured on val" not in command("evaluate", "run", "--json").err
    assert asked[1]["split"] == "test"  # refused with what there is


def test_evaluate_as_tables(command: Command, asked: list[dict[str, Any]]) -> None:
    done = command(
        "evaluate", "run", "--split", "val", "--threshold", "0.25", "--data", "moved", "--workers", "0"
    )
    assert done == 0
    assert asked[0]["path"] == Path("run")
    assert {key: asked[0][key] for key in ("split", "data", "threshold", "workers")} == {
        "split": "val",
        "data": Path("moved"),
        "threshold": 0.25,
        "workers": 0,
    }
    assert "val: 4 images" in done.out
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in done.out.splitlines()]
    assert ["cat [red]", "3", "100.0"] in [row[:3] for row in rows]
    assert ["all training labels: mAP of the model", "50.00"] in rows
    assert "mAP of the estimates" not in done.out
    by_number = [row for row in rows if row[0].startswith("mAP, images with")]
    assert by_number == [
        ["mAP, images with 1 label (3; 2 classes)", "100.00"],
        ["mAP, images with 2 labels (1; 2 classes)", "100.00"],
    ]
    assert "WARNING: No validation image is labeled never: counts 0 in the mAP" in done.out


def test_evaluate_as_json(command: Command, asked: list[dict[str, Any]]) -> None:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    done = command("evaluate", "run", "--split", "test", "--json")
    assert done == 0
    measured = json.loads(done.out, parse_constant=refuse)
    assert (measured["split"], measured["threshold"], measured["images"]) == ("test", 0.5, 4)
    assert [row["name"] for row in measured["classes"]] == list(CLASSES)
    assert len(asked) == 1


def test_evaluate_what_is_no_run(command: Command) -> None:
    done = command("evaluate", "nothing")
    assert done == 1
    assert done.err.startswith("sparselabel: error: nothing")
    assert done.err.count("\n") == 1


def test_evaluate_shows_real(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    part = np.array([[1, 0, 0], [1, 1, 0], [-1, -1, -1], [0, 0, 1]], dtype=np.int8)

    def published(name: str, data: Path, split: str, **others: Any) -> dict[str, Any]:
        calls.append({"name": name, "data": data, "split": split, **others})
        measured = {"run": name, "split": split, "recovery": None, "engine": "torch"}
        measured |= label_metrics(SCORES, LABELS, 0.5)
        real = real_metrics(SCORES, LABELS.values, part)
        return measured | {"real": real, "real_by_logits": real}

    class Opened:
        def split(self, name: str) -> str:
            return "four"

    monkeypatch.setattr("sparselabel.inference.evaluate.evaluate_published", published)
    monkeypatch.setattr("sparselabel.data.prepared_files.open_prepared", lambda folder: Opened())
    done = command("evaluate", "--pretrained", "resnet50.tv_in1k", "--data", "imagenet", "--weights", "w.pth")
    assert done == 0
    assert {key: calls[0][key] for key in ("name", "data", "split", "weights")} == {
        "name": "resnet50.tv_in1k",
        "data": Path("imagenet"),
        "split": "test",
        "weights": "w.pth",
    }
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in done.out.splitlines()]
    assert ["top-1, the original label", "100.00"] in rows
    assert done.out.count("the original label") == 1
    assert ["ReaL: top-1 (3 images)", "66.67"] in rows
    assert ["ReaL: mAP, images with 2 labels (1; 2 classes)", "100.00"] in rows
    assert ["ReaL, ranked by logits: top-1 (3 images)", "66.67"] in rows


@pytest.mark.parametrize("words", [("run", "--pretrained", "resnet50"), ()])
def test_evaluate_measures_one_thing(command: Command, words: tuple[str, ...]) -> None:
    done = command("evaluate", *words)
    assert done == 2
    assert "one thing is measured: name a run" in done.err


def test_evaluate_a_network_without_data(command: Command) -> None:
    done = command("evaluate", "--pretrained", "resnet50")
    assert done == 2
    assert "--pretrained resnet50 needs data to be measured on: name it with --data DIR" in done.err


def test_evaluate_shows_calibration_and_thresholds(
    command: Command, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class_thresholds = ClassThresholds(
        (
            ClassThreshold("cat [red]", 0.25, 0.9, 0.8, "good", "seen often", (0.5,) * 13),
            ClassThreshold("dog", 0.5, 0.9, 0.8, "poor", "seen twice", (0.5,) * 13),
            ClassThreshold("never", 0.5, 0.9, 0.8, "poor", "seen twice", (0.5,) * 13),
        ),
        no_calibration(3),
        "complete",
        50,
    )

    def run(run: Run, split: str, **others: Any) -> dict[str, Any]:
        about = {"run": str(run.path), "split": split, "recovery": None, "engine": "torch"}
        about |= label_metrics(SCORES, LABELS)
        return about | {"decided": threshold_metrics(SCORES, LABELS, class_thresholds)}

    monkeypatch.setattr("sparselabel.inference.evaluate.evaluate_run", run)
    done = command("evaluate", "run", "--split", "test")
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in done.out.splitlines()]
    assert "at the classes' own thresholds, chosen from 50 validation images (complete labels)" in done.out
    assert ["micro F1", "100.00"] in rows
    assert ["macro F1", "66.67"] in rows
    assert ["calibration error (ECE), calibrated scores", "24.17"] in rows
    assert ["0.4 to 0.5", "1", "40.0", "100.0"] in rows
    assert ["cat [red]", "0.250", "100.0", "44–100", "100.0", "100.0", "good"] in rows
    lines = done.out.splitlines()
    assert lines.index("dog, never: seen twice") == lines.index("for researchers:") - 1
    assert "WARNING: No test image is labeled never: counts 0 in the mAP" in done.out
