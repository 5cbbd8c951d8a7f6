"""K from answers to random questions about made-up labels whose truth is known."""

import numpy as np
import pytest

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.data.sparsify import keep_per_picture
from sparselabel.method.answered import asked_at_random, from_answers
from sparselabel.method.expected_count import estimate_positives, needs_features

CLASSES = tuple("abcdefghij")


def made_up(pictures: int, empty: float, seed: int) -> Labels:
    """Classes in 2 % to 40 % of the pictures, and some pictures without any."""
    random = np.random.default_rng(seed)
    truth = random.random((pictures, len(CLASSES))) < np.geomspace(0.02, 0.4, len(CLASSES))
    truth[random.random(pictures) < empty] = False
    return truth.astype(np.int8)


def asked(truth: Labels, share: float, seed: int) -> Labels:
    known = np.random.default_rng((seed, 1)).random(truth.shape) < share
    return np.where(known, truth, UNKNOWN).astype(np.int8)


def test_worked_by_hand() -> None:
    observed = np.full((8, 2), UNKNOWN, dtype=np.int8)
    observed[:4, 0] = [POSITIVE, NEGATIVE, NEGATIVE, NEGATIVE]
    observed[4:, 1] = [POSITIVE, POSITIVE, NEGATIVE, NEGATIVE]
    found = from_answers(observed, ("a", "b"))
    # Shares 1/4 and 1/2 of 8 pictures; drawn to the 3/8 of all by 20 answers: (1 + 7.5)/24 and (2 + 7.5)/24.
    assert found.per_picture == pytest.approx(0.75)
    assert found.expected.tolist() == pytest.approx([6 * 8.5 / 18, 6 * 9.5 / 18])
    # Each answer's part in K: (y − share)/4; squares 3/4 and 1, each by 1/16; half of all labels are known.
    half = 1.96 * (1.75 / 16 * 0.5) ** 0.5
    assert 0.75 - half < 3 / 8  # what is annotated is there for sure
    assert found.interval == pytest.approx((3 / 8, 0.75 + half))
    assert not found.trusted
    assert found.why.startswith("only 3 of them are yes: the share of yes among 8 answers")
    # Wilson's interval of 1 in 4 goes to .699, of 2 in 4 from .150; 3 and 2 pictures are known to lack them.
    assert found.high.tolist() == [5, 6]
    assert found.low.tolist() == [1, 2]


@pytest.mark.parametrize("empty", [0.0, 0.2])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.75])
def test_random_questions_tell_k_also_with_empty_pictures(share: float, empty: float) -> None:
    inside, off = 0, []
    for seed in range(20):
        truth = made_up(2000, empty, seed)
        observed = asked(truth, share, seed)
        assert not needs_features(observed)
        found = estimate_positives(None, observed, CLASSES)
        real = truth.sum() / len(truth)
        assert found.trusted
        off.append(found.per_picture / real - 1)
        inside += found.interval[0] <= real <= found.interval[1]
        assert (found.expected >= (observed == POSITIVE).sum(0)).all()
    assert inside >= 17  # of 20, at 95 %
    assert abs(np.mean(off)) < 2.5 * np.std(off) / np.sqrt(20)


def test_a_class_without_a_yes_has_none_and_the_others_keep_k() -> None:
    observed = asked(made_up(1000, 0.0, 3), 0.3, 3)
    observed[:, 0] = np.where(observed[:, 0] == UNKNOWN, UNKNOWN, NEGATIVE)
    found = from_answers(observed, CLASSES)
    shares = (observed == POSITIVE).sum(0) / (observed != UNKNOWN).sum(0)
    assert found.expected[0] == 0
    assert found.per_picture == pytest.approx(shares.sum())


def test_labels_that_were_chosen_are_no_answers() -> None:
    truth = made_up(1500, 0.0, 4)
    truth = truth[truth.any(1)]
    assert not asked_at_random(keep_per_picture(truth, 1, 1, seed=0))  # classes are asked about unevenly
    even = (np.random.default_rng(5).random((1500, 10)) < 0.15).astype(np.int8)
    even = even[even.any(1)]
    chosen = keep_per_picture(even, 1, 3, seed=0)
    assert not asked_at_random(chosen)  # every picture has a yes
    assert not asked_at_random(np.where(truth == POSITIVE, POSITIVE, UNKNOWN).astype(np.int8))
    assert not asked_at_random(truth)  # all are known
    assert asked_at_random(asked(truth, 0.1, 6))
