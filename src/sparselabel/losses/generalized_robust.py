"""Generalized robust loss: the model's own score decides how far an unknown label counts as positive.

Chen et al., Boosting Single Positive Multi-label Classification with Generalized Robust Loss (2024).
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sparselabel.data.labels import UNKNOWN
from sparselabel.losses.base import (
    ComposedLoss,
    EntryLosses,
    LabelLoss,
    Needs,
    at_least_float32,
    cross_entropy,
)
from sparselabel.losses.registry import OWN_ENTRY_LOSS, register
from sparselabel.losses.setting_checks import finite
from sparselabel.losses.step import Progress, Step, not_begun
from sparselabel.losses.target_rules import positive_targets


class Line(NamedTuple):
    """A number that moves linearly from ``start`` to ``end`` during training."""

    start: float
    end: float

    def at(self, time: float) -> float:
        """Its value at a time in 0..1."""
        return self.start + time * (self.end - self.start)


CENTER, WIDTH = Line(0.5, 0.8), Line(2.0, 0.5)


class GeneralizedRobust(LabelLoss):
    """An unknown entry costs V·[k·(1−f^q₂)/q₂ + (1−k)·(1−(1−f)^q₃)/q₃]; a known one its cross-entropy.

    k = σ(w·f + b), the belief that it is positive, and V = exp(−(f−m)²/2s²), the weight of its score, carry
    no gradient. w, b, m and s move with the epochs, as in the authors' code: of T epochs after the warm-up,
    the t-th (from 1) has w and b at (t−1)/T, short of their end, and m and s at t/T. So ``begin_epoch`` must
    be called in every epoch.
    """

    needs = Needs(epochs=True)
    side_by_side = True

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
        self._current_epoch: int | None = None

    def begin_epoch(self, progress: Progress) -> None:
        self._current_epoch = progress.epoch
        epochs = max(progress.epochs - progress.head_epochs, 1)
        done = progress.epoch - progress.head_epochs
        before, after = max(done, 0) / epochs, max(done + 1, 0) / epochs
        slope, offset, center, width = self.lines
        self.at = slope.at(before), offset.at(before), center.at(after), width.at(after)

    def forward(self, step: Step) -> EntryLosses:
        if step.progress.epoch != self._current_epoch:  # w, b, m and s would silently stay the same
            raise not_begun(step.progress)
        logits, observed = at_least_float32(step.outputs[0].logits), step.observed
        slope, offset, center, width = self.at
        scores = torch.sigmoid(logits.detach())
        belief = (slope * scores).add_(offset).sigmoid_()
        weight = scores.sub_(center).square_().mul_(-0.5 / width**2).exp_()
        positive = _robust(logits, self.positive_power)
        negative = _robust(-logits, self.negative_power)
        unknown = weight * torch.lerp(negative, positive, belief)
        known = cross_entropy(logits, positive_targets(observed, step), observed)
        losses = torch.where(observed == UNKNOWN, unknown, known)
        return EntryLosses(losses)


def _robust(logits: Tensor, power: float) -> Tensor:
    """(1 − f^q)/q of f = σ(logit), from log f: exact also where f^q is near 1."""
    if power == 1:
        return torch.sigmoid(-logits)
    return torch.expm1(power * F.logsigmoid(logits)) * (-1 / power)


@register(
    "gr",
    needs=Needs(epochs=True),
    keeps_entry_loss=OWN_ENTRY_LOSS,
    presets={
        "voc": {"belief_slope": 2.0, "belief_offset": -2.0},
        "coco": {"belief_slope": 10.0, "belief_offset": -8.0},
        "nus": {"belief_slope": 2.0, "belief_offset": -2.0},
        "cub": {"belief_slope": 2.0, "belief_offset": -2.0},
    },
)
def gr(belief_slope: float = 2.0, belief_offset: float = -2.0) -> ComposedLoss:
    """Generalized robust loss: an unknown label is positive with a weight from its score (Chen et al. 2024).

    V·[k·(1−p^q₂)/q₂ + (1−k)·(1−(1−p)^q₃)/q₃] with q₂ .01, q₃ 1, the belief k = σ(w·p + b) and the weight
    V = exp(−(p−m)²/2s²). After the warm-up w goes from 0 to ``belief_slope``, b from −2 to ``belief_offset``,
    m from .5 to .8 and s from 2 to .5; w and b stop a step short, as in the authors' code. 8 epochs there.
    An observed negative is −log(1−p) (ours; their code drops it).

    Parameters
    ----------
    belief_slope
        w of the belief σ(w·p + b) in unknown labels at the end; it starts at 0.
    belief_offset
        b of the belief at the end; it starts at −2.
    """
    return ComposedLoss(GeneralizedRobust(slope=Line(0.0, belief_slope), offset=Line(-2.0, belief_offset)))
