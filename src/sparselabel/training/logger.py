"""Logs of a run: a progress bar or plain lines, JSON lines, and data for later figures."""

import json
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from sparselabel.data.loaders import Batch, rows_of
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import ConfigError, RunError, counted, param
from sparselabel.file_formats import parse_json, read_json
from sparselabel.files import atomic_write, write_arrays, write_json
from sparselabel.inference.scorer import Scorer
from sparselabel.losses.base import ComposedLoss
from sparselabel.progress import Bar, progress_bar, shows_bars, status_console
from sparselabel.resources import forget_peak, peak_memory
from sparselabel.run import CostFile, Run
from sparselabel.schema import Count

if TYPE_CHECKING:
    from lightning_fabric.loggers.logger import Logger

    from sparselabel.training.phase_loaders import PhaseLoaders

BINS = 20  # of the histogram of scores


class Log:
    """Log of a run: prints to the terminal and writes the numbers of every epoch.

    A run with a ``title`` is one of many: it only shows its progress bar, and only on a terminal.
    """

    def __init__(
        self,
        run: Run,
        *,
        speaks: bool,
        quiet: bool = False,
        tensorboard: bool = False,
        title: str = "",
        loggers: "Sequence[Logger]" = (),
    ) -> None:
        self.run = run
        self.speaks = speaks
        self.loggers = loggers
        self.title = title
        self.console = status_console()
        self.console.quiet = quiet or not speaks or (bool(title) and not shows_bars(self.console))
        self.cost = CostMeter(run)
        self._writer: Any = _tensorboard() if tensorboard and speaks else None

    @cached_property
    def _board(self) -> Any:
        return self._writer(str(self.run.path / "tensorboard"))

    def say(self, text: str) -> None:
        """One line for the user."""
        if not self.title:
            self.console.print(text)

    def bar(self, total: int | None, what: str) -> AbstractContextManager[Bar]:
        """A progress bar with the time left."""
        return progress_bar(self.console, total, f"{self.title}: {what}" if self.title else what)

    def keep_epochs(self, epochs: int) -> None:
        """Drop logged epochs after the first ``epochs``: a resumed run trains them again.

        Lines that cannot be read are dropped with a note: only a point of a curve is lost.
        """
        file = self.run.metrics_file
        if self.speaks and (file.exists() or file.is_symlink()):  # a link in a run from elsewhere is replaced
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
            good = [line for line in lines if 1 <= _epoch_of(line) <= epochs]
            if lines and not epochs:
                self.say(f"no checkpoint in {self.run.checkpoints}: the run begins at epoch 1")
            if len(good) < epochs:
                lost = counted(epochs - len(good), "epoch")
                self.say(f"{self.run.metrics_file} is damaged: {lost} will be missing in curves")
            with atomic_write(self.run.metrics_file) as partial:
                partial.write_text("".join(f"{line}\n" for line in good), encoding="utf-8")

    def epoch(self, record: dict[str, Any], waiting: Collection[str] = ()) -> None:
        """Log the numbers of an epoch and print the main ones; terms that are still ``waiting`` have none."""
        if not self.speaks:
            return
        with self.run.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.cost.keep()
        losses = " ".join(  # four digits, also of a loss that diverges
            f"{name} {value:.4f}" if abs(value) < 1e5 else f"{name} {value:.3e}"
            for name, value in record["losses"].items()
            if name not in waiting
        )
        losses += "".join(f" {name} joins after the warm-up" for name in waiting)
        validation, score = record["validation"], ""
        if validation is not None:
            score = f" | validation {validation['name']} {100 * validation['value']:.2f}"
        self.say(f"epoch {record['epoch']:3d} ({record['phase']}) | {losses}{score}")
        numbers = {f"loss/{name}": value for name, value in record["losses"].items()}
        if validation is not None:
            numbers[f"validation/{validation['name']}"] = validation["value"]
        for logger in self.loggers:
            logger.log_metrics(numbers, step=record["epoch"])
            logger.save()
        if self._writer is not None:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, record["epoch"])
            self._board.flush()


class _Numbered(TypedDict):
    epoch: Count


def _epoch_of(line: str) -> int:
    """The epoch that a line is about; 0 for one that is damaged."""
    try:
        return parse_json(line, Path("a line"), _Numbered)["epoch"]
    except RunError:
        return 0


def _tensorboard() -> Any:
    """TensorBoard's writer class."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        problem = f"{param('tensorboard')} needs a package"
        raise ConfigError(problem, "pip install 'sparselabel[tensorboard]'") from error
    return SummaryWriter


class ScoreHistogram:
    """The scores that training views of unobserved positives got during an epoch (Cole 2021 figure 2)."""

    PENDING = 64  # steps that are counted together: a histogram per step would cost more than the step

    def __init__(self, unobserved: Callable[[Tensor], Tensor]) -> None:
        self._unobserved = unobserved
        self.counts = np.zeros(BINS, dtype=np.int64)
        self._pending: list[tuple[Tensor, Tensor]] = []

    def add(self, logits: Tensor, rows: Tensor) -> None:
        """Count the entries of a step's rows (B,) where ``unobserved(rows)`` (B, L)."""
        self._pending.append((logits.detach(), rows))
        if len(self._pending) == self.PENDING:
            self._count()

    def _count(self) -> None:
        if self._pending:
            logits = torch.cat([logits for logits, _ in self._pending]).cpu()
            unobserved = self._unobserved(torch.cat([rows for _, rows in self._pending]))
            scores = torch.sigmoid(logits[unobserved].float()).numpy()
            self.counts += np.histogram(scores, BINS, (0.0, 1.0))[0]
            self._pending.clear()

    def take(self) -> list[int]:
        """The counts of the epoch over all processes, from score 0 to 1; starts anew."""
        self._count()
        counts: list[int] = all_reduce_sum(torch.from_numpy(self.counts)).tolist()
        self.counts = np.zeros(BINS, dtype=np.int64)
        return counts


class WatchedImages:
    """Scores and maps of a few training images after every epoch, for figures."""

    def __init__(self, folder: Path, count: int, loaders: "PhaseLoaders") -> None:
        self.folder = folder
        self.loaders = loaders
        # The process that writes them is the first one, and it remembers its own rows only.
        rows = rows_of(len(loaders.data.train), 0, loaders.fabric.world_size)
        self.rows = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]
        self._batches: dict[bool, Batch] = {}

    @torch.no_grad()
    def keep(self, phase: str, epoch: int, module: nn.Module, method: ComposedLoss) -> None:
        """Write ``EPOCH.npz``: rows (n,), scores (n, L) and, of cells, ``maps`` (n, L, h, w) of scores.

        A model with attention instead of maps gives ``attention`` (n, L, h, w), shares that add up to 1. The
        first epoch is 1. The method's memories of these rows are added: ``running_scores`` (n, L),
        ``heat_maps`` (n, L, H, W) in 0..255 and, if not all classes have one, ``heat_map_classes`` (n, k).
        """
        fabric = self.loaders.fabric
        if not len(self.rows) or not fabric.is_global_zero:
            return
        stored = self.loaders.uses_stored_features(phase)
        if stored not in self._batches:
            self._batches[stored] = next(iter(self.loaders.one_batch(phase)([self.rows], epoch=0)))
        views = self._batches[stored].inputs[0]
        scorer = Scorer(module, fabric.device, self.loaders.config.precision)
        output = scorer(views, maps=not stored or self.loaders.cells)
        arrays = {"rows": self.rows, "scores": torch.sigmoid(output.logits).float().cpu().numpy()}
        if output.maps is not None:
            arrays["maps"] = torch.sigmoid(output.maps).half().cpu().numpy()
        elif output.attention is not None:
            arrays["attention"] = output.attention.half().cpu().numpy()
        logged_state = method.logged_state(torch.from_numpy(self.rows))
        arrays |= {name: value.cpu().numpy() for name, value in logged_state.items()}
        self.folder.mkdir(exist_ok=True)
        write_arrays(self.folder / f"{epoch:04d}.npz", **arrays)


class CostMeter:
    """Time and memory of a run from now on; a resumed run adds to its earlier cost.

    Memory is that of the first process, without its loaders and a GPU's. On Linux it is the run's own peak,
    elsewhere the process's since it began, which may have trained other runs before. Runs that are trained
    side by side share the time: ``shared_by`` so many.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began = time.monotonic()
        self.shared_by = 1
        self._before: CostFile | None = None
        forget_peak()

    def keep(self) -> None:
        """Write the cost so far."""
        file = self._run.cost_file
        if self._before is None:  # not earlier: an old run may have been replaced
            nothing: CostFile = {"seconds": 0.0, "peak_memory": 0}
            self._before = read_json(file, CostFile, "remove it") if file.is_file() else nothing
        seconds = self._before["seconds"] + (time.monotonic() - self._began) / self.shared_by
        most = max(self._before["peak_memory"], peak_memory())
        write_json(file, {"seconds": round(seconds, 2), "peak_memory": most})
