"""What a model says about a batch of views."""

from typing import NamedTuple

from torch import Tensor


class Output(NamedTuple):
    """Logits (never scores) of one view of every picture in a batch.

    ``logits`` (B, L); ``maps`` (B, L, h, w) cell logits, or None if nobody asked for them: their mean over
    the cells is ``logits``, but for a model that reads its logits off a class token; ``features`` (B, D, h,
    w) cell features, or (B, D) if they were pooled; ``attention`` (B, L, h, w), of a model that has it
    instead of maps: where it looked for each class, which sums to one over the cells.
    """

    logits: Tensor
    maps: Tensor | None = None
    features: Tensor | None = None
    attention: Tensor | None = None
