"""What both kinds of review share: pictures, classes, answers, and pictures that cannot be shown."""

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import PreparedSplit
from sparselabel.errors import ConfigError
from sparselabel.review.answer_log import AnswerFile


class Asking:
    """A split's pictures with the model's scores (N, L), and the file that answers go to."""

    def __init__(
        self, part: PreparedSplit, scores: npt.NDArray[np.floating[Any]], answers: AnswerFile
    ) -> None:
        self.part, self.scores, self.answers = part, scores, answers
        self.classes = part.truth.classes
        self.lock = threading.RLock()
        self._unreadable: set[int] = set()

    def unreadable(self, row: int) -> None:
        """Ask no more about a picture that cannot be shown."""
        with self.lock:
            self._unreadable.add(row)

    def name_of(self, row: int) -> str:
        """A picture's name in the file of answers."""
        return str(self.part.paths[row])

    def refuse_unknown(self, row: int, column: int) -> None:
        """Raise unless there is such a picture and class."""
        if not (0 <= row < len(self.part) and 0 <= column < len(self.classes)):
            raise ConfigError(
                f"picture {row} and class {column} are not there: rows go to {len(self.part) - 1}, classes "
                f"to {len(self.classes) - 1}"
            )
