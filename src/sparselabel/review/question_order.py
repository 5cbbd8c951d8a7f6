"""The order of questions: a pure function of the scores and the known labels.

    useful     what a yes would bring, summed up so that classes with few known positives come first
    likely     the highest scores, whatever the class
    uncertain  the scores nearest to one half
    random     any unknown label, each as likely as the other

The value of n known positives of a class is taken to be log(1 + n): the second one brings more than the
thousandth, and the mean over classes that mAP is asks for all of them. So a question with probability p of a
yes is worth p / (1 + n). Scores are read once, in blocks of rows; memory depends on the number of classes and
questions alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import UNKNOWN, LabelMatrix, Labels, count_per_class, row_blocks
from sparselabel.errors import ConfigError, DataError, nearest

How = Literal["useful", "likely", "uncertain", "random"]
Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
Passed = Callable[[int, int], bool]
"""Whether a row and a class are not to be asked about."""

NOTHING = -np.inf


def questions(
    scores: npt.NDArray[np.floating[Any]], observed: LabelMatrix, how: How, count: int, seed: int = 0
) -> tuple[Numbers, Numbers]:
    """Rows and classes (n,) of ``count`` unknown labels to ask about, the first first; fewer if there are.

    ``scores`` (N, L) are in 0..1, of any float type and perhaps in a file; NaN is never asked about.
    """
    if how not in get_args(How):
        raise ConfigError(f"there is no order {how!r} of questions", nearest(how, get_args(How)), value=how)
    if scores.shape != observed.shape:
        raise DataError(f"scores {scores.shape} and labels {observed.shape} must have the same shape")
    if count < 0:
        raise ConfigError(f"the number of questions must not be negative, but is {count}", value=count)
    if how == "random":
        return _random(scores, observed, count, seed)
    if how == "useful":
        pool = Pool.of(scores, observed, count)
        chosen = list(pool.choose(count, known_positives(observed)))
        return _columns([(row, column) for row, column, _ in chosen])
    value = _closeness if how == "uncertain" else _as_it_is
    pool = Pool.of(scores, observed, count, value)
    ranks, classes = np.nonzero(pool.rows >= 0)
    rows, values = pool.rows[ranks, classes].astype(np.int64), pool.values[ranks, classes]
    order = np.lexsort((classes, rows, -values))[:count]
    return rows[order], classes[order].astype(np.int64)


def known_positives(observed: LabelMatrix) -> npt.NDArray[np.float64]:
    """(L,) How many positives of each class are known."""
    return count_per_class(observed).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Pool:
    """The best unknown labels of C classes, by ``rows`` and ``values`` (K, C), best first; row -1: none.

    ``columns`` (C,) are the numbers of the classes; ``full`` (C,) says that a class may have more than these.
    """

    rows: npt.NDArray[np.int32]
    values: Floats
    full: npt.NDArray[np.bool_]
    columns: Sequence[int]

    @staticmethod
    def of(
        scores: npt.NDArray[np.floating[Any]],
        observed: LabelMatrix,
        most: int,
        value: Callable[[Floats], Floats] | None = None,
        column: int | None = None,
    ) -> "Pool":
        """At most ``most`` of every class, or of one, the first rows where values are equal."""
        if column is not None:
            scores, observed = scores[:, column : column + 1], observed[:, column : column + 1]
        classes = scores.shape[1]
        most = min(most, len(scores))
        best = _Best(classes, most)
        for rows in row_blocks(*scores.shape) if most else ():
            block = np.asarray(scores[rows], dtype=np.float32)
            values = block if value is None else value(block)
            best.add(rows.start, values, observed[rows])
        return best.pool(range(classes) if column is None else (column,))

    def choose(
        self,
        count: int,
        known: npt.NDArray[np.float64],
        passed: Passed = lambda row, column: False,
        chance: Callable[[float], float] = float,
    ) -> Iterator[tuple[int, int, float]]:
        """The next questions by what a yes is worth: row, class and score; without those ``passed`` over.

        ``known`` (L,) are the known positives of each class, ``chance`` makes a probability of a score.
        """
        waiting = []
        for at, column in enumerate(self.columns):
            rank, many = self._next(at, 0, passed), float(known[column])
            if rank is not None:
                waiting.append((-chance(float(self.values[rank, at])) / (1 + many), at, rank, many))
        heapify(waiting)
        for _ in range(count):
            if not waiting:
                return
            _, at, rank, many = waiting[0]
            score = float(self.values[rank, at])
            yield int(self.rows[rank, at]), self.columns[at], score
            after, many = self._next(at, rank + 1, passed), many + chance(score)
            if after is None:
                heappop(waiting)
            else:
                gain = chance(float(self.values[after, at])) / (1 + many)
                heapreplace(waiting, (-gain, at, after, many))

    def choose_class(
        self,
        count: int,
        known: npt.NDArray[np.float64],
        passed: Passed = lambda row, column: False,
        chance: Callable[[float], float] = float,
    ) -> list[tuple[int, int, float]]:
        """The next questions of that class of which ``count`` questions together are worth most."""
        best, most = [], 0.0
        for at, column in enumerate(self.columns):
            chosen: list[tuple[int, int, float]] = []
            rank = self._next(at, 0, passed)
            while rank is not None and len(chosen) < count:
                chosen.append((int(self.rows[rank, at]), column, float(self.values[rank, at])))
                rank = self._next(at, rank + 1, passed)
            yes = sum(chance(score) for _, _, score in chosen)
            worth = math.log1p(yes / (1 + float(known[column])))
            if worth > most:
                best, most = chosen, worth
        return best

    def used_up(self, passed: Passed) -> bool:
        """Whether a class has no question left here, but may have more."""
        return any(self._next(at, 0, passed) is None for at in np.flatnonzero(self.full).tolist())

    def _next(self, at: int, rank: int, passed: Passed) -> int | None:
        rows, column = self.rows[:, at], self.columns[at]
        while rank < len(rows) and rows[rank] >= 0:
            if not passed(int(rows[rank]), column):
                return rank
            rank += 1
        return None


class _Best:
    """Collects the best of each class; what cannot be among them is not kept."""

    def __init__(self, classes: int, most: int) -> None:
        self.classes, self.most = classes, most
        self.threshold = np.full(classes, NOTHING, dtype=np.float32)
        self.rows = np.empty(0, np.int32)
        self.columns = np.empty(0, np.int32)
        self.values = np.empty(0, np.float32)

    def add(self, start: int, values: Floats, observed: Labels) -> None:
        rows, columns = np.nonzero(values > self.threshold)  # nothing is above NaN, nor is it
        asked = observed[rows, columns] == UNKNOWN  # few are left to look at here
        rows, columns = rows[asked], columns[asked]
        self.rows = np.concatenate([self.rows, (rows + start).astype(np.int32)])
        self.values = np.concatenate([self.values, values[rows, columns]])
        self.columns = np.concatenate([self.columns, columns.astype(np.int32)])
        if len(self.rows) > 2 * self.most * self.classes:
            self._keep()

    def _keep(self) -> npt.NDArray[np.int64]:
        """Drop all but the best of each class; returns the rank of those that stay within their class."""
        order = np.lexsort((self.rows, -self.values, self.columns))
        columns = self.columns[order]
        first = np.searchsorted(columns, np.arange(self.classes))
        rank = np.arange(len(order)) - first[columns]
        stay = order[rank < self.most]
        self.rows, self.columns, self.values = self.rows[stay], self.columns[stay], self.values[stay]
        rank = rank[rank < self.most]
        last = rank == self.most - 1
        self.threshold[self.columns[last]] = self.values[last]
        return rank

    def pool(self, columns: Sequence[int]) -> Pool:
        rank = self._keep()
        rows = np.full((self.most, self.classes), -1, dtype=np.int32)
        values = np.zeros((self.most, self.classes), dtype=np.float32)
        rows[rank, self.columns], values[rank, self.columns] = self.rows, self.values
        return Pool(rows, values, self.threshold > NOTHING, columns)


def _random(
    scores: npt.NDArray[np.floating[Any]], observed: LabelMatrix, count: int, seed: int
) -> tuple[Numbers, Numbers]:
    """Unknown labels at random: drawn and thrown away if known, as most are unknown; else counted out."""
    random = np.random.default_rng(seed)
    entries, classes = observed.size, observed.shape[1]
    pairs: dict[tuple[int, int], None] = {}
    for _ in range(20):
        if len(pairs) == count or not entries:
            break
        rows, columns = np.divmod(random.integers(0, entries, max(64, 2 * count)), classes)
        free = (observed[rows, columns] == UNKNOWN) & ~np.isnan(scores[rows, columns])
        for pair in zip(rows[free].tolist(), columns[free].tolist(), strict=True):
            if len(pairs) < count:
                pairs[pair] = None
    if len(pairs) < count:  # nearly all is known: take from the list of what is not
        free_rows, free_columns = [np.empty(0, np.intp)], [np.empty(0, np.intp)]
        for span in row_blocks(*observed.shape):
            rows, columns = np.nonzero((observed[span] == UNKNOWN) & ~np.isnan(scores[span]))
            free_rows.append(rows + span.start)
            free_columns.append(columns)
        rows, columns = np.concatenate(free_rows), np.concatenate(free_columns)
        for index in random.permutation(len(rows)):
            if len(pairs) == count:
                break
            pairs[int(rows[index]), int(columns[index])] = None
    return _columns(list(pairs))


def _as_it_is(scores: Floats) -> Floats:
    return scores


def _closeness(scores: Floats) -> Floats:
    """How close scores are to one half, from 0 to 1."""
    return np.asarray(1 - 2 * np.abs(scores - 0.5), dtype=np.float32)


def _columns(pairs: list[tuple[int, int]]) -> tuple[Numbers, Numbers]:
    array = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


SMALLEST = 1e-4  # scores nearer to 0 or 1 say no more than this
LOOSENESS = np.array([0.5, 2.0])  # standard deviations of a and b before anything was answered
STEPS = 20


@dataclass(frozen=True)
class Chance:
    """The curve: slope a and shift b."""

    slope: float = 1.0
    shift: float = 0.0

    def __call__(self, score: float) -> float:
        """The probability of a yes."""
        clipped = min(max(score, SMALLEST), 1 - SMALLEST)
        return 1 / (1 + math.exp(-self.slope * math.log(clipped / (1 - clipped)) - self.shift))

    @staticmethod
    def fitted(scores: Sequence[float], yes: Sequence[bool]) -> "Chance":
        """The curve that fits the answers best, and hardly moves while they are few."""
        if not len(scores):
            return Chance()
        inputs = np.stack([_logit(scores), np.ones(len(scores))], axis=1)
        target = np.asarray(yes, dtype=np.float64)
        prior, held = np.array([1.0, 0.0]), np.diag(LOOSENESS**-2)
        line = prior.copy()
        for _ in range(STEPS):  # Newton's method: the problem is convex, and the prior keeps it bounded
            chance = 1 / (1 + np.exp(-np.clip(inputs @ line, -30, 30)))
            slope = inputs.T @ (chance - target) + held @ (line - prior)
            curve = (inputs * (chance * (1 - chance))[:, None]).T @ inputs + held
            step = np.linalg.solve(curve, slope)
            line = line - step / max(1.0, float(np.abs(step).max()))
        # A curve that falls would ask about the unlikely first: scores are trusted that far.
        return Chance(max(float(line[0]), 0.05), float(line[1]))


def _logit(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    clipped = np.clip(np.asarray(scores, dtype=np.float64), SMALLEST, 1 - SMALLEST)
    return np.asarray(np.log(clipped / (1 - clipped)))
