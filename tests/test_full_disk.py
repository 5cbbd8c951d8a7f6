"""Whatever is written on a disk that is full is an error that names a file, and leaves what was there."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sparselabel.config import Preparation, TrainConfig, save
from sparselabel.data.dataset import Dataset
from sparselabel.data.label_table import LabelTable
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.write_labels import write_labels
from sparselabel.errors import ResourceError, SparselabelError
from sparselabel.file_formats import write_array
from sparselabel.files import write_json
from sparselabel.inference import review_scores
from sparselabel.inference.prediction_csv import PredictionWriter
from sparselabel.inference.prediction_shards import PredictionShards
from sparselabel.inference.prediction_sidecars import (
    FiftyOneFile,
    LabelStudioFile,
    MapFolder,
    SortedImages,
    XmpSidecars,
)
from sparselabel.inference.predictor import Prediction
from sparselabel.locks import locked
from sparselabel.report.gallery import Gallery
from sparselabel.review.answer_log import AnswerFile
from sparselabel.run import Run
from tests.inference.stub import CLASSES, predictor
from tests.training.conftest import small_scenes


@pytest.fixture
def full_disk(small_disk: Path) -> Path:
    """A disk with an image, and no room at all."""
    noise = np.random.default_rng(0).integers(0, 256, (80, 80, 3), np.uint8)
    Image.fromarray(noise).save(small_disk / "a.png")
    (small_disk / "old").write_bytes(bytes(1000))
    with (small_disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return small_disk


def predictions(disk: Path) -> Iterator[Prediction]:
    return predictor()([disk / "a.png"], maps=True, workers=0)


def all_of(made: Any) -> Callable[[Path], None]:
    def work(disk: Path) -> None:
        file = made(disk)
        for prediction in predictions(disk):
            file.write(replace(prediction, labels=(("red", 0.5),)))
        file.finish()

    return work


def table(disk: Path) -> None:
    output = PredictionWriter(str(disk / "tags.csv"), CLASSES, {"run": "r"}, all_scores=True, resume=False)
    for prediction in predictions(disk):
        output.write(prediction)
    output.finish()


def maps(disk: Path) -> None:
    folder = MapFolder(disk / "maps", CLASSES, predictor().view)
    for prediction in predictions(disk):
        folder.write(replace(prediction, labels=(("red", 0.5),)))


def taken(disk: Path) -> None:
    with locked(disk / "run"):
        pass


def answers(disk: Path) -> None:
    """There is a page for the lock beside the file, and none for its first line."""
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - 4096)
    AnswerFile(disk / "answers.csv", "ann").close()


def shards(kind: Any) -> Callable[[Path], None]:
    return lambda disk: PredictionShards(disk, kind, CLASSES, True).write(0, predictions(disk))


WRITERS: dict[str, Callable[[Path], None]] = {
    "json": lambda disk: write_json(disk / "old", {"a": "b" * 10_000}),
    "checked array": lambda disk: write_array(disk / "old", np.zeros(10_000)),
    "config": lambda disk: save(TrainConfig(), disk / "config.toml"),
    "gallery": all_of(lambda disk: Gallery(disk / "gallery.html", "a")),
    "sidecar": all_of(lambda disk: XmpSidecars()),
    "sorted": all_of(lambda disk: SortedImages(disk / "sorted", CLASSES, links=False, force=False)),
    "fiftyone": all_of(lambda disk: FiftyOneFile(disk / "labels.json", CLASSES)),
    "label studio": all_of(lambda disk: LabelStudioFile(disk / "tasks.json", CLASSES)),
    "maps": maps,
    "tags": table,
    "lock": taken,
    "answers": answers,
    "parquet": shards("parquet"),
    "csv": shards("csv"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_it_is_an_error_with_a_name(full_disk: Path, name: str) -> None:
    before = {path.name: path.read_bytes() for path in full_disk.iterdir() if path.name != "filler"}
    with pytest.raises((SparselabelError, OSError)) as error:
        WRITERS[name](full_disk)
    if isinstance(error.value, OSError) and not isinstance(error.value, SparselabelError):
        assert str(full_disk) in str(error.value.filename)
    else:
        assert str(full_disk) in str(error.value)
    assert {name: (full_disk / name).read_bytes() for name in before} == before


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_scenes(tmp_path_factory.mktemp("full") / "data", 60, 2, Preparation())


def test_labels_of_prepared_data(data: Dataset, full_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left") as error:
        write_labels(open_prepared(data.folder), "train", "full", full_disk / "labels.csv", force=False)
    assert error.value.filename == str(full_disk / "labels.csv")
    assert not (full_disk / "labels.csv.partial").exists()


def test_scores_of_a_review(data: Dataset, full_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are mapped: without room of their own, writing them ended the process (SIGBUS)."""
    monkeypatch.setattr(review_scores, "load_scorer", lambda *_, **__: None)
    os.truncate(full_disk / "filler", (full_disk / "filler").stat().st_size - 2 * 4096)
    values = np.zeros((600, len(data.classes)), np.int8)
    many, run = LabelTable(np.arange(600).astype(str), data.classes, values), Run(full_disk)
    with pytest.raises(ResourceError) as error:
        review_scores.write_review_scores(run, replace(data.train, truth=many))
    assert (error.value.what, error.value.value) == (full_disk, 600 * len(data.classes) * 2 + 128)
    assert not run.review_scores_file.exists()
    assert not [*full_disk.glob("*.partial")]
