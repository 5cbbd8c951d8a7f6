from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_fscore_support

from sparselabel.data.labels import UNKNOWN
from sparselabel.errors import ConfigError
from sparselabel.metrics.precision_recall import at_k, precision_recall_f1
from tests.conftest import Golden

Array = npt.NDArray[Any]

SCORES = np.array([[0.9, 0.8, 0.7, 0.6], [0.4, 0.5, 0.1, 0.2], [0.1, 0.2, 0.3, 0.4]])
LABELS = np.array([[1, 0, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])


@st.composite
def tied(draw: st.DrawFn) -> tuple[Array, Array]:
    """Scores of few different values, in eighths, and labels, both perhaps with empty classes and rows."""
    shape = draw(st.integers(1, 30)), draw(st.integers(2, 8))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = random.random(shape) < draw(st.floats(0, 1))
    return random.integers(0, draw(st.integers(2, 9)), shape) / 8, labels.astype(np.int8)


def highest(scores: Array, k: int) -> Array:
    """The k highest of each row by a stable sort: the plain way to say it."""
    chosen = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(chosen, np.argsort(-scores, axis=1, kind="stable")[:, :k], True, axis=1)
    return chosen


def test_values_worked_by_hand() -> None:
    counts = precision_recall_f1(SCORES, LABELS, 0.5)
    assert counts.hits.tolist() == [1, 1, 1, 1]
    assert counts.predicted.tolist() == [1, 2, 1, 1]
    assert counts.positive.tolist() == [2, 1, 1, 1]
    assert counts.precision.tolist() == [1, 0.5, 1, 1]
    assert counts.recall.tolist() == [0.5, 1, 1, 1]
    assert counts.f1 == pytest.approx([2 / 3, 2 / 3, 1, 1])
    averages = counts.averages()
    assert list(averages) == ["CP", "CR", "CF1", "OP", "OR", "OF1"]
    # CF1 is made of CP and CR: 0.875, where the mean of the four F1 would be 5/6.
    assert list(averages.values()) == pytest.approx([0.875, 0.875, 0.875, 0.8, 0.8, 0.8])


def test_top_three_takes_only_those_at_the_threshold() -> None:
    counts = precision_recall_f1(SCORES, LABELS, 0.5, top=3)
    # The first image loses its fourth class; the others are below the threshold as before.
    assert counts.predicted.tolist() == [1, 2, 1, 0]
    assert counts.hits.tolist() == [1, 1, 1, 0]
    averages = counts.averages()
    assert averages["CP"] == pytest.approx((1 + 0.5 + 1 + 0) / 4)
    assert averages["OR"] == pytest.approx(3 / 5)


def test_nothing_predicted_and_nothing_positive_count_zero() -> None:
    nothing = precision_recall_f1(SCORES, np.zeros_like(LABELS), 2.0)
    assert nothing.averages() == dict.fromkeys(("CP", "CR", "CF1", "OP", "OR", "OF1"), 0.0)
    assert nothing.f1.tolist() == [0.0] * 4


@given(tied(), st.integers(0, 8), st.none() | st.integers(1, 9))
def test_equals_sklearn(data: tuple[Array, Array], eighths: int, top: int | None) -> None:
    scores, labels = data
    threshold = eighths / 8
    predicted = scores >= threshold
    if top is not None:
        predicted &= highest(scores, top)
    counts = precision_recall_f1(scores, labels, threshold, top)
    averages = counts.averages()

    def sklearn(average: str | None) -> Any:
        return precision_recall_fscore_support(labels, predicted, average=average, zero_division=0)

    each, macro, micro = sklearn(None), sklearn("macro"), sklearn("micro")
    for ours, theirs in zip((counts.precision, counts.recall, counts.f1), each[:3], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-12)
    assert (averages["CP"], averages["CR"], counts.f1.mean()) == pytest.approx(macro[:3], abs=1e-12)
    assert (averages["OP"], averages["OR"], averages["OF1"]) == pytest.approx(micro[:3], abs=1e-12)


def test_a_float32_score_meets_the_threshold_of_the_same_name() -> None:
    assert precision_recall_f1(np.array([[0.3]], dtype=np.float32), np.array([[1]]), 0.3).hits.tolist() == [1]


def test_at_k_worked_by_hand() -> None:
    two = at_k(SCORES, LABELS, 2)
    # Hits: 1 of 3 positives, 2 of 2, and an image without positives.
    assert two.k == 2
    assert two.recall == pytest.approx((1 / 3 + 1 + 0) / 3)
    assert two.precision == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert two.hit_rate == pytest.approx(2 / 3)


def test_at_k_ties_take_the_first_classes() -> None:
    scores = np.array([[0.5, 0.5, 0.9, 0.5]])
    assert at_k(scores, np.array([[1, 0, 0, 0]]), 2).recall == 1.0
    assert at_k(scores, np.array([[0, 1, 0, 1]]), 2).recall == 0.0


@given(tied(), st.integers(1, 8))
def test_at_k_equals_a_stable_sort(data: tuple[Array, Array], k: int) -> None:
    scores, labels = data
    k = min(k, scores.shape[1])
    hits = (highest(scores, k) & (labels == 1)).sum(axis=1)
    found = at_k(scores, labels, k)
    assert found.recall == pytest.approx(float(np.mean(hits / np.maximum(labels.sum(axis=1), 1))))
    assert found.precision == pytest.approx(float(np.mean(hits / k)))
    assert found.hit_rate == pytest.approx(float(np.mean(hits > 0)))


def test_at_k_golden_cole(cole: Golden) -> None:
    case = cole.cases["cole/map1"]
    for k in (1, 3, 5):
        found = at_k(case["inputs"]["scores"], case["inputs"]["labels"], k)
        theirs = [case["values"][f"{name}_{k}"] for name in ("rec_at", "prec_at", "top")]
        assert [found.recall, found.precision, found.hit_rate] == pytest.approx(theirs, abs=1e-12)


def test_unknown_labels_count_as_negative() -> None:
    unknown = np.where(LABELS == 0, UNKNOWN, LABELS)
    assert precision_recall_f1(SCORES, unknown).averages() == precision_recall_f1(SCORES, LABELS).averages()
    assert at_k(SCORES, unknown, 2) == at_k(SCORES, LABELS, 2)


def test_refused() -> None:
    with pytest.raises(ConfigError, match="number of classes, 4, not 5"):
        at_k(SCORES, LABELS, 5)
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        at_k(SCORES, LABELS, 0)
    with pytest.raises(ConfigError, match="at least 1, not -1"):
        precision_recall_f1(SCORES, LABELS, 0.5, top=-1)
