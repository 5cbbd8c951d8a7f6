import numpy as np
import pytest

from sparselabel.data.labels import UNKNOWN
from sparselabel.metrics.calibration import calibrate, sigmoid
from sparselabel.metrics.class_prevalence import PrevalenceSource, estimate_prevalence

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
    prevalence = estimate_prevalence(LOGITS, TRUTH, ANNOTATED, None)
    assert prevalence.situations == ["full"] * 4
    assert prevalence.shares == pytest.approx(SHARES, abs=0.01)
    assert prevalence.annotating.present.tolist() == prevalence.annotating.absent.tolist() == [1.0] * 4


def test_answers_of_both_kinds_are_a_sample_and_positives_alone_are_not() -> None:
    labels = TRUTH.copy()
    labels[1000:, 0] = UNKNOWN
    labels[:, 1:] = np.where(TRUTH[:, 1:] == 1, 1, UNKNOWN)
    labels[:5, 1] = 0  # five answers of a reviewer
    prevalence = estimate_prevalence(
        LOGITS, labels, ANNOTATED, PrevalenceSource("counted", True, shares=SHARES)
    )
    assert prevalence.situations == ["answered", "sparse", "sparse", "sparse"]
    assert prevalence.annotating.present[0] == prevalence.annotating.absent[0] == 0.5
    assert prevalence.annotating.present[1:] == pytest.approx([0.999] * 3)
    assert prevalence.annotating.absent[1] == pytest.approx(5 / (2000 * (1 - SHARES[1])))


def test_sparse_labels_take_what_the_run_knows() -> None:
    labels = single()
    seen = (labels == 1).mean(0)
    prevalence = estimate_prevalence(
        LOGITS, labels, ANNOTATED, PrevalenceSource("estimated", False, shares=SHARES)
    )
    assert prevalence.shares == pytest.approx(SHARES)
    assert prevalence.annotating.present == pytest.approx(seen / SHARES)
    assert (prevalence.source, prevalence.trusted) == ("estimated", False)
    k = float(SHARES.sum())
    by_k = estimate_prevalence(LOGITS, labels, ANNOTATED, PrevalenceSource("given", True, per_image=k))
    assert by_k.shares == pytest.approx(SHARES, abs=0.01)
    few = estimate_prevalence(LOGITS, labels, ANNOTATED, PrevalenceSource("given", True, per_image=0.01))
    assert few.shares == pytest.approx(seen)  # never fewer than are annotated


def test_sparse_labels_alone_say_a_little() -> None:
    labels = single()
    prevalence = estimate_prevalence(LOGITS, labels, ANNOTATED, None)
    assert (prevalence.source, prevalence.trusted) == ("likelihood", False)
    assert 1.0 <= prevalence.shares.sum() / (labels == 1).mean(0).sum() <= 2.0


def test_answers_over_all_scores_tell_how_many_there_are_whatever_k_was_believed() -> None:
    labels, answered = single(), np.zeros(TRUTH.shape, bool)
    for column in (0, 1):
        falling = np.argsort(-LOGITS[:, column])
        unknown = falling[labels[falling, column] == UNKNOWN]
        asked = unknown[np.linspace(0, 900, 60).astype(int)]
        answered[asked, column] = True
        labels[asked, column] = TRUTH[asked, column]
    believed = PrevalenceSource("given", True, per_image=0.6 * float(SHARES.sum()))
    prevalence = estimate_prevalence(LOGITS, labels, ANNOTATED, believed, answered)
    assert prevalence.situations == ["reviewed", "reviewed", "sparse", "sparse"]
    assert prevalence.shares[:2] == pytest.approx(SHARES[:2], rel=0.15)
    assert (prevalence.shares[2:] < 0.75 * SHARES[2:]).all()
    line = calibrate(LOGITS, labels, prevalence.shares, prevalence.annotating, answered)
    assert line(LOGITS)[:, :2] == pytest.approx(sigmoid(LOGITS)[:, :2], abs=0.15)


def test_corrections_of_full_labels_leave_them_full() -> None:
    answered = np.zeros(TRUTH.shape, bool)
    answered[:50] = True
    assert estimate_prevalence(LOGITS, TRUTH, ANNOTATED, None, answered).situations == ["full"] * 4
