from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sparselabel.data.labels import UNKNOWN
from sparselabel.metrics import calibration
from sparselabel.metrics.calibration import (
    Annotating,
    Calibration,
    calibrate,
    likelihood,
    logits_of,
    no_calibration,
    sigmoid,
)

CLASSES, IMAGES = 6, 4000
RANDOM = np.random.default_rng(0)
SLOPE, OFFSET = np.full(CLASSES, 1.6), np.linspace(-0.5, 0.5, CLASSES)
LOGITS = RANDOM.normal(-1.5, 1.5, (IMAGES, CLASSES))
LABELS = (RANDOM.random(LOGITS.shape) < sigmoid(SLOPE * LOGITS + OFFSET)).astype(np.int8)
SHARES = LABELS.mean(0)
FULL = Annotating(np.ones(CLASSES), np.ones(CLASSES))


def test_scores_of_logits_and_back() -> None:
    assert logits_of(np.array([0.5, 0.9, 0.0, 1.0])) == pytest.approx([0, np.log(9), -16, 16])
    line = Calibration(np.array([2.0, 1.0]), np.array([0.0, -1.0]))
    assert line(np.array([[1.0, 1.0]])) == pytest.approx(np.array([[1 / (1 + np.exp(-2)), 0.5]]))
    assert no_calibration(2)(np.array([[0.0, 0.0]])).tolist() == [[0.5, 0.5]]


def test_full_labels_give_platts_line() -> None:
    found = calibrate(LOGITS, LABELS, SHARES, FULL)
    for index in range(CLASSES):
        theirs = LogisticRegression(C=np.inf).fit(LOGITS[:, [index]], LABELS[:, index])
        assert found.slope[index] == pytest.approx(theirs.coef_[0, 0], rel=0.1)
        assert found.offset[index] == pytest.approx(theirs.intercept_[0], abs=0.1)


def test_one_label_in_three_gives_nearly_the_same() -> None:
    seen = np.where((LABELS == 1) & (RANDOM.random(LABELS.shape) < 1 / 3), 1, UNKNOWN).astype(np.int8)
    annotating = Annotating((seen == 1).mean(0) / SHARES, np.zeros(CLASSES))
    found, full = calibrate(LOGITS, seen, SHARES, annotating), calibrate(LOGITS, LABELS, SHARES, FULL)
    assert np.abs(found(LOGITS) - full(LOGITS)).mean() < 0.03
    as_absent = calibrate(LOGITS, (seen == 1).astype(np.int8), SHARES, FULL)  # what it would be without
    assert np.abs(as_absent(LOGITS) - full(LOGITS)).mean() > 0.1
    assert likelihood(found, LOGITS, seen, annotating) > likelihood(as_absent, LOGITS, seen, annotating)


def test_a_class_with_few_labels_stays_near_the_others() -> None:
    logits, labels = LOGITS.copy(), LABELS.copy()
    labels[:, 0] = 0
    labels[RANDOM.integers(0, IMAGES, 2), 0] = 1  # two, anywhere: alone they would make it flat
    shares = np.where(np.arange(CLASSES) == 0, 2 / IMAGES, SHARES)
    found = calibrate(logits, labels, shares, FULL)
    assert found.slope[0] == pytest.approx(1.6, rel=0.6)
    assert found(logits)[:, 0].mean() < 0.02


def test_blocks_of_classes_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = calibrate(LOGITS, LABELS, SHARES, FULL)
    monkeypatch.setattr(calibration, "BLOCK", IMAGES)
    parts = calibrate(LOGITS, LABELS, SHARES, FULL)
    assert parts.slope == pytest.approx(whole.slope, abs=1e-6)
    assert parts.offset == pytest.approx(whole.offset, abs=1e-6)


def test_nothing_to_learn_from_is_survived() -> None:
    same = calibrate(np.zeros((5, 2)), np.ones((5, 2), np.int8), np.full(2, 0.9), FULL_TWO)
    assert np.isfinite(same.slope).all()
    assert (same(np.zeros((1, 2))) > 0.5).all()


FULL_TWO = Annotating(np.ones(2), np.ones(2))


def test_a_fit_at_its_bounds_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    moments = calibration._Sample.moments

    def counted(self: calibration._Sample, *arguments: Any) -> Any:
        calls.append(arguments)
        return moments(self, *arguments)

    monkeypatch.setattr(calibration._Sample, "moments", counted)
    logits = np.where(LABELS == 1, 0.5, -0.5) + RANDOM.normal(0, 0.01, LABELS.shape)
    found = calibrate(logits, LABELS, SHARES, FULL)
    assert found.slope == pytest.approx(np.full(CLASSES, np.exp(calibration.LOG_SLOPE)), rel=0.2)
    assert len(calls) < calibration.STEPS
