import csv
import json
from pathlib import Path
from typing import Any

import pytest

from sparselabel.metrics.thresholds import NEVER
from tests.cli.conftest import Command
from tests.inference.stub import class_thresholds, paint, predictor


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four images, one broken, and a run that sees their colors."""

    def load(run: Path, precision: float | None, threshold: float | None, engine: str) -> Any:
        chosen = class_thresholds(0.5, 0.5, NEVER).thresholds(precision, threshold)
        return predictor(*chosen.tolist())

    monkeypatch.setattr("sparselabel.inference.predictor.load_predictor", load)
    monkeypatch.setattr("sparselabel.resources.keep_freed_memory", lambda: None)
    for number, (red, green) in enumerate([(255, 0), (0, 255), (255, 255)]):
        paint(tmp_path / "photos" / f"{number}.png", red, green)
    (tmp_path / "photos" / "3.png").write_bytes(b"")
    return tmp_path / "photos"


def test_predict_a_folder(command: Command, photos: Path) -> None:
    done = command("predict", "run", "photos", "--out", "tags.csv", "--precision", "0.9", "--workers", "0")
    assert done == 0
    with Path("tags.csv").open(newline="") as file:
        rows = [(row["image"], row["labels"]) for row in csv.DictReader(file)]
    assert rows == [
        ("photos/0.png", "red"),
        ("photos/1.png", "green"),
        ("photos/2.png", "red;green"),
        ("photos/3.png", ""),
    ]
    lines = done.err.splitlines()
    assert lines[0] == "predicting ..."
    assert lines[1].startswith("skipped: photos/3.png cannot be read as an image")
    assert lines[2:] == [
        "tags.csv: 3 images, 4 labels (1.33 per image), by torch; 1 image could not be read",
        "never predicted, as no score reaches precision 0.9: a/b",
    ]
    assert command("predict", "run", "photos", "--out", "tags.csv") == 1
    assert command("predict", "run", "photos", "--out", "tags.csv", "--force", "--workers", "0") == 0


def test_predict_to_standard_output_from_standard_input(
    command: Command, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("photos/1.png\n"))
    done = command("predict", "run", "-", "--threshold", "0.2", "--out", "-", "--workers", "0")
    assert done == 0
    assert done.out.splitlines() == [
        "image,labels,scores,error",
        "photos/1.png,green;a/b,0.9997;0.2689,",
    ]


def test_predict_with_maps_and_all_scores(command: Command, photos: Path) -> None:
    flags = ("--maps", "maps", "--all-scores", "--out", "tags.jsonl", "--workers", "0")
    done = command("predict", "run", "photos/2.png", *flags)
    assert done == 0
    line = json.loads(Path("tags.jsonl").read_text())
    assert line["maps"] == {
        "red": "maps/photos/2.png.red.png",
        "green": "maps/photos/2.png.green.png",
    }
    assert Path(line["maps"]["red"]).is_file()
    assert line["scores"]["a/b"] == 0.2689


def test_predict_nothing_that_can_be_read(command: Command, photos: Path) -> None:
    done = command("predict", "run", "photos/3.png", "--out", "tags.csv", "--workers", "0")
    assert done == 1
    assert "none of 1 image could be read" in done.err
    assert "photos/3.png cannot be read" in Path("tags.csv").read_text()
    Path("empty").mkdir()
    done = command("predict", "run", "empty", "--out", "none.csv")
    assert done == 1
    assert "no images in empty: name files, or folders that have some" in done.err
    assert not list(Path().glob("none.csv*"))


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("--batch", "0", "photos"), "--batch must be at least 1 image, not 0", 2),
        (("photos", "--treshold", "1"), "there is no flag --treshold", 2),
        ((), "there is nothing to predict", 2),
        (("photos", "--precision", "0.9", "--threshold", "0.5"), "give one of the two", 2),
        (("photos", "--threshold", "2"), "--threshold must be a score in [0, 1], not 2", 2),
        (("nowhere",), "there is no image, folder or list 'nowhere'", 1),
    ],
)
def test_predict_refuses(
    command: Command, photos: Path, words: tuple[str, ...], said: str, code: int
) -> None:
    done = command("predict", "run", *words)
    assert done == code
    assert said in done.err
