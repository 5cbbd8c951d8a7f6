import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparselabel.errors import ConfigError, RunError
from sparselabel.inference.prediction_csv import PredictionWriter, check_out
from sparselabel.inference.predictor import Prediction

CLASSES = ("cat", "dog, big")
ABOUT: dict[str, Any] = {"run": "runs/a", "thresholds": [0.5, 0.5]}
FOUND = [
    Prediction("a.jpg", (("dog, big", 0.91234), ("cat", 0.6)), np.array([0.6, 0.91234])),
    Prediction('odd "name"\n.jpg', (), np.array([0.1, 0.2])),
    Prediction("c.jpg", (), np.zeros(0), "c.jpg cannot be read"),
]

FULL = Path("/dev/full")


def opened(out: Path, **changes: Any) -> PredictionWriter:
    given: dict[str, Any] = {"all_scores": False, "resume": False} | changes
    OPEN.append(PredictionWriter(str(out), given.pop("classes", CLASSES), given.pop("about", ABOUT), **given))
    return OPEN[-1]


OPEN: list[PredictionWriter] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().stop()


def test_csv(tmp_path: Path) -> None:
    out = tmp_path / "new" / "tags.csv"
    output = opened(out, all_scores=True)
    for one in FOUND:
        output.write(one)
    assert not out.exists()
    output.finish()
    assert [path.name for path in out.parent.iterdir()] == ["tags.csv"]
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {
        "image": "a.jpg",
        "labels": "dog, big;cat",
        "scores": "0.9123;0.6000",
        "error": "",
        "cat": "0.6000",
        "dog, big": "0.9123",
    }
    assert rows[1]["image"] == 'odd "name"\n.jpg'
    assert (rows[2]["error"], rows[2]["cat"]) == ("c.jpg cannot be read", "")


def test_json_lines(tmp_path: Path) -> None:
    output = opened(tmp_path / "tags.jsonl", all_scores=True)
    output.write(FOUND[0], {"cat": "maps/a.cat.png"})
    output.write(FOUND[2])
    output.finish()
    lines = [json.loads(line) for line in (tmp_path / "tags.jsonl").read_text().splitlines()]
    assert lines == [
        {
            "image": "a.jpg",
            "labels": [{"name": "dog, big", "score": 0.9123}, {"name": "cat", "score": 0.6}],
            "scores": {"cat": 0.6, "dog, big": 0.9123},
            "maps": {"cat": "maps/a.cat.png"},
        },
        {"image": "c.jpg", "error": "c.jpg cannot be read"},
    ]


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    output = PredictionWriter("-", CLASSES, ABOUT, all_scores=False, resume=False)
    output.write(FOUND[0])
    output.finish()
    assert capsys.readouterr().out == 'image,labels,scores,error\na.jpg,"dog, big;cat",0.9123;0.6000,\n'


@pytest.mark.parametrize("name", ["tags.csv", "tags.jsonl"])
def test_an_interrupted_file_goes_on(tmp_path: Path, name: str) -> None:
    out, paths = tmp_path / name, [one.image for one in FOUND]
    whole = opened(tmp_path / f"whole-{name}")
    for one in FOUND:
        whole.write(one)
    whole.finish()
    first = opened(out)
    for one in FOUND[:2]:
        first.write(one)
    first.stop()
    partial = tmp_path / f"{name}.partial"
    with partial.open("a") as file:
        file.write('{"image": "c' if name.endswith("jsonl") else '"c.jp')  # killed in the middle of a line
    again = opened(out, resume=True)
    assert again.done == 2
    assert list(again.skip(iter(paths))) == ["c.jpg"]
    again.write(FOUND[2])
    again.finish()
    assert out.read_text() == (tmp_path / f"whole-{name}").read_text()
    assert opened(tmp_path / "other.csv", resume=True).done == 0  # nothing to go on with: it begins


def test_going_on_with_something_else_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "tags.csv"
    output = opened(out)
    output.write(FOUND[0])
    output.stop()
    with pytest.raises(
        RunError,
        match=r"partial was begun with different thresholds: give the same, or begin anew",
    ):
        opened(out, resume=True, about=ABOUT | {"thresholds": [0.5, 0.6]})
    with pytest.raises(RunError, match=r"\(number 1 was 'a\.jpg', 'b\.jpg' now\)"):
        opened(out, resume=True).skip(iter(["b.jpg"]))
    with pytest.raises(RunError, match="missing now"):
        opened(out, resume=True).skip(iter([]))
    assert opened(out).done == 0  # what --force does


def test_names_that_are_no_text(tmp_path: Path) -> None:
    output = opened(tmp_path / "tags.csv")
    output.write(Prediction("caf\udce9.jpg", (), np.zeros(2)))
    output.finish()
    assert (tmp_path / "tags.csv").read_text().splitlines()[1] == "caf\\xe9.jpg,,,"


def test_what_cannot_be_written(tmp_path: Path) -> None:
    there = tmp_path / "tags.csv"
    there.touch()
    with pytest.raises(RunError, match=r"tags\.csv exists already: choose another `out`, or replace it"):
        check_out(str(there), force=False, resume=False)
    check_out(str(there), force=True, resume=False)
    check_out("-", force=False, resume=False)
    with pytest.raises(ConfigError, match=r"`out` must end in \.csv or \.jsonl"):
        check_out("tags.txt", force=False, resume=False)
    with pytest.raises(ConfigError, match="`resume` goes on with a file"):
        check_out("-", force=False, resume=True)
    with pytest.raises(ConfigError, match=r"class 'a;b' has one in its name: write JSON lines"):
        opened(tmp_path / "new.csv", classes=("a;b",))


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
def test_a_full_disk_is_named_by_the_file(tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    output = opened(out)
    output._file.close()
    output._file = FULL.open("w")
    output.write(FOUND[0])
    with pytest.raises(OSError, match="No space left") as raised:
        output.finish()
    assert raised.value.filename == str(out)
    assert not out.exists()


@pytest.mark.parametrize("resume", [False, True])
def test_what_lies_among_the_photos_is_not_written_to(tmp_path: Path, resume: bool) -> None:
    own, out = tmp_path / "own", tmp_path / "a.csv"
    own.write_text("mine\n")
    (tmp_path / "a.csv.partial.json").write_text(json.dumps(ABOUT | {"all_scores": False}))
    partial = tmp_path / "a.csv.partial"
    for target in (own, Path("new"), None):
        if target is None:
            os.mkfifo(partial)
        else:
            partial.symlink_to(target)
        output = opened(out, resume=resume)
        output.write(FOUND[0])
        output.finish()
        assert out.read_text().splitlines()[1].startswith("a.jpg,")
        out.unlink()
    assert own.read_text() == "mine\n"
    assert not (tmp_path / "new").exists()
