"""What a run tells while it works: a progress bar or plain lines, JSON lines, and what later figures need."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from sparselabel.data.labels import POSITIVE
from sparselabel.run_folder import RunFolder

BINS = 20  # of the histogram of scores


class Bar:
    """How far a long piece of work is."""

    def __init__(self, progress: Progress | None, total: int, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=total) if progress else None

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, count)

    def skip(self, count: int) -> None:
        """So many were done before; they do not count for the time left."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=count)


class Log:
    """The voice of a run: says things on the terminal and keeps the numbers of every epoch."""

    def __init__(
        self, run: RunFolder, *, speaks: bool, quiet: bool = False, tensorboard: bool = False
    ) -> None:
        self.run = run
        self.speaks = speaks
        self.console = Console(stderr=True, quiet=quiet or not speaks, soft_wrap=True, highlight=False)
        self._board: Any = None
        if tensorboard and speaks:
            from torch.utils.tensorboard import SummaryWriter  # the extra `tensorboard`

            self._board = SummaryWriter(str(run.path / "tensorboard"))

    def say(self, text: str) -> None:
        """One line for the user."""
        self.console.print(text, markup=False)

    @contextmanager
    def bar(self, total: int, what: str) -> Iterator[Bar]:
        """A progress bar with the time left; without a terminal just a line that says what is done."""
        if not self.console.is_terminal:
            self.say(f"{what} ...")
            yield Bar(None, total, what)
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            yield Bar(progress, total, what)

    def keep_epochs(self, epochs: int) -> None:
        """Forget the epochs after the first so many: a resumed run does them again."""
        if self.speaks and self.run.metrics_file.exists():
            lines = self.run.metrics_file.read_text(encoding="utf-8").splitlines(keepends=True)
            partial = self.run.metrics_file.with_suffix(".partial")
            partial.write_text("".join(lines[:epochs]), encoding="utf-8")
            partial.replace(self.run.metrics_file)

    def epoch(self, record: dict[str, Any]) -> None:
        """Keep the numbers of an epoch and say the most important ones."""
        if not self.speaks:
            return
        with self.run.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        losses = " ".join(f"{name} {value:.4f}" for name, value in record["losses"].items())
        judged = record["validation"]
        score = "" if judged is None else f" | validation {judged['name']} {100 * judged['value']:.2f}"
        self.say(f"epoch {record['epoch'] + 1:3d} ({record['phase']}) | {losses}{score}")
        if self._board is not None:
            for name, value in record["losses"].items():
                self._board.add_scalar(f"loss/{name}", value, record["epoch"])
            if judged is not None:
                self._board.add_scalar(f"validation/{judged['name']}", judged["value"], record["epoch"])
            self._board.flush()


class ScoreHistogram:
    """The scores that training views of unobserved positives got during an epoch (P3 figure 2)."""

    PENDING = 64  # steps that are counted together: a histogram a step would cost more than the step

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, dtype=np.int64)
        self._pending: list[tuple[Tensor, Tensor]] = []

    def add(self, logits: Tensor, hidden: Tensor) -> None:
        """Count the entries where ``hidden`` (B, L)."""
        self._pending.append((logits.detach(), hidden))
        if len(self._pending) == self.PENDING:
            self._count()

    def _count(self) -> None:
        if self._pending:
            logits = torch.cat([logits[hidden.to(logits.device)] for logits, hidden in self._pending])
            scores = torch.sigmoid(logits.float()).cpu().numpy()
            self.counts += np.histogram(scores, BINS, (0.0, 1.0))[0]
            self._pending.clear()

    def take(self) -> list[int]:
        """The counts of the epoch, from score 0 to 1; starts anew."""
        self._count()
        counts: list[int] = self.counts.tolist()
        self.counts[:] = 0
        return counts


def hidden_positives(truth: Tensor, observed: Tensor) -> Tensor:
    """(B, L) Where a class is there and nobody has said so."""
    return (truth == POSITIVE) & (observed != POSITIVE)
