"""Lines of a table that `sparselabel compare` wrote, or that somebody has edited since."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparselabel.data.readers.csv_parquet import open_cells
from sparselabel.errors import DataError

AGAIN = "mend it, or write the table anew with `sparselabel compare`"


@dataclass(frozen=True)
class Line:
    """A line of a table, by the names of its columns."""

    place: str
    cells: dict[str, str]

    def __getitem__(self, column: str) -> str:
        if column not in self.cells:
            raise DataError(
                f"{self.place}: the table has no column {column!r} (it has {', '.join(self.cells)}): {AGAIN}"
            )
        return self.cells[column]

    def number(self, column: str, most: float = math.inf) -> float | None:
        """A number from 0 to ``most``, or None where the cell is empty."""
        text = self[column]
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= most or math.isinf(value):
            rule = f"a number from 0 to {most:g}" if most < math.inf else "a number from 0 on"
            raise DataError(
                f"{self.place}: column {column!r} must be {rule}, or empty, not {text!r}: {AGAIN}"
            )
        return value


def lines_of_table(table: Path, needed: Sequence[str], otherwise: str) -> Iterator[Line]:
    """The lines of a table with the columns ``needed``; ``otherwise`` says what it is without them."""
    with open_cells(table, needed[0]) as cells:
        rows = list(cells.rows)
        if not rows or not {*needed} <= {*cells.header}:
            raise DataError(otherwise)
        for line, row in rows:
            yield Line(f"{table}, line {line:,}", dict(zip(cells.header, row, strict=True)))
