"""Entropy maximization and asymmetric pseudo-labeling: unknown labels stay unknown.

Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels (2022).
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction

import torch
from torch import Tensor

from sparselabel.data.labels import UNKNOWN
from sparselabel.distributed import Chunk, all_reduce_sum, topk_per_class
from sparselabel.errors import ConfigError, param
from sparselabel.losses.base import (
    ComposedLoss,
    EntryLosses,
    LabelLoss,
    LossPart,
    Needs,
    at_least_float32,
    cross_entropy,
)
from sparselabel.losses.memory.row_store import RowStore, make_row_store
from sparselabel.losses.registry import register
from sparselabel.losses.setting_checks import not_negative
from sparselabel.losses.step import Layout, Memory, Progress, Scan, Step, rows_at_once
from sparselabel.losses.target_rules import positive_targets


class AsymmetricPseudoLabels(LossPart):
    """Soft labels for the unknown entries with the lowest scores, more of them in every epoch.

    At the start of every epoch from ``warm_up`` on, the ⌊.9·n_i/(epochs − warm_up)⌋ lowest-scored rows of
    class i that are still unknown (of n_i at the beginning) get their score as a soft label, for good. Scores
    are those of evaluation mode, over all processes; ties go to the lower row (ours).

    A row of the store has, for each class, the score of the last scan as a negative number or the soft label
    as a positive one; the sign bit distinguishes them, also for 0.
    """

    needs = Needs(scan=True, epochs=True)
    rows: RowStore
    share = Fraction(9, 10)

    def __init__(self, warm_up: int) -> None:
        super().__init__()
        if warm_up < 1:
            raise ConfigError(f"warm_up must be at least 1 epoch, not {warm_up}: scores mean nothing before")
        self.warm_up = warm_up
        self._asked = self._scanned = -1

    def prepare(self, layout: Layout) -> None:
        """Count the unknown labels of every class and allocate the store."""
        self.layout = layout
        classes = layout.observed.shape[1]
        self.unknown = all_reduce_sum(layout.counts(UNKNOWN))

        def start(local_index: Tensor) -> Tensor:
            return torch.full((len(local_index), classes), -1.0)

        self.rows = make_row_store("soft-labels", layout, classes, start)

    def begin_epoch(self, progress: Progress) -> None:
        """Determine how many rows get a soft label in this epoch."""
        rounds = progress.epochs - self.warm_up
        if progress.epoch == 0 and rounds < 1:  # a head phase that stopped early may shorten the run later
            raise ConfigError(
                f"em+apl labels after {param('settings.warm_up', self.warm_up)} epochs, but the run has "
                f"{progress.epochs}",
                "train longer",
                f"give a smaller {param('settings.warm_up')}",
                what="settings.warm_up",
                value=self.warm_up,
            )
        if progress.epoch >= self.warm_up:
            self._asked = progress.epoch
            share = self.share / rounds
            self.num_to_select = self.unknown * share.numerator // share.denominator

    def scan(self, steps: Scan) -> None:
        """Give soft labels to the lowest scores of this epoch; before ``warm_up`` there is no scan."""
        if self._asked == self._scanned:
            return
        for step in steps(None):
            real = (step.rows >= 0).cpu()
            local_index = self.layout.local_index(step.rows)[real]
            scores = torch.sigmoid(at_least_float32(step.outputs[0].logits.detach())).float().cpu()[real]
            stored = self.rows.read(local_index)
            self.rows.write(local_index, torch.where(stored.signbit(), -scores, stored))
        threshold = topk_per_class(self._candidate_chunks, self.num_to_select, self.layout.total)
        for local_index in self._chunks():
            chunk, stored = self._chunk(local_index), self.rows.read(local_index)
            chosen = chunk.candidate & threshold.selects(chunk.scores, chunk.rows)
            self.rows.write(local_index, torch.where(chosen, -stored, stored))
        self._scanned = self._asked

    def forward(self, step: Step) -> tuple[Tensor, Tensor]:
        """(B, L) bool where an unknown entry has a soft label, and (B, L) these labels."""
        if step.progress.epoch >= self.warm_up and self._scanned != step.progress.epoch:
            raise ConfigError(
                "em+apl looks at all training images before every epoch after its warm-up",
                "call criterion.set_epoch(epoch), then criterion.scan(predict)",
            )
        stored = self.rows.read(self.layout.local_index(step.rows)).to(step.observed.device)
        return ~stored.signbit() & (step.observed == UNKNOWN), stored

    def prefetch(self, rows: Tensor) -> None:
        self.rows.prefetch(self.layout.local_index(rows))

    def row_stores(self) -> Mapping[str, Memory]:
        return {"soft": self.rows}

    def _chunks(self) -> Iterator[Tensor]:
        return self.rows.chunks(rows_at_once(self.layout.observed.shape[1]))

    def _candidate_chunks(self) -> Iterator[Chunk]:
        return (self._chunk(local_index) for local_index in self._chunks())

    def _chunk(self, local_index: Tensor) -> Chunk:
        stored = self.rows.read(local_index)
        candidate = stored.signbit() & (self.layout.observed[local_index] == UNKNOWN)
        return Chunk(self.layout.rows[local_index], _upside_down(stored.abs()), candidate)


class EntropyMaximization(LabelLoss):
    """An unknown label costs −α times the entropy of its score, which keeps the model unsure about it.

    With soft labels, entries that have one cost β (``soft_weight``) times the cross-entropy with it instead.
    The cross-entropy of a score with itself is its entropy, so an unknown label has its own score as target,
    with gradient, at weight −α.
    """

    side_by_side = True

    def __init__(
        self,
        entropy_weight: float,
        soft_labels: AsymmetricPseudoLabels | None = None,
        soft_weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.entropy_weight = not_negative("entropy_weight", entropy_weight, "its sign is the method's")
        self.soft_labels = soft_labels
        self.soft_weight = not_negative("soft_weight", soft_weight)

    def forward(self, step: Step) -> EntryLosses:
        unknown = step.observed == UNKNOWN
        logits = at_least_float32(step.outputs[0].logits)
        target = torch.where(unknown, torch.sigmoid(logits), positive_targets(step.observed, step))
        weight = torch.where(unknown, -self.entropy_weight, torch.ones_like(target))
        if self.soft_labels is not None:
            labeled, soft = self.soft_labels(step)
            target = torch.where(labeled, soft.to(target.dtype), target)
            weight = torch.where(labeled, self.soft_weight, weight)
        return EntryLosses(cross_entropy(logits, target, step.observed) * weight, weight != 0)


def _upside_down(scores: Tensor) -> Tensor:
    """Numbers in 0..1 in reverse order, exactly: floats in 0..1 are ordered as their bits."""
    one = torch.ones((), dtype=torch.float32).view(torch.int32)
    return (one - scores.contiguous().view(torch.int32)).view(torch.float32)


ENTROPY = "an unknown label costs its entropy there"


@register(
    "em",
    keeps_entry_loss=ENTROPY,
    presets={
        "voc": {"entropy_weight": 0.2},
        "coco": {"entropy_weight": 0.1},
        "nus": {"entropy_weight": 0.1},
        "cub": {"entropy_weight": 0.01},
    },
)
def em(entropy_weight: float = 0.1) -> ComposedLoss:
    """Entropy maximization: an unknown label costs −α times the entropy of its score (Zhou et al. 2022).

    So the model stays unsure of unknown labels. The loss can be negative. An observed negative is −log(1−p)
    (ours; the paper has none). The authors' code adds 1e-5 in logarithms.

    Parameters
    ----------
    entropy_weight
        α of the entropy of unknown labels.
    """
    return ComposedLoss(EntropyMaximization(entropy_weight))


@register(
    "em+apl",
    needs=Needs(scan=True, epochs=True),
    keeps_entry_loss=ENTROPY,
    presets={
        "voc": {"entropy_weight": 0.2, "soft_weight": 0.02, "warm_up": 5},
        "coco": {"entropy_weight": 0.1, "soft_weight": 0.9, "warm_up": 5},
        "nus": {"entropy_weight": 0.1, "soft_weight": 0.2, "warm_up": 4},
        "cub": {"entropy_weight": 0.01, "soft_weight": 0.4, "warm_up": 3},
    },
)
def em_apl(entropy_weight: float = 0.1, soft_weight: float = 0.9, warm_up: int = 5) -> ComposedLoss:
    """Entropy maximization with asymmetric pseudo-labels: low scores become soft labels (Zhou et al. 2022).

    Before every epoch from ``warm_up`` on, the lowest-scored unknown rows of every class get their score as a
    permanent soft label: each time as many, so that 90 % have one at the end. Scores are those of uncropped
    training images in evaluation mode. 10 epochs in the paper.

    Parameters
    ----------
    entropy_weight
        α of the entropy of unknown labels.
    soft_weight
        β, the weight of soft labels.
    warm_up
        Epochs before the first soft labels.
    """
    return ComposedLoss(EntropyMaximization(entropy_weight, AsymmetricPseudoLabels(warm_up), soft_weight))
