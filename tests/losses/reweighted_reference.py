"""Slow, obvious float64 references of the losses that weigh or correct unknown labels.

``epsilon`` is what the authors' programs add in logarithms, or clamp scores at: with theirs a reference must
equal their numbers, with 0 it must equal ours. ``observed`` is in our coding (1, 0, -1 for unknown).
"""

import torch
from torch import Tensor


def sides(logits: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """p and 1 − p; the programs really subtract, which differs where an ε is added."""
    score = torch.sigmoid(logits)
    return score, torch.sigmoid(-logits) if epsilon == 0 else 1 - score


def focal(logits: Tensor, observed: Tensor, gamma_pos: float = 2.0, gamma_neg: float = 2.0) -> Tensor:
    p, q = sides(logits, 0)
    losses = torch.where(observed == 1, -(q**gamma_pos) * torch.log(p), -(p**gamma_neg) * torch.log(q))
    return losses.mean()


def asl(
    logits: Tensor,
    observed: Tensor,
    epsilon: float,
    gamma_pos: float,
    gamma_neg: float,
    margin: float,
    detached: bool,
) -> Tensor:
    p, q = sides(logits, epsilon)
    shifted = (q + margin).clamp(max=1) if margin else q
    positive = observed == 1
    log = torch.where(positive, torch.log(p.clamp(min=epsilon)), torch.log(shifted.clamp(min=epsilon)))
    focus = torch.where(positive, q if epsilon == 0 else 1 - p, 1 - shifted if epsilon or margin else p)
    focus = focus ** torch.where(positive, float(gamma_pos), float(gamma_neg))
    return -((focus.detach() if detached else focus) * log).sum()


def selective(
    logits: Tensor,
    observed: Tensor,
    counted: Tensor,
    epsilon: float,
    clip: float,
    focus: tuple[float, float, float],
    weights: tuple[float, float, float],
) -> Tensor:
    """``focus`` and ``weights`` of positive, negative and unknown labels; ours is the case of ``clip`` 0."""
    p, q = sides(logits, epsilon)
    shifted = (q + clip).clamp(max=1) if clip else q
    kinds = [observed == 1, observed == 0, observed == -1]
    bases = [q, *[1 - shifted if epsilon or clip else p] * 2]
    logs = [torch.log(p.clamp(min=epsilon)), *[torch.log(shifted.clamp(min=epsilon))] * 2]
    losses = sum(
        kind * weight * base.detach() ** power * -log
        for kind, weight, base, power, log in zip(kinds, weights, bases, focus, logs, strict=True)
    )
    return (losses * counted).sum()


def hill(logits: Tensor, observed: Tensor, gamma_pos: float, margin: float, height: float) -> Tensor:
    p = torch.sigmoid(logits)
    moved = torch.sigmoid(logits - margin)
    positive = -((1 - moved) ** gamma_pos) * torch.log(moved)
    return torch.where(observed == 1, positive, (height - p) * p**2).sum()


def splc(
    logits: Tensor,
    observed: Tensor,
    threshold: float,
    focus: float,
    margin: float,
    correcting: bool,
) -> Tensor:
    moved = torch.where(observed == 1, logits - margin, logits)
    p, q = sides(moved, 0)
    positive = (observed == 1) | (correcting & (p > threshold))
    return torch.where(positive, -(q**focus) * torch.log(p), -(p**focus) * torch.log(q)).sum()


def large_loss(logits: Tensor, name: str, observed: Tensor, k: int) -> Tensor:
    """The loss if the k largest unknown losses are changed."""
    p, q = sides(logits, 0)
    losses = torch.where(observed == 1, -torch.log(p), -torch.log(q))
    unknown = observed == -1
    large = torch.zeros_like(unknown)
    if k:
        large = unknown & (losses >= losses[unknown].sort(descending=True).values[k - 1])
    changed = torch.zeros_like(losses) if name == "ll-r" else -torch.log(p)
    return torch.where(large, changed, losses).mean()


def em(
    logits: Tensor, observed: Tensor, epsilon: float, entropy_weight: float, soft: Tensor, soft_weight: float
) -> Tensor:
    """``soft`` has soft labels, or -1 where there is none."""
    p, q = sides(logits, epsilon)
    log_p, log_q = torch.log(p + epsilon), torch.log(q + epsilon)
    entropy = -p * log_p - q * log_q
    losses = torch.where(
        observed == 1,
        -log_p,
        torch.where(soft >= 0, -soft_weight * (soft * log_p + (1 - soft) * log_q), -entropy_weight * entropy),
    )
    return torch.where(observed == 0, -log_q, losses).mean()


def gr(
    logits: Tensor,
    observed: Tensor,
    epsilon: float,
    w: float,
    b: float,
    mu: float,
    sigma: float,
    powers: tuple[float, float],
) -> Tensor:
    p, q = sides(logits, 0)
    fixed = p.detach()
    k = torch.sigmoid(w * fixed + b)
    v = torch.exp(-((fixed - mu) ** 2) / (2 * sigma**2))
    unknown = v * (k * (1 - p ** powers[0]) / powers[0] + (1 - k) * (1 - q ** powers[1]) / powers[1])
    return torch.where(observed == 1, -torch.log(p + epsilon), unknown).mean()
