"""Tables, progress bars and exits that several commands share."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.table import Table

from sparselabel.progress import first_process, plain_console, printable, progress_bar, status_console

__all__ = [
    "exit_if_failed",
    "first_process",
    "fitting_tables",
    "names_first",
    "plain_console",
    "printable",
    "progress",
]


def names_first(name: str, *others: str) -> Table:
    """A table whose first column holds names that people type: never cut, and folded only if they must be."""
    table = Table()
    table.add_column(name, no_wrap=True, overflow="fold")
    for other in others:
        table.add_column(other)
    return table


def fitting_tables(
    columns: Sequence[str], lines: Sequence[Sequence[str]], width: int, words: int = 1
) -> list[Table]:
    """A table of texts and numbers, split into several if it is wider than ``width``.

    Each has the first ``words`` columns, which name its lines. Titles may be folded, cells are not.
    """
    needed = [
        max(len(text) for text in (*title.split(), *(line[number] for line in lines), ""))
        for number, title in enumerate(columns)
    ]
    names = list(range(words))
    groups: list[list[int]] = [[]]
    room = width - 1 - sum(needed[number] + 3 for number in names)
    for number in range(words, len(columns)):
        if groups[-1] and sum(needed[other] + 3 for other in (*groups[-1], number)) > room:
            groups.append([])
        groups[-1].append(number)
    tables = []
    for group in groups:
        table, widths = (
            Table(),
            dict(zip((*names, *group), (needed[n] for n in (*names, *group)), strict=True)),
        )
        spare = width - 1 - sum(widths.values()) - 3 * len(widths)
        while spare > 0 and (narrow := [n for n in widths if widths[n] < len(columns[n])]):
            for number in narrow[:spare]:  # what is left goes to titles that are folded
                widths[number] += 1
            spare -= len(narrow)
        for number, cells in widths.items():
            table.add_column(columns[number], justify="left" if number < words else "right", width=cells)
        for line in lines:
            table.add_row(*(line[number] for number in (*names, *group)))
        tables.append(table)
    return tables


@contextmanager
def progress(total: int | None, what: str) -> Iterator[Callable[[int], None]]:
    """A progress bar with the time left, told how many more are done; a plain line without a terminal."""
    with progress_bar(status_console(), total, what) as bar:
        yield bar.advance


def exit_if_failed(failed: int, runs: int) -> None:
    """Exit with code 1 and say how to go on if runs failed; each error was printed when it happened."""
    if not failed:
        return
    print(  # noqa: T201
        f"sparselabel: error: {failed} of {runs} runs failed (see RUN.error.txt beside each): "
        "fix the cause and give the same command again; finished runs are skipped",
        file=sys.stderr,
    )
    sys.exit(1)
