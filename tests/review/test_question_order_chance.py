"""Estimated chances of yes, fitted to earlier answers."""

import numpy as np
import pytest

from sparselabel.review.question_order import Chance


def test_without_answers_a_score_is_a_probability() -> None:
    chance = Chance.fitted([], [])
    assert [chance(score) for score in (0.1, 0.5, 0.9)] == pytest.approx([0.1, 0.5, 0.9])
    assert chance(0.0) == pytest.approx(1e-4)
    assert chance(1.0) == pytest.approx(1 - 1e-4)


def test_a_few_answers_move_it_a_little_and_many_far() -> None:
    few = Chance.fitted([0.2] * 2, [True] * 2)
    many = Chance.fitted([0.2] * 100, [True] * 60 + [False] * 40)
    assert 0.2 < few(0.2) < 0.8
    assert many(0.2) == pytest.approx(0.6, abs=0.02)
    assert many(0.1) < many(0.2) < many(0.4)


def test_a_curve_is_found_again() -> None:
    random = np.random.default_rng(0)
    scores = random.random(4000)
    truth = Chance(1.4, 1.0)
    yes = random.random(4000) < np.array([truth(score) for score in scores])
    found = Chance.fitted(scores.tolist(), yes.tolist())
    assert found.slope == pytest.approx(1.4, abs=0.1)
    assert found.shift == pytest.approx(1.0, abs=0.1)


def test_it_never_falls() -> None:
    upside_down = Chance.fitted([0.9] * 50 + [0.1] * 50, [False] * 50 + [True] * 50)
    assert upside_down(0.9) >= upside_down(0.1)
