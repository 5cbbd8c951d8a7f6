"""How likely a yes is, given a score: the score itself at first, corrected by what was answered so far.

Models that took unknown labels for absent say 0.2 where half of the answers are yes. A logistic curve of the
score's logit, p = σ(a·logit(score) + b), is fitted to the answers, held near a = 1, b = 0 while they are few.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
        found = prior.copy()
        for _ in range(STEPS):  # Newton's method: the problem is convex, and the prior keeps it bounded
            chance = 1 / (1 + np.exp(-np.clip(inputs @ found, -30, 30)))
            slope = inputs.T @ (chance - target) + held @ (found - prior)
            curve = (inputs * (chance * (1 - chance))[:, None]).T @ inputs + held
            step = np.linalg.solve(curve, slope)
            found = found - step / max(1.0, float(np.abs(step).max()))
        # A curve that falls would ask about the unlikely first: scores are trusted that far.
        return Chance(max(float(found[0]), 0.05), float(found[1]))


def _logit(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    clipped = np.clip(np.asarray(scores, dtype=np.float64), SMALLEST, 1 - SMALLEST)
    return np.asarray(np.log(clipped / (1 - clipped)))
