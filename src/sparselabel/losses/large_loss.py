"""Large losses: an unknown label with a large loss as a negative may be positive.

Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification (2022). Of the batch's unknown
entries, those with the k largest losses are dropped (R), or become positive for this step (Ct) or permanently
(Cp). The loss of an assumed negative grows with its logit, in cross-entropy and in focal, asl and hill, so
the largest logits have the largest losses.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sparselabel.data.labels import POSITIVE, UNKNOWN
from sparselabel.distributed import all_gather, all_reduce_sum
from sparselabel.losses.base import (
    ComposedLoss,
    TargetLoss,
    TargetRule,
    Targets,
    at_least_float32,
    cross_entropy,
)
from sparselabel.losses.memory.row_store import RowStore, make_row_store, stack_row_stores
from sparselabel.losses.registry import register
from sparselabel.losses.setting_checks import checked_share
from sparselabel.losses.step import Layout, Memory, Step
from sparselabel.losses.target_rules import positive_targets


def largest(values: Tensor, candidate: Tensor, count: Tensor) -> Tensor:
    """Where a candidate's value is at least the ``count``-th largest, over all processes; ties all count.

    Every process sends its own ``count`` largest. Runs side by side (R, B, L), which are in one process, have
    a count (R,) each.
    """
    if candidate.ndim > 2:
        ranked = values.masked_fill(~candidate, -torch.inf).flatten(1)
        best = ranked.topk(max(1, int(count.max())), dim=1).values
        lowest = best.gather(1, (count - 1).clamp(min=0)[:, None])[..., None]
        return candidate & (values >= lowest) & (count > 0)[:, None, None]
    number = int(count)
    if number == 0:
        return torch.zeros_like(candidate)
    own = values[candidate].topk(min(number, int(candidate.sum()))).values
    padded = torch.full((number,), -torch.inf, dtype=values.dtype, device=values.device)
    padded[: len(own)] = own
    return candidate & (values >= all_gather(padded).topk(number).values[-1])


class LargeLoss(TargetRule):
    """Unknown is negative, but the largest losses of the batch are left out, or count as positive.

    From the second epoch on. Epoch t, counted from 1, takes k = ⌈B·L·Δ·(t−1)⌉ where ``growing``, else
    ⌈B·L·Δ⌉, with B the rows of the batch in all processes; in exact arithmetic (their code adds up rounding
    errors), and at most all unknown entries (their code continues with observed positives).
    """

    side_by_side = True

    def __init__(self, share: float, change: Literal["drop", "turn"], growing: bool = True) -> None:
        super().__init__()
        # The decimal as written: .004 is 4/1000 and not its nearest binary number.
        self.share = Fraction(repr(float(checked_share("share", share))))
        self.change = change
        self.growing = growing

    def forward(self, step: Step) -> Targets:
        return self.targets(step, step.observed)

    def targets(self, step: Step, labels: Tensor) -> Targets:
        """Targets of the step for these labels (B, L)."""
        logits = at_least_float32(step.outputs[0].logits.detach())
        unknown = (labels == UNKNOWN) & step.valid[..., None]
        large = largest(logits, unknown, self.count(step.valid, unknown, step.progress.epoch))
        value = positive_targets(labels, step)
        if self.change == "turn":
            return Targets(value.masked_fill(large, 1))
        return Targets(value, (~large).to(value.dtype))

    def count(self, real: Tensor, unknown: Tensor, epoch: int) -> Tensor:
        """k: how many entries of the batch, over all processes, count as large in this epoch (from 0)."""
        rows, there = all_reduce_sum(torch.stack((real.sum(-1), unknown.sum((-2, -1)))))
        # Runs side by side have batches of one size.
        wanted = self.share * int(rows.max()) * unknown.shape[-1] * (epoch if self.growing else 1)
        count: Tensor = there.clamp(max=math.ceil(wanted) if epoch else 0)
        return count


class LargeLossForGood(LargeLoss):
    """As LargeLoss with k = ⌈B·L·Δ⌉, but corrections are permanent: one bit per entry is stored.

    The data's own labels are never written to. A corrected label counts as an observed positive from then on.
    """

    rows: RowStore

    def __init__(self, share: float) -> None:
        super().__init__(share, "turn", growing=False)
        self._turned: tuple[Step, Tensor] | None = None

    def prepare(self, layout: Layout) -> None:
        self.layout = layout
        self.classes = layout.observed.shape[1]
        width = -(-self.classes // 8)

        def start(local_index: Tensor) -> Tensor:
            return torch.zeros(len(local_index), width, dtype=torch.uint8)

        self.rows = make_row_store("corrected-labels", layout, width, start, dtype=torch.uint8)

    def stack(self, parts: Sequence["LargeLossForGood"]) -> None:
        self.rows = stack_row_stores([part.rows for part in parts])

    def corrected(self, rows: Tensor) -> Tensor:
        """(B, L) bool, on the CPU: the corrected labels of these rows; padding gives any row's."""
        packed = self.rows.read(self.layout.local_index(rows)).numpy()
        return torch.from_numpy(np.unpackbits(packed, axis=-1, count=self.classes)).bool()

    def prefetch(self, rows: Tensor) -> None:
        self.rows.prefetch(self.layout.local_index(rows))

    def forward(self, step: Step) -> Targets:
        """Targets with corrected labels as positives, and this step's corrections too."""
        corrected = self.corrected(step.rows).to(step.observed.device)
        targets = self.targets(step, step.observed.masked_fill(corrected, POSITIVE))
        self._turned = step, (step.observed == UNKNOWN) & (targets.value == 1)
        return targets

    def update(self, step: Step) -> None:
        if step.progress.epoch == 0:
            return
        if self._turned is None or self._turned[0] is not step:
            self(step)
        (_, turned), self._turned = self._turned or (step, step.observed), None
        rows = step.rows.cpu()
        real = slice(None) if bool((rows >= 0).all()) else rows >= 0
        packed = torch.from_numpy(np.packbits(turned.cpu()[real].numpy(), axis=-1))
        self.rows.write(self.layout.local_index(rows[real]), packed)

    def row_stores(self) -> Mapping[str, Memory]:
        return {"corrected": self.rows}

    def logged_state(self, rows: Tensor) -> dict[str, Tensor]:
        return {"corrected_labels": self.corrected(rows)}


def _presets(voc: float, coco: float, nus: float, cub: float, boostlu: float) -> dict[str, dict[str, float]]:
    """Δ of the paper on each data set, and with BoostLU (Kim et al. 2023)."""
    shares = {"voc": voc, "coco": coco, "nus": nus, "cub": cub, "boostlu": boostlu}
    return {name: {"share": share} for name, share in shares.items()}


@register("ll-r", presets=_presets(0.002, 0.004, 0.004, 0.004, boostlu=0.005))
def ll_r(share: float = 0.004) -> ComposedLoss:
    """Large losses rejected: unknown labels with the batch's largest losses are left out (Kim et al. 2022).

    From the second epoch on; in epoch t (from 1) the ⌈B·L·Δ·(t−1)⌉ largest, Δ = ``share``. B·L counts the
    whole batch of all processes; in exact arithmetic, and at most all unknown labels: the authors' code adds
    up rounding errors and continues with observed positives when unknown labels run out. Ties all count.
    Theirs: batch 16, 10 epochs, SGD 5e-3 on VOC, Adam 1e-5 on COCO and NUS, 7.5e-5 on CUB, the head at ten
    times the rate (recipes other/voc-large-losses and others). With BoostLU (``boost`` 5) Δ .005; any
    ``preset`` is boostlu then. With an entry loss, as in ll-r+asl, the same labels are chosen: every entry
    loss of a negative grows with its score.

    Parameters
    ----------
    share
        Δ, the share of a batch's entries that count as large losses, for each epoch.
    """
    return ComposedLoss(TargetLoss(LargeLoss(share, "drop"), cross_entropy))


@register("ll-ct", like=ll_r, presets=_presets(0.002, 0.002, 0.002, 0.004, boostlu=0.002))
def ll_ct(share: float = 0.002) -> ComposedLoss:
    """Large losses corrected for now: as ll-r, but they count as positive in that step (Kim et al. 2022).

    With BoostLU (``preset`` boostlu) Δ .002. The rest is as for ll-r.
    """
    return ComposedLoss(TargetLoss(LargeLoss(share, "turn"), cross_entropy))


@register("ll-cp", presets=_presets(0.001, 0.002, 0.002, 0.002, boostlu=0.001))
def ll_cp(share: float = 0.002) -> ComposedLoss:
    """Large losses corrected for good: the batch's largest become positive labels (Kim et al. 2022).

    From the second epoch on, the ⌈B·L·Δ⌉ largest of every step. The corrections are stored by the method, one
    bit per entry, and never written to the data. The released code never stores them (a wrong comparison) and
    would store one too few; that of the authors' next paper (Kim et al. 2023) does as ours. With BoostLU
    (``preset`` boostlu) Δ .001. The rest is as for ll-r.

    Parameters
    ----------
    share
        Δ, the share of a batch's entries that count as large losses.
    """
    return ComposedLoss(TargetLoss(LargeLossForGood(share), cross_entropy))
