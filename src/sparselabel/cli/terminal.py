"""What commands share on the terminal."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from sparselabel.progress import progress_bar


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


def first_process() -> bool:
    """Whether this process speaks for all, where torchrun or Fabric has started several."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[int], None]]:
    """A progress bar with the time left, told how many more are done; a plain line without a terminal."""
    with progress_bar(Console(stderr=True), total, what) as bar:
        yield bar.advance
