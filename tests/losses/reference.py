"""A slow, obvious float64 reference of Cole 2021's losses, with the ε of the authors' programs as an
argument.

With ε = 1e-5 it must equal their numbers, with ε = 0 it must equal ours: so both are tied to one formula.
"""

import torch
from torch import Tensor


def neg_log(score: Tensor, epsilon: float) -> Tensor:
    return -torch.log(score + epsilon)


def cross_entropy(logits: Tensor, target: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    score = torch.sigmoid(logits)
    other = torch.sigmoid(-logits) if epsilon == 0 else 1 - score
    return (weight * (target * neg_log(score, epsilon) + (1 - target) * neg_log(other, epsilon))).mean()


def count_penalty(logits: Tensor, expected: float) -> Tensor:
    found = torch.sigmoid(logits).sum() / len(logits)
    return ((found - expected) / logits.shape[1]) ** 2


def loss(
    name: str, logits: Tensor, observed: Tensor, truth: Tensor, epsilon: float, **settings: float
) -> Tensor:
    """A method's loss; ``observed`` in our coding (1, 0, -1 for unknown), ``truth`` 1 and 0."""
    positive, negative = (observed == 1).double(), (observed == 0).double()
    ones = torch.ones_like(logits)
    flip = settings.get("smoothing", 0.0) / 2
    match name:
        case "bce" | "bce-ls":
            target = truth * (1 - flip) + (1 - truth) * flip
            return cross_entropy(logits, target, ones, epsilon)
        case "iu":
            return cross_entropy(logits, positive, positive + negative, epsilon)
        case "iun":
            return cross_entropy(logits, positive, positive + (truth == 0).double(), epsilon)
        case "an" | "an-ls":
            target = positive * (1 - flip) + (1 - positive) * flip
            return cross_entropy(logits, torch.where(observed == 0, 0.0, target), ones, epsilon)
        case "wan":
            weight = torch.where(observed == -1, settings["negative_weight"], ones)
            return cross_entropy(logits, positive, weight, epsilon)
        case "epr":
            labels = cross_entropy(
                logits, positive, settings.get("positive_weight", 1.0) * positive + negative, epsilon
            )
            return labels + settings.get("count_weight", 1.0) * count_penalty(
                logits, settings["expected_positives"]
            )
    raise KeyError(name)


def role_side(
    logits: Tensor,
    partner: Tensor,
    observed: Tensor,
    expected: float,
    epsilon: float,
    positive_weight: float = 1.0,
) -> Tensor:
    """L′(logits | partner) of Cole 2021 eq. 11, the partner held fixed."""
    fixed = torch.sigmoid(partner).detach()
    positive = (observed == 1).double()
    ones = torch.ones_like(logits)
    return (
        cross_entropy(logits, fixed, ones, epsilon)
        + cross_entropy(logits, positive, positive * positive_weight, epsilon)
        + count_penalty(logits, expected)
    )
