"""What commands share on the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


def plain_console() -> Console:
    """Where results go: words are printed as they are, also a class called ``[red] :cat:``."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[int], None]]:
    """A progress bar with the time left, told how many more are done; a plain line without a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"{what} ...", highlight=False)
        yield lambda count: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
