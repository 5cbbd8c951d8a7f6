"""What a run costs: seconds, over all its sittings, and the most memory that it had at a time."""

import sys
import time
from pathlib import Path

from sparselabel.json_file import read_json, write_json
from sparselabel.run import RunFolder

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Cost:
    """Counts from when it is made; a run that goes on adds to what it has cost before.

    Memory is that of the first process, without its loaders and a GPU's. On Linux it is the run's own peak,
    elsewhere the process's since it began, which may have trained other runs before.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._began = time.monotonic()
        self._before: dict[str, float] | None = None
        forget_peak()

    def keep(self) -> None:
        """Write what it has been until now."""
        file = self._run.cost_file
        if self._before is None:  # not earlier: --force removes the run that was there
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
