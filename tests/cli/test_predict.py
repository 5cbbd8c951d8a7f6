import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from tests.data.shards import write_table, write_tar
from tests.inference.stub import class_thresholds, paint, predictor


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four images, one broken, and a run that sees their colors."""

    def load(run: Path, precision: float | None, threshold: float | None, engine: str) -> Any:
        chosen = class_thresholds(0.5, 0.5, 0.9).thresholds(precision, threshold)
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
        "no validation image reaches precision 0.9, so the threshold is a score of 0.9: a/b",
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
        "red": "maps/2.png.red.png",
        "green": "maps/2.png.green.png",
    }
    assert Path(line["maps"]["red"]).is_file()
    assert line["scores"]["a/b"] == 0.2689


def test_predict_nothing_that_can_be_read(command: Command, photos: Path) -> None:
    done = command("predict", "run", "photos/3.png", "--out", "tags.csv", "--workers", "0")
    assert done == 1
    assert "none of 1 image could be read; the first reasons are above: check that they are" in done.err
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


def test_predict_shards_without_a_cluster(command: Command, photos: Path) -> None:
    members = {path.name: path.read_bytes() for path in sorted(photos.iterdir())}
    write_tar(Path("a.tar"), members)
    write_table(Path("b.parquet"), {"picture": [*members.values()]})
    flags = ("--column", "picture", "--out", "tags.csv", "--workers", "0")
    assert command("predict", "run", "a.tar", "b.parquet", *flags) == 0
    with Path("tags.csv").open(newline="") as file:
        rows = [(row["image"], row["labels"], bool(row["error"])) for row in csv.DictReader(file)]
    assert rows == [
        ("a.tar/0.png", "red", False),
        ("a.tar/1.png", "green", False),
        ("a.tar/2.png", "red;green", False),
        ("a.tar/3.png", "", True),
        ("b.parquet/0", "red", False),
        ("b.parquet/1", "green", False),
        ("b.parquet/2", "red;green", False),
        ("b.parquet/3", "", True),
    ]


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("a.tar", "--maps", "maps"), "--maps needs image files, and a.tar is none: leave --maps out", 2),
        (("a.tar", "--cluster", "auto"), "--out is a folder where a cluster writes files, not -", 2),
        (("a.tar", "--cluster", "auto", "--out", "a.csv"), "writes files, not a.csv: name one, and", 2),
        (
            ("a.tar", "--cluster", "auto", "--out", "out", "--write-xmp"),
            "--write-xmp is written on one machine, not on a cluster",
            2,
        ),
        (
            ("a.tar", "--cluster", "auto", "--out", "out", "--workers", "0"),
            "--workers is for prediction on one machine, not on a cluster: leave --workers out, or leave",
            2,
        ),
        (
            ("a.tar", "--cluster", "auto", "--out", "out", "--links"),
            "--links is for prediction on one machine, not on a cluster",
            2,
        ),
        (
            ("a.tar", "--cluster-cores", "1"),
            "--cluster-cores is for prediction on a cluster, and none is given: name it (--cluster auto)",
            2,
        ),
        (("a.tar", "--out-format", "csv"), "--out-format is for prediction on a cluster, and none is", 2),
        (("b.parquet",), "b.parquet has no column of images that goes by a usual name", 1),
    ],
)
def test_predict_shards_refuses(
    command: Command, photos: Path, words: tuple[str, ...], said: str, code: int
) -> None:
    write_tar(Path("a.tar"), {"0.png": (photos / "0.png").read_bytes()})
    write_table(Path("b.parquet"), {"picture": [b""]})
    done = command("predict", "run", *words)
    assert (done, said in done.err) == (code, True)


def test_predict_on_a_cluster(command: Command, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def on_cluster(run: Any, images: Any, out: Path, place: Any, **how: Any) -> dict[str, Any]:
        given.update(how, images=images, out=out, place=place)
        return {"images": 4, "labels": 4, "broken": 1, "engine": "torch", "errors": []}

    monkeypatch.setattr("sparselabel.inference.predict_on_ray.predict_on_cluster", on_cluster)
    monkeypatch.setattr("sparselabel.run.Run.open", lambda path: path)
    flags = (
        "--cluster",
        "host:1",
        "--cluster-cores",
        "2",
        "--out",
        "out",
        "--out-format",
        "jsonl",
        "--resume",
    )
    done = command("predict", "run", "photos", "a.tar", *flags)
    assert done == 0
    assert "out: 3 images, 4 labels (1.33 per image), by torch; 1 image could not be read" in done.err
    assert (given["images"], given["out"], given["place"]) == (
        ("photos", "a.tar"),
        Path("out"),
        ("host:1", 2, "auto"),
    )
    assert (given["out_format"], given["resume"], given["force"]) == ("jsonl", True, False)
