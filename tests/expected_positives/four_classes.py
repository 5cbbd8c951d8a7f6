"""Labels of four classes, of which some are hidden."""

import numpy as np

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import Labels

CLASSES = ("cat", "dog", "bird", "fish")


def table(values: Labels) -> LabelTable:
    return LabelTable(np.array([str(row) for row in range(len(values))]), CLASSES, values)


def full(images: int, seed: int = 0) -> Labels:
    random = np.random.default_rng(seed)
    truth = (random.random((images, 4)) < (0.5, 0.4, 0.2, 0.3)).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    return truth
