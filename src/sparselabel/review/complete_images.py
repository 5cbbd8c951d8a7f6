"""A review of whole images: random ones, of which every class is answered, to count positives in.

Counting expected positives (`sparselabel expect`) wants images chosen at random: those that a model suggests
have more of some classes than others.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.session import ReviewSession, rows_of


class CompleteImageReview(ReviewSession):
    """Asks for all labels of random training images, one image at a time, always in the same order."""

    def __init__(
        self, split: PreparedSplit, scores: npt.NDArray[np.floating[Any]], answers: AnswerFile
    ) -> None:
        super().__init__(split, scores, answers)
        self._order = np.random.default_rng(0).permutation(len(split))
        self._done: dict[
            int, int
        ] = {}  # rows in the order they were answered, and how many classes are there
        counts: dict[str, list[int]] = {}
        for (image, _), value in answers.last_words().items():
            counts.setdefault(image, []).append(value)
        row_of = rows_of(counts, split)
        for image, values in counts.items():
            if image in row_of and len(values) == len(self.classes):
                self._done[row_of[image]] = values.count(POSITIVE)
        self.strangers = sum(image not in row_of for image in counts)

    def take(self, given: dict[str, Any]) -> None:
        """Keep all labels of an image: the classes in ``present`` are there, the others are not."""
        row, present = int(given["row"]), {int(column) for column in given["present"]}
        for column in present:
            self.refuse_unknown(row, column)
        with self.lock:
            name = self.name_of(row)
            lines: list[tuple[str, str, int | None]] = [
                (name, label, POSITIVE if column in present else NEGATIVE)
                for column, label in enumerate(self.classes)
            ]
            self.answers.add(lines)
            self._done.pop(row, None)
            self._done[row] = len(present)

    def take_back(self) -> dict[str, Any] | None:
        """Take the labels of the last image back; returns the question about it."""
        with self.lock:
            if not self._done:
                return None
            row = [*self._done][-1]
            self.answers.add([(self.name_of(row), label, None) for label in self.classes])
            del self._done[row]
            return self.question(row)

    def next(
        self,
        count: int,
        column: int | None = None,
        without: Iterable[tuple[int, int]] = (),
        *,
        skipped: bool = False,
    ) -> list[dict[str, Any]]:
        """The next images in their random order; none that was answered, nor those ``without``."""
        with self.lock:
            gone = {row for row, _ in without} | self._unreadable | set(self._done)
            rows: list[int] = []
            for row in self._order.tolist():
                if len(rows) == count:
                    break
                if row not in gone:
                    rows.append(row)
            return [self.question(row) for row in rows]

    def question(self, row: int) -> dict[str, Any]:
        """An image as the page gets it: its classes, the likeliest first; those observed are ticked."""
        scores = np.nan_to_num(np.asarray(self.scores[row], dtype=np.float32))
        seen = np.asarray(self.split.observed.values[row])
        order = np.lexsort((-scores, seen != POSITIVE))
        listed = [[column, bool(seen[column] == POSITIVE)] for column in order.tolist()]
        return {"row": row, "class": -1, "image": self.name_of(row), "classes": listed, "answer": None}

    def summary(self, column: int | None = None) -> dict[str, Any]:
        """How many images are done, and how many classes they have: K, and how sure that is."""
        with self.lock:
            counts = np.asarray([*self._done.values()], dtype=np.float64)
        mean = float(counts.mean()) if len(counts) else 0.0
        error = float(counts.std(ddof=1) / len(counts) ** 0.5) if len(counts) > 1 else None
        return {"answered": len(counts), "mean": mean, "error": error, "can_undo": bool(len(counts))}
