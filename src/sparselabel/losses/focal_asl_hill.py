"""Focal, asymmetric and Hill loss: entry losses that down-weight easy entries, and methods of these names.

Lin et al. 2017, Focal Loss for Dense Object Detection. Ridnik et al. 2021, Asymmetric Loss For Multi-Label
Classification. Zhang et al. 2021, Simple and Robust Loss Design for Multi-Label Learning with Missing Labels.
All are computed from logits, so that they stay finite and keep their gradient at any logit.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.errors import ConfigError
from sparselabel.losses.base import ComposedLoss, ScaledMean, TargetLoss, batch_sum
from sparselabel.losses.registry import OWN_ENTRY_LOSS, register
from sparselabel.losses.setting_checks import not_negative
from sparselabel.losses.target_rules import AssumedNegative


def focused(logits: Tensor, focus: float) -> Tensor:
    """(1−f)^γ·(−log f): the positive side of focal losses; of −logit, the negative side."""
    return torch.exp(focus * F.logsigmoid(-logits)) * F.softplus(-logits)


@dataclass(frozen=True)
class Focal:
    """(1−f)^γ₊·(−log f) where positive, f^γ₋·(−log(1−f)) where negative (Lin et al. 2017, without α).

    ``margin`` is subtracted from the logits of observed positives (Zhang et al. 2021, focal margin). With
    ``plain_negatives`` an observed negative is −log(1−f) instead.
    """

    gamma_pos: float = 2.0
    gamma_neg: float = 2.0
    margin: float = 0.0
    plain_negatives: bool = False

    def __post_init__(self) -> None:
        for name in ("gamma_pos", "gamma_neg", "margin"):
            not_negative(name, getattr(self, name))

    def __call__(self, logits: Tensor, target: Tensor, observed: Tensor) -> Tensor:
        """(B, L) losses."""
        if self.margin:
            logits = torch.where(observed == POSITIVE, logits - self.margin, logits)
        positive, negative = focused(logits, self.gamma_pos), focused(-logits, self.gamma_neg)
        losses = target * positive + (1 - target) * negative
        return _plain_where_negative(losses, logits, observed) if self.plain_negatives else losses


@dataclass(frozen=True)
class Asymmetric:
    """Focal with two exponents and a margin m, subtracted from the scores of negatives: f ← max(f−m, 0).

    (1−f)^γ₊·(−log f) where positive, f^γ₋·(−log(1−f)) where negative (Ridnik et al. 2021); no gradient flows
    through the powers if ``detached``. With ``plain_negatives`` an observed negative is −log(1−f) instead.
    """

    gamma_pos: float = 0.0
    gamma_neg: float = 4.0
    margin: float = 0.05
    detached: bool = True
    plain_negatives: bool = False

    def __post_init__(self) -> None:
        for name in ("gamma_pos", "gamma_neg"):
            not_negative(name, getattr(self, name))
        if not 0 <= self.margin < 1:
            raise ConfigError(f"margin of asl is taken off a score: it must be in [0, 1), not {self.margin}")

    def __call__(self, logits: Tensor, target: Tensor, observed: Tensor) -> Tensor:
        """(B, L) losses."""
        positive, negative = F.softplus(-logits), F.softplus(logits)
        hard = (self.gamma_pos * F.logsigmoid(-logits)).exp()  # (1−f)^γ₊
        if self.margin:
            # −log(1−f+m) from log(1−f): in float32 1−f is 0 from a logit of 17 on.
            lifted = torch.logaddexp(-negative, logits.new_full((), math.log(self.margin)))
            negative = -lifted.clamp(max=0)
            easy = (torch.sigmoid(logits) - self.margin).clamp(min=0) ** self.gamma_neg
        else:
            easy = (self.gamma_neg * F.logsigmoid(logits)).exp()  # f^γ₋
        if self.detached:
            hard, easy = hard.detach(), easy.detach()
        losses = target * hard * positive + (1 - target) * easy * negative
        return _plain_where_negative(losses, logits, observed) if self.plain_negatives else losses


@dataclass(frozen=True)
class Hill:
    """Focal on σ(logit − m) where positive, (λ−f)·f² where negative (Zhang et al. 2021).

    For λ = 1.5 the loss grows with the score, but its gradient 3f²·(1−f)² is a hill: an unknown label with a
    score near 1 is no longer pushed down. With ``plain_negatives`` an observed negative is −log(1−f) instead
    (ours).
    """

    gamma_pos: float = 2.0
    margin: float = 1.0
    height: float = 1.5
    plain_negatives: bool = True

    def __post_init__(self) -> None:
        for name in ("gamma_pos", "margin"):
            not_negative(name, getattr(self, name))

    def __call__(self, logits: Tensor, target: Tensor, observed: Tensor) -> Tensor:
        """(B, L) losses."""
        scores = torch.sigmoid(logits)
        positive = focused(logits - self.margin, self.gamma_pos)
        losses = target * positive + (1 - target) * (self.height - scores) * scores**2
        return _plain_where_negative(losses, logits, observed) if self.plain_negatives else losses


def _plain_where_negative(losses: Tensor, logits: Tensor, observed: Tensor) -> Tensor:
    return torch.where(observed == NEGATIVE, F.softplus(logits), losses)


@register("focal", "entry loss", keeps_entry_loss=OWN_ENTRY_LOSS)
def focal(gamma_pos: float = 2.0, gamma_neg: float = 2.0) -> ComposedLoss:
    """Focal loss, unknown as negative: easy entries count less, (1−p)^γ on both sides (Lin et al. 2017).

    The mean over the entries, without the paper's α. A loss for full labels: observed negatives are on its
    negative side too; in combinations, as en+focal, they are −log(1−p).

    Parameters
    ----------
    gamma_pos
        Exponent γ₊ of positives.
    gamma_neg
        Exponent γ₋ of negatives.
    """
    return ComposedLoss(TargetLoss(AssumedNegative(), Focal(gamma_pos, gamma_neg)))


@register(
    "asl",
    "entry loss",
    keeps_entry_loss=OWN_ENTRY_LOSS,
    presets={"q2l": {"gamma_pos": 0.0, "gamma_neg": 2.0, "margin": 0.0, "scale": 1000.0}},
)
def asl(
    gamma_pos: float = 0.0, gamma_neg: float = 4.0, margin: float = 0.05, scale: float | None = None
) -> ComposedLoss:
    """Asymmetric loss, unknown as negative: easy negatives count less, the easiest not (Ridnik et al. 2021).

    The sum over the entries; no gradient through the powers, as in the authors' code. A loss for full labels:
    observed negatives are on its negative side too; in combinations, as en+asl, they are −log(1−p). With
    ``scale`` it is ``scale`` times the mean over the entries: Query2Label's code takes γ 0 and 2, no margin
    and 1000 (``preset`` q2l; Query2Label's text says γ₋ 1). That code clamps scores at 1e-8, ours computes
    from logits.

    Parameters
    ----------
    gamma_pos
        Exponent γ₊ of positives.
    gamma_neg
        Exponent γ₋ of negatives.
    margin
        Subtracted from the scores of negatives.
    scale
        Factor of the mean over the entries, which replaces their sum; Query2Label takes 1000.
    """
    label_loss = TargetLoss(AssumedNegative(), Asymmetric(gamma_pos, gamma_neg, margin))
    return ComposedLoss(label_loss, reduction=batch_sum if scale is None else ScaledMean(scale))


@register("hill", "entry loss", keeps_entry_loss=OWN_ENTRY_LOSS)
def hill(gamma_pos: float = 2.0, margin: float = 1.0) -> ComposedLoss:
    """Hill loss: an unknown label costs (1.5−p)·p², which pulls less at high scores (Zhang et al. 2021).

    Its gradient 3p²·(1−p)² is the hill. Positives are focal on σ(logit − ``margin``). The sum over the
    entries. An observed negative is −log(1−p) (ours; the paper has none).

    Parameters
    ----------
    gamma_pos
        Exponent γ₊ of positives.
    margin
        Subtracted from the logits of positives.
    """
    return ComposedLoss(TargetLoss(AssumedNegative(), Hill(gamma_pos, margin)), reduction=batch_sum)
