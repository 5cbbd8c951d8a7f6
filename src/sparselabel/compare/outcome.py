"""What became of a planned run, and who is told."""

from dataclasses import dataclass
from typing import Any

from sparselabel.compare.planned_runs import Planned


@dataclass(frozen=True)
class Outcome:
    """A run that was trained: its result, or why it failed."""

    run: Planned
    result: dict[str, Any] | None
    error: str = ""


def without_force(error: str) -> str:
    """A run's error without the flag of `train` that a comparison does not have."""
    return error.replace("(--force)", "(delete its folder)")


class Watcher:
    """Is told how far a comparison is; this one says nothing."""

    def skips(self, finished: int) -> None:
        """So many runs were finished before."""

    def begins(self, run: Planned) -> None:
        """A run begins here; on a cluster nobody knows when."""

    def ends(self, outcome: Outcome) -> None:
        """A run is finished, or has failed."""
