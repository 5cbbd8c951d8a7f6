"""A review that asks for every class of random images, to count positives.

Counting expected positives (`sparselabel expect`) wants images chosen at random: those that a model suggests
have more of some classes than others.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.expected_positives.class_counts import SPREAD
from sparselabel.expected_positives.from_complete_labels import FEWEST_COUNTED
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.session import ReviewSession, rows_of

CLOSE = 0.1
"""How near K is to be known, as a share of it, with a chance of 95 %."""


class CompleteImageReview(ReviewSession):
    """Asks for all labels of random training images, one image at a time, always in the same order."""

    def __init__(
        self, split: PreparedSplit, scores: npt.NDArray[np.floating[Any]], answers: AnswerFile
    ) -> None:
        super().__init__(split, scores, answers)
        self._order = np.random.default_rng(0).permutation(len(split))
        # Rows in the order they were answered: how many classes are there, and who says so.
        self._done: dict[int, tuple[int, str]] = {}
        counts: dict[str, list[int]] = {}
        for (image, _), value in answers.last_words().items():
            counts.setdefault(image, []).append(value)
        row_of = rows_of(counts, split)
        reviewers = {answer.image: answer.reviewer for answer in answers.answers}
        for image, values in counts.items():
            if image in row_of and len(values) == len(self.classes):
                self._done[row_of[image]] = values.count(POSITIVE), reviewers[image]

    def take(self, given: dict[str, Any], reviewer: str | None = None) -> None:
        """Keep all labels of an image: the classes in ``present`` are there, the others are not."""
        row, present = int(given["row"]), {int(column) for column in given["present"]}
        for column in present | {0}:
            self.refuse_unknown(row, column)
        with self.lock:
            name = self.name_of(row)
            lines: list[tuple[str, str, int | None]] = [
                (name, label, POSITIVE if column in present else NEGATIVE)
                for column, label in enumerate(self.classes)
            ]
            self.answers.add(lines, reviewer)
            self._done.pop(row, None)
            self._done[row] = len(present), self.answers.reviewer if reviewer is None else reviewer

    def take_back(self, reviewer: str | None = None) -> list[dict[str, Any]]:
        """Take the labels of the reviewer's, or anybody's, last image back; returns the question about it."""
        with self.lock:
            own = [row for row, (_, name) in self._done.items() if reviewer in (None, name)]
            for row in own[-1:]:
                self.answers.add([(self.name_of(row), label, None) for label in self.classes], reviewer)
                del self._done[row]
            return [self.question(row) for row in own[-1:]]

    def next(
        self,
        count: int,
        column: int | None = None,
        without: Iterable[tuple[int, int]] = (),
        *,
        skipped: bool = False,
        grid: bool = False,
        page: str = "",
    ) -> list[dict[str, Any]]:
        """The next images in their random order; none that was answered, nor those ``without``."""
        with self.lock:
            here = set(without)
            gone = {row for row, _ in here | self.leases.of_others(page)} | self._unreadable | set(self._done)
            rows: list[int] = []
            for row in self._order.tolist():
                if len(rows) == count:
                    break
                if row not in gone:
                    rows.append(row)
            self.leases.hold(page, [*here, *((row, -1) for row in rows)])
            return [self.question(row) for row in rows]

    def question(self, row: int) -> dict[str, Any]:
        """An image as the page gets it: its classes, the likeliest first; those observed are ticked."""
        scores = np.nan_to_num(np.asarray(self.scores[row], dtype=np.float32))
        seen = np.asarray(self.split.observed.matrix[row])
        order = np.lexsort((-scores, seen != POSITIVE))
        listed = [[column, bool(seen[column] == POSITIVE)] for column in order.tolist()]
        return {"row": row, "class": -1, "image": self.name_of(row), "classes": listed, "answer": None}

    def summary(self, column: int | None = None) -> dict[str, Any]:
        """The number of finished images, and K with its uncertainty."""
        with self.lock:
            counts = np.asarray([number for number, _ in self._done.values()], dtype=np.float64)
        mean = float(counts.mean()) if len(counts) else 0.0
        error = float(counts.std(ddof=1) / len(counts) ** 0.5) if len(counts) > 1 else None
        more = max(FEWEST_COUNTED - len(counts), 0)
        if error and mean and not more:
            more = max(math.ceil(len(counts) * ((SPREAD * error / (CLOSE * mean)) ** 2 - 1)), 0)
        return {
            "answered": len(counts),
            "mean": mean,
            "error": error,
            "can_undo": bool(len(counts)),
            "goal": {"more": min(more, len(self.split) - len(counts)), "within": CLOSE},
        }
