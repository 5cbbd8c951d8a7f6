"""Read a CSV, TSV, XLSX or Parquet file as a header and a stream of numbered rows of text."""

import codecs
import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from sparselabel.data.decode import SUFFIXES
from sparselabel.data.readers.raw_dataset import warn
from sparselabel.errors import ConfigError, DataError, listing, nearest, param
from sparselabel.file_formats import reading, refuse_packed

Rows = Iterator[tuple[int, Sequence[str]]]

UNPACKED = 0.1
"""The share of memory that a workbook may unpack to: as Python's texts it takes several times as much."""
LAST_ROW = 1 << 20  # of a sheet: a file may claim that there is a later one, with blank ones before it


@dataclass(frozen=True)
class Cells:
    """A table being read. ``rows`` gives (line, cells) once: a cell for each column, no blank rows."""

    file: Path
    row_name: str  # what error messages call a row: "line", in Parquet and XLSX "row"
    header: tuple[str, ...]
    rows: Rows

    def wrong(self, line: int, problem: str, *remedies: str) -> DataError:
        """The error to raise for something on a line."""
        where = f"{self.row_name} {line:,}"
        return DataError(f"{self.file}, {where}: {problem}", *remedies, what=self.file, where=where)

    def column(self, name: str, parameter: str) -> int:
        """The index of a column that a parameter names; raises, and lists the columns, if it is missing."""
        index = self.find(name)
        if index is None:
            raise DataError(
                f"{self.file} has no column {name!r} ({nearest(name, self.header)})",
                f"say which it is with {param(parameter)}",
            )
        return index

    def find(self, *names: str) -> int | None:
        """The index of the first of these columns that exists, exactly or in another case."""
        alike = [plain_name(name) for name in self.header]
        for name in names:
            if name in self.header:
                return self.header.index(name)
            if alike.count(plain_name(name)) == 1:
                return alike.index(plain_name(name))
        return None


def plain_name(name: str) -> str:
    """A name without what people write now so, now so: case and spaces."""
    return " ".join(name.split()).casefold()


@contextmanager
def open_cells(
    file: Path, *wanted: str, encoding: str | None = None, unnamed: tuple[str, ...] = ()
) -> Iterator[Cells]:
    """Open a table by its suffix: .parquet, .xlsx, .tsv or .tab, else text with the separator its header has.

    The table should have one of the columns ``wanted``; that tells separators from names that contain them.
    ``encoding`` of a text is found, unless it is given. Columns are called ``unnamed`` where the first row is
    no header: it begins with an image.
    """
    if not file.is_file():
        fault = "not a file" if file.exists() else "not there"
        raise DataError(f"{file} is {fault}", "give a CSV, TSV, XLSX or Parquet file")
    suffix = file.suffix.lower()
    if suffix in (".parquet", ".pq"):
        with _open_parquet(file) as cells:
            yield _checked(cells)
    elif suffix in (".xlsx", ".xlsm"):
        with _open_xlsx(file, unnamed) as cells:
            yield _checked(cells)
    else:
        with file.open(encoding=_encoding(file, encoding), newline="") as stream:
            yield _checked(_with_header(file, "line", _text_rows(file, stream, wanted), unnamed))


def _with_header(file: Path, row_name: str, rows: Rows, unnamed: tuple[str, ...]) -> Cells:
    """The first row is the header, unless it begins with an image."""
    line, first = next(rows, (0, ()))
    header = tuple(name.strip() for name in first)
    if unnamed and header and header[0].lower().endswith(SUFFIXES):
        if len(header) != len(unnamed):
            raise DataError(
                f"{file} has no header: its first row begins with the image {header[0]!r}, and has "
                f"{len(header)} cells, not {len(unnamed)} ({', '.join(unnamed)})",
                "name the columns in its first line",
                what=file,
            )
        warn(f"{file} has no header: its columns were taken for {' and '.join(unnamed)}")
        return Cells(file, row_name, unnamed, chain([(line, first)], rows))
    return Cells(file, row_name, header, rows)


def _encoding(file: Path, given: str | None) -> str:
    """The encoding of a text: UTF-8, UTF-16, or else Windows' own as Excel writes it, with a warning."""
    if given is not None:
        try:
            return codecs.lookup(given).name
        except LookupError as error:
            raise ConfigError(
                f"there is no encoding {given!r}",
                "utf-8, utf-16, cp1252 and latin-1 are some",
                what="encoding",
                value=given,
            ) from error
    with reading(file), file.open("rb") as stream:
        head = stream.read(2)
        if head in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        if len(head) == 2 and b"\0" in head:  # a text begins with a letter of ASCII
            return "utf-16-be" if head[0] == 0 else "utf-16-le"
        decoder = codecs.getincrementaldecoder("utf-8")()
        block = head
        try:
            while block:
                decoder.decode(block)
                block = stream.read(1 << 20)
        except UnicodeDecodeError:
            pass
        else:
            return "utf-8-sig"
        stream.seek(0)
        content = stream.read()
    damaged = any(
        character > "\x7f" and character != "\ufffd" for character in content.decode(errors="replace")
    )
    try:
        content.decode("cp1252")
    except UnicodeDecodeError:
        damaged = True
    if damaged:  # some of it is UTF-8, or it is neither
        raise DataError(
            f"{file} is not text in UTF-8 ({_first_wrong(content)})",
            "save it as UTF-8",
            f"name its {param('encoding')}",
            what=file,
        )
    warn(
        f"{file} is not text in UTF-8 ({_first_wrong(content)}): it was read as that of Windows (cp1252)",
        f"if that is wrong, name its {param('encoding')}",
    )
    return "cp1252"


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


def _text_rows(file: Path, stream: io.TextIOWrapper, wanted: tuple[str, ...]) -> Rows:
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
            """Best gives a wanted column, or an image if there is no header; of several, most columns."""
            try:
                names = [plain_name(name) for name in next(csv.reader([first], delimiter=separator))]
            except csv.Error:  # thousands of classes in one cell: it is not this one
                return False, 0
            fits = any(plain_name(name) in names for name in wanted) or names[0].endswith(SUFFIXES)
            return fits, len(names)

        tabs = file.suffix.lower() in (".tsv", ".tab")
        delimiter = "\t" if tabs else max((",", "\t", ";"), key=rank)
        reader = csv.reader(chain([first], stream), delimiter=delimiter, strict=True)
        line = blank
        for row in reader:
            yield line + 1, row
            line = blank + reader.line_num
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file} is not text in {stream.encoding} ({error.reason})",
            "save it as UTF-8",
            f"name its {param('encoding')}",
            what=file,
        ) from error
    except csv.Error as error:
        why, where = str(error), f"line {line + 1:,}"
        remedies: tuple[str, ...] = ()
        if why.startswith(("unexpected end of data", "field larger than")):  # it took in all that follows
            why = f"a quote is not closed in the row that begins there ({why})"
            remedies = ('close it (a cell with " in it stands in quotes, and each " inside twice)',)
        raise DataError(f"{file}, {where}: {why}", *remedies, what=file, where=where) from error


def _first_wrong(content: bytes) -> str:
    """The position at which a text stops being UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return f"line {line:,}: {error.reason} {content[error.start]:#x}"
    return "it changed while it was read"


@contextmanager
def _open_xlsx(file: Path, unnamed: tuple[str, ...]) -> Iterator[Cells]:
    """The first sheet of a workbook."""
    try:
        import openpyxl
    except ImportError as error:
        raise DataError(f"reading {file} needs openpyxl", "pip install 'sparselabel[xlsx]'") from error
    with reading(file, "save it as CSV"):
        with zipfile.ZipFile(file) as archive:
            texts = [info for info in archive.infolist() if info.filename.endswith(".xml")]  # no pictures
            refuse_packed(sum(info.file_size for info in texts), UNPACKED)
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        if not book.worksheets:
            raise ValueError("it has no sheet")
        book.worksheets[0].reset_dimensions()  # some programs write smaller ones than there are
    try:
        first, *others = book.worksheets
        if others:
            warn(
                f"{file}: only its first sheet, {first.title!r}, was read, not "
                f"{listing(sheet.title for sheet in others)}"
            )

        def rows() -> Rows:
            width = 0
            with reading(file, "save it as CSV"):
                for number, row in enumerate(first.iter_rows(max_row=LAST_ROW, values_only=True), 1):
                    texts = [*map(_text, row)]
                    while len(texts) > width and not texts[-1].strip():  # cells that only have a color
                        texts.pop()
                    if texts:
                        width = width or len(texts)  # that of the header
                        yield number, texts + [""] * (width - len(texts))

        yield _with_header(file, "row", rows(), unnamed)
    finally:
        book.close()


@contextmanager
def _open_parquet(file: Path) -> Iterator[Cells]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(f"reading {file} needs pyarrow", "pip install 'sparselabel[parquet]'") from error
    with reading(file):
        schema = parquet.read_schema(file)
        # As dictionaries, where a text that comes often is in memory once.
        texts = [
            column.name
            for column in schema
            if pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)
        ]
        opened = parquet.ParquetFile(file, read_dictionary=texts)
        for group in range(opened.num_row_groups):
            refuse_packed(opened.metadata.row_group(group).total_byte_size)
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
                    columns = [*map(_texts, batch.columns)]
                    yield from zip(*columns, strict=True)

        yield Cells(file, "row", tuple(schema.names), enumerate(rows(), 1))


def _texts(column: Any) -> list[str]:
    """The values of a column of Parquet."""
    if not hasattr(column, "dictionary"):
        return [*map(_text, column.to_pylist())]
    values = [*map(_text, column.dictionary.to_pylist())]
    return ["" if number is None else values[number] for number in column.indices.to_pylist()]


def _text(value: object) -> str:
    """A value of Parquet or XLSX as a CSV file would have it, and no longer than csv takes it."""
    text = "" if value is None else str(int(value) if isinstance(value, bool) else value)
    if len(text) > csv.field_size_limit():
        raise ValueError(f"a cell has {len(text):,} characters")
    return text
