"""Entry losses: what one entry costs, given its logit and target.

All are computed from logits, so that they stay finite and keep their gradient at any logit. The authors'
programs take ``log(score + 1e-5)`` or clamp scores instead, which moves losses by up to a half at large
logits; the tests hold a reference with that ε as an argument and compare both with it.

A target between 0 and 1 mixes the two sides: y·(positive side) + (1−y)·(negative side).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.errors import ConfigError
from sparselabel.losses.setting_checks import not_negative


def cross_entropy(logits: Tensor, target: Tensor, observed: Tensor) -> Tensor:
    """−y·log f − (1−y)·log(1−f), for f = σ(logit) and a target y in 0..1 (Cole 2021 eq. 5)."""
    return F.softplus(logits) - target * logits


def focused(logits: Tensor, focus: float) -> Tensor:
    """(1−f)^γ·(−log f): the positive side of focal losses; of −logit, the negative side."""
    return torch.exp(focus * F.logsigmoid(-logits)) * F.softplus(-logits)


@dataclass(frozen=True)
class Focal:
    """(1−f)^γ₊·(−log f) where positive, f^γ₋·(−log(1−f)) where negative (Lin et al. 2017, without α).

    ``margin`` is taken off the logits of observed positives (Zhang et al. 2021, focal margin). With
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
    """Focal with two exponents, and a margin m that is taken off the scores of negatives: f ← max(f−m, 0).

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

    For λ = 1.5 the latter grows with the score, but its gradient 3f²·(1−f)² is a hill: an unknown label that
    the model takes for surely positive is no longer pushed down. With ``plain_negatives`` an observed
    negative is −log(1−f) instead (ours).
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
