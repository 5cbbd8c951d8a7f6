"""Further terms that are added to the label loss."""

import torch
from torch import Tensor

from sparselabel.errors import ConfigError
from sparselabel.method.across import total
from sparselabel.method.base import Part, Step, at_least_float32


def count_penalty(scores: Tensor, valid: Tensor, expected: float) -> Tensor:
    """((k̂ − k)/L)² of P3 eq. 10, with k̂ the mean of a row's sum of ``scores`` (B, L), over all processes."""
    found = total((scores * valid[:, None]).sum()) / total(valid.sum())
    return ((found - expected) / scores.shape[1]) ** 2


class ExpectedPositives(Part):
    """Pulls the batch's number of predicted positives to the expected one, K (P3 §5.3)."""

    def __init__(self, expected: float | None, weight: float = 1.0) -> None:
        super().__init__()
        self.expected = checked_count(expected)
        self.weight = weight

    def forward(self, step: Step) -> Tensor:
        """λ·((k̂ − k)/L)²."""
        scores = torch.sigmoid(at_least_float32(step.outputs[0].logits))
        return self.weight * count_penalty(scores, step.rows >= 0, self.expected)


def checked_count(expected: float | None) -> float:
    """The expected number of positives a picture, which nobody can do without."""
    if expected is None:
        raise ConfigError(
            "this method needs expected_positives (K), the mean number of classes in a picture: count them "
            "in a few dozen pictures and give, say, expected_positives=2.5"
        )
    if isinstance(expected, str) or not expected > 0:
        raise ConfigError(f"expected_positives must be a number above 0, not {expected!r}")
    return float(expected)
