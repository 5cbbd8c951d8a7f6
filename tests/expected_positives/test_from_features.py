"""The share of a class's anchors that is labeled, by hand."""

import math

import numpy as np
import pytest

from sparselabel.expected_positives.from_features import SEVERAL, SINGLE, Anchors


def test_the_labeled_share_of_anchors_by_hand() -> None:
    # Of 20 images, class 0 is annotated in 10, the best of which rank 1, 2, 4, 5, 7; class 1 in the first 5.
    scores = np.tile(-np.arange(20.0)[:, None], (1, 2))
    positives = np.zeros((20, 2), dtype=bool)
    positives[[0, 1, 3, 4, 6, 10, 12, 14, 16, 18], 0] = True
    positives[:5, 1] = True
    anchors, ones = Anchors(scores, positives), np.ones(20)
    # Half of the ten of class 0: five of the first seven images.
    assert anchors.labeled_share(ones, 0.5) == pytest.approx((10 * 5 / 7 + 5 * 1) / 15)
    assert anchors.labeled_share(ones, 1.0) == pytest.approx((10 * 10 / 19 + 5 * 1) / 15)
    assert anchors.labeled_share(ones, 0.1) == anchors.labeled_share(ones, 0.5)  # five at least


def test_weights_are_repeated_images() -> None:
    random = np.random.default_rng(0)
    scores, positives = random.normal(size=(50, 3)), random.random((50, 3)) < 0.4
    times = random.integers(0, 3, 50)
    rows = np.repeat(np.arange(50), times)
    repeated = Anchors(scores[rows], positives[rows]).labeled_share(np.ones(len(rows)), 1.0)
    assert Anchors(scores, positives).labeled_share(times.astype(float), 1.0) == pytest.approx(repeated)


def test_fewer_labeled_anchors_mean_more_hidden_positives() -> None:
    assert SINGLE.hidden(0.5) == pytest.approx(1.45)
    assert SINGLE.hidden(0.2) == pytest.approx(1.45 * 4**0.6)
    assert SEVERAL.hidden(0.5) == pytest.approx(0.89)
    assert SINGLE.hidden(1.0) == pytest.approx(1.45 * 0.01**0.6)  # some are always hidden
    assert SINGLE.interval(0.0, (-1.0, 2.0)) == (-1.0, 2.0)
    assert SINGLE.interval(0.5, (-1.0, 2.0)) == pytest.approx((-math.sqrt(1.25), math.sqrt(4.25)))
