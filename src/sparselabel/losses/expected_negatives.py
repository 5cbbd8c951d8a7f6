"""Expected negatives: of every class, the images that most likely show it are left out (Verelst 2023 §3.3).

Verelst et al. 2023, Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label
Annotations.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.distributed import Piece, Threshold, all_reduce_sum, nobody, topk_per_class
from sparselabel.errors import ConfigError
from sparselabel.losses.base import (
    ComposedLoss,
    Layout,
    LossPart,
    Progress,
    Step,
    TargetLoss,
    TargetRule,
    Targets,
    cross_entropy,
    not_begun,
    rows_at_once,
)
from sparselabel.losses.registry import register
from sparselabel.losses.running_scores import RunningScores
from sparselabel.losses.setting_checks import Expected, checked_counts, refuse_too_many, within_label_bounds
from sparselabel.losses.target_rules import positive_targets


def positives_of_classes(
    expected: float | Sequence[float], annotated: Tensor, negatives: Tensor, rows: int
) -> Tensor:
    """(L,) int64 How many of the rows shall count as positive for every class, annotated ones included.

    ``expected`` is K, the mean number of classes in an image: p_i = round(K·N·count_i / Σ_j count_j), which
    is Verelst 2023 eq. 3 where every row has one positive, and stays right where rows have none or several.
    Or it is the number of images of every class, estimated elsewhere. At least the ``annotated`` (L,) ones,
    at most all but the observed ``negatives`` (L,); a class that was never annotated has none.
    """
    counts = annotated.double()
    if isinstance(expected, int | float):
        wanted = expected * rows * counts / counts.sum().clamp(min=1)
    else:
        wanted = torch.tensor(expected, dtype=torch.float64)
        if wanted.shape != counts.shape:
            raise ConfigError(
                f"expected_positives must be one number, or one for each of the {len(counts)} classes, "
                f"not {len(wanted)} numbers"
            )
    rounded = (wanted.clamp(max=rows) + 0.5).floor()
    kept = within_label_bounds(rounded.numpy(), annotated.numpy(), negatives.numpy(), rows)
    return torch.from_numpy(kept).to(torch.int64)


class ExpectedLabels(LossPart):
    """Which unknown labels count as expected positives, ẑ = 1, in this epoch (Verelst 2023 §3.3).

    At the start of every epoch but the first, the best p_i − count_i unknown rows of class i by their running
    scores; in the first, none. Annotated positives have their places for sure, observed negatives never do.
    A row's scores do not change before it is visited, so a threshold for each class is all that is kept.
    """

    threshold_score: Tensor
    threshold_row: Tensor

    def __init__(self, scores: RunningScores, expected: Expected) -> None:
        super().__init__()
        self.scores = scores
        self.expected = checked_counts(expected)
        self._begun = 0

    def prepare(self, layout: Layout) -> None:
        """Count the annotations of every class."""
        self.layout = layout
        annotated, negatives = (all_reduce_sum(layout.counts(label)) for label in (POSITIVE, NEGATIVE))
        refuse_too_many(self.expected, layout.observed.shape[1], layout.total)
        positives = positives_of_classes(self.expected, annotated, negatives, layout.total)
        self.wanted = positives - annotated
        self._take(nobody(len(positives)))

    def begin_epoch(self, progress: Progress) -> None:
        """Choose the expected positives of this epoch."""
        self._begun = progress.epoch
        if progress.epoch > 0:
            self._take(topk_per_class(self._pieces, self.wanted, self.layout.total))

    def forward(self, step: Step) -> Tensor:
        """(B, L) bool: unknown, but expected to be positive."""
        if step.progress.epoch not in (0, self._begun):
            raise not_begun(step.progress)
        # On the CPU, where rows, scores and thresholds are: only the answer goes to the model's device.
        threshold = Threshold(self.threshold_score.cpu(), self.threshold_row.cpu())
        chosen = threshold.chooses(self.scores(step.rows), step.rows.cpu())
        return chosen.to(step.observed.device) & (step.observed == UNKNOWN)

    def _take(self, threshold: Threshold) -> None:
        self.register_buffer("threshold_score", threshold.score)
        self.register_buffer("threshold_row", threshold.row)

    def _pieces(self) -> Iterator[Piece]:
        observed, rows = self.layout.observed, self.layout.rows
        for slots in self.scores.rows.chunks(rows_at_once(observed.shape[1])):
            yield Piece(rows[slots], self.scores.rows.read(slots), observed[slots] == UNKNOWN)


class ExpectedNegative(TargetRule):
    """Unknown is negative, but expected positives are left out (Verelst 2023 eq. 5)."""

    def __init__(self, expected: ExpectedLabels) -> None:
        super().__init__()
        self.expected = expected

    def forward(self, step: Step) -> Targets:
        """Weight 0 where a positive is expected, else 1."""
        value = positive_targets(step.observed, step)
        return Targets(value, (~self.expected(step)).to(value.dtype))


class ExpectedPositive(TargetRule):
    """Unknown is negative, but expected positives are positive (Verelst 2023 §4.2, L_EP)."""

    def __init__(self, expected: ExpectedLabels) -> None:
        super().__init__()
        self.expected = expected

    def forward(self, step: Step) -> Targets:
        """Target 1 where positive or expected to be."""
        value = positive_targets(step.observed, step).masked_fill(self.expected(step), 1)
        return Targets(value, torch.ones_like(value))


@register("en")
def en(expected_positives: Expected = None, momentum: float = 0.8) -> ComposedLoss:
    """Expected negatives: unknown is negative, but likely positives are left out (Verelst 2023 eq. 3–5).

    Of every class the p_i best images by running scores (eq. 4) are expected positives, chosen anew in
    every epoch but the first; p_i follows from K (``expected_positives``), or is given for each class. No
    program was published. Ours: p_i = round(K·N·count_i/Σcount), which is eq. 3 where every image has one
    positive; an observed negative is never expected to be positive; ties go to the lower row.

    Parameters
    ----------
    expected_positives
        K, the mean number of classes in an image, or the number of images of every class.
    momentum
        μ of running averages.
    """
    rule = ExpectedNegative(ExpectedLabels(RunningScores(momentum), expected_positives))
    return ComposedLoss(TargetLoss(rule, cross_entropy))


@register("ep")
def ep(expected_positives: Expected = None, momentum: float = 0.8) -> ComposedLoss:
    """Expected positives: as en, but the likeliest positives count as positive (Verelst 2023 §4.2, L_EP).

    Verelst 2023 finds it to work badly (table 2): early mistakes confirm themselves.

    Parameters
    ----------
    expected_positives
        K, the mean number of classes in an image, or the number of images of every class.
    momentum
        μ of running averages.
    """
    rule = ExpectedPositive(ExpectedLabels(RunningScores(momentum), expected_positives))
    return ComposedLoss(TargetLoss(rule, cross_entropy))
