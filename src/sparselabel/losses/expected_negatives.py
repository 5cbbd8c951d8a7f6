"""Expected negatives: for every class, leave out the images that most likely show it (Verelst 2023 §3.3).

Verelst et al. 2023, Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label
Annotations.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.distributed import Chunk, Threshold, all_reduce_sum, no_rows, topk_per_class
from sparselabel.errors import ConfigError
from sparselabel.losses.base import ComposedLoss, LossPart, TargetLoss, TargetRule, Targets, cross_entropy
from sparselabel.losses.registry import register
from sparselabel.losses.running_scores import RunningScores
from sparselabel.losses.score_prior import ScorePrior, Scores, prior_of
from sparselabel.losses.setting_checks import Expected, checked_counts, refuse_too_many, within_label_bounds
from sparselabel.losses.step import Layout, Progress, Step, not_begun, rows_at_once
from sparselabel.losses.target_rules import positive_targets


def positives_of_classes(
    expected: float | Sequence[float], observed_positives: Tensor, negatives: Tensor, rows: int
) -> Tensor:
    """(L,) int64 p_i, the number of rows that count as positive for class i, observed positives included.

    ``expected`` is K, the mean number of classes in an image: p_i = round(K·N·count_i / Σ_j count_j), which
    is Verelst 2023 eq. 3 if every row has one observed positive, and also holds for none or several. Or it is
    the number of images of every class, estimated elsewhere. p_i is at least the number of
    ``observed_positives`` (L,) and at most all rows but the observed ``negatives`` (L,); it is 0 for a class
    without an observed positive.
    """
    counts = observed_positives.double()
    if isinstance(expected, int | float):
        positives = expected * rows * counts / counts.sum().clamp(min=1)
    else:
        positives = torch.tensor(expected, dtype=torch.float64)
        if positives.shape != counts.shape:
            raise ConfigError(
                f"expected_positives must be one number, or one for each of the {len(counts)} classes, "
                f"not {len(positives)} numbers"
            )
    rounded = (positives.clamp(max=rows) + 0.5).floor()
    bounded = within_label_bounds(rounded.numpy(), observed_positives.numpy(), negatives.numpy(), rows)
    return torch.from_numpy(bounded).to(torch.int64)


class ExpectedLabels(LossPart):
    """Which unknown labels count as expected positives, ẑ = 1, in this epoch (Verelst 2023 §3.3).

    At the start of every epoch but the first, class i selects its p_i − count_i highest-scoring unknown rows
    by running score; observed positives are already counted in p_i. In the first epoch nothing is selected.
    With another model's scores (ours) rows are ranked by the odds of both, and in the first epoch by that
    model's alone. A row's running score changes only when the row is visited, once per epoch, so one
    threshold per class selects the rows.
    """

    threshold_score: Tensor
    threshold_row: Tensor
    side_by_side = True

    def __init__(self, scores: RunningScores, expected: Expected, prior: ScorePrior | None = None) -> None:
        super().__init__()
        self.scores = scores
        self.prior = prior
        self.expected = checked_counts(expected)
        self._current_epoch = 0
        self._of_runs: Sequence[ExpectedLabels] = ()

    def stack(self, parts: Sequence["ExpectedLabels"]) -> None:
        """Use the thresholds of the runs: each selects among its own scores."""
        self._of_runs = parts

    def prepare(self, layout: Layout) -> None:
        self.layout = layout
        observed, negatives = (all_reduce_sum(layout.counts(label)) for label in (POSITIVE, NEGATIVE))
        refuse_too_many(self.expected, layout.observed.shape[1], layout.total)
        positives = positives_of_classes(self.expected, observed, negatives, layout.total)
        if self.prior is not None:
            self.prior.fit(layout, positives)
        self.num_to_select = positives - observed
        self._set_threshold(no_rows(len(positives)))

    def begin_epoch(self, progress: Progress) -> None:
        self._current_epoch = progress.epoch
        if self._of_runs:
            for part in self._of_runs:
                part.begin_epoch(progress)
            thresholds = [Threshold(part.threshold_score, part.threshold_row) for part in self._of_runs]
            score, row = (torch.stack(values)[:, None] for values in zip(*thresholds, strict=True))
            self._set_threshold(Threshold(score, row))  # (R, 1, L)
        elif progress.epoch > 0:
            self._set_threshold(topk_per_class(self._candidate_chunks, self.num_to_select, self.layout.total))
        elif self.prior is not None:
            count = torch.where(self.prior.weight > 0, self.num_to_select, 0)
            self._set_threshold(topk_per_class(self._candidate_chunks, count, self.layout.total))

    def forward(self, step: Step) -> Tensor:
        """(B, L) bool: unknown, but expected to be positive."""
        if step.progress.epoch not in (0, self._current_epoch):
            raise not_begun(step.progress)
        # Rows, scores and thresholds are on the CPU; only the mask goes to the model's device.
        threshold = Threshold(self.threshold_score.cpu(), self.threshold_row.cpu())
        selected = threshold.selects(self._ranking_scores(self.scores(step.rows), step.rows), step.rows.cpu())
        return selected.to(step.observed.device) & (step.observed == UNKNOWN)

    def _set_threshold(self, threshold: Threshold) -> None:
        self.register_buffer("threshold_score", threshold.score)
        self.register_buffer("threshold_row", threshold.row)

    def _candidate_chunks(self) -> Iterator[Chunk]:
        observed, rows = self.layout.observed, self.layout.rows
        for local_index in self.scores.rows.chunks(rows_at_once(observed.shape[1])):
            own = rows[local_index]
            scores = self._ranking_scores(self.scores.rows.read(local_index), own)
            yield Chunk(own, scores, observed[local_index] == UNKNOWN)

    def _ranking_scores(self, scores: Tensor, rows: Tensor) -> Tensor:
        """(..., L) What rows are ranked by: running scores, combined with another model's scores if given."""
        if self.prior is None:
            return scores
        odds: Tensor = self.prior(rows).exp()
        if self._current_epoch == 0:  # running scores are not informative yet
            return odds / (1 + odds)
        return scores * odds / (1 - scores + scores * odds)


class ExpectedNegative(TargetRule):
    """Unknown is negative, but expected positives are left out (Verelst 2023 eq. 5)."""

    side_by_side = True

    def __init__(self, expected: ExpectedLabels) -> None:
        super().__init__()
        self.expected = expected

    def forward(self, step: Step) -> Targets:
        value = positive_targets(step.observed, step)
        return Targets(value, (~self.expected(step)).to(value.dtype))


class ExpectedPositive(TargetRule):
    """Unknown is negative, but expected positives are positive (Verelst 2023 §4.2, L_EP)."""

    side_by_side = True

    def __init__(self, expected: ExpectedLabels) -> None:
        super().__init__()
        self.expected = expected

    def forward(self, step: Step) -> Targets:
        value = positive_targets(step.observed, step).masked_fill(self.expected(step), 1)
        return Targets(value)


@register("en")
def en(expected_positives: Expected = None, momentum: float = 0.8, scores: Scores = None) -> ComposedLoss:
    """Expected negatives: unknown is negative, but likely positives are left out (Verelst 2023 eq. 3–5).

    The p_i − count_i highest-scoring unknown images of class i by running score (eq. 4) are expected
    positives, selected anew in every epoch but the first; the count_i observed positives are already counted
    in p_i, which follows from K (``expected_positives``) or is given for each class. No code was published.
    Ours: p_i = round(K·N·count_i/Σcount), which is eq. 3 where every image has one
    positive; an observed negative is never expected to be positive; ties go to the lower row.

    Parameters
    ----------
    expected_positives
        K, the mean number of classes in an image, or the number of images of every class.
    momentum
        μ of running averages.
    scores
        Another model's scores of the training images (N, L), on any scale; NaN for none. Images are then
        chosen by running score and these together.
    """
    rule = ExpectedNegative(ExpectedLabels(RunningScores(momentum), expected_positives, prior_of(scores)))
    return ComposedLoss(TargetLoss(rule, cross_entropy))


@register("ep", like=en)
def ep(expected_positives: Expected = None, momentum: float = 0.8, scores: Scores = None) -> ComposedLoss:
    """Expected positives: as en, but the likeliest positives count as positive (Verelst 2023 §4.2, L_EP).

    Verelst 2023 finds that it works badly (table 2): early mistakes confirm themselves.
    """
    rule = ExpectedPositive(ExpectedLabels(RunningScores(momentum), expected_positives, prior_of(scores)))
    return ComposedLoss(TargetLoss(rule, cross_entropy))
