"""What commands share on the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from sparselabel.progress import first_process, progress_bar

__all__ = ["first_process", "names_first", "plain_console", "progress"]


def plain_console() -> Console:
    """Where results go: words are printed as they are, also a class called ``[red] :cat:``."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def names_first(name: str, *others: str) -> Table:
    """A table whose first column holds names that people type: never cut, and folded only if they must be."""
    table = Table()
    table.add_column(name, no_wrap=True, overflow="fold")
    for other in others:
        table.add_column(other)
    return table


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[int], None]]:
    """A progress bar with the time left, told how many more are done; a plain line without a terminal."""
    with progress_bar(Console(stderr=True), total, what) as bar:
        yield bar.advance
