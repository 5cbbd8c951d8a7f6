"""The learning rate of every step, as a pure function: nothing to save, nothing to restore."""

import math

from sparselabel.config import Phase

RISE = 0.2  # one-cycle: the share of steps in which the rate rises (P4's recipe)
START, END = 1 / 25, 1 / 25e4  # one-cycle: first and last rate, as parts of the highest


def learning_rate(phase: Phase, step: int, steps: int) -> float:
    """The rate of step ``step`` (from 0) of the phase's ``steps``."""
    highest = phase.learning_rate
    match phase.schedule:
        case "constant":
            return highest
        case "cosine":
            return _between(highest, 0.0, step / steps)
        case "one-cycle":
            top = RISE * steps - 1
            if step <= top:
                return _between(highest * START, highest, step / top) if top > 0 else highest
            return _between(highest, highest * END, (step - top) / (steps - 1 - top))


def _between(start: float, end: float, share: float) -> float:
    """From start to end along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
