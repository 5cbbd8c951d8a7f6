"""The workflow for a photo archive, from start to end, on a few dozen drawn images."""

import csv
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from sparselabel.data.answers import read_answers
from sparselabel.data.prepared_files import open_prepared
from sparselabel.run import Run
from tests.cli.conftest import Command

COLORS = {"Red": (220, 30, 30), "green": (30, 200, 40), "blue": (20, 40, 230)}
SMALL = [
    *("--backbone", "resnet10t", "--weights", "none", "--views.size", "32", "--head.epochs", "3"),
    *("--workers", "0", "--settings.expected-positives", "1.5"),
]
LI = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}li"


def halves(path: Path, left: str, right: str, shade: int) -> None:
    pixels = np.zeros((24, 32, 3), np.uint8)
    pixels[:, :16], pixels[:, 16:] = COLORS[left], COLORS[right]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(pixels.astype(int) - shade, 0, 255).astype(np.uint8)).save(path)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """photos/ with 36 images, 30 of them in a table as Excel writes it; more/ with 6 and a video."""
    names = [*COLORS]
    lines = ["Filename;Tags"]
    for number in range(36):
        left, right = names[number % 3], names[number // 3 % 3]
        halves(tmp_path / "photos" / f"{2020 + number % 2}" / f"IMG_{number}.jpg", left, right, number)
        label = left.lower() if number % 2 else left
        if number < 30:
            lines.append(f"img_{number}.JPG;{label}" + (f", {right}" if right != left and number < 9 else ""))
    (tmp_path / "labels.csv").write_text("\n".join(lines), encoding="utf-16")
    truth = ["file,labels"]
    for number in range(6):
        left, right = names[number % 3], names[number // 2]
        halves(tmp_path / "more" / f"{number}.png", left, right, 5)
        truth.append(f"{number}.png,{left}|{right}")
    (tmp_path / "more" / "clip.mov").write_bytes(b"video")
    (tmp_path / "truth.csv").write_text("\n".join(truth))
    return tmp_path


@pytest.mark.filterwarnings("default::sparselabel.errors.DataWarning")
def test_the_whole_way(command: Command, archive: Path, person: Any) -> None:
    done = command("train", "photos", "--labels", "labels.csv", *SMALL)
    assert done == 0, done.err
    assert "30 images found under other names: 'img_0.JPG' is 2020/IMG_0.jpg" in done.err
    assert "6 images of 36 in photos are not in labels.csv and are not used: 2020/IMG_30.jpg" in done.err
    assert "several labels in one cell, with ',' between them" in done.err
    assert done.out.splitlines()[0].startswith(
        "30 images (24 train, 6 val, with its share of every class), 3 classes, 1.2 labels each"
    )
    said = next(line for line in done.out.splitlines() if line.startswith("Your images show"))
    assert re.match(r"Your images show about \d\.\d of the 3 classes each", said)
    assert "suggested labels to be right" in said
    assert "`sparselabel review runs/photos --goal thresholds` mends that: it takes about" in done.out
    page = (archive / "runs" / "photos" / "report.html").read_text()
    assert said.partition(" Expect")[0] in page  # the report opens with it
    opened = page[: page.index('id="researchers"')]
    assert page.index('<th scope="col" class="n">right, %</th>') < len(opened)
    for word in ("OF1", "observed-label", "oracle", "surprise", "γ", "CP", "Cole"):
        assert word not in re.sub(r"<style>.*?</style>|data:[^\"]*", "", opened, flags=re.DOTALL), word
    config = Run(archive / "runs" / "photos").config()
    assert (config.frozen, config.head.epochs, config.head.batch_size) == (True, 3, 64)

    for flag in ("--sort-into", "--maps"):  # what is written there would be predicted, too
        refused = command("predict", "runs/photos", "more", "--out", "tags.csv", flag, "more/inner")
        assert refused == 2
        assert f"{flag} more/inner is inside more" in refused.err
    refused = command("predict", "runs/photos", "more", "--precison", "0.9")
    assert refused == 2
    assert "there is no flag --precison: give --precision, or look them up" in refused.err
    refused = command("train", "photos", "--labels", "lables.csv", "--out", "runs/new")
    assert refused == 1
    assert "there is no file lables.csv" in refused.err  # and not that weights cannot be had

    files = ["--gallery", "look.html", "--write-xmp", "--sort-into", "sorted", "--links"]
    files += ["--fiftyone", "fiftyone.json", "--label-studio", "tasks.json"]
    more = ("--out", "tags.csv", "--threshold", "0.1", "--workers", "0")
    done = command("predict", "runs/photos", "more", *more, *files)
    assert done == 0, done.err
    assert "skipped: 1 file that is not an image (1 .mov)" in done.err
    with Path("tags.csv").open(newline="") as stream:
        tags = {row["image"]: row["labels"].split(";") for row in csv.DictReader(stream)}
    assert len(tags) == 6
    assert all(tags.values())
    for image, labels in tags.items():
        keywords = [element.text for element in ElementTree.parse(f"{image}.xmp").iter(LI)]
        assert keywords == labels
        assert all(
            (archive / "sorted" / label / Path(image).name).resolve() == (archive / image) for label in labels
        )
    tasks = json.loads(Path("tasks.json").read_text())
    assert tasks[0]["data"] == {"image": "/data/local-files/?d=0.png"}
    assert tasks[0]["predictions"][0]["result"][0]["value"]["choices"] == tags["more/0.png"]
    assert "more/0.png" in Path("look.html").read_text()
    assert command("predict", "runs/photos", "more", "--gallery", "look.html") == 1  # it is there

    # What was predicted can be read back, as can what was written for FiftyOne.
    assert (
        command("prepare", "table", "tags.csv", "--images", "more", "--validation", "0", "--out", "again")
        == 0
    )
    again = open_prepared(archive / "again").train
    assert {
        f"more/{path}": int(row.sum()) for path, row in zip(again.paths, again.truth.values == 1, strict=True)
    } == {image: len(labels) for image, labels in tags.items()}
    done = command(
        "prepare", "fiftyone", "fiftyone.json", "--images", "more", "--validation", "0", "--out", "51"
    )
    assert done == 0, done.err
    np.testing.assert_array_equal(
        open_prepared(archive / "51").train.truth.values[:, [1, 0, 2]].sum(), again.truth.values.sum()
    )

    done = command(
        "evaluate",
        "runs/photos",
        "--images",
        "more",
        "--labels",
        "truth.csv",
        "--complete",
        "--json",
        "--workers",
        "0",
    )
    assert done == 0, done.err
    measured = json.loads(done.out)
    assert (measured["split"], measured["images"], measured["labels"]) == ("truth", 6, "complete")
    assert [row["positive"] for row in measured["classes"]] == [3, 3, 4]  # red, blue, green
    assert not (archive / "runs" / "photos" / "evaluation-truth.json").exists()
    assert command("evaluate", "runs/photos", "--images", "more") == 2

    # Labels of prepared data are written and read.
    assert command("labels", "runs/photos-data", "--out", "kept.csv") == 0
    assert command("prepare", "table", "kept.csv", "--images", "photos", "--out", "kept") == 0
    kept, data = open_prepared(archive / "kept"), open_prepared(archive / "runs" / "photos-data")
    for name in ("train", "val"):
        assert kept.splits[name].paths.tolist() == data.splits[name].paths.tolist()
        np.testing.assert_array_equal(kept.splits[name].truth.values, data.splits[name].truth.values)

    # Questions in the browser, then training again with the answers: settings are those of the run.
    person("no", "yes", "yes")
    done = command("review", "runs/photos", "--workers", 0)
    assert done == 0, done.err
    answers = read_answers(archive / "runs" / "photos" / "answers.csv")
    assert [answer.value for answer in answers] == [0, 1, 1]
    again_flags = ("--answers", "runs/photos/answers.csv", "--out", "runs/second", "--workers", "0")
    done = command("train", "runs/photos-data", *again_flags)
    assert done == 0, done.err
    second = Run(archive / "runs" / "second")
    assert second.config() == config
    changed = second.data().train.observed.values != data.train.observed.values
    assert sorted(second.data().train.observed.values[changed].tolist()) == [0, 1, 1]
    done = command(
        "predict", "runs/second", "more", "--out", "tags-2.csv", "--threshold", "0.1", "--workers", "0"
    )
    assert done == 0, done.err
    assert len(Path("tags-2.csv").read_text().splitlines()) == 1 + 6
