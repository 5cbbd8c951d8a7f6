"""FixMatch for many labels: what the model is sure of in one view is the target of another, harder one.

Sohn et al., FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence (2020). PatchML =
PatchML, which compares with a form for many labels and prints neither thresholds nor weights.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from sparselabel.data.labels import UNKNOWN
from sparselabel.distributed import total
from sparselabel.errors import ConfigError
from sparselabel.losses.base import LossPart, Needs, Step, at_least_float32
from sparselabel.losses.setting_checks import not_negative


class ConfidentViews(LossPart):
    """λ times the cross-entropy of the strong view with what the weak one is sure of, of unknown labels.

    A score above ``sure_positive`` (τ₊) is a target 1, one below ``sure_negative`` (τ₋) a target 0, without
    gradient; all else is left out. Divided by the number of unknown labels, sure or not, as FixMatch divides
    by all unlabeled images: so the term grows as the model becomes sure.
    """

    needs = Needs(views=2, strong_views=1)

    def __init__(self, sure_positive: float = 0.9, sure_negative: float = 0.1, weight: float = 1.0) -> None:
        super().__init__()
        if not 0 <= sure_negative < sure_positive <= 1:
            raise ConfigError(
                f"sure_negative must be below sure_positive, both scores in [0, 1], not {sure_negative} and "
                f"{sure_positive}"
            )
        self.sure_positive = sure_positive
        self.sure_negative = sure_negative
        self.weight = not_negative("strong_weight", weight)

    def forward(self, step: Step) -> Tensor:
        """A scalar over all processes."""
        if len(step.outputs) < 2:
            raise ConfigError(
                "fixmatch needs two views of every image: give Step(outputs=(weak, strong), frames=...)"
            )
        weak, strong = (at_least_float32(output.logits) for output in step.outputs[:2])
        scores = torch.sigmoid(weak.detach())
        unknown = (step.observed == UNKNOWN) & step.valid[:, None]
        present, absent = scores > self.sure_positive, scores < self.sure_negative
        losses = F.binary_cross_entropy_with_logits(strong, present.to(strong.dtype), reduction="none")
        losses = losses * (unknown & (present | absent))
        return self.weight * total(losses.sum()) / total(unknown.sum()).clamp(min=1)
