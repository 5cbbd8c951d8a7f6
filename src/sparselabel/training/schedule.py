"""Learning rate and momentum of every step, as pure functions: there is nothing to save or restore."""

import math

from sparselabel.config import Phase

RISE = 0.2  # one-cycle: the share of steps in which the rate rises (Query2Label's recipe)
START, END = 1 / 25, 1 / 25e4  # one-cycle: first and last rate, as parts of the highest
MOST, LEAST = 0.95, 0.85  # one-cycle: momentum at both ends, and at the highest rate (PyTorch's defaults)


def lr_at(phase: Phase, step: int, steps: int) -> float:
    """The learning rate of step ``step`` (from 0) of the phase's ``steps``."""
    highest = phase.lr
    match phase.schedule:
        case "constant":
            return highest
        case "cosine":
            return _between(highest, 0.0, step / steps)
        case "one-cycle":
            return _cycle(step, steps, highest * START, highest, highest * END)


def momentum_at(phase: Phase, step: int, steps: int) -> float | None:
    """The momentum of a step (Adam's β₁) if the schedule changes it: opposite to the rate, in one-cycle."""
    return _cycle(step, steps, MOST, LEAST, MOST) if phase.schedule == "one-cycle" else None


def _cycle(step: int, steps: int, first: float, middle: float, last: float) -> float:
    top = RISE * steps - 1
    if step <= top:
        return _between(first, middle, step / top) if top > 0 else middle
    return _between(middle, last, (step - top) / (steps - 1 - top))


def _between(start: float, end: float, share: float) -> float:
    """Interpolate from start to end along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
