"""Expected positive regularization: pull the batch's number of predicted positives to K.

Cole et al. 2021, Multi-Label Learning from Single Positive Labels, §5.3.
"""

import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE
from sparselabel.distributed import all_reduce_sum
from sparselabel.losses.base import (
    ComposedLoss,
    LossPart,
    TargetLoss,
    TargetRule,
    Targets,
    at_least_float32,
    cross_entropy,
)
from sparselabel.losses.registry import register
from sparselabel.losses.setting_checks import Expected, checked_count, not_negative, refuse_too_many
from sparselabel.losses.step import Layout, Step
from sparselabel.losses.target_rules import positive_targets


class CountPenalty(LossPart):
    """Pulls the batch's number of predicted positives to the expected one, K (Cole 2021 §5.3)."""

    side_by_side = True

    def __init__(self, expected: Expected, weight: float = 1.0) -> None:
        super().__init__()
        self.expected = checked_count(expected)
        self.weight = not_negative("count_weight", weight)

    def prepare(self, layout: Layout) -> None:
        refuse_too_many(self.expected, layout.observed.shape[1], layout.total)

    def forward(self, step: Step) -> Tensor:
        """λ·((k̂ − k)/L)² of Cole 2021 eq. 10; k̂ is the mean sum of an image's scores."""
        scores = torch.sigmoid(at_least_float32(step.outputs[0].logits))
        scores = scores * step.valid[..., None] if step.padded else scores
        classes = scores.shape[-1]
        share = all_reduce_sum(scores.sum((-2, -1))) / (step.size * classes)
        return self.weight * (share - self.expected / classes).square()


class PositivesOnly(TargetRule):
    """Unknown labels are left out: the first half of EPR (Cole 2021 §5.3)."""

    side_by_side = True

    def __init__(self, positive_weight: float = 1.0) -> None:
        super().__init__()
        self.positive_weight = not_negative("positive_weight", positive_weight)

    def forward(self, step: Step) -> Targets:
        """Weight ``positive_weight`` where positive, 1 where observed negative, else 0."""
        value = positive_targets(step.observed, step)
        return Targets(value, value * self.positive_weight + (step.observed == NEGATIVE))


@register("epr", keeps_entry_loss="it has no loss on unknown labels, which are what an entry loss weighs")
def epr(
    expected_positives: Expected = None, count_weight: float = 1.0, positive_weight: float = 1.0
) -> ComposedLoss:
    """Expected positive regularization: positives, and λ((k̂−k)/L)² on the batch's count (Cole 2021 eq. 10).

    Positives are divided by B·L, as in the authors' code (its learning rates belong to that scale); the
    paper divides by B: ``positive_weight`` = L. Statistics are those of the whole batch over all processes.

    Parameters
    ----------
    expected_positives
        K, the mean number of classes in an image.
    count_weight
        λ of the count's term.
    positive_weight
        Weight of observed positives.
    """
    term = CountPenalty(expected_positives, count_weight)
    return ComposedLoss(TargetLoss(PositivesOnly(positive_weight), cross_entropy), {"count": term})
