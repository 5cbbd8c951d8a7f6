"""A review: what is known, what was answered, what to ask next. The server's threads share one."""

import math
import threading
from collections.abc import Container, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.answers import SKIPPED
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.errors import ConfigError
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.question_order import Chance, Pool, known_positives


class ReviewSession:
    """A split's images with the model's scores (N, L), and the file that answers go to."""

    def __init__(
        self, split: PreparedSplit, scores: npt.NDArray[np.floating[Any]], answers: AnswerFile
    ) -> None:
        self.split, self.scores, self.answers = split, scores, answers
        self.classes = split.truth.classes
        self.lock = threading.RLock()
        self._unreadable: set[int] = set()

    def unreadable(self, row: int) -> None:
        """Ask no more about an image that cannot be shown."""
        with self.lock:
            self._unreadable.add(row)

    def name_of(self, row: int) -> str:
        """An image's name in the file of answers."""
        return str(self.split.paths[row])

    def refuse_unknown(self, row: int, column: int) -> None:
        """Raise unless there is such an image and class."""
        if not (0 <= row < len(self.split) and 0 <= column < len(self.classes)):
            raise ConfigError(
                f"image {row} and class {column} are not there: rows go to {len(self.split) - 1}, classes "
                f"to {len(self.classes) - 1}"
            )


Entry = tuple[int, int]
FEWEST, MOST = 64, 4096  # questions of a class that are kept ready, at first and at most
AHEAD = 50  # questions of which the number of expected yeses is told
FITTED = 2000  # latest answers that tell how scores are to be read
VALUES = {"yes": POSITIVE, "no": NEGATIVE, "skip": SKIPPED}
WORDS = {value: word for word, value in VALUES.items()}


class Review(ReviewSession):
    """Questions about unknown labels of a training split (scores (N, L)), the most useful first."""

    def __init__(
        self, split: PreparedSplit, scores: npt.NDArray[np.floating[Any]], answers: AnswerFile
    ) -> None:
        super().__init__(split, scores, answers)
        self._known_before = known_positives(split.observed.values)
        self._most = FEWEST
        self._pools: dict[int | None, Pool] = {}
        self._history: list[Entry] = []
        self._stacks: dict[Entry, list[int]] = {}
        self.strangers = 0  # answers about images or classes that this data does not have
        row_of = rows_of({answer.image for answer in answers.answers}, split)
        column_of = {name: column for column, name in enumerate(self.classes)}
        for answer in answers.answers:
            row, column = row_of.get(answer.image), column_of.get(answer.label)
            if row is None or column is None:
                self.strangers += 1
            else:
                self._note((row, column), answer.value)

    def _note(self, entry: Entry, value: int | None) -> None:
        stack = self._stacks.setdefault(entry, [])
        if value is not None:
            stack.append(value)
            self._history.append(entry)
        elif stack:
            stack.pop()
            last = len(self._history) - 1 - self._history[::-1].index(entry)
            del self._history[last]
        if not stack:
            del self._stacks[entry]

    def said(self, entry: Entry) -> int | None:
        """The answer to a question, if there is one."""
        stack = self._stacks.get(entry)
        return stack[-1] if stack else None

    def answer(self, row: int, column: int, word: str) -> None:
        """Keep an answer: yes, no or skip; it is on the disk when this returns."""
        if word not in VALUES:
            raise ConfigError(f"an answer is {', '.join(VALUES)}, not {word!r}")
        self.refuse_unknown(row, column)
        with self.lock:
            self.answers.add([(self.name_of(row), self.classes[column], VALUES[word])])
            self._note((row, column), VALUES[word])

    def take(self, given: dict[str, Any]) -> None:
        """Keep an answer as the page gives it."""
        self.answer(given["row"], given["class"], given["answer"])

    def take_back(self) -> dict[str, Any] | None:
        """Take the last answer back; returns the question, or None where there is none."""
        with self.lock:
            if not self._history:
                return None
            row, column = entry = self._history[-1]
            self.answers.add([(self.name_of(row), self.classes[column], None)])
            self._note(entry, None)
            return self.question(row, column)

    def next(
        self, count: int, column: int | None = None, without: Iterable[Entry] = (), *, skipped: bool = False
    ) -> list[dict[str, Any]]:
        """The next questions, of a class or of all; none that was answered, nor those ``without``.

        With ``skipped`` those that were skipped, the first first.
        """
        if skipped:
            return self._skipped(count, set(without))
        with self.lock:
            chance, known = self.chance(), self._known_now()
            here = set(without)

            def passed(row: int, column: int) -> bool:
                entry = row, column
                return entry in self._stacks or entry in here or row in self._unreadable

            while True:
                pool = self._pool(column)
                chosen = list(pool.choose(count, known, passed, chance))
                if column is not None or self._most >= MOST or not pool.used_up(passed):
                    break
                self._most, self._pools = 4 * self._most, {}
            return [self.question(row, c, chance(score)) for row, c, score in chosen]

    def _skipped(self, count: int, without: set[Entry]) -> list[dict[str, Any]]:
        with self.lock:
            skipped = [
                entry
                for entry, stack in self._stacks.items()
                if stack[-1] == SKIPPED and entry not in without and entry[0] not in self._unreadable
                if not math.isnan(self.scores[entry])  # an image that could not be read
            ]
            return [self.question(*entry) for entry in skipped[:count]]

    def _pool(self, column: int | None) -> Pool:
        if column not in self._pools:
            # Of one class all are kept: they are few beside all.
            most = self._most if column is None else len(self.split)
            self._pools[column] = Pool.of(self.scores, self.split.observed.values, most, column=column)
        return self._pools[column]

    def question(self, row: int, column: int, chance: float | None = None) -> dict[str, Any]:
        """A question as the page gets it; without score and chance (None) for an image that has no score."""
        answer = self.said((row, column))
        score = float(self.scores[row, column])
        known = not math.isnan(score)  # JSON has no NaN
        if known and chance is None:
            chance = self.chance()(score)
        return {
            "row": row,
            "class": column,
            "label": self.classes[column],
            "image": self.name_of(row),
            "score": score if known else None,
            "chance": chance,
            "answer": None if answer is None else WORDS[answer],
        }

    def chance(self) -> Chance:
        """How scores are to be read, by the answers so far."""
        with self.lock:
            asked = [(entry, stack[-1]) for entry, stack in [*self._stacks.items()][-FITTED:]]
        told = [(float(self.scores[entry]), value == POSITIVE) for entry, value in asked if value != SKIPPED]
        told = [(score, yes) for score, yes in told if not math.isnan(score)]
        return Chance.fitted([score for score, _ in told], [yes for _, yes in told])

    def _known_now(self) -> npt.NDArray[np.float64]:
        known = self._known_before.copy()
        for (row, column), stack in self._stacks.items():
            if stack[-1] == POSITIVE and self.split.observed.values[row, column] != POSITIVE:
                known[column] += 1
        return known

    def summary(self, column: int | None = None) -> dict[str, Any]:
        """How far the review is, and what it has brought and may bring."""
        with self.lock:
            last = [(entry, stack[-1]) for entry, stack in self._stacks.items()]
            counts = {word: sum(value == number for _, value in last) for word, number in VALUES.items()}
            new = [
                entry
                for entry, value in last
                if value == POSITIVE and self.split.observed.values[entry] == UNKNOWN
            ]
            coming = [question["chance"] for question in self.next(AHEAD, column)]
            return counts | {
                "answered": len(last),
                "found": len(new),
                "classes": len({label for _, label in new}),
                "known": int(self._known_before.sum()),
                "ahead": len(coming),
                "expected": float(sum(coming)),
                "can_undo": bool(self._history),
            }


def rows_of(asked: Container[str], split: PreparedSplit) -> dict[str, int]:
    """The rows of those images that were asked about, by name: a table of all would take much memory."""
    return {name: row for row, name in enumerate(split.paths.tolist()) if name in asked}
