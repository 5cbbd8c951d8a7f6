"""Expected positives of prepared data before training: given, counted, or estimated from features."""

import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparselabel.config import Machine, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import POSITIVE, LabelMatrix, SparseLabels, count_per_image
from sparselabel.distributed import start_fabric
from sparselabel.errors import ConfigError, DataError, param
from sparselabel.expected_positives.class_counts import ClassCounts, How, read_expected, read_expected_for
from sparselabel.expected_positives.estimate import estimate_positives, needs_features
from sparselabel.expected_positives.from_complete_labels import (
    FEWEST_COUNTED,
    complete_answers,
    complete_labels,
    counted_positives,
)
from sparselabel.expected_positives.from_features import images_to_score
from sparselabel.run import Run
from sparselabel.training.logger import Log
from sparselabel.training.network import LazyBackbone
from sparselabel.training.phase_loaders import PhaseLoaders
from sparselabel.training.resolve import expected_file, is_estimated

LONG = 1_000_000  # labels from which on estimating takes seconds, and is logged
SAMPLE = 500  # images on which the time of estimating is measured


def new_counts(loaders: PhaseLoaders, *, thresholds: bool = False) -> ClassCounts | None:
    """The expected positives of every class, read from a file or estimated; None if nothing needs them.

    With ``thresholds`` also those that only calibration needs, which would otherwise guess a far too low K
    from the labels of validation.
    """
    data, config, file = loaders.data, loaders.config, expected_file(loaders.config)
    if file is not None:
        return read_expected_for(file, data)
    if not is_estimated(config):
        if not thresholds or not only_thresholds_need_them(data, config):
            return None
        with suppress(DataError):  # too few images or classes to estimate from: it is guessed
            return _counted_or_estimated(loaders)
        return None
    return _counted_or_estimated(loaders)


def only_thresholds_need_them(data: Dataset, config: TrainConfig) -> bool:
    """Whether only thresholds need counts: sparse validation labels on stored features, and no K."""
    val = data.splits.get("val")
    sparse = val is not None and not val.observed.complete and not data.train.observed.complete
    return sparse and config.frozen and config.settings.get("expected_positives") is None


def _counted_or_estimated(loaders: PhaseLoaders) -> ClassCounts:
    data, config = loaders.data, loaders.config
    complete = complete_answers(data)
    if len(complete) >= FEWEST_COUNTED:  # what people counted is better than an estimate
        counts = counted_positives(complete, data.annotations, config.seed)
        return counts.within(data.train.observed.matrix)
    shown = loaders.log.bar(None, f"estimating how often {len(data.classes):,} classes are there")
    features = _features(loaders)
    with shown if data.train.observed.matrix.size > LONG else nullcontext():
        return loaders.fabric.broadcast(_estimated(features, data, config.seed))


def _features(loaders: PhaseLoaders) -> npt.NDArray[np.float32] | None:
    """Features to estimate from, if any are needed; where few labels are known, those of some images.

    Training on stored features needs those of all images anyway.
    """
    data, labels = loaders.data, _annotations(loaders.data)
    if not needs_features(labels):
        return None
    if isinstance(labels, SparseLabels) and not loaders.config.frozen:
        drawn = data.train.take(images_to_score(labels, loaders.config.seed))
        few = replace(data, splits={"train": drawn})
        loaders = replace(loaders, data=few, _features={}, _files={}, _evaluation={}, _checks={})
    features: npt.NDArray[np.float32] = loaders.features("train").numpy()
    return features


def _annotations(data: Dataset) -> LabelMatrix:
    """The labels to estimate from, without reviewers' answers: questions are no random choice of labels.

    Taken for annotations, answers would make K far too low.
    """
    before = data.annotations
    return before.matrix if before.has(POSITIVE) else data.train.observed.matrix


def _estimated(features: npt.NDArray[np.float32] | None, data: Dataset, seed: int) -> ClassCounts:
    counts = estimate_positives(features, _annotations(data), data.classes, seed)
    return counts.within(data.train.observed.matrix)


def seconds_to_estimate(loaders: PhaseLoaders) -> float:
    """The seconds that estimating takes once features exist, measured on random features of some images.

    Two sizes separate the fixed cost from that per image.
    """
    labels, classes, seed = _annotations(loaders.data), loaders.data.classes, loaders.config.seed
    if not needs_features(labels):
        return _seconds(None, labels, classes, seed)
    width = loaders.features("train").shape[1]
    random = np.random.default_rng(seed)
    rows = random.permutation(np.flatnonzero(count_per_image(labels)))
    made_up = random.standard_normal((min(len(rows), SAMPLE), width), dtype=np.float32)
    whole = _seconds(made_up, labels[rows[:SAMPLE]], classes, seed)
    if len(rows) <= SAMPLE:
        return whole
    half = _seconds(made_up[: SAMPLE // 2], labels[rows[: SAMPLE // 2]], classes, seed)
    more = (len(images_to_score(labels, seed)) - SAMPLE) / (SAMPLE - SAMPLE // 2)
    return whole + more * max(whole - half, 0.0)


def _seconds(
    features: npt.NDArray[np.float32] | None, labels: LabelMatrix, classes: tuple[str, ...], seed: int
) -> float:
    began = time.monotonic()
    estimate_positives(features, labels, classes, seed)
    return time.monotonic() - began


def counts_of_run(loaders: PhaseLoaders, run: Run, *, thresholds: bool = False) -> ClassCounts | None:
    """The counts that a run was begun with, from its folder; new ones if it has none yet."""
    if run.expected_file.exists():
        return read_expected(run.expected_file, loaders.data.classes)
    return new_counts(loaders, thresholds=thresholds)


def expected_positives(
    data: Dataset,
    config: TrainConfig,
    how: How = "auto",
    labels: Path | None = None,
    machine: Machine | None = None,
    quiet: bool = False,
) -> ClassCounts:
    """Expected positives of the training split.

    ``auto`` takes the features of the configuration's backbone as it is before training, computed once and
    kept beside the data; ``counted`` reads ``labels``, a table of complete labels of some random training
    images. The true labels are never used.
    """
    if how == "counted":
        if labels is None:
            problem = "counted positives need complete labels of some training images"
            raise ConfigError(problem, f"name a table with {param('labels')}")
        return counted_positives(complete_labels(labels, data), data.train.observed, config.seed)
    if labels is not None:
        remedies = f"give {param('how', 'counted')}", f"leave {param('labels')} out"
        raise ConfigError("a table of labels is for counting", *remedies)
    loaders = _loaders(data, config, machine or Machine(), quiet)
    return _estimated(_features(loaders), data, config.seed)


def _loaders(data: Dataset, config: TrainConfig, machine: Machine, quiet: bool) -> PhaseLoaders:
    fabric = start_fabric(machine, config.precision)
    log = Log(Run(data.folder), speaks=fabric.is_global_zero, quiet=quiet)
    return PhaseLoaders(data, config, LazyBackbone(config), fabric, machine, log)
