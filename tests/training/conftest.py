"""Small prepared data for training tests: scenes at 32 px, and runs that take a second."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import FinetunePhase, HeadPhase, Preparation, TrainConfig, Views
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import POSITIVE
from sparselabel.data.prepare import prepare
from sparselabel.data.prepared_files import SPATIAL_LABEL_COLUMNS, open_prepared
from sparselabel.data.scenes import generate as scenes
from sparselabel.errors import DataWarning


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """61 (an odd number) training, 15 validation and 20 test scenes, with one positive label each."""
    folder: Path = tmp_path_factory.mktemp("data") / "scenes"
    return small_scenes(folder, 76, 20, Preparation(sparsify="single-positive"))


@pytest.fixture(scope="session")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """As small, but with 15 % of all labels, positive or not, and the boxes of observed positives."""
    folder: Path = tmp_path_factory.mktemp("data") / "marked"
    data = small_scenes(folder, 76, 20, Preparation(sparsify="uniform", share=0.15))
    return see_boxes(data)


def see_boxes(data: Dataset) -> Dataset:
    """Let training see the boxes of its observed positives."""
    train = data.train
    shown = train.observed.values[train.spatial_labels.rows, train.spatial_labels.classes] == POSITIVE
    for column in SPATIAL_LABEL_COLUMNS:
        np.save(data.folder / "train" / f"seen_{column}.npy", getattr(train.spatial_labels, column)[shown])
    index = data.folder / "dataset.json"
    about = json.loads(index.read_text())
    about["splits"]["train"]["seen"] = "own"
    about["format"] = 1  # which has no checksum
    index.write_text(json.dumps(about))
    return open_prepared(data.folder)


def small_scenes(folder: Path, train: int, test: int, how: Preparation) -> Dataset:
    """Dataset scenes so few that some classes never occur."""
    source = scenes.make(folder, train=train, test=test, size=32, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return prepare(source, folder, how)


def tiny(method: str = "an", **changes: object) -> TrainConfig:
    """Head alone for two epochs, then everything for two, of a tiny network from random weights."""
    settings: dict[str, object] = {
        "backbone": "test_efficientnet",
        "weights": "none",
        "views": Views(size=32),
        "head": HeadPhase(epochs=2, lr=1e-2, batch_size=16),
        "finetune": FinetunePhase(epochs=2, lr=1e-3, batch_size=16),
        "watch": 3,
    }
    return TrainConfig(method=method, **(settings | changes))  # type: ignore[arg-type]
