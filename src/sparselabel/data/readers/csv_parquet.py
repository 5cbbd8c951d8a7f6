"""A CSV, TSV or Parquet file as a header and a stream of rows of text, each with its line number."""

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from sparselabel.errors import DataError, listing, nearest, param
from sparselabel.file_formats import reading

Rows = Iterator[tuple[int, Sequence[str]]]


@dataclass(frozen=True)
class Cells:
    """A table being read. ``rows`` gives (line, cells) once: a cell for each column, no blank rows."""

    file: Path
    row_name: str  # what error messages call a row: "line", in Parquet "row"
    header: tuple[str, ...]
    rows: Rows

    def wrong(self, line: int, problem: str, *remedies: str) -> DataError:
        """The error to raise for something on a line."""
        where = f"{self.row_name} {line:,}"
        return DataError(f"{self.file}, {where}: {problem}", *remedies, what=self.file, where=where)

    def column(self, name: str, parameter: str) -> int:
        """Where a column is, whose name is a parameter; or an error that names the columns that are there."""
        if name not in self.header:
            raise DataError(
                f"{self.file} has no column {name!r} ({nearest(name, self.header)})",
                f"say which it is with {param(parameter)}",
            )
        return self.header.index(name)


@contextmanager
def open_cells(file: Path, wanted: str) -> Iterator[Cells]:
    """Open a table by its suffix: .parquet, .tsv or .tab, else text with the separator its header has.

    ``wanted`` is a column that the table should have; it tells separators from names that contain them.
    """
    if not file.is_file():
        fault = "not a file" if file.exists() else "not there"
        raise DataError(f"{file} is {fault}", "give a CSV, TSV or Parquet file")
    if file.suffix.lower() in (".parquet", ".pq"):
        with _open_parquet(file) as cells:
            yield _checked(cells)
    else:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = _text_rows(file, stream, wanted)
            _, header = next(rows, (0, ()))
            yield _checked(Cells(file, "line", tuple(name.strip() for name in header), rows))


def _checked(cells: Cells) -> Cells:
    """Check the header now; check the rows and leave out blank ones as they come."""
    header = cells.header
    if not header:
        raise DataError(f"{cells.file} is empty", "name the columns in its first line", what=cells.file)
    if "" in header:
        raise DataError(
            f"{cells.file}: column {header.index('') + 1} has no name",
            "if it is an index written by pandas, write with index=False",
        )
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        rule = "columns must have different names"
        raise DataError(f"{cells.file}: {rule}; these occur more often: {listing(twice)}")

    def filled() -> Rows:
        width = len(header)
        for line, row in cells.rows:
            if len(row) != width and any(row):
                problem = f"the header has {width} columns, this has {len(row)}: {listing(row)}"
                raise cells.wrong(line, problem)
            if any(row):
                yield line, row

    return replace(cells, rows=filled())


def _text_rows(file: Path, stream: io.TextIOBase, wanted: str) -> Rows:
    """Every row of a text file, the header first, with the line it begins on."""
    line = 0
    try:
        blank = 0
        first = stream.readline()
        while first and not first.strip():
            blank, first = blank + 1, stream.readline()
        if not first:
            return

        def rank(separator: str) -> tuple[bool, int]:
            """Best is the separator that gives the wanted column; of several, or else, most columns."""
            names = [name.strip() for name in next(csv.reader([first], delimiter=separator))]
            return wanted in names, len(names)

        tabs = file.suffix.lower() in (".tsv", ".tab")
        delimiter = "\t" if tabs else max((",", "\t", ";"), key=rank)
        reader = csv.reader(chain([first], stream), delimiter=delimiter, strict=True)
        line = blank
        for row in reader:
            yield line + 1, row
            line = blank + reader.line_num
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not text in UTF-8 ({_first_wrong(file)})", "save it as UTF-8") from error
    except csv.Error as error:
        why, where = str(error), f"line {line + 1:,}"
        remedies: tuple[str, ...] = ()
        if why.startswith(("unexpected end of data", "field larger than")):  # it took in all that follows
            why = f"a quote is not closed in the row that begins there ({why})"
            remedies = ('close it (a cell with " in it stands in quotes, and each " inside twice)',)
        raise DataError(f"{file}, {where}: {why}", *remedies, what=file, where=where) from error


def _first_wrong(file: Path) -> str:
    """Where a file stops being UTF-8; the error met while reading counts from the start of a block only."""
    content = file.read_bytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return f"line {line:,}: {error.reason} {content[error.start]:#x}"
    return "it changed while it was read"


@contextmanager
def _open_parquet(file: Path) -> Iterator[Cells]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(f"reading {file} needs pyarrow", "pip install 'sparselabel[parquet]'") from error
    with reading(file):
        opened = parquet.ParquetFile(file)
        schema = opened.schema_arrow
    with opened:
        for column in schema:
            if pyarrow.types.is_nested(column.type) or pyarrow.types.is_binary(column.type):
                raise DataError(
                    f"{file}: column {column.name!r} holds {column.type}, and cells must be text or numbers",
                    "write several labels in one row each",
                    f"as one text with a {param('separator')}",
                )

        def rows() -> Iterator[Sequence[str]]:
            with reading(file):
                for batch in opened.iter_batches():
                    columns = [[*map(_text, column.to_pylist())] for column in batch.columns]
                    yield from zip(*columns, strict=True)

        yield Cells(file, "row", tuple(schema.names), enumerate(rows(), 1))


def _text(value: object) -> str:
    """A Parquet value as a CSV file would have it."""
    return "" if value is None else str(int(value) if isinstance(value, bool) else value)
