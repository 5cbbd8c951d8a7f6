"""What a run tells while it works: a progress bar or plain lines, JSON lines, and what later figures need."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import ConfigError, counted, param
from sparselabel.files import atomic_write
from sparselabel.progress import Bar, progress_bar
from sparselabel.run import Run
from sparselabel.training.run_cost import Cost

BINS = 20  # of the histogram of scores


class Log:
    """The voice of a run: says things on the terminal and keeps the numbers of every epoch.

    A run with a ``title`` is one of many: it shows nothing but its progress bar, and that on a terminal only.
    """

    def __init__(
        self, run: Run, *, speaks: bool, quiet: bool = False, tensorboard: bool = False, title: str = ""
    ) -> None:
        self.run = run
        self.speaks = speaks
        self.title = title
        self.console = Console(stderr=True, soft_wrap=True, highlight=False)
        self.console.quiet = quiet or not speaks or (bool(title) and not self.console.is_terminal)
        self.cost = Cost(run)
        self._writer: Any = _tensorboard() if tensorboard and speaks else None

    @cached_property
    def _board(self) -> Any:
        return self._writer(str(self.run.path / "tensorboard"))

    def say(self, text: str) -> None:
        """One line for the user."""
        if not self.title:
            self.console.print(text, markup=False)

    def bar(self, total: int, what: str) -> AbstractContextManager[Bar]:
        """A progress bar with the time left."""
        return progress_bar(self.console, total, f"{self.title}: {what}" if self.title else what)

    def keep_epochs(self, epochs: int) -> None:
        """Forget the epochs after the first so many: a resumed run does them again.

        What cannot be read is dropped, and said: it is a place in a curve, not the run.
        """
        if self.speaks and self.run.metrics_file.exists():
            lines = self.run.metrics_file.read_text(encoding="utf-8", errors="replace").splitlines()
            good = [line for line in lines if 1 <= _epoch_of(line) <= epochs]
            if lines and not epochs:
                self.say(f"no checkpoint in {self.run.checkpoints}: the run begins at epoch 1")
            if len(good) < epochs:
                lost = counted(epochs - len(good), "epoch")
                self.say(f"{self.run.metrics_file} is damaged: {lost} will be missing in curves")
            with atomic_write(self.run.metrics_file) as partial:
                partial.write_text("".join(f"{line}\n" for line in good), encoding="utf-8")

    def epoch(self, record: dict[str, Any]) -> None:
        """Keep the numbers of an epoch and say the most important ones."""
        if not self.speaks:
            return
        with self.run.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.cost.keep()
        losses = " ".join(f"{name} {_readable(value)}" for name, value in record["losses"].items())
        judged = record["validation"]
        score = "" if judged is None else f" | validation {judged['name']} {100 * judged['value']:.2f}"
        self.say(f"epoch {record['epoch']:3d} ({record['phase']}) | {losses}{score}")
        if self._writer is not None:
            for name, value in record["losses"].items():
                self._board.add_scalar(f"loss/{name}", value, record["epoch"])
            if judged is not None:
                self._board.add_scalar(f"validation/{judged['name']}", judged["value"], record["epoch"])
            self._board.flush()


def _readable(loss: float) -> str:
    """Four digits, also of a loss that went astray."""
    return f"{loss:.4f}" if abs(loss) < 1e5 else f"{loss:.3e}"


def _epoch_of(line: str) -> int:
    """The epoch that a line is about; 0 for one that is damaged."""
    try:
        return int(json.loads(line)["epoch"])
    except (ValueError, KeyError, TypeError):
        return 0


def _tensorboard() -> Any:
    """The class that writes TensorBoard's files."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            f"{param('tensorboard')} needs a package", "pip install 'sparselabel[tensorboard]'"
        ) from error
    return SummaryWriter


class ScoreHistogram:
    """The scores that training views of unobserved positives got during an epoch (Cole 2021 figure 2)."""

    PENDING = 64  # steps that are counted together: a histogram a step would cost more than the step

    def __init__(self, hidden: Callable[[Tensor], Tensor]) -> None:
        self._hidden = hidden
        self.counts = np.zeros(BINS, dtype=np.int64)
        self._pending: list[tuple[Tensor, Tensor]] = []

    def add(self, logits: Tensor, rows: Tensor) -> None:
        """Count the entries of a step's rows (B,) where ``hidden(rows)`` (B, L)."""
        self._pending.append((logits.detach(), rows))
        if len(self._pending) == self.PENDING:
            self._count()

    def _count(self) -> None:
        if self._pending:
            logits = torch.cat([logits for logits, _ in self._pending]).cpu()
            hidden = self._hidden(torch.cat([rows for _, rows in self._pending]))
            scores = torch.sigmoid(logits[hidden].float()).numpy()
            self.counts += np.histogram(scores, BINS, (0.0, 1.0))[0]
            self._pending.clear()

    def take(self) -> list[int]:
        """The counts of the epoch over all processes, from score 0 to 1; starts anew."""
        self._count()
        counts: list[int] = all_reduce_sum(torch.from_numpy(self.counts)).tolist()
        self.counts = np.zeros(BINS, dtype=np.int64)
        return counts
