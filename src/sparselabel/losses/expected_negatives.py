"""Expected positives: the images of every class that most likely show it though nobody said so (Verelst 2023
§3.3).

Verelst 2023 = Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label
Annotations.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.distributed import Piece, Threshold, nobody, topk_per_class, total
from sparselabel.errors import ConfigError
from sparselabel.losses.base import Layout, LossPart, Progress, Step, not_begun, rows_at_once
from sparselabel.losses.running_scores import RunningScores
from sparselabel.losses.setting_checks import within_label_bounds
from sparselabel.losses.terms import Expected, checked_counts, refuse_too_many


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
        annotated, negatives = (total(layout.counts(label)) for label in (POSITIVE, NEGATIVE))
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
