"""Unknown as unknown: entropy maximization and asymmetric pseudo-labeling.

Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels (2022).
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction

import torch
from torch import Tensor

from sparselabel.data.labels import UNKNOWN
from sparselabel.distributed import Piece, topk_per_class, total
from sparselabel.errors import ConfigError
from sparselabel.losses.base import (
    Layout,
    LossPart,
    Memory,
    Needs,
    Progress,
    Scan,
    Step,
    Targets,
    at_least_float32,
    rows_at_once,
)
from sparselabel.losses.memory.row_file import make_row_store
from sparselabel.losses.memory.row_store import RowStore
from sparselabel.losses.setting_checks import not_negative
from sparselabel.losses.target_rules import positive_targets


class Acknowledged(LossPart):
    """An unknown label costs −α times the entropy of its score: the model shall not be sure.

    The cross-entropy of a score with itself is its entropy. So the target of an unknown label is its own
    score, with its gradient, at weight −α.
    """

    def __init__(self, entropy_weight: float) -> None:
        super().__init__()
        self.entropy_weight = not_negative("entropy_weight", entropy_weight, "its sign is the method's")

    def forward(self, step: Step) -> Targets:
        """The score itself at −α where unknown, else the label at 1."""
        unknown = step.observed == UNKNOWN
        scores = torch.sigmoid(at_least_float32(step.outputs[0].logits))
        value = torch.where(unknown, scores, positive_targets(step.observed, step))
        return Targets(value, torch.where(unknown, -self.entropy_weight, torch.ones_like(scores)))


class SoftLabels(LossPart):
    """Soft labels for the unknown entries with the lowest scores, more of them in every epoch.

    At the start of every epoch from ``warm_up`` on, the ⌊.9·n_i/(epochs − warm_up)⌋ lowest-scored rows of
    class i that are still unknown (of n_i at the beginning) get their score as a soft label, for good. Scores
    are those of evaluation mode, over all processes; ties go to the lower row (ours).

    A line holds for each class the score of the last survey as a negative number, and the soft label as a
    positive one: the sign bit tells which, also of 0.
    """

    needs = Needs(scan=True)
    rows: RowStore
    share = Fraction(9, 10)

    def __init__(self, warm_up: int) -> None:
        super().__init__()
        if warm_up < 1:
            raise ConfigError(f"warm_up must be at least 1 epoch, not {warm_up}: scores mean nothing before")
        self.warm_up = warm_up
        self._asked = self._surveyed = -1

    def prepare(self, layout: Layout) -> None:
        """Count the unknown labels of every class and make room."""
        self.layout = layout
        classes = layout.observed.shape[1]
        self.unknown = total(layout.counts(UNKNOWN))

        def start(slots: Tensor) -> Tensor:
            return torch.full((len(slots), classes), -1.0)

        self.rows = make_row_store("soft-labels", layout, classes, start)

    def begin_epoch(self, progress: Progress) -> None:
        """Note how many rows shall get a soft label in this epoch."""
        rounds = progress.epochs - self.warm_up
        if progress.epoch == 0 and rounds < 1:  # later a head that stopped early may have shortened the run
            raise ConfigError(
                f"em+apl labels after --settings.warm-up {self.warm_up} epochs, but the run has "
                f"{progress.epochs}: train longer, or give a smaller --settings.warm-up"
            )
        if progress.epoch >= self.warm_up:
            self._asked = progress.epoch
            share = self.share / rounds
            self.wanted = self.unknown * share.numerator // share.denominator

    def scan(self, steps: Scan) -> None:
        """Label the lowest scores of this epoch; before ``warm_up`` nobody looks."""
        if self._asked == self._surveyed:
            return
        for step in steps(None):
            real = (step.rows >= 0).cpu()
            slots = self.layout.slots(step.rows)[real]
            scores = torch.sigmoid(at_least_float32(step.outputs[0].logits.detach())).float().cpu()[real]
            kept = self.rows.read(slots)
            self.rows.write(slots, torch.where(kept.signbit(), -scores, kept))
        threshold = topk_per_class(self._pieces, self.wanted, self.layout.total)
        for slots in self._chunks():
            piece, kept = self._piece(slots), self.rows.read(slots)
            chosen = piece.candidate & threshold.chooses(piece.scores, piece.rows)
            self.rows.write(slots, torch.where(chosen, -kept, kept))
        self._surveyed = self._asked

    def forward(self, step: Step) -> tuple[Tensor, Tensor]:
        """(B, L) bool where an unknown entry has a soft label, and (B, L) these labels."""
        if step.progress.epoch >= self.warm_up and self._surveyed != step.progress.epoch:
            raise ConfigError(
                "em+apl looks at all training images before every epoch: call method.begin_epoch(progress) "
                "and method.survey(steps), where steps(rows) makes Steps of rows, in evaluation mode"
            )
        kept = self.rows.read(self.layout.slots(step.rows)).to(step.observed.device)
        return ~kept.signbit() & (step.observed == UNKNOWN), kept

    def prefetch(self, rows: Tensor) -> None:
        """Fetch the rows if they are in a file."""
        self.rows.prefetch(self.layout.slots(rows))

    def row_stores(self) -> Mapping[str, Memory]:
        """Scores and soft labels."""
        return {"soft": self.rows}

    def _chunks(self) -> Iterator[Tensor]:
        return self.rows.chunks(rows_at_once(self.layout.observed.shape[1]))

    def _pieces(self) -> Iterator[Piece]:
        return (self._piece(slots) for slots in self._chunks())

    def _piece(self, slots: Tensor) -> Piece:
        kept = self.rows.read(slots)
        candidate = kept.signbit() & (self.layout.observed[slots] == UNKNOWN)
        return Piece(self.layout.rows[slots], _upside_down(kept.abs()), candidate)


class PseudoLabeled(LossPart):
    """As Acknowledged, but entries with a soft label cost β times the cross-entropy with it."""

    def __init__(self, unknown: Acknowledged, soft: SoftLabels, soft_weight: float) -> None:
        super().__init__()
        self.unknown = unknown
        self.soft = soft
        self.soft_weight = not_negative("soft_weight", soft_weight)

    def forward(self, step: Step) -> Targets:
        """Targets of Acknowledged with the soft labels in their places."""
        value, weight = self.unknown(step)
        labeled, soft = self.soft(step)
        return Targets(
            torch.where(labeled, soft.to(value.dtype), value),
            torch.where(labeled, self.soft_weight, weight),
        )


def _upside_down(scores: Tensor) -> Tensor:
    """Numbers in 0..1 in the opposite order, exactly: the bits of a float in 0..1 are ordered as it is."""
    one = torch.ones((), dtype=torch.float32).view(torch.int32)
    return (one - scores.contiguous().view(torch.int32)).view(torch.float32)
