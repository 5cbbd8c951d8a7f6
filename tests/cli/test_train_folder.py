"""``sparselabel train`` on a folder of images."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparselabel.data.prepared_files import open_prepared
from sparselabel.run import Run
from tests.cli.conftest import Command

SMALL = [
    *("--backbone", "resnet10t", "--weights", "none", "--views.size", "32", "--head.epochs", "1"),
    *("--frozen", "--workers", "0", "--settings.expected-positives", "1.5"),
]
SHARED = "with its share of every class"
COLORS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (20, 40, 230)}


def image(path: Path, color: tuple[int, int, int], shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((20, 24, 3), np.clip(np.array(color) - shade, 0, 255), np.uint8)).save(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """photos/ with 30 images of three colors, one of them broken, and labels.csv with one more."""
    monkeypatch.chdir(tmp_path)
    lines = ["image,label"]
    for number in range(30):
        name = [*COLORS][number % 3]
        image(tmp_path / "photos" / f"{number}.png", COLORS[name], number)
        lines.append(f"{number}.png,{name}")
    (tmp_path / "photos" / "7.png").write_bytes(b"not an image")
    (tmp_path / "labels.csv").write_text("\n".join([*lines, "gone.png,red"]))
    return tmp_path


@pytest.mark.filterwarnings("always::sparselabel.errors.DataWarning")
def test_a_folder_and_a_table_make_run_and_report(command: Command, folder: Path) -> None:
    done = command("train", "photos", "--labels", "labels.csv", *SMALL)
    assert done == 0, done.err
    assert "1 of 31 images are missing: gone.png; they were left out" in done.err
    assert "7.png cannot be read as an image" in done.err
    lines = done.out.splitlines()
    assert (
        lines[0]
        == f"29 images (23 train, 6 val, {SHARED}), 3 classes, one label each; 1 file could not be read"
    )
    assert lines[-2:] == [
        "next: sparselabel predict runs/photos MORE-IMAGES --out tags.csv  # what is in other images",
        "      sparselabel review runs/photos  # confirm or reject likely labels: they make it better",
    ]
    run = Run(folder / "runs" / "photos")
    assert run.config().method == "pu"
    assert run.config().settings.get("expected_positives") == 1.5
    assert run.finished
    assert "<html" in (run.path / "report.html").read_text()[:200]
    again = command("train", "photos", "--labels", "labels.csv", *SMALL)
    assert again == 1
    assert "runs/photos holds a run already" in again.err
    assert "train on the same images in another way with `sparselabel train runs/photos-data`" in again.err
    assert command("train", "photos", "--labels", "labels.csv", *SMALL, "--resume") == 0


def test_class_folders_need_no_table(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(12):
        name = [*COLORS][number % 3]
        image(tmp_path / "things" / name / f"{number}.png", COLORS[name], number)
    done = command("train", "things", *SMALL, "--out", "here")
    assert done == 0, done.err
    assert done.out.splitlines()[0] == "12 images (10 train, 2 val), 3 classes, one label each"
    assert json.loads((tmp_path / "here-data" / "dataset.json").read_text())["classes"] == sorted(COLORS)


@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_labels_with_negatives_are_told(command: Command, folder: Path) -> None:
    rows = [f"{number}.png,{number % 3 == 0:d},{number % 3 != 0:d}," for number in range(30) if number != 7]
    (folder / "wide.csv").write_text("image,red,other,blue\n" + "\n".join(rows))
    done = command("train", "photos", "--labels", "wide.csv", *SMALL)
    assert done == 0, done.err
    assert done.out.splitlines()[0] == (
        "29 images (23 train, 6 val), 3 classes, 1.0 labels each of what is there and 1.0 of what is not"
    )


@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_nothing_is_asked_where_all_is_known(command: Command, folder: Path) -> None:
    rows = [f"{number}.png,{number % 3 == 0:d},{number % 3 != 0:d}" for number in range(30) if number != 7]
    (folder / "full.csv").write_text("image,red,other\n" + "\n".join(rows))
    done = command("train", "photos", "--labels", "full.csv", *SMALL)
    assert done == 0, done.err
    assert done.out.splitlines()[-1].startswith("next: sparselabel predict")


@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_what_is_wrong_is_said_at_once(command: Command, folder: Path) -> None:
    done = command("train", "photos", *SMALL)
    assert "photos is neither prepared data nor a folder of class folders: name the table" in done.err
    done = command("train", "photos", "--labels", "no.csv", *SMALL)
    assert (done, "no.csv" in done.err) == (1, True)
    (folder / "elsewhere").mkdir()
    done = command("train", "elsewhere", "--labels", "labels.csv", *SMALL)
    assert "image '0.png' is not in elsewhere" in done.err
    assert "name images relative to elsewhere" in done.err
    done = command("train", "nowhere", *SMALL)
    assert "there is no folder nowhere" in done.err
    done = command("train", "nowhere", "--labels", "labels.csv", *SMALL)
    assert "there is no folder nowhere" in done.err
    done = command("train", "photos", "--labels", "labels.csv", *SMALL[:2], "--weights", "no.safetensors")
    assert "weights file no.safetensors does not exist" in done.err
    assert not (folder / "runs").exists()


def test_several_processes_prepare_first(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = command("train", "photos", "--labels", "labels.csv", *SMALL)
    assert done == 2
    assert "several processes cannot train on a folder of images: prepare it first" in done.err


@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_other_names_of_columns(command: Command, folder: Path) -> None:
    rows = "".join(f"me;{number}.png;{[*COLORS][number % 3]}/ä\n" for number in range(30))
    (folder / "named.csv").write_text("who;where;what\n" + rows, encoding="cp1252")
    done = command("train", "photos", "--labels", "named.csv", *SMALL)
    assert "has no column 'image'" in done.err
    assert "say which it is with --image" in done.err
    flags = ("--image", "where", "--label", "what", "--separator", "/", "--encoding", "cp1252")
    assert command("train", "photos", "--labels", "named.csv", *flags, *SMALL) == 0
    made = json.loads((folder / "runs" / "photos-data" / "dataset.json").read_text())
    assert made["classes"] == ["blue", "green", "red", "ä"]
    done = command("train", "photos", "--label", "what", "--out", "other", *SMALL)
    assert (done, "--label is for a table of labels: name it with --labels" in done.err) == (2, True)


@pytest.mark.parametrize(
    "table",
    [
        "where,tag\n1.png,red\n",
        "image,sort\n1.png,red\n",
        "image,red\n1.png,0.3\n",
        "image,label\nnone.png,red\n",
        "image,label\n1.png,red\n",
    ],
)
@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_only_flags_that_train_has_are_named(command: Command, folder: Path, table: str) -> None:
    (folder / "odd.csv").write_text(table)
    done = command("train", "photos", "--labels", "odd.csv", *SMALL)
    own = re.sub(r"`sparselabel .*?`", "", done.err)  # another command, with flags of its own
    assert done == 1
    assert {*re.findall(r"--[a-z][a-z.-]*", own)} <= {"--labels", "--image", "--label", "--scores"}


@pytest.mark.filterwarnings("default::sparselabel.errors.DataWarning")
def test_what_was_found_in_a_table_is_said(command: Command, folder: Path) -> None:
    (folder / "odd.csv").write_text("image,label\n1.png,red;blue\n2.PNG,Red\n3.png,red\n")
    done = command("train", "photos", "--labels", "odd.csv", "--validation", "0", *SMALL)
    assert done == 2  # validation is no flag of train
    done = command("train", "photos", "--labels", "odd.csv", *SMALL)
    assert "several labels in one cell, with ';' between them: 'red;blue': if each is one label" in done.err
    assert "'Red' and 'red' became 'red'" in done.err
    assert "'2.PNG' is 2.png" in done.err
    assert (
        "27 images of 30 in photos are not in odd.csv and are not used: 0.png, 10.png, 11.png and" in done.err
    )
    assert "unlabeled" not in done.err  # no flag of train


@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_images_without_labels_are_used_by_a_method_that_can(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "few.csv").write_text(
        "image,label\n" + "".join(f"{n}.png,{[*COLORS][n % 3]}\n" for n in range(6))
    )
    monkeypatch.setattr(
        "sparselabel.training.train_run.train_run", lambda *_, **__: pytest.fail("not reached")
    )
    for method, images in (("iu+fixmatch", 29), ("iu", 6)):
        with pytest.raises(pytest.fail.Exception):
            command(
                "train", "photos", "--labels", "few.csv", "--method", method, *SMALL[:-2], "--out", method
            )
        made = json.loads((folder / f"{method}-data" / "dataset.json").read_text())
        assert sum(split["images"] for split in made["splits"].values()) == images


@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_a_run_is_trained_again_with_its_own_settings(command: Command, folder: Path) -> None:
    assert command("train", "photos", "--labels", "labels.csv", *SMALL) == 0
    first = Run(folder / "runs" / "photos").config()
    done = command("train", "photos", "--labels", "labels.csv", "--resume", "--workers", "0")
    assert done == 0, done.err
    image = open_prepared(folder / "runs" / "photos-data").train.paths[0]
    (folder / "runs" / "photos" / "answers.csv").write_text(
        f"image,label,value,time,reviewer\n{image},green,0,2026-01-01T00:00:00,me\n"
    )
    answers = ("--answers", "runs/photos/answers.csv", "--workers", "0", "--head.epochs", "2")
    done = command("train", "runs/photos-data", *answers, "--out", "runs/second")
    assert done == 0, done.err
    assert "settings are taken from runs/photos unless flags set them" in done.err
    second = Run(folder / "runs" / "second").config()
    assert second == replace(first, head=replace(first.head, epochs=2))


@pytest.mark.parametrize("labels", [(), ("--labels", "labels.csv")])
def test_a_folder_that_is_not_there(command: Command, folder: Path, labels: tuple[str, ...]) -> None:
    done = command("train", "nophotos", *labels)
    assert done == 1
    assert "there is no folder nophotos" in done.err
    assert "--labels" not in done.err


def test_prepared_data_is_no_place_for_a_run(command: Command, folder: Path) -> None:
    (folder / "taken").mkdir()
    (folder / "taken" / "dataset.json").write_text("{}")
    done = command("train", "photos", "--labels", "labels.csv", "--out", "taken", *SMALL)
    assert done == 1
    assert "taken holds prepared data" in done.err
    assert not (folder / "taken-data").exists()


def test_a_folder_that_is_no_run_is_refused_before_images_are_read(command: Command, folder: Path) -> None:
    (folder / "taken").mkdir()
    (folder / "taken" / "notes.txt").write_text("mine")
    done = command("train", "photos", "--labels", "labels.csv", "--out", "taken", *SMALL)
    assert done == 1
    assert "taken exists and is not a run: choose another --out" in done.err
    assert "checking" not in done.err
    assert not (folder / "taken-data").exists()


@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_an_image_that_is_there_twice_is_told(command: Command, folder: Path) -> None:
    copies = [f"copy{number}.png" for number in range(4)]
    for name in copies:
        (folder / "photos" / name).write_bytes((folder / "photos" / "3.png").read_bytes())
    with (folder / "labels.csv").open("a") as table:
        table.writelines(
            f"\n{name},{'blue' if number % 2 else 'green'}" for number, name in enumerate(copies)
        )
    done = command("train", "photos", "--labels", "labels.csv", *SMALL)
    assert done == 0, done.err
    told = [line for line in done.out.splitlines() if line.startswith("WARNING: ")]
    assert any(
        line.startswith("WARNING: duplicates: the same image more than once in train") for line in told
    )


@pytest.mark.parametrize("wrong", [("--method", "foo"), ("--method", "an", "--settings.foo", "1")])
def test_wrong_names_are_told_before_images_are_read(
    command: Command, folder: Path, wrong: list[str]
) -> None:
    done = command("train", "photos", "--labels", "labels.csv", *wrong, *SMALL)
    assert done == 2
    assert "'foo'" in done.err
    assert not list(folder.glob("runs*"))
