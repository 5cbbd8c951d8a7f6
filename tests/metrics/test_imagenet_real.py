from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from sparselabel.data.labels import POSITIVE, UNKNOWN, Labels
from sparselabel.errors import DataError
from sparselabel.metrics.imagenet_real import real_metrics, top_1

CLASSES = 6
NUMBERS = [1, 1, 2, 3, 0, 4, 5, 1, 2, 0, 1, 3]
"""Labels of each image by ReaL."""


def made_up() -> tuple["np.ndarray[tuple[int, int], np.dtype[np.float64]]", Labels, Labels]:
    random = np.random.default_rng(5)
    scores = random.random((len(NUMBERS), CLASSES))
    single = np.full(scores.shape, UNKNOWN, dtype=np.int8)
    real = np.full(scores.shape, UNKNOWN, dtype=np.int8)
    for row, number in enumerate(NUMBERS):
        order = random.permutation(CLASSES)
        single[row, order[0]] = POSITIVE
        if number:
            real[row] = 0
            real[row, order[:number]] = POSITIVE
    return scores, single, real


def by_hand(scores: Sequence[Sequence[float]], labels: Sequence[Sequence[int]]) -> float:
    """The mean over the classes that have positives."""
    columns = zip(np.transpose(scores), np.transpose(labels), strict=True)
    return float(np.mean([average_precision_score(label, score) for score, label in columns if label.any()]))


def test_table_three() -> None:
    scores, single, real = made_up()
    measured = real_metrics(scores, single, real)
    best = scores.argmax(axis=1)
    labeled = [row for row, number in enumerate(NUMBERS) if number]
    assert measured["images"] == 10
    assert measured["labels_a_image"] == pytest.approx(sum(NUMBERS) / 10)
    assert measured["top_1_single"] == np.mean([single[row, best[row]] == 1 for row in range(12)])
    assert measured["top_1"] == np.mean([real[row, best[row]] == 1 for row in labeled])
    assert measured["mean_average_precision"] == {
        "mean": pytest.approx(by_hand(scores[labeled].tolist(), real[labeled].tolist())),
        "mean_of_present": pytest.approx(by_hand(scores[labeled].tolist(), real[labeled].tolist())),
        "present": CLASSES,
    }
    assert list(measured["by_number_of_labels"]) == ["1", "2", "3", "4+"]
    for name, subset in measured["by_number_of_labels"].items():
        rows = [row for row, number in enumerate(NUMBERS) if min(number, 4) == int(name[0])]
        assert subset["images"] == len(rows)
        expected = by_hand(scores[rows].tolist(), real[rows].tolist())
        assert subset["average_precision"]["mean_of_present"] == pytest.approx(expected)


def test_top_1_takes_the_first_of_equals() -> None:
    labels = np.array([[1, 0], [0, 1], [0, 1]], dtype=np.int8)
    assert top_1([[0.5, 0.5], [0.5, 0.5], [0.1, 0.2]], labels) == pytest.approx(2 / 3)


def test_without_any_label() -> None:
    scores, single, real = made_up()
    with pytest.raises(DataError, match="none of the 12 images has a ReaL label"):
        real_metrics(scores, single, np.full_like(real, UNKNOWN))
