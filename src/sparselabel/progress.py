"""Progress bars on a terminal and in a notebook, plain lines elsewhere; durations in words."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """A text with control characters escaped: class names must not control the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def plain_console(**settings: Any) -> "Console":
    """A console that prints words as they are, also a class called ``[red] :cat:``."""
    from rich.console import Console

    class PlainConsole(Console):
        def render_str(self, text: str, **more: Any) -> "Text":
            return super().render_str(printable(text), **more)

    return PlainConsole(highlight=False, markup=False, emoji=False, soft_wrap=True, **settings)


def status_console(*, quiet: bool = False) -> "Console":
    """The console for progress and notes: stderr, or the output of a notebook. Text is printed as it is."""
    # On stderr, which is red in a notebook; there Rich would make a paragraph of every line.
    return plain_console(stderr=not in_notebook(), force_jupyter=False, quiet=quiet)


def shows_bars(console: "Console") -> bool:
    """Whether bars can be shown there."""
    return console.is_terminal or in_notebook()


class Bar:
    """A progress bar; shows nothing where there is neither a terminal nor a notebook."""

    def __init__(self, progress: "Progress | None", total: int | None, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=total) if progress else None
        self.skip(0)

    def advance(self, count: int = 1) -> None:
        """Advance by this many items."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, count)

    def skip(self, count: int) -> None:
        """Start after this many finished items, which do not count for the time left."""
        if self._progress is not None and self._task is not None:
            self._progress.reset(self._task, completed=count)
            self._progress.advance(self._task, 0)  # the clock runs from here

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self._progress is not None:
            self._progress.console.print(text, markup=False, highlight=False)

    def remove(self) -> None:
        """Remove it from the display."""
        if self._progress is not None and self._task is not None:
            self._progress.remove_task(self._task)


_shown: list["Progress"] = []  # a terminal has one display: nested bars join it


@contextmanager
def progress_bar(console: "Console", total: int | None, what: str) -> Iterator[Bar]:
    """Show a bar while the work inside goes on; it disappears when the work is done.

    The total is None if it is unknown.
    """
    if not shows_bars(console) or (in_notebook() and console.quiet):
        console.print(f"{what} ...", markup=False, highlight=False)
        yield Bar(None, total, what)
        return
    if _shown and not console.quiet:
        bar = Bar(_shown[-1], total, what)
        try:
            yield bar
        finally:
            bar.remove()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    kind = Progress
    if in_notebook():
        from sparselabel.notebook_progress import NotebookProgress  # it needs IPython

        kind = NotebookProgress
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # The speed is that of the last thousand steps: a run of many may take hours.
    with kind(*columns, console=console, transient=True, speed_estimate_period=inf) as progress:
        _shown.append(progress)
        try:
            yield Bar(progress, total, what)
        finally:
            _shown.pop()


def first_process() -> bool:
    """Whether this is the first of the processes of torchrun or Fabric."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def duration(seconds: float) -> str:
    """Seconds in words that are easy to read: 4.2 s, 40 s, 12 min, 3 h 20 min, 2 days 5 h."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 99.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24} days {hours % 24} h"
