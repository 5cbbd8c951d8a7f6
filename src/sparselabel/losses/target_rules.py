"""Target rules: which target and weight every entry gets (Cole et al. 2021, §4 and §5).

In all of them an observed positive has target 1 and an observed negative target 0, both at full weight; they
differ in what they do with unknown labels. Rules that belong to one family of methods are in its file.
"""

import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import ConfigError, command
from sparselabel.losses.base import Needs, TargetRule, Targets
from sparselabel.losses.setting_checks import checked_share
from sparselabel.losses.step import Layout, Step


def no_negatives(method: str, hidden: bool = False) -> ConfigError:
    """The error for labels without observed negatives, for a method that leaves unknown ones out.

    ``hidden``: labels were hidden by the preparation, so that others can be observed.
    """
    observe = command("prepare", "...", sparsify="per-image", positives=1, negatives=1)
    return ConfigError(
        f"{method} leaves unknown labels out and so needs observed negatives, but these labels have none",
        "use an, wan or role",
        f"observe some ({observe})" if hidden else "label some classes that are not there (0)",
        what="labels",
    )


class Truth(TargetRule):
    """Oracle: every label is known (Cole 2021 eq. 5); ``smoothing`` ε turns 1 into 1−ε/2 and 0 into ε/2."""

    needs = Needs(truth=True)
    side_by_side = True

    def __init__(self, smoothing: float = 0.0) -> None:
        super().__init__()
        self.smoothing = checked_share("smoothing", smoothing)

    def forward(self, step: Step) -> Targets:
        value = positive_targets(_truth(step), step)
        return Targets(value * (1 - self.smoothing) + self.smoothing / 2)


class TrueNegatives(TargetRule):
    """Oracle: observed positives and all true negatives; other positives are left out (Cole 2021 eq. 7)."""

    needs = Needs(truth=True)
    side_by_side = True

    def forward(self, step: Step) -> Targets:
        value = positive_targets(step.observed, step)
        return Targets(value, torch.clamp(value + (_truth(step) == NEGATIVE), max=1))


class Ignored(TargetRule):
    """Unknown labels are left out (Cole 2021 eq. 6): needs observed negatives, or everything becomes
    positive.
    """

    needs = Needs(negatives=True)
    side_by_side = True

    def prepare(self, layout: Layout) -> None:
        if all_reduce_sum(layout.counts(NEGATIVE)).sum() == 0:
            raise no_negatives("iu")

    def forward(self, step: Step) -> Targets:
        value = positive_targets(step.observed, step)
        return Targets(value, (step.observed != UNKNOWN).to(value.dtype))


class AssumedNegative(TargetRule):
    """Unknown is negative (Cole 2021 eq. 8); ``smoothing`` ε smooths assumed and positive targets (Cole 2021
    eq. 9).
    """

    side_by_side = True

    def __init__(self, smoothing: float = 0.0) -> None:
        super().__init__()
        self.smoothing = checked_share("smoothing", smoothing)

    def forward(self, step: Step) -> Targets:
        """Target 1−ε/2 where positive, ε/2 where unknown, 0 where observed negative."""
        value = positive_targets(step.observed, step)
        if self.smoothing:
            smooth = value * (1 - self.smoothing) + self.smoothing / 2
            value = torch.where(step.observed == NEGATIVE, 0.0, smooth)
        return Targets(value)


class WeakNegative(TargetRule):
    """Unknown is negative at a small weight γ, 1/(L−1) by default (Cole 2021 §5.1).

    ``sampled``: instead one random unknown label of every image is a negative in this step, at full weight;
    in expectation this is γ = 1/(number of unknown labels).
    """

    def __init__(self, weight: float | None = None, sampled: bool = False) -> None:
        super().__init__()
        if weight is not None and sampled:
            raise ConfigError("wan takes either negative_weight or sampled_negatives, not both")
        self.weight = None if weight is None else checked_share("negative_weight", weight)
        self.sampled = sampled
        self.side_by_side = not sampled

    def forward(self, step: Step) -> Targets:
        """Full weight where observed, γ (or the draw) where unknown."""
        value = positive_targets(step.observed, step)
        unknown = step.observed == UNKNOWN
        if self.sampled:
            draw = torch.rand_like(value).masked_fill(~unknown, -1)
            chosen = torch.zeros_like(value).scatter_(1, draw.argmax(dim=1, keepdim=True), 1)
            return Targets(value, torch.where(unknown, chosen, 1.0))
        classes = value.shape[-1]
        weight = self.weight if self.weight is not None else 1 / max(classes - 1, 1)
        return Targets(value, torch.where(unknown, weight, torch.ones_like(value)))


def positive_targets(labels: Tensor, step: Step) -> Tensor:
    """(B, L) 1 where a label is positive, else 0, in the precision of the losses."""
    logits = step.outputs[0].logits
    precision = logits.dtype if logits.dtype == torch.float64 else torch.float32
    return (labels == POSITIVE).to(precision)


def _truth(step: Step) -> Tensor:
    if step.truth is None:
        raise ConfigError("an oracle (bce, bce-ls, iun) needs complete labels", "give truth=")
    return step.truth
