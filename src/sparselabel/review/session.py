"""The state of a review: known labels, answers, and next questions. The server's threads share one."""

import math
import threading
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparselabel.data.answers import SKIPPED
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.errors import ConfigError
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.question_order import Chance, Passed, Pool, known_positives

Entry = tuple[int, int]
LEASE_SECONDS = 600.0
"""How long a silent page keeps its questions."""


class Leases:
    """Leases of questions (row, class) by pages. They end when a page releases them or is silent too long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._entries_of: dict[str, set[Entry]] = {}
        self._until: dict[str, float] = {}

    def of_others(self, page: str) -> set[Entry]:
        """The questions held by other pages."""
        with self._lock:
            now = self._clock()
            for gone in [name for name, until in self._until.items() if until < now]:
                self.release(gone)
            return {entry for name, entries in self._entries_of.items() if name != page for entry in entries}

    def hold(self, page: str, entries: Iterable[Entry]) -> None:
        """Lease these questions to a page, instead of those it had."""
        with self._lock:
            self._entries_of[page] = set(entries)
            self.renew(page)

    def renew(self, page: str) -> None:
        """Extend the lease of a page that is still open."""
        with self._lock:
            if page in self._entries_of:
                self._until[page] = self._clock() + LEASE_SECONDS

    def release(self, page: str) -> None:
        """Release the questions of a page."""
        with self._lock:
            self._entries_of.pop(page, None)
            self._until.pop(page, None)


class ReviewSession:
    """A split's images with the model's scores (N, L), and the file that answers go to."""

    def __init__(
        self, split: PreparedSplit, scores: npt.NDArray[np.floating[Any]], answers: AnswerFile
    ) -> None:
        self.split, self.scores, self.answers = split, scores, answers
        self.classes = split.truth.classes
        self.lock = threading.RLock()
        self.leases = Leases()
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


FEWEST, MOST = 64, 4096  # questions of a class that are kept ready, at first and at most
AHEAD = 50  # questions of which the number of expected yeses is told
FITTED = 2000  # latest answers that tell how scores are to be read
VALUES = {"yes": POSITIVE, "no": NEGATIVE, "skip": SKIPPED}
WORDS = {value: word for word, value in VALUES.items()}


class Said(NamedTuple):
    """An answer to a question, and whose it is."""

    value: int
    reviewer: str


@dataclass(frozen=True)
class Given:
    """Answers given together: one, or a page of them."""

    reviewer: str
    entries: list[Entry]


class Review(ReviewSession):
    """Questions about unknown labels of a split (scores (N, L)), those first that bring most positives."""

    def __init__(
        self, split: PreparedSplit, scores: npt.NDArray[np.floating[Any]], answers: AnswerFile
    ) -> None:
        super().__init__(split, scores, answers)
        self._known_before = known_positives(split.observed.matrix)
        self._most = FEWEST
        self._pools: dict[int | None, Pool] = {}
        self._history: list[Given] = []
        self._stacks: dict[Entry, list[Said]] = {}
        self._columns_of: dict[int, set[int]] = {}  # of a row: classes that have answers
        row_of = rows_of({answer.image for answer in answers.answers}, split)
        column_of = {name: column for column, name in enumerate(self.classes)}
        for answer in answers.answers:
            row, column = row_of.get(answer.image), column_of.get(answer.label)
            if row is None or column is None:
                continue  # of another split, or other data
            if answer.value is None:
                self._take_off((row, column))
            else:
                self._note([((row, column), answer.value)], answer.reviewer)

    def _note(self, values: list[tuple[Entry, int]], reviewer: str) -> None:
        for entry, value in values:
            self._stacks.setdefault(entry, []).append(Said(value, reviewer))
            self._columns_of.setdefault(entry[0], set()).add(entry[1])
        self._history.append(Given(reviewer, [entry for entry, _ in values]))

    def _take_off(self, entry: Entry) -> None:
        """Forget the last answer to a question."""
        stack = self._stacks.get(entry)
        if not stack:
            return
        stack.pop()
        for at in reversed(range(len(self._history))):
            if entry in self._history[at].entries:
                self._history[at].entries.remove(entry)
                if not self._history[at].entries:
                    del self._history[at]
                break
        if not stack:
            del self._stacks[entry]
            self._columns_of[entry[0]].discard(entry[1])

    def said(self, entry: Entry) -> int | None:
        """The answer to a question, if there is one."""
        stack = self._stacks.get(entry)
        return stack[-1].value if stack else None

    def answer(self, row: int, column: int, word: str, reviewer: str | None = None) -> None:
        """Keep an answer: yes, no or skip; it is on the disk when this returns."""
        self.take({"row": row, "class": column, "answer": word}, reviewer)

    def take(self, given: dict[str, Any], reviewer: str | None = None) -> None:
        """Keep an answer as the page gives it, or a page of ``answers``: all are on the disk, or none is."""
        values: list[tuple[Entry, int]] = []
        for one in given.get("answers", [given]):
            entry, word = (one["row"], one["class"]), one["answer"]
            if word not in VALUES:
                raise ConfigError(f"an answer is {', '.join(VALUES)}, not {word!r}")
            self.refuse_unknown(*entry)
            values.append((entry, VALUES[word]))
        with self.lock:
            lines = [(self.name_of(row), self.classes[column], value) for (row, column), value in values]
            self.answers.add(lines, reviewer)
            self._note(values, self.answers.reviewer if reviewer is None else reviewer)

    def take_back(self, reviewer: str | None = None) -> list[dict[str, Any]]:
        """Take back what was answered last, by this reviewer or by anybody; returns the questions.

        An answer that somebody else has replaced since stays as it is.
        """
        with self.lock:
            for given in reversed(self._history):
                if reviewer not in (None, given.reviewer):
                    continue
                own = [one for one in given.entries if self._stacks[one][-1].reviewer == given.reviewer]
                if not own:
                    continue
                self.answers.add([(self.name_of(row), self.classes[c], None) for row, c in own], reviewer)
                before = [self.said(entry) for entry in own]
                for entry in own:
                    self._take_off(entry)
                questions = [self.question(*entry) for entry in own]
                for question, value in zip(questions, before, strict=True):
                    question["before"] = WORDS[value] if value is not None else None
                return questions
            return []

    def next(
        self,
        count: int,
        column: int | None = None,
        without: Iterable[Entry] = (),
        *,
        skipped: bool = False,
        grid: bool = False,
        page: str = "",
    ) -> list[dict[str, Any]]:
        """The next questions, of a class or of all; none that was answered, nor those ``without``.

        With ``skipped`` those that were skipped, the first first. With ``grid`` all are about one class.
        Their images are kept for this ``page``, with those ``without``, which it shows.
        """
        with self.lock:
            rows, columns = self.scores.shape
            here = {one for one in without if 0 <= one[0] < rows and 0 <= one[1] < columns}
            others = self.leases.of_others(page)
            gone = self._unreadable | {row for row, _ in others}
            if skipped:
                entries = [
                    entry
                    for entry, stack in self._stacks.items()
                    if stack[-1].value == SKIPPED and entry not in here and entry[0] not in gone
                    if not math.isnan(self.scores[entry])  # an image that could not be read
                ]
                if grid:
                    entries = [entry for entry in entries if entry[1] == entries[0][1]]
                questions = [self.question(*entry) for entry in entries[:count]]
            else:

                def passed(row: int, column: int) -> bool:
                    entry = row, column
                    return entry in self._stacks or entry in here or row in gone

                chosen = self._choose(count, column, passed, here | others, grid)
                questions = [self.question(*one) for one in chosen]
            self.leases.hold(page, here.union((one["row"], one["class"]) for one in questions))
            return questions

    def _choose(
        self, count: int, column: int | None, passed: Passed, shown: set[Entry], grid: bool
    ) -> list[tuple[int, int, float]]:
        """Rows, classes and chances of a yes of the next questions; those ``shown`` are being answered."""
        chance, known = self.chance(), self._known_now()
        for entry in shown:
            if not math.isnan(self.scores[entry]):
                known[entry[1]] += chance(float(self.scores[entry]))
        while True:
            pool = self._pool(column)
            if grid and column is None:
                chosen = pool.choose_class(count, known, passed, chance)
            else:
                chosen = list(pool.choose(count, known, passed, chance))
            if column is not None or self._most >= MOST or not pool.used_up(passed):
                break
            self._most, self._pools = 4 * self._most, {}
        return [(row, c, chance(score)) for row, c, score in chosen]

    def _pool(self, column: int | None) -> Pool:
        if column not in self._pools:
            # Of one class all are kept: they are few beside all.
            most = self._most if column is None else len(self.split)
            self._pools[column] = Pool.of(self.scores, self.split.observed.matrix, most, column=column)
        return self._pools[column]

    def question(self, row: int, column: int, chance: float | None = None) -> dict[str, Any]:
        """A question as the page gets it; without score and chance (None) for an image that has no score.

        ``known`` are the classes that the image is known to show.
        """
        answer = self.said((row, column))
        score = float(self.scores[row, column])
        scored = not math.isnan(score)  # JSON has no NaN
        if scored and chance is None:
            chance = self.chance_of(row, column)
        known = set(np.flatnonzero(np.asarray(self.split.observed.matrix[row]) == POSITIVE).tolist())
        for other in self._columns_of.get(row, ()):
            (known.add if self.said((row, other)) == POSITIVE else known.discard)(other)
        return {
            "row": row,
            "class": column,
            "label": self.classes[column],
            "image": self.name_of(row),
            "score": score if scored else None,
            "chance": chance,
            "answer": None if answer is None else WORDS[answer],
            "known": [self.classes[other] for other in sorted(known - {column})],
        }

    def chance_of(self, row: int, column: int) -> float:
        """The probability that an answer is yes."""
        return self.chance()(float(self.scores[row, column]))

    def chance(self) -> Chance:
        """How scores are to be read, by the answers so far."""
        with self.lock:
            asked = [(entry, stack[-1].value) for entry, stack in [*self._stacks.items()][-FITTED:]]
        answered = [
            (float(self.scores[entry]), value == POSITIVE) for entry, value in asked if value != SKIPPED
        ]
        answered = [(score, yes) for score, yes in answered if not math.isnan(score)]
        return Chance.fitted([score for score, _ in answered], [yes for _, yes in answered])

    def _known_now(self) -> npt.NDArray[np.float64]:
        known = self._known_before.copy()
        for (row, column), stack in self._stacks.items():
            if stack[-1].value == POSITIVE and self.split.observed.matrix[row, column] != POSITIVE:
                known[column] += 1
        return known

    def summary(self, column: int | None = None) -> dict[str, Any]:
        """The progress of the review, and what it has found and may find."""
        with self.lock:
            last = [(entry, stack[-1].value) for entry, stack in self._stacks.items()]
            counts = {word: sum(value == number for _, value in last) for word, number in VALUES.items()}
            new = [
                entry
                for entry, value in last
                if value == POSITIVE and self.split.observed.matrix[entry] == UNKNOWN
            ]
            gone = self._unreadable
            ahead = self._choose(
                AHEAD, column, lambda row, one: (row, one) in self._stacks or row in gone, set(), False
            )
            return counts | {
                "answered": len(last),
                "found": len(new),
                "classes": len({label for _, label in new}),
                "known": int(self._known_before.sum()),
                "ahead": len(ahead),
                "expected": float(sum(chance for _, _, chance in ahead)),
                "can_undo": bool(self._history),
                "goal": self.goal(),
            }

    def goal(self) -> dict[str, Any] | None:
        """The number of further answers that the goal needs, if it has an end."""
        return None


def rows_of(asked: Container[str], split: PreparedSplit) -> dict[str, int]:
    """The rows of those images that were asked about, by name: a table of all would take much memory."""
    return {name: row for row, name in enumerate(split.paths.tolist()) if name in asked}
