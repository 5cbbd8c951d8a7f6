"""Evaluate a run on your own table of images and labels, without preparing them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparselabel.config import AUTO
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, UNKNOWN
from sparselabel.data.prepare import leave_out_broken
from sparselabel.data.readers.raw_dataset import RawDataset, RawSplit, warn
from sparselabel.data.readers.table import read
from sparselabel.data.readers.table_files import plain_name
from sparselabel.errors import DataError, listing
from sparselabel.inference.class_thresholds import load_class_thresholds, threshold_metrics
from sparselabel.inference.scorer import evaluation_loader, load_scorer
from sparselabel.metrics.label_metrics import label_metrics
from sparselabel.metrics.thresholds import check_threshold
from sparselabel.resources import keep_freed_memory
from sparselabel.run import Run


def read_test_set(
    run: Run,
    labels: Path,
    images: Path | None = None,
    *,
    complete: bool = False,
    table: Mapping[str, Any] | None = None,
) -> PreparedSplit:
    """The images of a table with their labels, in a run's classes; broken images are left out and named.

    ``table`` are options of its reader. With ``complete`` the table names all present classes, and others are
    NEGATIVE; else they are UNKNOWN.
    """
    source = read(labels, images=images, skip_missing=True, **(table or {}))
    classes = tuple(run.metadata()["classes"])
    column_of = {plain_name(name): column for column, name in enumerate(classes)}
    splits = [*source.splits.values()]
    own = splits[0].labels.classes
    others = [name for name in own if plain_name(name) not in column_of]
    if len(others) == len(own):
        raise DataError(
            f"{labels} names none of the run's classes: {listing(own)}",
            f"name these: {listing(classes)}",
            what=labels,
        )
    if others:
        warn(f"{labels}: {run.path} does not know these classes, which were left out: {listing(others)}")
    given = np.concatenate([one_split.labels.matrix for one_split in splits])
    paths = np.concatenate([one_split.paths for one_split in splits])
    values = np.full((len(paths), len(classes)), UNKNOWN, dtype=np.int8)
    for column, name in enumerate(own):
        if plain_name(name) in column_of:
            values[:, column_of[plain_name(name)]] = given[:, column]
    if complete:
        values[values == UNKNOWN] = NEGATIVE
    whole = RawSplit(LabelTable(paths, classes, values), paths)
    raw = RawDataset(labels.stem, source.root, {"test": whole})
    split, digests = leave_out_broken(raw, skip=True)["test"]
    if not len(split.labels):
        raise DataError(f"none of the images of {labels} can be read", what=labels)
    return PreparedSplit(
        labels.stem, source.root, split.paths, split.labels, split.labels, split.spatial_labels, digests, ""
    )


def evaluate_test_set(
    run: Run,
    test_set: PreparedSplit,
    *,
    threshold: float = 0.5,
    workers: int | None = None,
    engine: str = AUTO,
    report: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Score every image once and measure the scores; nothing is written into the run."""
    check_threshold(threshold)
    keep_freed_memory()
    run.require_finished()
    scorer = load_scorer(run, engine=engine, images=len(test_set))
    loader = evaluation_loader(run.config(), test_set, workers, scorer.device)
    scores = scorer.scores(loader, len(test_set), report=report).numpy()
    measured: dict[str, Any] = {"run": str(run.path), "split": test_set.name, "recovery": None}
    measured["engine"] = scorer.engine_used
    measured |= label_metrics(scores, test_set.observed, threshold)
    measured["decided"] = threshold_metrics(scores, test_set.observed, load_class_thresholds(run))
    return measured
