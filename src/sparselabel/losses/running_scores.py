"""Running scores: a moving average of the scores of every training image."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.errors import ConfigError
from sparselabel.losses.base import LossPart
from sparselabel.losses.memory.row_store import RowStore, make_row_store, stack_row_stores
from sparselabel.losses.step import Layout, Memory, Step


class RunningScores(LossPart):
    """Exponential moving average of every image's scores over its visits (Verelst 2023 eq. 4).

    s ← μ·s + (1−μ)·f, with the training-mode scores f of the step's first view; s starts at 1 for an observed
    positive and at 0 elsewhere. It stays 0 for an observed negative (ours; Verelst 2023 has none). Scores are
    float32, or float16 in a file, where an average stops a few steps of float16 short of its limit: on the
    way from 0 to .9 at .899 with μ .8, .898 with μ .9 and .876 with μ .99.
    """

    dtype = torch.float32
    side_by_side = True
    rows: RowStore

    def __init__(self, momentum: float = 0.8) -> None:
        super().__init__()
        self.momentum = checked_momentum(momentum)

    def prepare(self, layout: Layout) -> None:
        self.layout = layout

        def start(local_index: Tensor) -> Tensor:
            return (layout.observed[local_index] == POSITIVE).to(self.dtype)

        classes = layout.observed.shape[1]
        self.rows = make_row_store(
            "running-scores", layout, classes, start, dtype=self.dtype, dtype_in_file=torch.float16
        )

    def stack(self, parts: Sequence["RunningScores"]) -> None:
        self.rows = stack_row_stores([part.rows for part in parts])

    def forward(self, rows: Tensor) -> Tensor:
        """(B, L) float32 The running scores of some rows, on the CPU; padding gives those of any row."""
        return self.rows.read(self.layout.local_index(rows)).to(torch.float32)

    def prefetch(self, rows: Tensor) -> None:
        self.rows.prefetch(self.layout.local_index(rows))

    def update(self, step: Step) -> None:
        """Move the running scores of the step's rows towards the model's scores."""
        rows = step.rows.cpu()
        real = slice(None) if bool((rows >= 0).all()) else rows >= 0
        local_index = self.layout.local_index(rows[real])
        scores = torch.sigmoid(step.outputs[0].logits.detach().cpu()[real].to(self.dtype))
        if self.layout.has_negatives:
            scores.masked_fill_(step.observed.cpu()[real] == NEGATIVE, 0)
        self.rows.write(
            local_index, torch.lerp(scores, self.rows.read(local_index).to(self.dtype), self.momentum)
        )

    def row_stores(self) -> Mapping[str, Memory]:
        return {"scores": self.rows}

    def estimates(self) -> Tensor:
        return torch.cat([self.rows.read(local_index).float() for local_index in self.rows.chunks()])

    def logged_state(self, rows: Tensor) -> dict[str, Tensor]:
        return {"running_scores": self(rows)}


def checked_momentum(momentum: float) -> float:
    """μ, the share of the old value in a running average."""
    if not 0 <= momentum <= 1:
        raise ConfigError(f"momentum must be in [0, 1], not {momentum}")
    return momentum
