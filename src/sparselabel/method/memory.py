"""What methods remember about every picture from epoch to epoch."""

from collections.abc import Mapping

import torch
from torch import Tensor

from sparselabel.data.labels import POSITIVE
from sparselabel.errors import ConfigError
from sparselabel.method.base import Layout, Memory, Part, Step, Targets
from sparselabel.method.rows import RowMemory, make_memory


class RunningScores(Part):
    """Exponential moving average of every picture's scores over its visits (P1 eq. 4).

    s ← μ·s + (1−μ)·f, with the training-mode scores f of the step's first view; s starts at 1 for an
    annotated positive and at 0 elsewhere.
    """

    rows: RowMemory

    def __init__(self, momentum: float = 0.8) -> None:
        super().__init__()
        if not 0 <= momentum <= 1:
            raise ConfigError(f"momentum must be in [0, 1], not {momentum}")
        self.momentum = momentum

    def prepare(self, layout: Layout) -> None:
        """Make room for every row's scores."""
        self.layout = layout
        count, classes = layout.observed.shape

        def start(slots: Tensor) -> Tensor:
            return (layout.observed[slots] == POSITIVE).float()

        self.rows = make_memory(
            f"running-scores-{int(layout.rows[0])}", count, classes, start, folder=layout.folder
        )

    def forward(self, rows: Tensor) -> Tensor:
        """(B, L) The running scores of some rows; padding gives those of any row."""
        return self.rows.read(self.layout.slots(rows.cpu().clamp(min=0))).to(rows.device)

    def observe(self, step: Step, targets: Targets) -> None:
        """Move the scores of the step's rows towards what the model said."""
        rows = step.rows.cpu()
        real = rows >= 0
        slots = self.layout.slots(rows[real])
        scores = torch.sigmoid(step.outputs[0].logits.detach().cpu()[real].float())
        self.rows.write(slots, torch.lerp(scores, self.rows.read(slots), self.momentum))

    def memories(self) -> Mapping[str, Memory]:
        """The scores themselves."""
        return {"scores": self.rows}

    def estimates(self) -> Tensor:
        """(n, L) The running scores of all rows of this process."""
        return torch.cat([self.rows.read(slots) for slots in self.rows.chunks()])
