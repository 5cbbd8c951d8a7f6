"""The order of questions."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparselabel.data import labels
from sparselabel.errors import ConfigError, DataError
from sparselabel.review.question_order import Pool, questions

SCORES = np.array([[0.9, 0.8, 0.5], [0.7, 0.6, 0.45], [0.2, 0.1, 0.3], [0.95, np.nan, 0.4]], np.float32)
OBSERVED = np.full((4, 3), -1, np.int8)
OBSERVED[3, 0] = 1
OBSERVED[2, 2] = 0


def pairs(found: tuple[Any, Any]) -> list[tuple[int, int]]:
    return list(zip(*(part.tolist() for part in found), strict=True))


def test_likely_are_the_highest_scores() -> None:
    assert pairs(questions(SCORES, OBSERVED, "likely", 4)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_uncertain_are_near_one_half() -> None:
    assert pairs(questions(SCORES, OBSERVED, "uncertain", 2)) == [(0, 2), (1, 2)]
    assert pairs(questions(SCORES[2:], OBSERVED[2:], "uncertain", 3)) == [(1, 2), (0, 0), (0, 1)]


def test_useful_weighs_what_is_known_of_a_class() -> None:
    # Known positives: 1, 0, 0. Gains: 0.9/2, 0.8/1, 0.5/1; after (0, 1) the second class has 0.8: 0.6/1.8.
    found = pairs(questions(SCORES, OBSERVED, "useful", 5))
    assert found == [(0, 1), (0, 2), (0, 0), (1, 1), (1, 2)]


def test_random_ones_are_unknown_different_and_seeded() -> None:
    found = questions(SCORES, OBSERVED, "random", 5, seed=1)
    again = questions(SCORES, OBSERVED, "random", 5, seed=1)
    assert pairs(found) == pairs(again)
    assert pairs(found) != pairs(questions(SCORES, OBSERVED, "random", 5, seed=2))
    assert len(set(pairs(found))) == 5


@pytest.mark.parametrize("how", ["useful", "likely", "uncertain", "random"])
def test_all_of_them_and_no_more(how: Any) -> None:
    everything = {(r, c) for r in range(4) for c in range(3)} - {(3, 0), (2, 2), (3, 1)}
    assert set(pairs(questions(SCORES, OBSERVED, how, 100))) == everything
    assert pairs(questions(SCORES, OBSERVED, how, 0)) == []
    assert pairs(questions(np.empty((0, 3), np.float32), np.empty((0, 3), np.int8), how, 5)) == []


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ConfigError, match="there is no order 'usefull' of questions: did you mean 'useful'"):
        questions(SCORES, OBSERVED, "usefull", 1)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"scores \(4, 2\) and labels \(4, 3\) must have the same shape"):
        questions(SCORES[:, :2], OBSERVED, "likely", 1)
    with pytest.raises(ConfigError, match="must not be negative, but is -1"):
        questions(SCORES, OBSERVED, "likely", -1)


@given(st.integers(0, 10_000), st.integers(1, 12), st.sampled_from([1, 3, 7, 1000]))
def test_blocks_do_not_matter(seed: int, count: int, block: int) -> None:
    random = np.random.default_rng(seed)
    scores = (random.integers(0, 12, (23, 4)) / 11).astype(np.float16)  # many are equal
    observed = random.choice(np.array([-1, -1, -1, 0, 1], np.int8), (23, 4))
    before = labels.BLOCK
    labels.BLOCK = 4 * block
    try:
        found = {how: pairs(questions(scores, observed, how, count)) for how in ("useful", "likely")}
    finally:
        labels.BLOCK = before
    rows, classes = np.nonzero(observed == -1)
    ranked = sorted(zip(rows.tolist(), classes.tolist(), strict=True), key=lambda e: (-scores[e], e[0], e[1]))
    assert found["likely"] == ranked[:count]
    assert found["useful"] == greedy(scores, observed, count)


def greedy(scores: np.ndarray, observed: np.ndarray, count: int) -> list[tuple[int, int]]:
    """The same by looking at all entries again and again."""
    known = (observed == 1).sum(axis=0).astype(float)
    left = [(r, c) for c in range(observed.shape[1]) for r in range(len(observed)) if observed[r, c] == -1]
    chosen: list[tuple[int, int]] = []
    while left and len(chosen) < count:
        gains = [float(scores[e]) / (1 + known[e[1]]) for e in left]
        best = min(range(len(left)), key=lambda place: (-gains[place], left[place][1], left[place][0]))
        chosen.append(left.pop(best))
        known[chosen[-1][1]] += float(scores[chosen[-1]])
    return chosen


def test_a_pool_passes_over_and_says_when_it_is_used_up() -> None:
    pool = Pool.of(SCORES, OBSERVED, 2)
    known = np.zeros(3)
    assert [entry[:2] for entry in pool.choose(2, known, lambda row, column: row == 0)] == [(1, 0), (1, 1)]
    assert not pool.used_up(lambda row, column: row == 0)
    assert pool.used_up(lambda row, column: column == 1)
    one = Pool.of(SCORES, OBSERVED, 4, column=2)
    assert [entry[:2] for entry in one.choose(9, known)] == [(0, 2), (1, 2), (3, 2)]
    assert not one.used_up(lambda row, column: True)  # it has all there are


def test_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    """Of 100,000 × 1,000 a part of the rows: what is held must not grow with them."""
    file, (rows, classes) = tmp_path / "scores.npy", (3000, 1000)
    scores = np.lib.format.open_memmap(file, "w+", np.float16, (rows, classes))
    scores[:] = np.random.default_rng(0).random((rows, classes), dtype=np.float32) ** 6
    scores.flush()
    observed = np.full((rows, classes), -1, np.int8)

    def peak(count: int) -> int:
        tracemalloc.start()
        found = questions(np.load(file, mmap_mode="r")[:count], observed[:count], "useful", 50)
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(set(pairs(found))) == 50
        return held

    assert peak(rows) < 1.5 * peak(1000)
