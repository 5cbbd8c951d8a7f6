import numpy as np
import pytest

from sparselabel.data.labels import UNKNOWN
from sparselabel.metrics.calibration import sigmoid
from sparselabel.metrics.class_prevalence import Expected, what_is_known

RANDOM = np.random.default_rng(1)
LOGITS = RANDOM.normal(-2, 2, (2000, 4))
TRUTH = (RANDOM.random(LOGITS.shape) < sigmoid(LOGITS)).astype(np.int8)
SHARES = TRUTH.mean(0)
ANNOTATED = 4 * TRUTH.sum(0).astype(np.int64)


def single() -> np.ndarray:
    """One positive of each image that has any."""
    seen = np.full(TRUTH.shape, UNKNOWN, np.int8)
    best = np.argmax(TRUTH * RANDOM.random(TRUTH.shape), axis=1)
    rows = np.flatnonzero(TRUTH.any(axis=1))
    seen[rows, best[rows]] = 1
    return seen


def test_full_labels_are_counted() -> None:
    known = what_is_known(LOGITS, TRUTH, ANNOTATED, None)
    assert known.situations == ["full"] * 4
    assert known.prevalence == pytest.approx(SHARES, abs=0.01)
    assert known.annotating.present.tolist() == known.annotating.absent.tolist() == [1.0] * 4


def test_answers_of_both_kinds_are_a_sample_and_positives_alone_are_not() -> None:
    labels = TRUTH.copy()
    labels[1000:, 0] = UNKNOWN
    labels[:, 1:] = np.where(TRUTH[:, 1:] == 1, 1, UNKNOWN)
    labels[:5, 1] = 0  # five answers of a reviewer
    known = what_is_known(LOGITS, labels, ANNOTATED, Expected("counted", True, shares=SHARES))
    assert known.situations == ["answered", "sparse", "sparse", "sparse"]
    assert known.annotating.present[0] == known.annotating.absent[0] == 0.5
    assert known.annotating.present[1:] == pytest.approx([0.999] * 3)
    assert known.annotating.absent[1] == pytest.approx(5 / (2000 * (1 - SHARES[1])))


def test_sparse_labels_take_what_the_run_knows() -> None:
    labels = single()
    seen = (labels == 1).mean(0)
    known = what_is_known(LOGITS, labels, ANNOTATED, Expected("estimated", False, shares=SHARES))
    assert known.prevalence == pytest.approx(SHARES)
    assert known.annotating.present == pytest.approx(seen / SHARES)
    assert (known.source, known.trusted) == ("estimated", False)
    k = float(SHARES.sum())
    by_k = what_is_known(LOGITS, labels, ANNOTATED, Expected("given", True, per_image=k))
    assert by_k.prevalence == pytest.approx(SHARES, abs=0.01)
    few = what_is_known(LOGITS, labels, ANNOTATED, Expected("given", True, per_image=0.01))
    assert few.prevalence == pytest.approx(seen)  # never fewer than are annotated


def test_sparse_labels_alone_say_a_little() -> None:
    labels = single()
    known = what_is_known(LOGITS, labels, ANNOTATED, None)
    assert (known.source, known.trusted) == ("likelihood", False)
    assert 1.0 <= known.prevalence.sum() / (labels == 1).mean(0).sum() <= 2.0
