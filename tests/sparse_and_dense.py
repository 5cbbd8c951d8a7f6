"""The same data with labels as arrays and as compressed rows."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from sparselabel.data import labels
from sparselabel.data.dataset import Dataset
from sparselabel.data.from_objects import read_arrays
from sparselabel.data.labels import Labels, SparseLabels
from sparselabel.data.prepare import prepare_objects

CLASSES = 9


def few_labels(images: int, seed: int = 0) -> Labels:
    """(N, L) Labels of which about a quarter are known; every image has one, every class a yes and a no."""
    random = np.random.default_rng(seed)
    values = random.choice([-1, -1, -1, -1, -1, 0, 1], (images, CLASSES)).astype(np.int8)
    values[np.arange(images), np.arange(images) % CLASSES] = 1
    values[np.arange(images), (np.arange(images) + 4) % CLASSES] = 0
    return values


def both(folder: Path, **how: Any) -> tuple[Dataset, Dataset]:
    """Data of 60 images to train on and 30 to test on: with arrays, and with compressed rows."""
    pixels = np.random.default_rng(1).integers(0, 256, (90, 8, 8, 3), np.uint8)
    train, test = few_labels(60), few_labels(30, seed=3)
    splits = {"train": (pixels[:60], train), "test": (pixels[60:], test)}

    def made() -> Dataset:
        return prepare_objects(lambda root: read_arrays(splits, root, None, None), **how)

    dense = made()
    with patch.multiple(labels, SPARSE_FROM=1, SMALLER=0):
        sparse = made()
    return dense.keep(folder / "dense"), sparse.keep(folder / "sparse")


def are_in_compressed_rows(data: Dataset) -> bool:
    """Whether all tables of all splits are."""
    tables = [table for split in data.splits.values() for table in (split.truth, split.observed)]
    return all(isinstance(table.matrix, SparseLabels) for table in tables)
