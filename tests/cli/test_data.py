import inspect
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparselabel.cli.prepare import Target
from sparselabel.cli.prepare import app as prepare_exports
from sparselabel.config import Preparation
from sparselabel.data.readers import READERS, options_of, reader
from sparselabel.data.readers.raw_dataset import RawDataset
from tests.cli.conftest import Command, images, in_a_subprocess

WIDE = "a class with a very long name, [red]marked up[/nothing], :cat:, " + "w" * 200


def cells(out: str) -> list[list[str]]:
    """What stands in the rows of tables."""
    return [
        [cell.strip() for cell in line.strip("│┃").split("│" if "│" in line else "┃")]
        for line in out.splitlines()
    ]


def test_prepare_and_describe(command: Command) -> None:
    images(Path("photos"), cat=7, dog=5)
    done = command("prepare", "folder", "photos", "--out", "prepared", "--validation", "0")
    assert done == 0
    assert done.err == "checking 12 images ...\n"
    assert "photos: 2 classes" in done.out
    again = command("data", "prepared")
    assert (again, again.out) == (0, done.out)
    assert ["cat", "7", "7", "5"] in cells(done.out)


def test_the_tables_say_what_they_count(command: Command) -> None:
    images(Path("photos"), cat=4, dog=2)
    done = command("prepare", "folder", "photos", "--out", "prepared", "--validation", "0")
    rows = cells(done.out)
    assert rows[2:5] == [
        ["", "", "", "observed", "observed", "unknown,"],
        ["", "", "positives", "positives", "negatives", "of all"],
        ["split", "images", "per image", "per image", "per image", "labels"],
    ]
    assert ["train", "6", "not known", "1.00 (all 1)", "0.00 (all 0)", "50.0%"] in rows
    assert ["positives", "train, observed"] in rows
    assert ["1", "100.0%"] in rows
    assert "observed: training sees the label" in done.out
    assert "classes in train: number of images where it is ..." in done.out


def hidden_labels(**counts: int) -> None:
    """A table of images that all show ants, the second half bees too, and image 79 bees alone."""
    lines = ["image,ant,bee,split"]
    for split, count in counts.items():
        images(Path("photos"), **{split: count})
        lines += [
            f"photos/{split}/{number}.png,{int(number != 79)},{int(2 * number >= count)},{split}"
            for number in range(count)
        ]
    Path("labels.csv").write_text("\n".join(lines))


def test_splits_and_classes_where_labels_are_hidden(command: Command) -> None:
    hidden_labels(train=80, test=2)
    sparse = ("--sparsify", "single-positive", "--prefer", "frequent", "--validation", "0")
    done = command("prepare", "table", "labels.csv", "--out", "data", *sparse)
    assert done == 0
    rows = cells(done.out)
    assert ["train", "80", "1.49 (1–2)", "1.00 (all 1)", "0.00 (all 0)", "50.0%"] in rows
    assert ["test", "2", "1.50 (1–2)", "1.50 (1–2)", "0.50 (0–1)", "0.0%"] in rows
    assert ["positives", "train", "train, observed", "test"] in rows
    assert ["0", "–", "–", "–"] in rows
    assert ["1", "51.2%", "100.0%", "50.0%"] in rows
    assert ["2", "48.8%", "–", "50.0%"] in rows
    # At random, a class keeps 40 or 1 sure ones and half of the 39 that both are on.
    assert ["ant", "79", "79", "100.0%", "75.3%", "1", "2"] in rows
    assert ["bee", "40", "1", "2.5%", "51.2%", "79", "1"] in rows
    found = [line.split(":")[0] for line in done.out.splitlines() if line.startswith("- ")]
    assert found == ["- few-positives", "- preference", "- leak", "- contradiction"]
    assert "4 problems found" in done.out
    assert "bee 2% instead of 51%, ant 100% instead of 75%" in done.out
    done = command("data", "data", "--split", "test")
    assert "classes in test" in done.out
    assert ["bee", "1", "1", "1", "0", "40"] in cells(done.out)


@pytest.mark.filterwarnings("ignore:every training image")
def test_the_extremes_of_many_classes_unless_all_are_asked_for(command: Command) -> None:
    lines = ["image,label"]
    images(Path("photos"), all=50)
    lines += [f"photos/all/{row}.png,class {number:02}" for number in range(50) for row in range(number + 1)]
    Path("labels.csv").write_text("\n".join(lines))
    assert command("prepare", "table", "labels.csv", "--out", "data", "--validation", "0") == 0
    names = [row[0] for row in cells(command("data", "data").out) if row[0].startswith(("class ", "…"))]
    assert names[:15] == [f"class {number:02}" for number in range(49, 34, -1)]
    assert names[15] == "… 20 more (--all)"
    assert names[16:] == [f"class {number:02}" for number in range(14, -1, -1)]
    out = command("data", "data", "--all").out
    assert [row[0] for row in cells(out) if row[0].startswith("class ")] == [
        f"class {n:02}" for n in range(50)
    ]
    ranges = [row for row in cells(out) if "–" in row[0]]
    assert ranges[0] == ["0–2", "4.0%"]  # 1 to 50 labels, by three
    assert ranges[1:] == [[f"{start}–{start + 2}", "6.0%"] for start in range(3, 51, 3)]


def test_data_as_json(command: Command) -> None:
    images(Path("photos/train"), cat=4, dog=2)
    images(Path("photos/test"), cat=1, dog=1)
    assert command("prepare", "folder", "photos", "--out", "prepared", "--validation", "0") == 0
    done = command("data", "prepared", "--json")
    assert (done, done.err) == (0, "")
    told = json.loads(done.out)
    assert [*told] == ["name", "splits", "problems"]
    train, test = told["splits"]["train"], told["splits"]["test"]
    assert (train["images"], test["images"]) == (6, 2)
    assert train["classes"] == [
        {"name": "cat", "positive": 4, "observed_positive": 4, "observed_negative": 0},
        {"name": "dog", "positive": 2, "observed_positive": 2, "observed_negative": 0},
    ]
    assert test["classes"] == [
        {"name": "cat", "positive": 1, "observed_positive": 1, "observed_negative": 0},
        {"name": "dog", "positive": 1, "observed_positive": 1, "observed_negative": 0},
    ]
    assert train["per_image"]["observed_positive"]["histogram"] == [0, 6]
    assert train["observed"] == {"positive": 0.5, "negative": 0.0, "unknown": 0.5}
    problems = {problem["name"]: problem for problem in told["problems"]}
    assert problems["few-positives"]["items"] == ["cat (4)", "dog (2)"]
    assert [len(group) for group in problems["leak"]["items"]] == [4]
    assert problems["leak"]["what"].startswith(
        "2 of 2 images of test that train has too: train train/cat/0.png = "
    )


def test_images_are_opened_when_asked_for(command: Command) -> None:
    images(Path("photos"), cat=5, dog=5)
    assert command("prepare", "folder", "photos", "--out", "prepared", "--validation", "0") == 0
    assert "(--images opens every image to find more)" in command("data", "prepared").out
    Path("photos/cat/3.png").unlink()
    done = command("data", "prepared", "--images")
    assert (done, done.err) == (0, "looking at 10 images ...\n")
    assert "--images" not in done.out
    assert "median width and height: 8 and 8 pixels" in done.out
    assert "- broken-images: 1 of 10 images that cannot be decoded (any more): train cat/3.png → " in done.out
    told = json.loads(command("data", "prepared", "--images", "--json").out)
    assert told["sizes"] == {"min": [8, 8], "median": [8, 8], "max": [8, 8]}
    assert "tiny-images" in [problem["name"] for problem in told["problems"]]


def test_a_sheet_of_images(command: Command) -> None:
    images(Path("photos/train"), cat=2, dog=1)
    images(Path("photos/test"), cat=2)
    assert command("prepare", "folder", "photos", "--out", "prepared", "--validation", "0") == 0
    done = command("data", "prepared", "--sheet", "sheet.png")
    assert done == 0
    assert done.out.endswith("written: sheet.png, sheet.csv\n")
    assert len(Path("sheet.csv").read_text().splitlines()) == 4
    assert command("data", "prepared", "--sheet", "sheet.png", "--split", "test", "--json") == 0
    assert Path("sheet.csv").read_text().splitlines() == [
        "row,image,class,kind",
        "0,test/cat/0.png,cat,annotated",
        "1,test/cat/1.png,cat,annotated",
    ]


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--sheet", "sheet.jpg"], 2, "--sheet must end in .png, but is sheet.jpg"),
        (
            ["--sheet", "labels.png"],
            2,
            "labels.csv is there and not of a sheet: choose another name for --sheet",
        ),
        (["--sheet", "sheet.png", "--seed", "-1"], 2, "seed must not be negative, and is -1"),
        (["--split", "tset"], 1, "prepared has no split 'tset', only train: name one of them with --split"),
    ],
)
def test_wrong_wishes(command: Command, flags: list[str], code: int, message: str) -> None:
    images(Path("photos"), cat=5, dog=5)
    Path("labels.csv").write_text("image,label\n")
    assert command("prepare", "folder", "photos", "--out", "prepared", "--validation", "0") == 0
    done = command("data", "prepared", *flags)
    assert (done, done.out) == (code, "")
    assert message in done.err
    assert Path("labels.csv").read_text() == "image,label\n"


def wide_table(folder: Path) -> None:
    images(folder / "photos", all=3)
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
    assert (done.returncode, done.stderr) == (0, "checking 3 images ...\n")
    done = in_a_subprocess("data", "data", "--json", cwd=tmp_path, COLUMNS="40")
    assert (done.returncode, done.stderr) == (0, "")
    assert WIDE in [row["name"] for row in json.loads(done.stdout)["splits"]["train"]["classes"]]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (
            ["coco", "--labels", "list.txt", "--images", "jpg"],
            {"labels": Path("list.txt"), "images": Path("jpg")},
        ),
        (["coco", "--keep-empty", "--skip-missing"], {"keep_empty": True, "skip_missing": True}),
        (["nuswide", "--images", "jpg"], {"images": Path("jpg")}),
        (["cub"], {}),
        (["imagenet"], {}),
        (
            ["imagenet", "--labels", "a.csv", "--synsets", "b.txt", "--real", "c.json"],
            {"labels": Path("a.csv"), "synsets": Path("b.txt"), "real": Path("c.json")},
        ),
        (
            ["table", "--images", "s3://bucket/photos", "--column", "jpg", "--separator", "", "--unlabeled"],
            {"images": "s3://bucket/photos", "column": "jpg", "separator": "", "unlabeled": True},
        ),
        (["table", "--cluster", "auto"], {"cluster": "auto"}),
        (["folder"], {}),
        (["voc"], {}),
    ],
)
def test_readers_get_their_flags(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], given: dict[str, Any]
) -> None:
    calls: list[Any] = []

    def write(read: partial[RawDataset], to: Target) -> None:
        calls.append((read.func, read.args, read.keywords, to.out, to.force, to.how))

    monkeypatch.setattr("sparselabel.cli.prepare.write", write)
    assert command("prepare", words[0], "here", *words[1:], "--out", "there", "--validation", "0") == 0
    given = {"cluster": None} | given if words[0] == "table" else given
    asked = reader(words[0]), (Path("here"),), given
    assert calls == [(*asked, Path("there"), False, Preparation(validation=0))]


def test_every_reader_is_a_command_with_its_options() -> None:
    for name in READERS:
        command = prepare_exports[name].default_command
        assert command is not None
        options, flags = options_of(name), inspect.signature(command).parameters
        assert [*flags] == ["source", *(option for option in options if option != "cluster"), "to"]
        assert all(flags[one].default == options[one].default for one in flags if one in options)


def test_real_labels_are_mentioned(command: Command) -> None:
    images(Path("photos/train"), n01440764=2, n01530575=1)
    images(Path("photos/val"), n01440764=1)
    Path("photos/val/n01440764/0.png").rename("photos/val/n01440764/ILSVRC2012_val_00000001.JPEG")
    Path("photos/real.json").write_text("[[0, 1]]")
    done = command("prepare", "imagenet", "photos", "--out", "prepared", "--validation", "0")
    assert done == 0
    assert "test: 1 images have ReaL's labels too" in done.out


def test_verify_names_what_changed(command: Command) -> None:
    images(Path("photos"), cat=7, dog=5)
    command("prepare", "folder", "photos", "--out", "prepared", "--validation", "0")
    done = command("data", "prepared", "--verify")
    assert (done, done.out) == (0, "12 images and all arrays are unchanged\n")
    first, second, *_ = sorted(Path("photos/cat").iterdir())
    first.write_bytes(second.read_bytes() + b"more")
    second.unlink()
    done = command("data", "prepared", "--verify")
    assert done == 1
    assert f"{first.name}\n" in done.err
    assert f"{second.name}\n" in done.err


def test_escape_sequences_do_not_reach_the_terminal(command: Command) -> None:
    images(Path("photos"), **{"cat\x1b]0;owned\x07": 4, "dog": 3})
    done = command("prepare", "folder", "photos", "--out", "prepared", "--validation", "0")
    assert done == 0
    assert "\x1b" not in done.out + done.err
    assert "cat\\x1b]0;owned\\x07" in done.out
