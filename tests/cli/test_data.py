import json
from pathlib import Path
from typing import Any

import pytest

from sparselabel.config import Preparation
from sparselabel.data.readers import READERS
from tests.cli.conftest import Command, in_a_subprocess, pictures

WIDE = "a class with a very long name, [red]marked up[/nothing], :cat:, " + "w" * 200


def test_prepare_and_describe(command: Command) -> None:
    pictures(Path("photos"), cat=4, dog=2)
    done = command("prepare", "folder", "photos", "--out", "prepared", "--validation", "0")
    assert done == 0
    assert done.err == "checking 6 pictures ...\n"
    assert "photos: 2 classes" in done.out
    again = command("data", "prepared")
    assert (again, again.out) == (0, done.out)
    row = next(line for line in done.out.splitlines() if line.startswith("│ cat"))
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["cat", "4", "4", "0"]


def test_the_tables_say_what_they_count(command: Command) -> None:
    pictures(Path("photos"), cat=4, dog=2)
    done = command("prepare", "folder", "photos", "--out", "prepared", "--validation", "0")
    rows = [
        [cell.strip() for cell in line.strip("│┃").split("│" if "│" in line else "┃")]
        for line in done.out.splitlines()
    ]
    assert rows[2:4] == [
        ["", "", "positives", "observed positives", "observed negatives", "unknown, of"],
        ["split", "pictures", "a picture", "a picture", "a picture", "all labels"],
    ]
    assert ["train", "6", "not known", "1.00", "0.00", "50.0%"] in rows
    assert "observed: training sees it" in done.out
    assert "classes in training: number of pictures where it is ..." in done.out


def test_data_as_json(command: Command) -> None:
    pictures(Path("photos/train"), cat=4, dog=2)
    pictures(Path("photos/test"), cat=1, dog=1)
    assert command("prepare", "folder", "photos", "--out", "prepared", "--validation", "0") == 0
    done = command("data", "prepared", "--json")
    assert done == 0
    assert json.loads(done.out) == {
        "splits": {
            "train": {
                "images": 6,
                "classes": [
                    {"name": "cat", "positive": 4, "observed_positive": 4, "observed_negative": 0},
                    {"name": "dog", "positive": 2, "observed_positive": 2, "observed_negative": 0},
                ],
            },
            "test": {
                "images": 2,
                "classes": [
                    {"name": "cat", "positive": 1, "observed_positive": 1, "observed_negative": 0},
                    {"name": "dog", "positive": 1, "observed_positive": 1, "observed_negative": 0},
                ],
            },
        }
    }


def wide_table(folder: Path) -> None:
    pictures(folder / "photos", all=3)
    rows = "".join(f'photos/all/{number}.png,"{WIDE}"\n' for number in range(3))
    (folder / "labels.csv").write_text(f"image,label\n{rows}photos/all/0.png,Möwe 漢字\n", encoding="utf-8")


def test_wide_and_strange_class_names(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    wide_table(Path())
    done = command("prepare", "table", "labels.csv", "--out", "prepared", "--validation", "0")
    assert done == 0
    assert "[red]marked" in done.out
    assert ":cat:" in done.out
    monkeypatch.setenv("COLUMNS", "40")
    done = command("data", "prepared", "--json")
    names = [row["name"] for row in json.loads(done.out)["splits"]["train"]["classes"]]
    assert sorted(names) == sorted([WIDE, "Möwe 漢字"])
    assert f'"name": "{WIDE}"' in done.out  # on one line


def test_json_through_a_pipe(tmp_path: Path) -> None:
    wide_table(tmp_path)
    done = in_a_subprocess(
        "prepare", "table", "labels.csv", "--out", "data", "--validation", "0", cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "checking 3 pictures ...\n")
    done = in_a_subprocess("data", "data", "--json", cwd=tmp_path, COLUMNS="40")
    assert (done.returncode, done.stderr) == (0, "")
    assert WIDE in [row["name"] for row in json.loads(done.stdout)["splits"]["train"]["classes"]]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (
            ["coco", "--labels", "list.txt", "--images", "jpg"],
            {"labels": "list.txt", "images": "jpg", "keep_empty": False},
        ),
        (["nuswide", "--images", "jpg"], {"images": "jpg"}),
        (["cub"], {"images": None}),
        (["imagenet"], {"labels": None, "synsets": None, "real": None}),
        (
            ["imagenet", "--labels", "a.csv", "--synsets", "b.txt", "--real", "c.json"],
            {"labels": "a.csv", "synsets": "b.txt", "real": "c.json"},
        ),
    ],
)
def test_readers_get_their_flags(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], given: dict[str, Any]
) -> None:
    calls: list[Any] = []
    monkeypatch.setitem(READERS, words[0], lambda source, **options: calls.append((source, options)))
    monkeypatch.setattr(
        "sparselabel.cli.prepare.write", lambda read, out, force, how: calls.append((out, force, how))
    )
    assert command("prepare", words[0], "here", *words[1:], "--out", "there", "--validation", "0") == 0
    paths = {name: Path(value) if isinstance(value, str) else value for name, value in given.items()}
    assert calls == [(Path("here"), paths), (Path("there"), False, Preparation(validation=0))]


def test_real_labels_are_mentioned(command: Command) -> None:
    pictures(Path("photos/train"), n01440764=2, n01530575=1)
    pictures(Path("photos/val"), n01440764=1)
    Path("photos/val/n01440764/0.png").rename("photos/val/n01440764/ILSVRC2012_val_00000001.JPEG")
    Path("photos/real.json").write_text("[[0, 1]]")
    done = command("prepare", "imagenet", "photos", "--out", "prepared", "--validation", "0")
    assert done == 0
    assert "test: 1 pictures have ReaL's labels too" in done.out
