"""The generalized robust loss: the unknown label between positive and negative, by the model's own score.

Chen et al., Boosting Single Positive Multi-label Classification with Generalized Robust Loss (2024).
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sparselabel.data.labels import UNKNOWN
from sparselabel.losses.base import LossPart, Progress, Step, Targets, not_begun
from sparselabel.losses.entry_losses import cross_entropy
from sparselabel.losses.setting_checks import finite


class Line(NamedTuple):
    """A number that moves from ``start`` to ``end`` in the course of training."""

    start: float
    end: float

    def at(self, time: float) -> float:
        """Its value at a time in 0..1."""
        return self.start + time * (self.end - self.start)


CENTER, WIDTH = Line(0.5, 0.8), Line(2.0, 0.5)


class GeneralizedRobust(LossPart):
    """An unknown entry costs V·[k·(1−f^q₂)/q₂ + (1−k)·(1−(1−f)^q₃)/q₃]; a known one its cross-entropy.

    k = σ(w·f + b), the belief that it is positive, and V = exp(−(f−m)²/2s²), the weight of its score, carry
    no gradient. w, b, m and s move with the epochs, as in the authors' program: of T epochs after the
    warm-up, the t-th (from 1) has w and b at (t−1)/T, so that they never arrive, and m and s at t/T. So every
    epoch must begin with ``begin_epoch``; an element sees no epochs, but ``observe`` does and refuses.
    """

    def __init__(
        self,
        slope: Line,
        offset: Line,
        center: Line = CENTER,
        width: Line = WIDTH,
        positive_power: float = 0.01,
        negative_power: float = 1.0,
    ) -> None:
        super().__init__()
        for name, line in {"belief_slope": slope, "belief_offset": offset}.items():
            finite(name, line.end)
        self.lines = slope, offset, center, width
        self.positive_power, self.negative_power = positive_power, negative_power
        self.at = tuple(line.start for line in self.lines)
        self._begun: int | None = None

    def begin_epoch(self, progress: Progress) -> None:
        """Move w, b, m and s."""
        self._begun = progress.epoch
        epochs = max(progress.epochs - progress.warm_up, 1)
        done = progress.epoch - progress.warm_up
        before, after = max(done, 0) / epochs, max(done + 1, 0) / epochs
        slope, offset, center, width = self.lines
        self.at = slope.at(before), offset.at(before), center.at(after), width.at(after)

    def update(self, step: Step, targets: Targets) -> None:
        """Refuse a step of an epoch that nobody began: w, b, m and s would silently stay where they were."""
        if step.progress.epoch != self._begun:
            raise not_begun(step.progress)

    def forward(self, logits: Tensor, target: Tensor, observed: Tensor) -> Tensor:
        """(B, L) losses."""
        slope, offset, center, width = self.at
        scores = torch.sigmoid(logits).detach()
        belief = torch.sigmoid(slope * scores + offset)
        weight = torch.exp(-((scores - center) ** 2) / (2 * width**2))
        # (1 − f^q)/q from log f, exact also where f^q is near 1.
        positive = -torch.expm1(self.positive_power * F.logsigmoid(logits)) / self.positive_power
        negative = -torch.expm1(self.negative_power * F.logsigmoid(-logits)) / self.negative_power
        unknown = weight * (belief * positive + (1 - belief) * negative)
        return torch.where(observed == UNKNOWN, unknown, cross_entropy(logits, target, observed))
