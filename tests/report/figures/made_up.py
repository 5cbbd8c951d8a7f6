"""Fake runs: prepared images, and the files that training and evaluation would write."""

import warnings
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
from sparselabel.run import Run
from tests.data.images import paint

CLASSES = ("ant", "bee", "cow", "dog $x_1$", "a class with a very long name")
# Rows 0 and 2 show a class that is not annotated (single-positive keeps one); row 1 does not.
TRAIN = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 1, 0, 1, 0], [1, 0, 0, 0, 0]], dtype=np.int8)

RESULT: dict[str, Any] = {
    "method": "an", "oracle": False, "model_checksum": 0, "best_epoch": 1, "epochs": 1,
    "validation": None, "test": None, "recovery": None,
}  # fmt: skip
"""The least that result.json says."""
EVALUATION: dict[str, Any] = {"mean_average_precision": {"sklearn": {"mean": 0.5}}}
"""The least that evaluation-SPLIT.json says."""


def make_data(
    folder: Path,
    test: np.ndarray | None = None,
    spatial_labels: SpatialLabels | None = None,
    hidden: bool = False,
) -> Dataset:
    """Four wide, tall or square training images, and test images with these labels and marks."""
    sizes = ((60, 30), (30, 60), (40, 40), (60, 40))
    splits = {"train": _split(folder, "train", TRAIN, sizes, SpatialLabels.none())}
    if test is not None:
        splits["test"] = _split(
            folder, "test", test, ((8, 8),) * len(test), spatial_labels or SpatialLabels.none()
        )
    if hidden:
        values = np.where(TRAIN == 0, UNKNOWN, TRAIN).astype(np.int8)
        splits["train"] = _split(folder, "train", values, sizes, SpatialLabels.none())
    how = Preparation(sparsify="none" if hidden else "single-positive", validation=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # some classes are never annotated
        return prepare(RawDataset("made up", folder / "images", splits), folder / "data", how)


def _split(
    folder: Path, name: str, values: np.ndarray, sizes: tuple[Any, ...], spatial_labels: SpatialLabels
) -> RawSplit:
    paths = [f"{name}{row}.png" for row in range(len(values))]
    for row, (path, (width, height)) in enumerate(zip(paths, sizes, strict=True)):
        paint(folder / "images" / path, row, width, height)
    ids = np.array([f"{name}-{row}" for row in range(len(values))])
    return RawSplit(LabelTable(ids, CLASSES, values), np.array(paths), spatial_labels)


def make_run(path: Path, data: Dataset, views: Views | None = None, config: TrainConfig | None = None) -> Run:
    """A run that has just begun."""
    run = Run(path)
    about = {
        "data": str(data.folder),
        "data_digest": {name: split.digest for name, split in data.splits.items()},
        "classes": list(data.classes),
    }
    run.begin(config or TrainConfig(views=views or Views()), about, resume=False, force=False)
    return run


def watch(run: Run, epoch: int, rows: list[int], scores: Any, **arrays: Any) -> None:
    """Write an epoch of watched images, as ``training/watch.py`` does."""
    run.watched.mkdir(exist_ok=True)
    everything = {"rows": np.array(rows), "scores": np.asarray(scores, np.float32), **arrays}
    np.savez(run.watched / f"{epoch:04d}.npz", **everything)


def constant_maps(levels: Any, cells: int, dtype: Any = np.float16) -> np.ndarray:
    """(n, L, cells, cells) Maps of one level each, from (n, L)."""
    return np.broadcast_to(np.asarray(levels)[:, :, None, None], (*np.shape(levels), cells, cells)).astype(
        dtype
    )


def score(run: Run, data: Dataset, split: str, scores: np.ndarray) -> None:
    """Write the scores of a split, as ``evaluate_run`` does, and finish the run."""
    ids = np.asarray(data.split(split).truth.ids)
    np.savez(run.path / f"scores-{split}.npz", ids=ids, scores=scores.astype(np.float32))
    write_json(run.result_file, RESULT)
