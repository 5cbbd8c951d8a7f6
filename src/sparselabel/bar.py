"""How far a long piece of work is: a bar with the time left on a terminal, a plain line elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class Bar:
    """Told what is done; shows nothing where there is no terminal."""

    def __init__(self, progress: "Progress | None", total: int, what: str) -> None:
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


@contextmanager
def progress_bar(console: "Console", total: int, what: str) -> Iterator[Bar]:
    """Show a bar while the work inside goes on; it disappears when the work is done."""
    if not console.is_terminal:
        console.print(f"{what} ...", markup=False, highlight=False)
        yield Bar(None, total, what)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(progress, total, what)
