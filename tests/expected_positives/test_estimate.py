"""Expected positives of synthetic images with known truth: features are sums of class directions."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.data.sparsify import keep_per_image, keep_share
from sparselabel.errors import DataError
from sparselabel.expected_positives.class_counts import ClassCounts
from sparselabel.expected_positives.estimate import estimate_positives, kept_share, needs_features

Features = npt.NDArray[np.float32]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two repeats for the spread instead of fifty."""
    monkeypatch.setattr("sparselabel.expected_positives.from_features.REPEATS", 2)


def made_up(
    images: int = 900, classes: int = 6, rate: float = 0.3, noise: float = 0.5, seed: int = 0
) -> tuple[Features, Labels]:
    """Images with at least one class; each class adds its own direction, more or less strongly."""
    random = np.random.default_rng(seed)
    truth = (random.random((4 * images, classes)) < rate).astype(np.int8)
    truth = truth[truth.any(1)][:images]
    directions = random.normal(size=(classes, 24)) / np.sqrt(24)
    strength = truth * random.normal(1, 0.2, truth.shape)
    spread = noise * random.normal(size=(images, 24)) / np.sqrt(24)
    return (strength @ directions * 3 + 3 * spread).astype(np.float32), truth


def names(labels: Labels) -> tuple[str, ...]:
    return tuple(f"c{number}" for number in range(labels.shape[1]))


def estimate(features: Features, observed: Labels, **options: Any) -> ClassCounts:
    return estimate_positives(features, observed, names(observed), **options)


@pytest.mark.parametrize(("rate", "noise"), [(0.1, 0.5), (0.3, 0.5), (0.3, 1.0)])
def test_single_positives_tell_k(rate: float, noise: float) -> None:
    features, truth = made_up(rate=rate, noise=noise)
    found = estimate(features, keep_per_image(truth, 1, 0, seed=1))
    real = truth.sum() / len(truth)
    assert found.per_image == pytest.approx(real, rel=0.35)
    assert found.interval[0] < real < found.interval[1]
    assert not found.trusted
    assert found.why.startswith("the labels do not tell how they were chosen")
    assert np.allclose(found.expected / found.expected.sum(), found.annotated / found.annotated.sum())
    assert (found.low <= found.expected).all()
    assert (found.expected <= found.high).all()


def test_the_same_seed_gives_the_same_numbers() -> None:
    features, truth = made_up(300)
    observed = keep_per_image(truth, 1, 0, seed=1)
    one, two = (estimate(features, observed, seed=5) for _ in range(2))
    assert np.array_equal(one.expected, two.expected)
    assert one.interval == two.interval
    assert not np.array_equal(one.expected, estimate(features, observed, seed=6).expected)


def test_a_class_that_is_never_annotated_has_none_and_disturbs_nothing() -> None:
    features, truth = made_up(300)
    observed = keep_per_image(truth, 1, 0, seed=1)
    more = np.insert(observed, 2, UNKNOWN, axis=1)
    found, without = estimate(features, more), estimate(features, observed)
    assert (found.expected[2], found.low[2], found.high[2]) == (0, 0, 0)
    assert np.array_equal(np.delete(found.expected, 2), without.expected)


def test_an_observed_negative_is_never_a_hidden_positive() -> None:
    features, truth = made_up(300)
    observed = keep_per_image(truth, 1, 0, seed=1)
    observed[(observed[:, 0] == UNKNOWN), 0] = NEGATIVE
    found = estimate(features, observed)
    assert found.expected[0] == found.annotated[0] == (observed[:, 0] == POSITIVE).sum()
    assert found.expected[1] > found.annotated[1]


def test_features_that_say_nothing_are_not_trusted() -> None:
    features, truth = made_up(400)
    noise = np.random.default_rng(3).normal(size=features.shape).astype(np.float32)
    found = estimate(noise, keep_per_image(truth, 1, 0, seed=1))
    assert not found.trusted
    assert "hardly tell the classes apart" in found.why


def test_useless_features_lead_to_a_guess() -> None:
    features, truth = made_up(400)
    noise = np.random.default_rng(3).normal(size=features.shape).astype(np.float32)
    found = estimate(noise, keep_per_image(truth, 1, 0, seed=1))
    assert found.per_image == pytest.approx(2.0)


def test_an_annotator_with_a_preference_makes_k_low_and_is_not_trusted() -> None:
    features, truth = made_up()
    observed = np.full_like(truth, UNKNOWN)
    observed[np.arange(len(truth)), truth.argmax(1)] = POSITIVE  # always the first class
    found = estimate(features, observed)
    assert not found.trusted
    assert found.per_image < 0.8 * truth.sum() / len(truth)


def test_images_without_a_label_and_too_few_are_not_trusted() -> None:
    features, truth = made_up(250)
    observed = keep_per_image(truth, 1, 0, seed=1)
    observed[:50] = UNKNOWN
    found = estimate(features, observed)
    assert not found.trusted
    assert "only 200 images have a label" in found.why
    assert "50 images have no label and count as empty" in found.why
    assert found.images == 250


@pytest.mark.parametrize("share", [0.4, 0.75])
def test_kept_positives_tell_the_share(share: float) -> None:
    _, truth = made_up(4000, rate=0.2)
    found = estimate_positives(None, keep_share(truth, share, 0.0, seed=2), names(truth))
    real = truth.sum() / len(truth)
    assert found.trusted, found.why
    assert found.per_image == pytest.approx(real, rel=0.1)
    assert found.interval[0] < real < found.interval[1]
    assert np.allclose(found.expected / found.expected.sum(), found.annotated / found.annotated.sum())


def test_the_share_is_exact_for_expected_numbers() -> None:
    # Half of the images have one class, half have two; each is kept with 1/2.
    numbers = np.repeat([0, 1, 2], [300, 400, 100])
    kept = kept_share(numbers)
    assert kept.explains
    assert kept.share == pytest.approx(0.5, abs=1e-3)
    assert kept.low < 0.5 < kept.high


def at_least_one(truth: Labels, share: float) -> Labels:
    """Each positive kept with this chance, and one where that leaves none."""
    kept = keep_share(truth, share, 0.0, seed=1)
    nothing = ~(kept == POSITIVE).any(1)
    kept[nothing] = keep_per_image(truth, 1, 0, seed=2)[nothing]
    return kept


@pytest.mark.parametrize("share", [0.4, 0.75])
def test_where_every_image_has_a_label_features_are_needed_and_nothing_is_trusted(share: float) -> None:
    features, truth = made_up(2000, rate=0.4)
    observed = at_least_one(truth, share)
    assert needs_features(observed)
    found = estimate(features, observed)
    assert not found.trusted
    assert found.interval[0] < truth.sum() / len(truth) < found.interval[1]
    assert found.per_image > (observed == POSITIVE).sum() / len(truth) + 0.2  # some are missing
    observed[:20] = UNKNOWN  # a few without one make it no better
    assert needs_features(observed)
    assert not estimate(features, observed).trusted


def test_shares_that_fit_nearly_as_well_are_not_trusted() -> None:
    _, truth = made_up(300, rate=0.4)
    found = estimate_positives(None, keep_share(truth, 0.4, 0.0, seed=2), names(truth))
    assert not found.trusted
    assert "fit other shares of kept labels nearly as well" in found.why
    assert found.interval[0] < truth.sum() / len(truth) < found.interval[1]


def test_the_numbers_way_says_what_it_assumes() -> None:
    _, truth = made_up(2000)
    truth[:440] = NEGATIVE  # images that are really empty: nothing shows it
    found = estimate_positives(None, keep_share(truth, 0.75, 0.0, seed=2), names(truth))
    assert found.why.endswith("it assumes that every image has a class")
    assert found.per_image > 1.3 * truth.sum() / len(truth)


def test_complete_labels_are_what_they_are() -> None:
    _, truth = made_up(300)
    for complete in (truth, np.eye(6, dtype=np.int8)):
        found = estimate_positives(None, complete, names(truth))
        assert found.expected.tolist() == complete.sum(0).tolist()
        assert found.trusted
        assert found.why == "all labels are known"
        assert found.interval == (found.per_image, found.per_image)


def test_a_stray_image_with_two_labels_does_not_hide_that_the_others_have_one() -> None:
    features, truth = made_up()
    observed = keep_per_image(truth, 1, 0, seed=1)
    single = estimate(features, observed)
    stray = np.flatnonzero(truth.sum(1) == 2)[0]
    observed[stray, truth[stray] == POSITIVE] = POSITIVE
    found = estimate(features, observed)
    assert needs_features(observed)
    assert found.annotated.sum() == len(truth) + 1
    assert found.per_image == pytest.approx(single.per_image, rel=0.03)


def test_no_more_images_are_used_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    features, truth = made_up(400)
    observed = keep_per_image(truth, 1, 0, seed=1)
    monkeypatch.setattr("sparselabel.expected_positives.from_features.MOST_IMAGES", 400)
    every = estimate(features, observed)
    monkeypatch.setattr("sparselabel.expected_positives.from_features.MOST_IMAGES", 200)
    half = estimate(features, observed)
    assert half.images == 400
    assert half.expected.tolist() != every.expected.tolist()


def test_labels_that_end_at_two_are_not_trusted() -> None:
    features, truth = made_up(400, rate=0.4)
    found = estimate(features, keep_per_image(truth, 2, 0, seed=1))
    assert not found.trusted
    assert "cannot be known" in found.why


def test_what_cannot_be_estimated() -> None:
    features, truth = made_up(20)
    with pytest.raises(DataError, match="no positive label"):
        estimate(features, np.full_like(truth, UNKNOWN))
    with pytest.raises(DataError, match="8 labeled images are too few for 5 folds: label at least 10"):
        estimate(features[:8], keep_per_image(truth[:8], 1, 0, seed=1))
    for labels in (keep_per_image(truth, 1, 0, seed=1), truth):  # also where they are not needed
        with pytest.raises(DataError, match=r"20 images need features of shape \(N, D\)") as shape:
            estimate(features[:19], labels)
        assert (shape.value.what, shape.value.value, shape.value.allowed) == ("features", (19, 24), (20, "D"))
    with pytest.raises(DataError, match="need the images' features"):
        estimate_positives(None, keep_per_image(truth, 1, 0, seed=1), names(truth))
    observed = keep_per_image(truth, 1, 0, seed=1)
    one_class = np.where(np.arange(6) == 2, observed, UNKNOWN).astype(np.int8)
    with pytest.raises(DataError, match=r"1 annotated class is too few .*`how=counted`"):
        estimate(features, one_class)
    with pytest.raises(DataError, match=r"20 labeled .* same features \(7, ...\).*`how=counted`"):
        estimate(np.full_like(features, 7), observed)
    features[3, 4] = np.nan
    with pytest.raises(DataError, match=r"feature 4 of image 3 is nan: .*`how=counted`"):
        estimate(features, observed)
