"""A review for thresholds: it asks about validation images near the thresholds of unreliable classes."""

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.answers import SKIPPED
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import POSITIVE, UNKNOWN
from sparselabel.inference.class_thresholds import ANSWERS, ClassThresholds, answers_needed
from sparselabel.metrics.calibration import logits_of
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.question_order import Passed
from sparselabel.review.session import Entry, Review

LOWEST = 0.05
"""Calibrated score below which a threshold hardly ever lies."""


class ThresholdReview(Review):
    """Asks class by class, the one first that takes the fewest answers to be relied on."""

    def __init__(
        self,
        split: PreparedSplit,
        scores: npt.NDArray[np.floating[Any]],
        answers: AnswerFile,
        thresholds: ClassThresholds,
    ) -> None:
        self._calibrated = thresholds.calibration(logits_of(scores))
        self._poor = [column for column, row in enumerate(thresholds.classes) if row.trust == "poor"]
        super().__init__(split, scores, answers)

    def chance_of(self, row: int, column: int) -> float:
        return float(self._calibrated[row, column])

    def more(self, column: int) -> int | None:
        """Answers that a class still takes; None if validation shows it too rarely for any number of them."""
        answered, yes = 0, 0
        left = np.asarray(self.split.observed.matrix[:, column]) == UNKNOWN
        for (row, other), stack in self._stacks.items():
            if other == column:
                answered += stack[-1].value != SKIPPED
                yes += stack[-1].value == POSITIVE and bool(left[row])
                left[row] = False
        positive = int(self._known_before[column]) + yes
        hidden = float(self._calibrated[left, column].sum())
        return answers_needed(answered, positive, int(left.sum()), hidden)

    def goal(self) -> dict[str, Any]:
        """Answers and classes that are left, classes that are done, and those that need more images."""
        more = [self.more(column) for column in self._poor]
        return {
            "more": sum(number or 0 for number in more),
            "classes": sum(bool(number) for number in more),
            "done": len(self.classes) - len(more) + more.count(0),
            "out_of_reach": more.count(None),
        }

    def _choose(
        self, count: int, column: int | None, passed: Passed, shown: set[Entry], grid: bool
    ) -> list[tuple[int, int, float]]:
        if column is not None:
            wanted = [(count, column)]
        else:
            coming = Counter(one for _, one in shown)
            wanted = sorted(((self.more(one) or 0) - coming[one], one) for one in self._poor)
        chosen: list[tuple[int, int, float]] = []
        for number, one in wanted:
            rows = self._rows(one, passed) if number > 0 else []
            rows = rows[: min(number, count - len(chosen))]
            chosen += [(row, one, self.chance_of(row, one)) for row in rows]
            if len(chosen) >= count or (grid and chosen):
                break
        return sorted(chosen, key=lambda entry: -entry[2]) if grid else chosen

    def _rows(self, column: int, passed: Passed) -> list[int]:
        """The class's unknown images: spread over its scores first, those with the highest scores then."""
        values = np.asarray(self.split.observed.matrix[:, column])
        unknown = [row for row in np.flatnonzero(values == UNKNOWN).tolist() if row not in self._unreadable]
        falling = sorted(unknown, key=lambda row: (-self._calibrated[row, column], row))
        if not falling:
            return []
        high, low = (self._calibrated[falling[at], column] for at in (0, -1))
        wide = [row for row in falling if self._calibrated[row, column] >= max(low, min(LOWEST, high / 4))]
        shown = np.array([self._calibrated[row, column] for row in wide])
        spread: dict[int, None] = {}
        for step in range(2 * ANSWERS):
            target = high - _evenly(step) * (high - shown[-1])
            for at in np.argsort(np.abs(shown - target), kind="stable").tolist():
                if wide[at] not in spread:
                    spread[wide[at]] = None
                    break
        order = [*spread, *(row for row in falling if row not in spread)]
        return [row for row in order if not passed(row, column)]


def _evenly(step: int) -> float:
    """Numbers of 0..1 of which any first few lie evenly: 0, 1/2, 1/4, 3/4, 1/8, … (van der Corput)."""
    value, digit = 0.0, 0.5
    while step:
        value, step, digit = value + digit * (step % 2), step // 2, digit / 2
    return value
