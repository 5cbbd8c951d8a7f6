import numpy as np
import pytest

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.sparsify import keep_per_image
from sparselabel.expected_positives import class_counts
from sparselabel.expected_positives.class_counts import wilson
from sparselabel.expected_positives.from_complete_labels import counted_positives
from tests.expected_positives.four_classes import full, table


def test_counting_gives_k_with_its_interval() -> None:
    truth = full(2000)
    found = counted_positives(table(truth[:100]), table(keep_per_image(truth, 1, 0, 0)))
    assert found.how == "counted"
    assert found.per_image == pytest.approx(truth[:100].sum() / 100)
    assert found.interval[0] < truth.sum() / 2000 < found.interval[1]
    assert found.interval[1] - found.interval[0] == pytest.approx(4 * truth.sum(1).std() / 10, rel=0.2)
    assert found.trusted
    assert found.why == "counted in 100 images"


def test_few_counted_images_share_k_by_annotated_labels() -> None:
    truth = full(2000)
    observed = keep_per_image(truth, 1, 0, 0)
    annotated = (observed == POSITIVE).sum(0)
    few = counted_positives(table(truth[:10]), table(observed))
    by_labels = truth[:10].sum() / 10 * annotated
    own = truth[:10].mean(0) * 2000
    assert np.allclose(few.expected, by_labels + (own - by_labels) * 10 / 90)
    assert not few.trusted
    assert "fewer than 30" in few.why


def test_a_class_that_was_never_seen_has_an_interval_too() -> None:
    low, high = wilson(np.array([0.0, 5.0, 50.0]), 50)
    assert low == pytest.approx([0.0, 0.04347, 0.92865], abs=1e-5)
    assert high == pytest.approx([0.07135, 0.21360, 1.0], abs=1e-5)
    observed = np.full((1000, 4), UNKNOWN, dtype=np.int8)
    observed[np.arange(1000), np.arange(1000) % 3] = POSITIVE
    observed[:3] = np.eye(4, dtype=np.int8)[3] * 2 - 1  # fish is annotated three times, and never counted
    sample = np.tile(np.array([1, 1, 1, 0], dtype=np.int8), (50, 1))
    found = counted_positives(table(sample), table(observed))
    assert found.low[3] == 3
    assert found.high[3] == pytest.approx(71.35, abs=0.01)


def test_the_intervals_of_classes_hold_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_counts, "DRAWS", 2)  # of K's interval
    truth = full(4000)
    truth[:, 2] &= np.arange(4000) % 10 == 0  # a rare class, in about 2 % of the images
    truth[~truth.any(1), 0] = 1
    observed = table(keep_per_image(truth, 1, 0, 0))
    inside = []
    for seed in range(40):
        rows = np.random.default_rng(seed).choice(4000, 50, replace=False)
        found = counted_positives(table(truth[rows]), observed)
        inside.append((found.low <= truth.sum(0)) & (truth.sum(0) <= found.high))
    assert np.mean(inside) > 0.92
    assert np.mean(inside, axis=0).min() >= 0.85


def test_expected_positives_have_their_bounds() -> None:
    observed = np.full((40, 4), UNKNOWN, dtype=np.int8)
    observed[:30, 0] = POSITIVE  # more than the counted sample says
    observed[30:, 1] = POSITIVE
    observed[:25, 1] = NEGATIVE  # so that at most 15 remain
    sample = np.tile(np.array([0, 1, 1, 0], dtype=np.int8), (400, 1))
    found = counted_positives(table(sample), table(observed))
    assert found.expected.tolist() == [pytest.approx(found.expected[0]), 15, 0, 0]
    assert found.expected[0] >= 30


def test_k_is_the_samples_whatever_annotators_prefer() -> None:
    """Annotators who always name the most frequent class leave hardly a label to the others."""
    random = np.random.default_rng(0)
    truth = (random.random((1000, 4)) < (0.9, 0.7, 0.5, 0.4)).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    observed = np.full_like(truth, UNKNOWN)
    observed[np.arange(1000), truth.argmax(1)] = POSITIVE  # the first class that is there
    assert (observed == POSITIVE).sum(0).tolist() == [922, 57, 13, 8]
    inside, found = [], []
    for seed in range(100):
        rows = np.random.default_rng(seed).choice(1000, 50, replace=False)
        counted = counted_positives(table(truth[rows]), table(observed), seed)
        assert counted.per_image == pytest.approx(truth[rows].sum() / 50)
        assert counted.expected[0] <= 1000
        found.append(counted.per_image)
        inside.append(counted.interval[0] <= truth.sum() / 1000 <= counted.interval[1])
    assert np.mean(found) == pytest.approx(truth.sum() / 1000, abs=0.03)  # their standard error is .012
    assert np.mean(inside) >= 0.9
