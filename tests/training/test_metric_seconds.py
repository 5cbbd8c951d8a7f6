"""Metrics are timed on a few classes, and told for all."""

from dataclasses import replace

import numpy as np
import pytest

from sparselabel.data.dataset import Dataset
from sparselabel.data.label_table import LabelTable
from sparselabel.training import metric_seconds


@pytest.fixture
def many(small: Dataset) -> Dataset:
    """Data of 1,000 classes."""
    splits = {}
    for name, split in small.splits.items():
        values = np.tile(split.truth.values, (1, 84))[:, :1000]
        labels = LabelTable(split.truth.ids, tuple(f"class {n}" for n in range(1000)), values)
        splits[name] = replace(split, truth=labels, observed=labels)
    return replace(small, splits=splits, classes=splits["train"].truth.classes)


def test_what_grows_with_the_classes_and_what_does_not(
    many: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    now: list[float] = [0.0]
    seen: list[int] = []
    monkeypatch.setattr("sparselabel.training.metric_seconds.time.monotonic", lambda: now[0])

    def validate(scores: np.ndarray, labels: LabelTable) -> None:
        assert scores.shape == (len(many.split("val")), len(labels.classes)) == labels.values.shape
        now[0] += (5.0 if not seen else 0.0) + 2.0 + 0.01 * len(labels.classes)  # imports come once
        seen.append(len(labels.classes))

    monkeypatch.setattr(metric_seconds, "validate", validate)
    assert metric_seconds.epoch_seconds(many) == pytest.approx((5, 2 + 0.01 * 1000))
    assert seen == [16, 16, 128]
    del many.splits["val"]
    assert metric_seconds.epoch_seconds(many) == (0, 0)


def test_classes_come_from_all_over_the_list(many: Dataset) -> None:
    few = metric_seconds._labels(many.train.truth, 16)
    assert few.classes == tuple(f"class {62 * n}" for n in range(16))
    assert np.array_equal(few.values, many.train.truth.values[:, : 62 * 16 : 62])
