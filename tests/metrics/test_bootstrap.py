import warnings

import numpy as np
import pytest

from sparselabel.errors import ConfigError, DataError, DataWarning
from sparselabel.metrics.average_precision import average_precision, mean_average_precision
from sparselabel.metrics.bootstrap import (
    Drawn,
    Ranked,
    _draws,
    difference,
    drawn,
    interval,
    paired_bootstrap,
)

RANDOM = np.random.default_rng(3)
LABELS = (RANDOM.random((60, 5)) < [0.5, 0.2, 0.05, 0.9, 0.0]).astype(np.int8)  # the last class is empty
NOISE = RANDOM.normal(size=LABELS.shape)
GOOD = np.round(LABELS + 0.7 * NOISE, 1)  # rounded, so that there are ties of positives and negatives
BAD = np.round(LABELS + 2.0 * NOISE, 1)


def really(scores: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> float:
    """The mAP on resampled rows, by the definition."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return mean_average_precision(average_precision(scores[rows], labels[rows]), labels[rows]).mean


def rows_of_draw(copies: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(copies)), copies)


def test_average_precision_of_draws_is_that_of_the_rows_drawn() -> None:
    copies = _draws(np.random.default_rng(0), len(LABELS), 40)
    assert (copies.sum(axis=0) == len(LABELS)).all()
    for index in range(LABELS.shape[1]):
        found = Ranked(GOOD[:, index], LABELS[:, index] == 1).average_precision(copies)
        for draw in range(40):
            rows = rows_of_draw(copies[:, draw])
            expected = really(GOOD[:, index : index + 1], LABELS[:, index : index + 1], rows)
            assert found[draw] == pytest.approx(expected, abs=1e-12)


def test_the_difference_is_that_of_really_resampled_rows() -> None:
    found = paired_bootstrap(BAD, GOOD, LABELS, samples=300, seed=7)
    random = np.random.default_rng(7)
    copies = np.concatenate([_draws(random, 60, 250), _draws(random, 60, 50)], axis=1)
    differences = []
    for draw in range(300):
        rows = rows_of_draw(copies[:, draw])
        differences.append(really(GOOD, LABELS, rows) - really(BAD, LABELS, rows))
    everything = np.arange(60)
    assert found.first == pytest.approx(really(BAD, LABELS, everything), abs=1e-12)
    assert found.second == pytest.approx(really(GOOD, LABELS, everything), abs=1e-12)
    assert found.difference == pytest.approx(found.second - found.first)
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(differences, [2.5, 97.5])), abs=1e-12)
    assert found.same_sign == np.mean(np.asarray(differences) > 0)
    assert found.samples == 300


def test_the_sign_of_the_first_being_better() -> None:
    forth = paired_bootstrap(BAD, GOOD, LABELS, samples=200)
    back = paired_bootstrap(GOOD, BAD, LABELS, samples=200)
    assert (back.low, back.high) == pytest.approx((-forth.high, -forth.low))
    assert forth.same_sign is not None
    assert back.same_sign == forth.same_sign > 0.9


def test_a_model_does_not_differ_from_itself() -> None:
    found = paired_bootstrap(GOOD, GOOD, LABELS, samples=20)
    assert (found.difference, found.low, found.high, found.same_sign) == (0, 0, 0, None)


def test_draws_are_uniform_and_repeat_with_the_seed() -> None:
    copies = _draws(np.random.default_rng(1), 20, 5000)
    assert np.abs(copies.mean(axis=1) - 1).max() < 0.06
    assert copies.var() == pytest.approx(0.95, rel=0.03)
    assert np.array_equal(copies, _draws(np.random.default_rng(1), 20, 5000))


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ConfigError, match="must be at least 1, not 0"):
        paired_bootstrap(GOOD, BAD, LABELS, samples=0)
    with pytest.raises(DataError, match="no positive label"):
        paired_bootstrap(GOOD, BAD, np.zeros_like(LABELS))
    with pytest.raises(DataError, match="300 of 300 labels are unknown"):
        paired_bootstrap(GOOD, BAD, np.full_like(LABELS, -1))
    with pytest.raises(DataError, match="must both have shape"):
        paired_bootstrap(GOOD, BAD[:5], LABELS)


def models(values: list[float], samples: int = 20_000) -> list[Drawn]:
    """Models whose mAP is the same on all draws of images."""
    return [Drawn(value, np.full(samples, value)) for value in values]


def half_width(deviation: float) -> float:
    return 1.96 * deviation


def test_one_model_varies_with_the_images_alone() -> None:
    model = drawn(GOOD, LABELS, samples=300)
    found = interval([model])
    assert (found.value, found.low, found.high) == (
        model.whole,
        *np.percentile(model.draws, [2.5, 97.5]).tolist(),
    )


def test_many_seeds_vary_as_their_mean_does() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.02, size=40)
    found = interval(models(values.tolist()))
    assert found.value == pytest.approx(values.mean())
    deviation = values.std() / np.sqrt(40)  # of a mean of 40 that are drawn from these
    assert found.high - found.value == pytest.approx(half_width(deviation), rel=0.03)
    assert found.value - found.low == pytest.approx(half_width(deviation), rel=0.03)


def test_labels_seeds_and_images_add_up() -> None:
    """Independent sources: the variance of the whole is the sum of theirs."""
    random = np.random.default_rng(1)
    draws, seeds, samples = 30, 10, 20_000
    of_labels = random.normal(0, 0.03, draws)
    of_seeds = random.normal(0, 0.04, (draws, seeds))
    of_seeds -= of_seeds.mean(axis=1, keepdims=True)
    of_images = random.normal(0, 0.005, samples)  # the same for all models
    values = 0.5 + of_labels[:, None] + of_seeds
    everyone = [Drawn(value, value + of_images) for value in values.ravel()]
    found = interval(everyone, [draw for draw in range(draws) for _ in range(seeds)])
    variance = of_labels.var() / draws + of_seeds.var() / (draws * seeds) + 0.005**2
    assert (found.high - found.low) / 2 == pytest.approx(half_width(np.sqrt(variance)), rel=0.03)
    # Without the draws of labels the same models would be 300 seeds, and the interval too narrow.
    flat = interval(everyone)
    assert flat.high - flat.low < 0.85 * (found.high - found.low)


def test_a_difference_that_every_run_has_is_certain() -> None:
    """Pairs are drawn together: what both have in common cancels."""
    values = np.random.default_rng(2).normal(0.5, 0.1, size=6)
    first, second = models(values.tolist(), 500), models((values + 0.02).tolist(), 500)
    found = difference(first, second, [0, 0, 0, 1, 1, 1])
    assert (found.low, found.high) == pytest.approx((0.02, 0.02))
    assert found.difference == pytest.approx(0.02)
    assert (found.same_sign, found.zero_outside) == (1.0, True)
    assert not difference(first, first).zero_outside


def test_a_draw_of_labels_counts_once_however_many_seeds_it_has() -> None:
    found = interval(models([0.2, 0.6, 0.6, 0.6], 2000), ["a", "b", "b", "b"])
    assert found.value == pytest.approx(0.4)
    assert (found.low, found.high) == pytest.approx((0.2, 0.6))
