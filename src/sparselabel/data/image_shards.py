"""Images inside other files: WebDataset's tars, and Parquet tables with images' bytes or paths.

Nothing is unpacked: a shard is read sequentially, also from an address (``remote_files.py``).
"""

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Self

from sparselabel.data.decode import SUFFIXES
from sparselabel.data.remote_files import file_name, look_ahead, open_file, read_bytes, size_of_file
from sparselabel.errors import ConfigError, DataError, listing, nearest, param

TARS = (".tar", ".tar.gz", ".tgz")
TABLES = (".parquet",)
SHARDS = (*TARS, *TABLES)
BLOCK = 512  # bytes: a tar's unit
END = 2 * BLOCK  # zeros that a tar ends with
COLUMNS = ("image", "images", "img", "jpg", "jpeg", "png", "webp", "image_bytes", "bytes", "content")
PATHS = ("image", "path", "file", "filename", "file_name", "image_path", "url", "image_url")
NAMES = ("__key__", "key", "file_name", "filename", "name", "path", "image_id", "id")
LARGEST = 1 << 31  # bytes of an image: a compressed tar may claim terabytes
LARGEST_OTHER = 1 << 38  # bytes of another file in a tar: tarfile asks for all of them, also behind the end
LONGEST_HEADER = 1 << 20  # bytes of a member's long name or other attributes, which tarfile reads at once
ATTRIBUTES = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
LARGEST_GROUP = 1 << 33  # bytes of the images of a row group, which training reads at once
BRING_WHOLE = ("bring the whole file", "leave it out")


class ShardImage(NamedTuple):
    """An image in a shard or at an address.

    ``name`` is its name in results; ``content`` its bytes, or ``problem`` why there are none. Batches do not
    span ``group``s, so that parts of a job have the batches of the whole.
    """

    name: str
    content: bytes
    group: str = ""
    problem: str = ""


class TableImages(NamedTuple):
    """The images of a table: a column of bytes or paths, one with names, and the rows of the row groups."""

    column: str
    kind: str
    names: str | None
    rows: tuple[int, ...]


def is_shard(file: str) -> bool:
    """Whether a file has images inside, by its name."""
    return file_name(file).lower().endswith(SHARDS)


def is_table(file: str) -> bool:
    """Whether a shard is a table, by its name."""
    return file_name(file).lower().endswith(TABLES)


def check_shard(file: str, column: str | None = None) -> None:
    """Raise if a shard is missing, incomplete, or has no images, without reading it."""
    if is_table(file):
        table_images(file, column)
    elif file_name(file).lower().endswith(".tar"):
        _check_tar_end(file)
    else:  # a compressed one shows its end when it is read
        size_of_file(file)


def shard_images(
    file: str, column: str | None = None, groups: tuple[int, int] | None = None
) -> Iterator[ShardImage]:
    """The images of a shard in their order; of a table perhaps only those of some row groups."""
    if is_table(file):
        yield from _images_in_table(file, table_images(file, column), groups)
    else:
        yield from _images_in_tar(file)


def _check_tar_end(file: str) -> None:
    """Raise if a tar was cut short."""
    size = size_of_file(file)
    end = read_bytes(file, max(0, size - END), END)
    if size < END or size % BLOCK or end.strip(b"\0"):
        raise DataError(
            f"{file} is cut short: it has {size:,} bytes and not the end of a tar", *BRING_WHOLE, what=file
        )


def is_member(name: str) -> bool:
    """Whether a file in a tar is an image by its name; hidden ones are none."""
    return name.lower().endswith(SUFFIXES) and not name.rpartition("/")[2].startswith(".")


def _images_in_tar(file: str) -> Iterator[ShardImage]:
    for name, _, content in read_members(file):
        yield ShardImage(f"{file}/{name}", content, file)


class _Header(tarfile.TarInfo):
    """A member's header that raises if it is damaged, which ``tarfile`` takes for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read it."""
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise  # zeros, which are the end
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"a header is damaged: {error}") from error
        if header.size < 0 or (header.type in ATTRIBUTES and header.size > LONGEST_HEADER):
            raise tarfile.ReadError(f"a header of {header.size:,} bytes")
        return header


def read_members(file: str) -> Iterator[tuple[str, int, bytes]]:
    """The images of a tar in order: name, offset and content. Links, and files with holes, have none.

    Those are given too: they would be missing without a word.
    """
    packed = not file_name(file).lower().endswith(".tar")
    with open_file(file, in_order=True) as stream, ExitStack() as opened:
        # gzip's own reader checks the sum at the end and that there is one, which tarfile's does not.
        unpacked = opened.enter_context(gzip.GzipFile(fileobj=stream)) if packed else stream
        try:
            with tarfile.open(fileobj=unpacked, mode="r|", bufsize=1 << 20, tarinfo=_Header) as members:
                while (member := members.next()) is not None:
                    links = member.islnk() or member.issym()
                    image = (member.isreg() or links) and is_member(member.name)
                    if not 0 <= member.size <= (LARGEST if image else LARGEST_OTHER):
                        problem = f"{file}: {member.name} has {member.size:,} bytes"
                        raise DataError(problem, "no file of a shard is that large: leave it out", what=file)
                    if image:
                        plain = member.isreg() and not member.issparse()
                        content = members.extractfile(member) if plain else None
                        yield member.name, member.offset_data, content.read() if content else b""
                    members.members.clear()  # type: ignore[attr-defined]  # else it keeps all of them
                _refuse_more(members.fileobj)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            problem = f"{file} is cut short, damaged or no tar ({error})"
            raise DataError(problem, *BRING_WHOLE, what=file) from error


def _refuse_more(stream: Any) -> None:
    """Raise if anything but zeros follows the end: images behind zeros would be lost silently."""
    while block := stream.read(1 << 20):
        if block.strip(b"\0"):
            raise tarfile.ReadError("there is more after its end, as where two were put together")


def table_images(file: str, column: str | None = None) -> TableImages:
    """The images of a table, in ``column`` or else in a column with a usual name."""
    with _open_table(file) as table:
        kinds = {field.name: _kind(field.type) for field in table.schema_arrow}
        plain = {name.lower(): name for name in kinds}
        rows = tuple(table.metadata.row_group(group).num_rows for group in range(table.num_row_groups))
    if column is None:
        there = {name: kinds[plain[name]] for name in (*COLUMNS, *PATHS) if name in plain}
        usual = [plain[name] for name in COLUMNS if there.get(name) in (BYTES, STRUCT)]
        usual += [plain[name] for name in PATHS if there.get(name) == TEXT]
        if not usual:
            raise DataError(
                f"{file} has no column of images that goes by a usual name (it has {listing(kinds)})",
                f"say which it is ({param('column')})",
                what=file,
            )
        column = usual[0]
    elif column not in kinds:
        raise DataError(
            f"{file} has no column {column!r} ({nearest(column, kinds)})",
            f"say which has the images ({param('column')})",
            what=file,
            where=column,
        )
    if kinds[column] not in (BYTES, STRUCT, TEXT):
        raise DataError(
            f"column {column!r} of {file} has neither bytes nor paths",
            f"name another one ({param('column')})",
            what=file,
            where=column,
        )
    names = [plain[name] for name in NAMES if name in plain and plain[name] != column]
    naming = [name for name in names if kinds[name] in (TEXT, NUMBER)]
    return TableImages(column, kinds[column], naming[0] if naming else None, rows)


BYTES, STRUCT, TEXT, NUMBER = "bytes", "struct", "text", "number"


def _kind(kind: Any) -> str:
    """The kind of a column; "struct" is Hugging Face's of bytes and path."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_binary(kind) or types.is_large_binary(kind):
        return BYTES
    if types.is_string(kind) or types.is_large_string(kind):
        return TEXT
    if types.is_struct(kind) and (place := kind.get_field_index("bytes")) >= 0:
        content = kind.field(place).type
        return STRUCT if types.is_null(content) or _kind(content) == BYTES else ""
    return NUMBER if types.is_integer(kind) else ""


@contextmanager
def _open_table(file: str) -> Iterator[Any]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(f"{file} needs pyarrow", "pip install 'sparselabel[parquet]'") from error
    with open_file(file) as stream:
        # With a buffer a row group is read page by page, and not at once.
        yield parquet.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)


def _images_in_table(file: str, images: TableImages, groups: tuple[int, int] | None) -> Iterator[ShardImage]:
    rows = _rows(file, images, groups or (0, len(images.rows)))
    if images.kind == BYTES:
        yield from (row for row in rows if isinstance(row, ShardImage))
    else:
        yield from look_ahead(rows, lambda row: row if isinstance(row, ShardImage) else read_image(*row))


def _rows(file: str, images: TableImages, groups: tuple[int, int]) -> Iterator[ShardImage | tuple[str, str]]:
    """The images of rows, or their paths, with the group."""
    row = sum(images.rows[: groups[0]])
    with _open_table(file) as table:
        for number in range(*groups):
            for name, value in _cells_of_group(table, images.column, images.names, number):
                yield _image_in_row(file, row, value, name, f"{file}#{number}")
                row += 1


def _cells_of_group(table: Any, column: str, names: str | None, group: int) -> Iterator[tuple[Any, Any]]:
    """Names and values of a row group, one row at a time: a table may have one large value in every row."""
    columns = [column] + ([names] if names else [])
    for row in table.iter_batches(1, row_groups=[group], columns=columns, use_threads=False):
        yield row.column(names)[0].as_py() if names else None, row.column(column)[0].as_py()


def rows_of_group(file: str, column: str, names: str | None, group: int) -> Iterator[tuple[Any, bytes]]:
    """Names and images of a table's row group; empty bytes for a missing image."""
    size = 0
    with _open_table(file) as table:
        for name, value in _cells_of_group(table, column, names, group):
            if isinstance(value, dict):  # Hugging Face's
                shown, content = value.get("path") if name is None else name, value.get("bytes") or b""
            else:
                shown, content = name, value or b""
            size += len(content)
            if size > LARGEST_GROUP:
                raise DataError(
                    f"{file}: the images of row group {group:,} have more than {LARGEST_GROUP:,} bytes",
                    "write smaller row groups",
                    what=file,
                    where=group,
                )
            yield shown, content


def row_group(file: str, column: str, group: int) -> list[bytes]:
    """All images of a row group."""
    return [content for _, content in rows_of_group(file, column, None, group)]


def _image_in_row(file: str, row: int, value: Any, name: Any, group: str) -> ShardImage | tuple[str, str]:
    if isinstance(value, dict):
        path = value.get("path")
        name = path if name is None else name
        value = value.get("bytes") or (path if isinstance(path, str) else None)
    if isinstance(value, str) and value:
        return value, group
    shown = f"{file}/{row if name is None else name}"
    problem = "" if value else f"{file}, row {row:,}: there is no image"
    return ShardImage(shown, value or b"", group, problem)


def read_image(path: str, group: str = "") -> ShardImage:
    """An image's bytes from a path or an address, or its problem."""
    try:
        return ShardImage(path, read_bytes(path), group)
    except DataError as error:
        return ShardImage(path, b"", group, str(error))
