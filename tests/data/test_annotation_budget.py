"""Budgets: by hand on a few images, and PatchML's counts on labels of COCO's size and frequency."""

import numpy as np
import pytest

from sparselabel.data.annotation_budget import FLAT, KINDS, Kind, Prices, buy
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import ConfigError, DataError

# Two images, three classes; class 0 is twice in image 0, class 2 once in image 1.
TRUTH = np.array([[1, 0, 0], [0, 0, 1]], dtype=np.int8)
THINGS = SpatialLabels(
    np.array([0, 0, 1]),
    np.array([0, 0, 2], np.int32),
    np.full((3, 2), 0.5, np.float32),
    np.array([[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]], np.float32),
)


@pytest.mark.parametrize(
    ("kind", "cost", "spatial_labels"),
    [("I", 6, 0), ("SP", 6 + 2 * 1.4, 2), ("AP", 6 + 3 * 1.4, 3), ("SB", 6 + 12, 2), ("AB", 6 + 18, 3)],
)
def test_everything_can_be_bought(kind: Kind, cost: float, spatial_labels: int) -> None:
    bought = buy(TRUTH, THINGS, kind, 100)
    assert np.array_equal(bought.observed, TRUTH)
    assert len(bought.spatial_labels) == spatial_labels
    assert bought.seconds == pytest.approx(cost)
    if spatial_labels == 2:
        assert bought.spatial_labels[0] in (0, 1)
        assert bought.spatial_labels[1] == 2


def test_no_more_is_spent_than_there_is_and_no_question_is_asked_twice() -> None:
    for kind in KINDS:
        for seconds in (1, 2.5, 5, 9):
            bought = buy(TRUTH, THINGS, kind, seconds, seed=3)
            assert bought.seconds <= seconds + 1e-9
            answers = bought.observed != UNKNOWN
            assert np.array_equal(bought.observed[answers], TRUTH[answers])
            assert answers.sum() <= seconds
    assert (buy(TRUTH, THINGS, "I", 4).observed != UNKNOWN).sum() == 4


@pytest.mark.parametrize("prices", [FLAT, Prices()])
def test_kinds_ask_the_same_questions_and_a_dearer_one_stops_earlier(prices: Prices) -> None:
    """So what kinds bring is compared on the same draw."""
    truth = (np.random.default_rng(0).random((400, 20)) < 0.1).astype(np.int8)
    rows, classes = truth.nonzero()
    middle, size = np.full((len(rows), 2), 0.5, np.float32), np.full((len(rows), 2), 0.2, np.float32)
    things = SpatialLabels(rows, classes.astype(np.int32), middle, size)
    asked = {kind: buy(truth, things, kind, 800, prices, seed=7).observed != UNKNOWN for kind in KINDS}
    for points, boxes in ((asked["SP"], asked["SB"]), (asked["AP"], asked["AB"])):
        assert 450 < boxes.sum() < points.sum() < asked["I"].sum() == 800
        assert not (boxes & ~points).any()
        assert not (points & ~asked["I"]).any()


def test_one_thing_of_several_is_chosen_at_random() -> None:
    first = [buy(TRUTH, THINGS, "SP", 100, seed=seed).spatial_labels[0] for seed in range(200)]
    assert 70 < first.count(0) < 130


def test_refusals() -> None:
    with pytest.raises(DataError, match="1 of these are unknown"):
        buy(np.array([[1, UNKNOWN]], np.int8), SpatialLabels.none(), "I", 1)
    with pytest.raises(ConfigError, match="not 'XY'"):
        buy(TRUTH, THINGS, "XY", 1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="above 0 seconds, not 0"):
        buy(TRUTH, THINGS, "I", 0)
    with pytest.raises(ConfigError, match="price of point"):
        Prices(point=-1)


@pytest.fixture(scope="module")
def coco() -> tuple[Labels, SpatialLabels]:
    """Labels like COCO train2014's: 82,783 images, 2.91 of 80 classes each, 2.51 things of a class."""
    random = np.random.default_rng(0)
    frequency = np.exp(random.normal(0, 1, 80))
    chance = np.minimum(frequency / frequency.sum() * 2.91, 0.9)
    truth = (random.random((82_783, 80)) < chance * 2.91 / chance.sum()).astype(np.int8)
    rows, classes = np.nonzero(truth)
    times = random.geometric(1 / 2.51, len(rows))  # 604,907 things in all
    rows, classes = np.repeat(rows, times), np.repeat(classes, times)
    return truth, SpatialLabels(
        rows,
        classes.astype(np.int32),
        np.full((len(rows), 2), 0.5, np.float32),
        np.full((len(rows), 2), 0.1, np.float32),
        check=False,
    )


# PatchML table 1: budget in %, kind, thousands of positive and of negative answers.
PUBLISHED = [
    (0.25, "I", 0.602, 16),
    (0.25, "SP", 0.559, 15),
    (0.25, "SB", 0.471, 13),
    (1, "I", 2.440, 64),
    (1, "SP", 2.314, 60),
    (1, "SB", 1.910, 51),
    (4, "I", 9.687, 255),
    (4, "SP", 9.142, 240),
    (4, "SB", 7.677, 202),
]


@pytest.mark.parametrize(("percent", "kind", "positives", "negatives"), PUBLISHED)
def test_the_counts_of_table_1(
    coco: tuple[Labels, SpatialLabels], percent: float, kind: Kind, positives: float, negatives: float
) -> None:
    truth, spatial_labels = coco
    bought = buy(truth, spatial_labels, kind, percent / 100 * truth.size, FLAT)
    found = int((bought.observed == POSITIVE).sum())
    # A count of k random draws scatters by √k; ours and theirs are two draws.
    assert abs(found - 1000 * positives) < 4 * np.sqrt(2 * 1000 * positives)
    assert (bought.observed == NEGATIVE).sum() == pytest.approx(
        1000 * negatives, abs=600
    )  # rounded to thousands
    assert len(bought.spatial_labels) == (0 if kind == "I" else found)


# PatchML table 2: budget in %, kind, marks, thousands of negatives and of annotated images. Its row of AP at
# 4 % repeats the counts of AB, and its "339k" of AB at 1 % is 39k.
ALL_THINGS = [
    (0.25, "AP", 1257, 14, 13.7),
    (0.5, "AP", 2738, 29, 25.1),
    (1, "AP", 5388, 58, 42.7),
    (2, "AP", 11328, 115, 63.7),
    (0.25, "AB", 838, 10, 9.7),
    (0.5, "AB", 1832, 19, 18.2),
    (1, "AB", 3752, 39, 32.6),
    (2, "AB", 7715, 78, 52.6),
    (4, "AB", 14783, 157, 71.8),
]


@pytest.mark.parametrize(("percent", "kind", "spatial_labels", "negatives", "images"), ALL_THINGS)
def test_the_counts_of_table_2(
    coco: tuple[Labels, SpatialLabels],
    percent: float,
    kind: Kind,
    spatial_labels: int,
    negatives: float,
    images: float,
) -> None:
    truth, things = coco
    bought = buy(truth, things, kind, percent / 100 * truth.size, FLAT)
    # Ours and theirs are two draws; things of a class are 2.51 on average, 10 in the mean square. What things
    # cost is not there for answers, so that these scatter too.
    price, off = {"AP": (FLAT.point, 0.03), "AB": (FLAT.box, 0.06)}[kind]
    scatter = 3 * np.sqrt(2 * 10 * spatial_labels / 2.51)
    answers = price * scatter / (1 + price * len(things) / truth.size)
    assert len(bought.spatial_labels) == pytest.approx(spatial_labels, abs=scatter)
    # That each thing is paid for is our reading. By it, answers are somewhat fewer with AP, and more with AB.
    known = bought.observed != UNKNOWN
    assert (bought.observed == NEGATIVE).sum() == pytest.approx(
        1000 * negatives, abs=1000 * off * negatives + answers + 500
    )
    assert known.any(axis=1).sum() == pytest.approx(1000 * images, abs=1000 * off * images + answers + 50)
