"""ROLE's two sides, which share one ``LabelEstimates`` (P3 §5.4, eq. 11)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.distributed import total
from sparselabel.losses.base import Part, Step, Targets
from sparselabel.losses.role import LabelEstimates


class RoleReading(Part):
    """The classifier's side of ROLE: the beliefs as targets, pulled up for the observed positives.

    weight·BCE(f, value) = ½[BCE(f, ỹ) + w₊·[z=1]·(−log f)], which is P3 eq. 11 without its R_k. An observed
    negative is −log(1−f) at full weight (ours; the paper has none).
    """

    def __init__(self, beliefs: LabelEstimates) -> None:
        super().__init__()
        self.beliefs = beliefs

    def forward(self, step: Step) -> Targets:
        """The step's targets and weights."""
        extra = self.beliefs.positive_weight * (step.observed == POSITIVE)
        whole = 1 + extra
        value = (self.beliefs.current(step).beliefs + extra) / whole
        negative = step.observed == NEGATIVE
        return Targets(value.masked_fill_(negative, 0.0), (whole / 2).masked_fill_(negative, 1.0))


class EstimatesLoss(Part):
    """The estimates' side of ROLE, without gradient: ½[BCE(ỹ, f) + w₊·[z=1]·(−log ỹ)] + ½R_k(ỹ)."""

    def __init__(self, beliefs: LabelEstimates) -> None:
        super().__init__()
        self.beliefs = beliefs

    @torch.no_grad()
    def forward(self, step: Step) -> Tensor:
        """The loss of the whole batch over all processes."""
        beliefs, current = self.beliefs, self.beliefs.current(step)
        logits = current.logits
        scores = step.outputs[0].logits.to(logits.dtype).sigmoid()
        losses = F.binary_cross_entropy_with_logits(logits, scores, reduction="none")
        losses -= beliefs.positive_weight * (step.observed == POSITIVE) * F.logsigmoid(logits)
        mean = total(losses[current.kept].sum()) / (current.size * beliefs.classes)
        deviation = (current.positives - beliefs.expected) / beliefs.classes
        return 0.5 * (mean + beliefs.weight * deviation**2)
