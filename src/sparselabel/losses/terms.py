"""Further terms that are added to the label loss."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparselabel.distributed import total
from sparselabel.errors import ConfigError
from sparselabel.losses.base import Layout, LossPart, Step, at_least_float32
from sparselabel.losses.setting_checks import not_negative


def count_penalty(scores: Tensor, valid: Tensor, expected: float) -> Tensor:
    """((k̂ − k)/L)² of Cole 2021 eq. 10, with k̂ the mean of a row's sum of ``scores`` (B, L), over all
    processes.
    """
    found = total((scores * valid[:, None]).sum()) / total(valid.sum())
    return ((found - expected) / scores.shape[1]) ** 2


class ExpectedPositives(LossPart):
    """Pulls the batch's number of predicted positives to the expected one, K (Cole 2021 §5.3)."""

    def __init__(self, expected: float | None, weight: float = 1.0) -> None:
        super().__init__()
        self.expected = checked_count(expected)
        self.weight = not_negative("weight", weight)

    def prepare(self, layout: Layout) -> None:
        """Refuse more classes in an image than there are."""
        refuse_too_many(self.expected, layout.observed.shape[1], layout.total)

    def forward(self, step: Step) -> Tensor:
        """λ·((k̂ − k)/L)²."""
        scores = torch.sigmoid(at_least_float32(step.outputs[0].logits))
        return self.weight * count_penalty(scores, step.valid, self.expected)


Expected = float | Sequence[float] | npt.NDArray[Any] | Tensor | None
"""K, or the number of images of every class."""

WAYS = (
    "count them in a few dozen images and give, say, expected_positives=2.5, or let `sparselabel expect` "
    "estimate them, which needs the images, and give its file to `sparselabel train`"
)


def checked_count(expected: float | None) -> float:
    """The expected number of positives per image, which nobody can do without."""
    if expected is None:
        raise ConfigError(
            f"this method needs expected_positives (K), the mean number of classes in an image: {WAYS}"
        )
    if not isinstance(expected, int | float) or isinstance(expected, bool) or not 0 < expected < math.inf:
        raise ConfigError(f"expected_positives must be a number above 0, not {expected!r}: {WAYS}")
    return float(expected)


def checked_counts(expected: Expected) -> float | tuple[float, ...]:
    """K, or the expected number of images of every class."""
    if expected is None or isinstance(expected, str) or np.ndim(expected) == 0:
        return checked_count(expected if isinstance(expected, str | bool | None) else float(expected))  # type: ignore[arg-type]
    try:
        counts = np.asarray(expected, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"expected_positives must be numbers, one for each class: {error}") from error
    if counts.ndim != 1 or not (np.isfinite(counts) & (counts >= 0)).all():
        raise ConfigError(
            f"expected_positives must be finite numbers, none negative, one for each class, not {expected!r}"
        )
    return tuple(counts.tolist())


def refuse_too_many(expected: float | Sequence[float], classes: int, images: int) -> None:
    """Raise if an image shall have more classes than there are, or a class more images."""
    if isinstance(expected, int | float):
        if expected > classes:
            raise ConfigError(
                f"expected_positives (K) is the mean number of classes in an image, so at most the "
                f"{classes} there are, not {expected:g}: {WAYS}"
            )
    elif expected and max(expected) > images:
        raise ConfigError(
            f"expected_positives of a class is its number of images, so at most the {images:,} there "
            f"are, not {max(expected):,.10g}: {WAYS}"
        )
