"""Progress of a comparison: a bar on a terminal and in a notebook, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from sparselabel.comparison.planned_runs import Outcome, PlannedRun, RunsCallback
from sparselabel.errors import counted
from sparselabel.progress import Bar, duration, progress_bar, shows_bars, status_console


class RunsDisplay(RunsCallback):
    """Shows what becomes of the runs; on a terminal each run's own bar stands beside this one."""

    def __init__(self, console: Console, bar: Bar, total: int) -> None:
        self._console = console
        self._bar = bar
        self._total = total
        self._before = self._ended = 0
        self._began = time.monotonic()

    def on_skipped(self, finished: int) -> None:
        self._before = finished
        self._began = time.monotonic()
        self._bar.skip(finished)
        if finished:
            self._say(f"{finished} of {self._total} runs were finished before")

    def on_start(self, run: PlannedRun, others: int = 0) -> None:
        """A run begins, and others beside it: said only where no bar shows it."""
        if not shows_bars(self._console):
            beside = f", and {counted(others, 'run')} beside it" if others else ""
            self._say(f"[{self._before + self._ended + 1}/{self._total}] {run}{beside}{self._left()}")

    def on_end(self, outcome: Outcome) -> None:
        self._ended += 1
        self._bar.advance()
        if outcome.error:
            self._say(f"failed: {outcome.run}: {last_line(outcome.error.render())}")
        elif outcome.result is not None:
            measured = outcome.result["test"] or outcome.result["validation"]
            score = "" if measured is None else f": {measured['name']} {100 * measured['value']:.1f}"
            self._say(f"[{self._before + self._ended}/{self._total}] done: {outcome.run}{score}")

    def _left(self) -> str:
        """The time left, from the mean of the runs until now."""
        if not self._ended:
            return ""
        each = (time.monotonic() - self._began) / self._ended
        return f" (about {duration(each * (self._total - self._before - self._ended))} left)"

    def _say(self, text: str) -> None:
        if shows_bars(self._console):
            self._bar.say(text)
        else:
            self._console.print(text, markup=False)


@contextmanager
def runs_display(total: int) -> Iterator[RunsDisplay]:
    """Show how far the runs inside are."""
    console = status_console()
    if shows_bars(console):
        with progress_bar(console, total, "all runs") as bar:
            yield RunsDisplay(console, bar, total)
    else:
        yield RunsDisplay(console, Bar(None, total, "all runs"), total)


def last_line(error: str) -> str:
    """A message as it is, or the last line of a traceback."""
    return error.splitlines()[-1] if error.startswith("Traceback") else error
