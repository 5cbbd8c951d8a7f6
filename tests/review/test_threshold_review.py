"""Questions for thresholds: which classes and images, and when they are enough."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparselabel.inference.class_thresholds import ANSWERS, SOME, no_class_thresholds
from sparselabel.metrics.calibration import sigmoid
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.threshold_review import ThresholdReview

RANDOM = np.random.default_rng(0)
SCORES = sigmoid(RANDOM.normal([-1.0, -1.0, -9.0], 2, (200, 3)))
SCORES[:, 2] *= 0.01  # a class that is hardly ever there
TRUTH = (RANDOM.random(SCORES.shape) < SCORES).astype(np.int8)
NAMES = ("cat", "dog", "yeti")


class Split(SimpleNamespace):
    def __len__(self) -> int:
        return len(SCORES)


@pytest.fixture
def review(tmp_path: Path) -> Any:
    observed = np.full(TRUTH.shape, -1, np.int8)
    split = Split(
        truth=SimpleNamespace(classes=NAMES, matrix=TRUTH),
        observed=SimpleNamespace(matrix=observed),
        paths=np.array([f"{row}.jpg" for row in range(len(SCORES))]),
    )
    thresholds = no_class_thresholds(NAMES, "no positive")
    trusted = replace(thresholds.classes[1], trust="fair")
    thresholds = replace(thresholds, classes=(thresholds.classes[0], trusted, thresholds.classes[2]))
    with AnswerFile(tmp_path / "a.csv") as file:
        yield ThresholdReview(split, SCORES, file, thresholds)  # type: ignore[arg-type]


def answered(review: ThresholdReview) -> int:
    """Answer a page from the truth; its class."""
    page = review.next(24, grid=True)
    (column,) = {one["class"] for one in page}
    review.take(
        {
            "answers": [
                {"row": one["row"], "class": column, "answer": "yes" if TRUTH[one["row"], column] else "no"}
                for one in page
            ]
        }
    )
    return int(column)


def test_a_page_is_spread_over_the_scores_of_a_class_that_nobody_can_rely_on(review: Any) -> None:
    page = review.next(24, grid=True)
    assert {one["class"] for one in page} == {0}
    assert len(page) == ANSWERS  # no more than it takes
    chances = [one["chance"] for one in page]
    assert chances == sorted(chances, reverse=True)
    assert chances == pytest.approx([SCORES[one["row"], 0] for one in page])
    tenths = np.histogram(chances, bins=5, range=(0, 1))[0]
    assert tenths.min() >= 2
    after = review.next(24, grid=True, without=[(one["row"], 0) for one in page])
    assert {one["class"] for one in after} == {2}  # what is being answered counts; dog needs nothing


def test_the_goal_is_reached_or_out_of_reach(review: Any) -> None:
    assert review.goal() == {"more": 2 * ANSWERS, "classes": 2, "done": 1, "out_of_reach": 0}
    assert answered(review) == 0
    yes = review.summary()["yes"]
    left = max(SOME - yes, 0)
    assert review.more(0) == left
    while review.more(0):
        answered(review)
    answered(review)
    assert review.goal() == {"more": 0, "classes": 0, "done": 2, "out_of_reach": 1}
    assert review.next(24, grid=True) == []
    assert [one["class"] for one in review.next(3, 1)] == [1, 1, 1]  # whoever asks for it gets it
