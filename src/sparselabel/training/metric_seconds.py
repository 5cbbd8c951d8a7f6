"""How long metrics and calibration of a run take, timed on a few of its classes.

Nearly all of them grow with the classes; a first time, a few and some more classes tell apart what does not,
as imports.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sparselabel import config as configuration
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.label_table import LabelTable
from sparselabel.inference.class_thresholds import threshold_metrics, write_class_thresholds
from sparselabel.inference.saved_scores import keep_scores
from sparselabel.metrics.label_metrics import label_metrics
from sparselabel.metrics.tiled_scores import Scores
from sparselabel.training.trainer import Trainer
from sparselabel.training.validate import validate

FEW, MORE = 16, 128  # classes
MOST_SCORES = 1 << 25  # that are made up at a time
SOME = 10_000  # training images


def epoch_seconds(data: Dataset) -> tuple[float, float]:
    """Seconds of the validation metric: those that come once, and those of an epoch."""
    if "val" not in data.splits:
        return 0.0, 0.0
    split = data.split("val")

    def work(count: int) -> None:
        labels = _labels(split.observed, count)
        validate(_scores(labels), labels)

    return _of_all(work, data, len(split))


def end_seconds(trainer: Trainer) -> float:
    """Seconds of calibration, thresholds and metrics of the best epoch's model."""
    data, run = trainer.data, trainer.run
    configuration.save(trainer.config, run.config_file)
    splits = {name: split for name, split in data.splits.items() if name in ("val", "test")}

    def work(count: int) -> None:
        some = splits | {"train": data.train.take(np.arange(min(len(data.train), SOME)))}  # counts alone
        few = replace(data, splits={name: _split(split, count) for name, split in some.items()})
        few = replace(few, classes=few.train.truth.classes)
        scores = {name: _scores(few.split(name).observed) for name in splits}
        thresholds = write_class_thresholds(run, few, scores.get("val"))
        for name, of_split in scores.items():
            labels = few.split(name).observed
            validate(of_split, labels)
            label_metrics(of_split, labels)
            threshold_metrics(of_split, labels, thresholds)
            keep_scores(run, few.split(name), of_split)

    def recovery(count: int) -> None:
        labels = _labels(data.train.truth, count)
        for _ in ("of the model", "of what the method remembers"):
            validate(_scores(labels), labels)

    seconds = sum(_of_all(work, data, max(map(len, splits.values()), default=1)))
    return seconds + (sum(_of_all(recovery, data, len(data.train))) if trainer.truth_known else 0.0)


def _of_all(work: Callable[[int], None], data: Dataset, images: int) -> tuple[float, float]:
    """Seconds of work that takes a number of classes: those that come once, and those of all classes."""
    classes = len(data.classes)
    large = min(classes, MORE, max(2, MOST_SCORES // images))
    small = min(FEW, large // 2) or 1
    first, of_small, of_large = (_seconds(work, number) for number in (small, small, large))
    of_a_class = max(0.0, of_large - of_small) / max(1, large - small)
    return max(0.0, first - of_small), of_large + of_a_class * (classes - large)


def _seconds(work: Callable[[int], None], count: int) -> float:
    began = time.monotonic()
    work(count)
    return time.monotonic() - began


def _labels(labels: LabelTable, count: int) -> LabelTable:
    """The labels of ``count`` classes, from all over the list."""
    classes = slice(None, None, len(labels.classes) // count)
    columns = labels.matrix[:, classes][:, :count]
    return LabelTable(labels.ids, labels.classes[classes][:count], columns, check=False)


def _split(split: PreparedSplit, count: int) -> PreparedSplit:
    return replace(split, truth=_labels(split.truth, count), observed=_labels(split.observed, count))


def _scores(labels: LabelTable) -> Scores:
    """Scores as of a model that has learned something: calibration soon ends where there is nothing."""
    shape = len(labels), len(labels.classes)
    logits = np.random.default_rng(0).standard_normal(shape, dtype=np.float32) + 2 * (labels.values == 1) - 2
    return np.asarray(1 / (1 + np.exp(-logits)), np.float32)
