"""FixMatch for multi-label images: confident predictions on a weak view are targets for a strong view.

Sohn et al., FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence (2020). PatchML
compares with a form for many labels and prints neither thresholds nor weights.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from sparselabel.data.labels import UNKNOWN
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import ConfigError
from sparselabel.losses.base import ComposedLoss, LossPart, Needs, at_least_float32
from sparselabel.losses.class_selective import csl_i
from sparselabel.losses.registry import OWN_ENTRY_LOSS, register
from sparselabel.losses.setting_checks import not_negative
from sparselabel.losses.step import Step


class ConfidentViews(LossPart):
    """λ times the cross-entropy of the strong view with confident scores of the weak one, for unknown labels.

    A score above ``sure_positive`` (τ₊) is a target 1, one below ``sure_negative`` (τ₋) a target 0, without
    gradient; other labels are left out. The sum is divided by the number of unknown labels, confident or not,
    as FixMatch divides by all unlabeled images.
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
                "fixmatch compares two views of every image", "give two logits, as (weak, strong)"
            )
        weak, strong = (at_least_float32(output.logits) for output in step.outputs[:2])
        scores = torch.sigmoid(weak.detach())
        unknown = (step.observed == UNKNOWN) & step.valid[:, None]
        present, absent = scores > self.sure_positive, scores < self.sure_negative
        losses = F.binary_cross_entropy_with_logits(strong, present.to(strong.dtype), reduction="none")
        losses = losses * (unknown & (present | absent))
        return self.weight * all_reduce_sum(losses.sum()) / all_reduce_sum(unknown.sum()).clamp(min=1)


@register("fixmatch", "unlabeled", needs=ConfidentViews.needs)
def with_fixmatch(
    method: ComposedLoss, sure_positive: float = 0.9, sure_negative: float = 0.1, strong_weight: float = 1.0
) -> ComposedLoss:
    """FixMatch: confident scores of one view are the targets of another (Sohn et al. 2020).

    The second view of an image is strong: two random changes of its colors beside crop and flip. Where the
    weak view's score is above τ₊ (``sure_positive``) or below τ₋ (``sure_negative``), the strong view's
    cross-entropy with 1 or 0 is added at ``strong_weight``, divided by the number of unknown labels. PatchML
    gives neither these values (.9, .1 and 1 are ours) nor whether the term is for images without labels only;
    here it is for every unknown label. FixMatch's cutout could hide what is labeled, so it is off (ours)
    unless ``views.cutout`` is set; cutout and ``views.rand_augment`` change the strong view alone.

    Parameters
    ----------
    method
        The method to which it is added.
    sure_positive
        τ₊, the weak view's score above which a label is the strong view's target.
    sure_negative
        τ₋, the score below which it is.
    strong_weight
        Weight of the strong view.
    """
    return method.with_term("strong", ConfidentViews(sure_positive, sure_negative, strong_weight))


@register(
    "fixmatch",
    like=with_fixmatch,
    needs=ConfidentViews.needs | Needs(negatives=True),
    keeps_entry_loss=OWN_ENTRY_LOSS,
)
def fixmatch(
    sure_positive: float = 0.9,
    sure_negative: float = 0.1,
    strong_weight: float = 1.0,
    gamma_pos: float = 0.0,
    gamma_neg: float = 1.0,
) -> ComposedLoss:
    """FixMatch for many labels: csl-i in ignore mode, and +fixmatch (Sohn et al. 2020; PatchML table 3).

    The mean over observed labels, and a term for the unknown ones: see +fixmatch.

    Parameters
    ----------
    gamma_pos
        Exponent γ₊ of positives.
    gamma_neg
        Exponent γ₋ of negatives.
    """
    base = csl_i("ignore", gamma_pos=gamma_pos, gamma_neg=gamma_neg)
    return with_fixmatch(base, sure_positive, sure_negative, strong_weight)
