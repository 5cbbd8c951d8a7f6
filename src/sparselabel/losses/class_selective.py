"""Class-aware selective loss: which unknown labels count as negative, and a weight for each kind of label.

CSL = Ben-Baruch et al., Multi-label Classification with Partial Annotations using Class-aware Selective Loss
(2022); also in PatchML (eq. 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from sparselabel.data.labels import NEGATIVE, UNKNOWN
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import ConfigError, command
from sparselabel.losses.base import (
    ComposedLoss,
    Needs,
    TargetLoss,
    TargetRule,
    Targets,
    at_least_float32,
    batch_sum,
)
from sparselabel.losses.large_loss import largest
from sparselabel.losses.registry import OWN_ENTRY_LOSS, register
from sparselabel.losses.setting_checks import checked_share, not_negative
from sparselabel.losses.step import Layout, Step
from sparselabel.losses.target_rules import no_negatives, positive_targets

Unknown = Literal["negative", "ignore", "selective"]
"""What an unknown label is: negative, left out, or negative unless it is likely positive."""


@dataclass(frozen=True)
class SelectiveFocal:
    """w₊·(1−f)^γ₊·(−log f) where positive, w·f^γ·(−log(1−f)) elsewhere (CSL eq. 4; PatchML eq. 1 and 2).

    No gradient flows through the powers, as in the authors' code; its clamp of scores at 1e-8 and its
    ``clip`` of those of negatives (0 by default) are not ours.
    """

    gamma_pos: float = 0.0
    gamma_neg: float = 1.0
    gamma_unknown: float = 4.0
    positive_weight: float = 1.0
    negative_weight: float = 1.0
    unknown_weight: float = 1.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            not_negative(name, value)

    def __call__(self, logits: Tensor, target: Tensor, observed: Tensor) -> Tensor:
        """(B, L, ...) losses; ``observed`` says which labels are unknown."""
        unknown = observed == UNKNOWN
        # torch.where of two plain numbers would give float32, whatever the logits' dtype.
        focus = torch.where(unknown, logits.new_full((), self.gamma_unknown), self.gamma_neg)
        weight = torch.where(unknown, logits.new_full((), self.unknown_weight), self.negative_weight)
        negative = torch.exp(focus * F.logsigmoid(logits.detach())) * F.softplus(logits)
        positive = torch.exp(self.gamma_pos * F.logsigmoid(-logits.detach())) * F.softplus(-logits)
        return target * self.positive_weight * positive + (1 - target) * weight * negative


class SelectiveUnknown(TargetRule):
    """Unknown is negative, or left out, or (``selective``) left out where it is likely positive.

    Likely are the ``likeliest``·B unknown entries with the highest scores in the batch of B rows, over all
    processes, and all unknown entries of a class whose ``prior`` is above ``prior_threshold`` (CSL eq. 7–8).
    As in the authors' code, the first count entries of such classes too. With ``labeled_only`` images
    without any label are left out (D^u of PatchML eq. 5), and do not count in B.
    """

    side_by_side = True

    def __init__(
        self,
        unknown: Unknown = "selective",
        likeliest: int = 5,
        prior: Sequence[float] | None = None,
        prior_threshold: float = 0.5,
        labeled_only: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(prior, str):
            raise ConfigError(
                f"prior must be a number for each class, not {prior!r}: a file, or auto, is for "
                f"{command('train')}, which reads or makes it before"
            )
        if likeliest < 0:
            raise ConfigError(
                f"likeliest is a number of unknown labels per image, 0 or more, not {likeliest}: 0 leaves "
                "none of them out"
            )
        self.unknown = unknown
        self.needs = Needs(negatives=unknown == "ignore")
        self.labeled_only = labeled_only
        self.likeliest = likeliest
        self.prior: tuple[float, ...] | None = None
        if prior is not None:
            self.take_prior(prior)
        self.prior_threshold = checked_share("prior_threshold", prior_threshold)

    def take_prior(self, prior: Sequence[float]) -> None:
        """Set the prior: a number for each class, its frequency."""
        self.prior = tuple(checked_share("prior", value) for value in prior)

    def prepare(self, layout: Layout) -> None:
        """Raise for a prior of other classes, or if all negatives would be left out."""
        classes = layout.observed.shape[1]
        if self.needs.negatives and all_reduce_sum(layout.counts(NEGATIVE)).sum() == 0:
            raise no_negatives("a method in ignore mode")
        if self.prior is not None and len(self.prior) != classes:
            raise ConfigError(
                f"prior must have a number for each of {classes} classes, not {len(self.prior)}"
            )

    def forward(self, step: Step) -> Targets:
        """Targets, with weight 0 for unknown entries that are left out."""
        value = positive_targets(step.observed, step)
        unknown = step.observed == UNKNOWN
        if self.unknown == "ignore":
            return Targets(value, (~unknown).to(value.dtype))
        rows = step.valid & has_labels(step.observed) if self.labeled_only else step.valid
        left_out = ~rows[..., None] & unknown
        if self.unknown == "selective":
            left_out = left_out | self._likely(step, unknown & rows[..., None], rows)
        return Targets(value, (~left_out).to(value.dtype))

    def _likely(self, step: Step, candidates: Tensor, rows: Tensor) -> Tensor:
        """(B, L) bool The candidates that are likely positive."""
        logits = at_least_float32(step.outputs[0].logits.detach())
        count, there = all_reduce_sum(torch.stack((rows.sum(-1), candidates.sum((-2, -1)))))
        likely = largest(logits, candidates, torch.minimum(self.likeliest * count, there))
        if self.prior is not None:
            frequent = torch.tensor(self.prior, device=logits.device) > self.prior_threshold
            likely = likely | (candidates & frequent)
        return likely


def has_labels(observed: Tensor) -> Tensor:
    """(B,) bool Which images have a label at all; the others are D^u of PatchML §3.2."""
    return (observed != UNKNOWN).any(dim=-1)


@register(
    "csl-i",
    needs=lambda unknown, **_: Needs(negatives=unknown == "ignore"),
    keeps_entry_loss=OWN_ENTRY_LOSS,
    leaves_out=True,
)
def csl_i(
    unknown: Unknown = "selective",
    likeliest: int = 5,
    prior: Sequence[float] | None = None,
    prior_threshold: float = 0.5,
    gamma_pos: float = 0.0,
    gamma_neg: float = 1.0,
    gamma_unknown: float = 4.0,
) -> ComposedLoss:
    """Class-aware selective loss: unknown is negative unless likely positive (Ben-Baruch et al. 2022).

    ``unknown`` selective: left out are the ``likeliest``·B unknown entries with the highest scores of a batch
    of B images, and all of a class whose ``prior`` is above ``prior_threshold``; negative: none; ignore: all.
    Exponents 0, 1 and 4 for positive, negative and unknown entries if labels are observed at random; the
    authors take 0, 3, 4 if their number is fixed per class. The sum over the entries, as in their code;
    beside other terms the mean over those that are not left out (ours). Observed negatives are on its
    negative side.

    Parameters
    ----------
    unknown
        What an unknown label is: negative, left out (ignore), or left out where it is likely positive and
        else negative (selective).
    likeliest
        Number of unknown labels per image of a batch that count as likely positive.
    prior
        The frequency of each class, to leave out unknown labels of frequent ones: a JSON or CSV file with a
        number for each class by name; or auto: the mean scores of a short run in ignore mode, which comes
        first. Default: none.
    prior_threshold
        The prior above which a class is frequent.
    gamma_pos
        Exponent γ₊ of positives.
    gamma_neg
        Exponent γ₋ of negatives.
    gamma_unknown
        Exponent γ_u of unknown labels that count as negative.
    """
    rule = SelectiveUnknown(unknown, likeliest, prior, prior_threshold)
    entry_loss = SelectiveFocal(gamma_pos, gamma_neg, gamma_unknown)
    return ComposedLoss(TargetLoss(rule, entry_loss), reduction=batch_sum)
