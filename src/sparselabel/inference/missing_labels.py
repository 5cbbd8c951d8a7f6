"""Training labels that are likely missing: RUN/missing-labels.npz, for reports.

One pass over the training images keeps the highest scores of every class among its unknown labels, so that
memory depends on the number of classes alone.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sparselabel.data.labels import UNKNOWN
from sparselabel.files import write_arrays
from sparselabel.inference.scorer import evaluation_loader, full_precision, load_scorer
from sparselabel.run import Run

MOST = 20  # of each class


class Highest:
    """The highest scores of each of L classes and the rows they belong to, of all batches so far."""

    def __init__(self, classes: int, most: int) -> None:
        self.scores = torch.full((most, classes), -1.0)
        self.rows = torch.full((most, classes), -1, dtype=torch.int64)

    def add(self, scores: Tensor, rows: Tensor, counts: Tensor) -> None:
        """Look at a batch's scores (B, L), but only where ``counts`` (B, L)."""
        everything = torch.cat([self.scores, scores.masked_fill(~counts, -1.0)])
        owners = torch.cat([self.rows, rows[:, None].expand_as(scores)])
        # A stable sort: of equal scores the first rows stay, whatever the batches were.
        self.scores, indices = (
            split[: len(self.scores)] for split in everything.sort(dim=0, descending=True, stable=True)
        )
        self.rows = owners.gather(0, indices)

    def ranked(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, classes and scores, the highest first."""
        ranks, classes = (self.scores >= 0).nonzero(as_tuple=True)
        scores, rows = self.scores[ranks, classes], self.rows[ranks, classes]
        order = scores.argsort(descending=True, stable=True)
        return rows[order], classes[order], scores[order]


def write_missing(
    run: Run, *, workers: int | None = None, report: Callable[[int], None] | None = None
) -> None:
    """Write the unknown training labels with the highest scores: ``rows``, ``classes``, ``scores`` (n,).

    At most 20 of a class, the highest first.
    """
    split = run.split("train")
    scorer = load_scorer(run, images=len(split))
    loader = evaluation_loader(run.config(), split, workers, scorer.device)
    highest = Highest(len(split.truth.classes), MOST)
    for batch, output, _ in scorer.batches(loader, np.arange(len(split)), report=report):
        unknown = torch.from_numpy(split.observed.matrix[batch.numpy()] == UNKNOWN)
        highest.add(torch.sigmoid(full_precision(output.logits)).float().cpu(), batch, unknown)
    rows, classes, scores = highest.ranked()
    write_arrays(run.missing_file, rows=rows.numpy(), classes=classes.numpy(), scores=scores.numpy())
