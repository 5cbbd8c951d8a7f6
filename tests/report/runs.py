"""Fake finished runs with class names that must be escaped, and the tables of a page."""

import json
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from sparselabel.config import Preparation, TrainConfig, Views
from sparselabel.data.dataset import Dataset
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import UNKNOWN
from sparselabel.data.prepare import prepare
from sparselabel.data.readers.raw_dataset import RawDataset, RawSplit
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import DataWarning
from sparselabel.files import write_json
from sparselabel.inference.saved_scores import keep_scores
from sparselabel.losses.registry import needs_of
from sparselabel.metrics.label_metrics import label_metrics, map_name_of
from sparselabel.run import Run
from tests.data.images import paint

CLASSES = ("<b>x</b>", 'a & "b"', "cow", "dög", "never")
TRAIN = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 1, 0, 1, 0], [1, 0, 0, 0, 0]], np.int8)
TEST = np.array(
    [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 0, 1, 0], [1, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]],
    np.int8,
)
RANDOM = np.random.default_rng(3)
WEAK = RANDOM.random(TEST.shape).astype(np.float32)
STRONG = np.clip(0.7 * WEAK + 0.3 * TEST, 0, 1).astype(np.float32)


def make_data(folder: Path, test: np.ndarray | None = TEST, sparsify: str = "single-positive") -> Dataset:
    """Four training images with one label each, and test images with these labels and a box each."""
    splits = {"train": _split(folder, "train", TRAIN)}
    if test is not None:
        splits["test"] = _split(folder, "test", test)
    how = Preparation(sparsify=sparsify, validation=0)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return prepare(RawDataset("made <up>", folder / "images", splits), folder / "data", how)


def _split(folder: Path, name: str, values: np.ndarray) -> RawSplit:
    paths = [f"{name}{row}.png" for row in range(len(values))]
    for row, path in enumerate(paths):
        paint(folder / "images" / path, row, 60, 40)
    rows, classes = np.nonzero(values == 1)
    sizes = np.repeat(np.linspace(0.1, 0.9, len(rows))[:, None], 2, axis=1)
    places = np.full((len(rows), 2), 0.5, np.float32), sizes.astype(np.float32)
    spatial_labels = (
        SpatialLabels(rows, classes.astype(np.int32), *places) if name == "test" else SpatialLabels.none()
    )
    ids = np.array([f"{name}&{row}" for row in range(len(values))])
    return RawSplit(LabelTable(ids, CLASSES, values), np.array(paths), spatial_labels)


def hidden_labels(values: np.ndarray) -> np.ndarray:
    """The same labels with every 0 unknown."""
    return np.where(values == 0, UNKNOWN, values).astype(np.int8)


def finished(
    path: Path, data: Dataset, method: str, scores: np.ndarray | None, classifier: str = "linear"
) -> Run:
    """A finished run with these scores of the test split, and three epochs."""
    run = Run(path)
    about = {
        "data": str(data.folder),
        "data_digest": {name: split.digest for name, split in data.splits.items()},
        "classes": list(data.classes),
        "command": ["sparselabel", "train", "my data", "--out", str(path)],
        "versions": {"sparselabel": "0.1.0", "python": "3.11.7"},
    }
    config = TrainConfig(method=method, seed=5, views=Views(size=32), classifier=classifier)  # type: ignore[arg-type]
    run.begin(config, about, resume=False, force=False)
    measured: dict[str, Any] | None = None
    if scores is not None:
        labels = data.split("test").observed
        measured = label_metrics(scores, labels)
        mean = measured["mean_average_precision"]["sklearn"]["mean"]
        measured = {"name": map_name_of(labels), "value": mean} | measured
        keep_scores(run, data.split("test"), scores)
    with run.metrics_file.open("w", encoding="utf-8") as file:
        for epoch in range(3):
            counts = [0] * 20
            counts[3], counts[12] = 3 - epoch, 1 + epoch
            record = {
                "epoch": epoch + 1,
                "phase": "head" if epoch == 0 else "finetune",
                "losses": {"labels": 0.5 / (epoch + 1)},
                "validation": {"name": "mAP", "value": 0.25 * (epoch + 1)},
                "hidden_positives": counts,
            }
            file.write(json.dumps(record) + "\n")
    result = {
        "method": method,
        "oracle": needs_of(method).truth,
        "best_epoch": 3,
        "epochs": 3,
        "validation": None,
        "test": measured,
        "recovery": {"model": 0.625, "estimates": None},
        "model_checksum": 0,
    }
    write_json(run.result_file, result)
    return run


class Tables(HTMLParser):
    """The tables of a page: by the name of the region they are in, rows of cell texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self._name = ""
        self._cell = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("role") == "region":
            self._name = given["aria-label"] or ""
        elif tag == "table":
            self.found[self._name] = []
        elif tag == "tr":
            self.found[self._name].append([])
        elif tag in ("td", "th"):
            self.found[self._name][-1].append("")
            self._cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.found[self._name][-1][-1] += data
