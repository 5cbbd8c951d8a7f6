"""K from answers to random questions about synthetic labels with known truth."""

import tracemalloc

import numpy as np
import pytest

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.data.sparsify import keep_per_class, keep_per_image
from sparselabel.expected_positives.class_counts import ClassCounts
from sparselabel.expected_positives.estimate import estimate_positives, needs_features
from sparselabel.expected_positives.from_answers import from_answers, random_answers


def made_up(images: int, classes: int, k: float, empty: float = 0.0, seed: int = 0) -> Labels:
    """Classes of which the most frequent is in twenty times as many images as the rarest."""
    random = np.random.default_rng(seed)
    rates = np.geomspace(0.05, 1, classes)
    truth = random.random((images, classes)) < rates * k / rates.sum()
    truth[random.random(images) < empty] = False
    labels: Labels = truth.astype(np.int8)
    return labels


def asked(truth: Labels, share: float, seed: int = 0) -> Labels:
    known = np.random.default_rng((seed, 1)).random(truth.shape) < share
    return np.where(known, truth, UNKNOWN).astype(np.int8)


def names(labels: Labels) -> tuple[str, ...]:
    return tuple(f"c{number}" for number in range(labels.shape[1]))


def found_in(observed: Labels) -> ClassCounts:
    answers = random_answers(observed)
    assert answers is not None
    return from_answers(answers, observed, names(observed))


def test_worked_by_hand() -> None:
    observed = np.full((8, 2), UNKNOWN, dtype=np.int8)
    observed[:4, 0] = [POSITIVE, NEGATIVE, NEGATIVE, NEGATIVE]
    observed[4:, 1] = [POSITIVE, POSITIVE, NEGATIVE, NEGATIVE]
    found = found_in(observed)
    # Shares 1/4 and 1/2 of 8 images; drawn to the 3/8 of all by 20 answers: (1 + 7.5)/24 and (2 + 7.5)/24.
    assert found.per_image == pytest.approx(0.75)
    assert found.expected.tolist() == pytest.approx([6 * 8.5 / 18, 6 * 9.5 / 18])
    # Each answer's part in K: (y − share)/4, squares 3/4 and 1, by 4/3 for four answers; half are known.
    half = 1.96 * (1.75 / 16 * 4 / 3 * 0.5) ** 0.5
    assert 0.75 - half < 3 / 8  # what is annotated is there for sure
    assert found.interval == pytest.approx((3 / 8, 0.75 + half))
    assert not found.trusted
    assert found.why.startswith(
        "only 3 answers are yes (at least 30); some classes have fewer than 5 answers; "
    )
    # Wilson's interval of 1 in 4 goes to .699, of 2 in 4 from .150; 3 and 2 images are known to lack them.
    assert found.high.tolist() == [5, 6]
    assert found.low.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("images", "classes", "k", "empty", "share"),
    [
        (2000, 10, 1.5, 0.0, 0.05),
        (2000, 10, 1.5, 0.2, 0.2),
        (2000, 10, 1.5, 0.2, 0.75),
        (800, 2, 0.6, 0.0, 0.3),
        (400, 100, 12.0, 0.0, 0.06),
        (300, 300, 30.0, 0.0, 0.3),  # no image without a yes
        (600, 60, 6.0, 0.0, 0.75),
    ],
)
def test_random_questions_tell_k(images: int, classes: int, k: float, empty: float, share: float) -> None:
    inside, off = 0, []
    for seed in range(20):
        truth = made_up(images, classes, k, empty, seed)
        observed = asked(truth, share, seed)
        assert not needs_features(observed)
        found = estimate_positives(None, observed, names(observed))
        real = truth.sum() / len(truth)
        assert found.trusted, found.why
        off.append(found.per_image / real - 1)
        inside += found.interval[0] <= real <= found.interval[1]
        assert (found.expected >= (observed == POSITIVE).sum(0)).all()
    assert inside >= 17  # of 20, at 95 %
    assert abs(np.mean(off)) < 3 * np.std(off) / np.sqrt(20)


def test_the_same_number_of_random_questions_a_image_and_complete_images() -> None:
    truth = made_up(1500, 20, 3.0)
    three = np.full_like(truth, UNKNOWN)
    for row, random in enumerate(np.random.default_rng(2).random(truth.shape)):
        some = random.argsort()[:3]
        three[row, some] = truth[row, some]
    complete = np.where(np.arange(1500)[:, None] % 10 == 0, truth, UNKNOWN).astype(np.int8)
    classes = np.random.default_rng(3).choice(20, 1500, p=np.arange(1, 21) / 210)
    exclusive = np.eye(20, dtype=np.int8)[classes]
    for observed, real in (
        (three, truth.sum() / 1500),
        (complete, truth[::10].sum() / 150),
        (asked(exclusive, 0.5), 1.0),  # classes that exclude each other
    ):
        assert found_in(observed).per_image == pytest.approx(real, rel=0.1)


def test_few_answers_a_class_are_not_trusted_and_classes_nobody_asked_about_take_the_share_of_all() -> None:
    truth = made_up(1000, 300, 30.0, seed=3)
    observed = asked(truth, 0.003, 3)
    assert ((observed != UNKNOWN).sum(0) == 0).any()
    found = found_in(observed)
    assert not found.trusted
    assert "some classes have fewer than 5 answers" in found.why
    counts = [found_in(asked(truth, 0.002, seed)).per_image for seed in range(20)]
    assert np.mean(counts) == pytest.approx(truth.sum() / 1000, rel=0.1)


def test_a_class_without_a_yes_has_none_and_the_others_keep_k() -> None:
    observed = asked(made_up(1000, 10, 1.5, seed=3), 0.3, 3)
    observed[:, 0] = np.where(observed[:, 0] == UNKNOWN, UNKNOWN, NEGATIVE)
    found = found_in(observed)
    shares = (observed == POSITIVE).sum(0) / (observed != UNKNOWN).sum(0)
    assert found.expected[0] == 0
    assert found.per_image == pytest.approx(shares.sum())


@pytest.mark.parametrize("empty", [0.0, 0.3, 0.6, 0.8])
@pytest.mark.parametrize("negatives", [1, 3])
@pytest.mark.parametrize("even", [False, True])
def test_a_chosen_positive_and_some_negatives_are_no_answers(
    empty: float, negatives: int, even: bool
) -> None:
    random = np.random.default_rng(5)
    truth = (random.random((1500, 12)) < 0.15).astype(np.int8) if even else made_up(1500, 12, 1.8)
    truth = truth[truth.any(1)]
    truth[random.random(len(truth)) < empty] = 0
    assert random_answers(keep_per_image(truth, 1, negatives, seed=0)) is None


@pytest.mark.parametrize(("positives", "negatives"), [(50, 50), (30, 60), (10, 90)])
def test_so_many_of_every_class_are_no_answers(positives: int, negatives: int) -> None:
    truth = made_up(2000, 20, 2.1)
    observed = keep_per_class(truth, positives, negatives, seed=0)
    assert random_answers(observed) is None
    for seed in range(10):  # and of a part of the images, in which numbers are no longer the same
        rows = np.random.default_rng(seed).permutation(2000)[:1600]
        assert random_answers(observed[rows]) is None


def test_an_estimate_from_numbers_of_chosen_labels_is_not_trusted() -> None:
    observed = keep_per_class(made_up(2000, 20, 2.1), 50, 50, seed=0)
    found = estimate_positives(None, observed, names(observed))
    assert not found.trusted
    assert found.why.startswith("labels say no, too, but do not look like answers to random questions")


def test_what_says_nothing_but_yes_or_everything() -> None:
    truth = made_up(500, 10, 1.5)
    assert random_answers(np.where(truth == POSITIVE, POSITIVE, UNKNOWN).astype(np.int8)) is None
    assert random_answers(truth) is None
    some_classes = np.where(np.arange(10) < 4, truth, UNKNOWN).astype(np.int8)
    assert random_answers(some_classes) is None


def test_labels_are_looked_at_in_chunks() -> None:
    observed = np.tile(asked(made_up(10_000, 100, 5.0), 0.1), (10, 1))
    tracemalloc.start()
    found_in(observed)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3 * observed.size  # a byte a label, and a block of 2¹⁹ with numbers of 8 bytes
