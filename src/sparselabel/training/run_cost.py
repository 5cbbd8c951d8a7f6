"""What a run takes: time, memory and disk, as a dry run has measured them."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from sparselabel.files import read_json, write_json
from sparselabel.run import Run

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
CHECKPOINTS = 3  # the newest, the best, and the one that is being written


@dataclass(frozen=True)
class PhaseCost:
    """What a phase takes: ``seconds`` a step, bytes of a process at its peak, bytes of a checkpoint.

    ``scored`` images are scored after (or before) every epoch, at ``scoring`` seconds each.
    """

    name: str
    epochs: int
    steps: int
    batch_size: int
    seconds: float
    scored: int
    scoring: float
    ram: int
    gpu: int
    checkpoint: int

    @property
    def time(self) -> float:
        """Seconds of all its epochs."""
        return self.epochs * (self.steps * self.seconds + self.scored * self.scoring)


@dataclass(frozen=True)
class RunCost:
    """What a run would take, phase by phase; ``scored`` images are scored at its end.

    ``features`` are bytes of stored features beside the data, ``features_in_ram`` those of them in RAM too,
    ``features_time`` the seconds to compute them; ``files`` what the method keeps in files of the run;
    ``model`` the final model. ``expected_time`` are the seconds to estimate expected positives from features,
    ``prior_time`` and ``prior_disk`` what the run takes that finds the prior: both come before training.
    ``gpu_there``, ``ram_there`` and ``disk_there`` are what the machine has (the GPU in all, others free);
    when free RAM was looked at, the process already had ``ram_taken``.
    """

    phases: tuple[PhaseCost, ...]
    scored: int
    features: int
    features_in_ram: int
    features_time: float
    files: int
    model: int
    gpu_there: int
    ram_there: int
    disk_there: int
    expected_time: float = 0.0
    prior_time: float = 0.0
    prior_disk: int = 0
    ram_taken: int = 0

    @property
    def seconds(self) -> float:
        """Of the whole run: features, estimates, training and scoring."""
        end = self.scored * self.phases[-1].scoring
        before = self.features_time + self.expected_time + self.prior_time
        return before + sum(phase.time for phase in self.phases) + end

    @property
    def ram(self) -> int:
        """Bytes of RAM at the peak, of one process without its loaders."""
        return max(phase.ram for phase in self.phases) + self.features_in_ram

    @property
    def ram_short(self) -> bool:
        """Whether that is more than the process may have."""
        return self.ram > self.ram_taken + self.ram_there

    @property
    def gpu(self) -> int:
        """Bytes of the GPU at the peak."""
        return max(phase.gpu for phase in self.phases)

    @property
    def disk(self) -> int:
        """Bytes in the run's folder at the most."""
        largest = max(phase.checkpoint for phase in self.phases)
        return max(CHECKPOINTS * largest + self.model, self.prior_disk) + self.files


class Cost:
    """Counts from when it is made; a run that goes on adds to what it has cost before.

    Memory is that of the first process, without its loaders and a GPU's. On Linux it is the run's own peak,
    elsewhere the process's since it began, which may have trained other runs before.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began = time.monotonic()
        self._before: dict[str, float] | None = None
        forget_peak()

    def keep(self) -> None:
        """Write what it has been until now."""
        file = self._run.cost_file
        if self._before is None:  # not earlier: an old run may have been replaced
            nothing = {"seconds": 0.0, "peak_memory": 0}
            self._before = read_json(file, "remove it") if file.is_file() else nothing
        seconds = self._before["seconds"] + time.monotonic() - self._began
        most = max(int(self._before["peak_memory"]), peak_memory())
        write_json(file, {"seconds": round(seconds, 2), "peak_memory": most})


def peak_memory() -> int:
    """The most bytes of RAM that this process has had at a time, since the peak was forgotten last."""
    try:
        lines = STATUS.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def forget_peak() -> None:
    """Let Linux count the peak anew; elsewhere it goes on from the process's beginning."""
    try:
        RESET.write_text("5", encoding="ascii")
    except OSError:
        return
