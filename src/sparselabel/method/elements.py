"""Element losses: what one entry costs, given its logit and target.

All are computed from logits, so that they stay finite and keep their gradient at any logit. The authors'
programs take ``log(score + 1e-5)`` instead, which moves losses by up to a half at large logits; the tests
hold a reference with that ε as an argument and compare both with it.
"""

from torch import Tensor
from torch.nn import functional as F


def cross_entropy(logits: Tensor, target: Tensor, observed: Tensor) -> Tensor:
    """−y·log f − (1−y)·log(1−f), for f = σ(logit) and a target y in 0..1 (P3 eq. 5)."""
    return F.softplus(logits) - target * logits
