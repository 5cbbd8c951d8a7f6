"""Read files by path or URL (``s3://bucket/a.jpg``, ``https://host/a.jpg``) through fsspec."""

import glob
import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, Any, TypeVar

from sparselabel.data.decode import read_whole
from sparselabel.data.parallel import map_ahead
from sparselabel.errors import ConfigError, DataError, SparselabelError
from sparselabel.file_formats import refuse_special

READ_AHEAD = 1 << 23  # bytes per request when a file is read sequentially
THREADS = 16  # concurrent requests: most of a request is waiting
AHEAD = 4 * THREADS
PAUSES = (0.2, 1.0)  # seconds before a request is made again
NOT_FOUND = 404  # of HTTP
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]+"
_ADDRESS = re.compile(f"{_SCHEME}(::{_SCHEME})*://")
_HTTP = re.compile("https?://")
STORES = (
    *("http", "https", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "hf"),
    *("hdfs", "webhdfs", "file"),
)
"""Allowed schemes: tables may come from others, and fsspec has schemes that unpack archives, render
templates, or log in somewhere.
"""

Item = TypeVar("Item")
Result = TypeVar("Result")


def is_address(word: str) -> bool:
    """Whether a word is an address for fsspec and not a path."""
    return _ADDRESS.match(word) is not None


def file_name(file: str) -> str:
    """A path or address without the query of a signed address."""
    return file.partition("?")[0] if _HTTP.match(file) else file


def is_pattern(word: str) -> bool:
    """Whether a word may mean several files; an address with a query does not."""
    return glob.has_magic(file_name(word))


def file_system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it; a process that was forked gets one of its own."""
    scheme = address.partition("://")[0]
    if scheme.lower() not in STORES:
        raise DataError(
            f"{address} cannot be read: images come from addresses with {', '.join(STORES)}, not {scheme}",
            "copy them to a folder, or to one of these",
            what=address,
            value=scheme,
            allowed=STORES,
        )
    if "::" in address:  # fsspec would take what follows for another address
        raise DataError(f"{address} cannot be read: it has :: in it", "rename the file", what=address)
    from fsspec.core import url_to_fs

    try:
        system, path = url_to_fs(address)
    except ImportError as error:
        problem = f"addresses with {scheme}:// need a package ({error})"
        raise ConfigError(problem, "install it with pip", what=address) from error
    except ValueError as error:
        problem = f"{address} is no address that can be read ({error})"
        raise DataError(problem, "check the address", what=address) from error
    return system, str(path)


def with_scheme(address: str, path: str) -> str:
    """A path of an address's file system as an address."""
    return path if is_address(path) else f"{address.partition('://')[0]}://{path.lstrip('/')}"


@contextmanager
def reaching(file: str) -> Iterator[None]:
    """Turn errors of reading a file into a ``DataError`` that names it."""
    try:
        yield
    except (SparselabelError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise DataError(f"{file} is not there", "check the name", what=file) from error
    except Exception as error:  # every file system has errors of its own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        remedy = "check the address, the network and your access" if is_address(file) else "check the file"
        raise DataError(f"{file} cannot be read ({reason})", remedy, what=file) from error


def read_bytes(file: str, start: int = 0, size: int | None = None) -> bytes:
    """A file's content, or ``size`` bytes of it from ``start`` on."""
    with reaching(file):
        if not is_address(file):
            refuse_special(file)
            if size is None:
                return read_whole(file)
            with open(file, "rb") as stream:  # noqa: PTH123 - it is called for every image
                left = os.fstat(stream.fileno()).st_size - start
                return os.pread(stream.fileno(), max(0, min(size, left)), start)
        content = _fetch(file, {} if size is None else {"start": start, "end": start + size})
        # A server that knows no ranges sends all of it.
        return content if size is None or len(content) <= size else content[start : start + size]


def _fetch(address: str, part: dict[str, int]) -> bytes:
    """The content at a URL; temporary failures are retried."""
    system, path = file_system(address)
    if address.startswith("file:"):
        refuse_special(path)
    for pause in PAUSES:
        try:
            return bytes(system.cat_file(path, **part))
        except FileNotFoundError:
            raise
        except Exception:  # every file system has errors of its own
            time.sleep(pause)
    return bytes(system.cat_file(path, **part))


@contextmanager
def open_file(file: str, *, in_order: bool = False) -> Iterator[IO[bytes]]:
    """A file to be read, sequentially (``in_order``) or with random access."""
    with reaching(file):
        if not is_address(file):
            refuse_special(file)
            with open(file, "rb") as stream:  # noqa: PTH123 - as above
                yield stream
            return
        system, path = file_system(file)
        if file.startswith("file:"):
            refuse_special(path)
        # HTTP sends it in one piece; object stores are asked for large blocks.
        block = 0 if path.startswith("http") else READ_AHEAD
        how = {"block_size": block, "cache_type": "readahead"} if in_order else {}
        with system.open(path, "rb", **how) as stream:
            yield stream


def size_of_file(file: str) -> int:
    """The bytes of a file."""
    with reaching(file):
        if not is_address(file):
            return os.stat(file).st_size  # noqa: PTH116 - as above
        system, path = file_system(file)
        size = system.size(path)
        if size is None:
            problem = f"the size of {file} is unknown: its server does not tell it"
            raise DataError(problem, "copy it to a folder", "take another server", what=file)
        return int(size)


def is_there(file: str) -> bool:
    """Whether there is such a file or folder; one that cannot be reached is an error."""
    if not is_address(file):
        return os.path.exists(file)  # noqa: PTH110 - as above
    with reaching(file):
        system, path = file_system(file)
        try:
            system.info(path)
        except FileNotFoundError as error:
            # HTTP's file system raises this for every error, with the reason as its cause.
            if error.__cause__ is not None and getattr(error.__cause__, "status", None) != NOT_FOUND:
                raise error.__cause__ from error
            return False
        return True


def files_below(address: str) -> list[str]:
    """The addresses of all files in a folder, sorted."""
    with reaching(address):
        system, path = file_system(address)
        return sorted(with_scheme(address, str(found)) for found in system.find(path))


def files_matching(pattern: str) -> list[str]:
    """The addresses of the files that a pattern means, sorted."""
    with reaching(pattern):
        system, path = file_system(pattern)
        return sorted(with_scheme(pattern, str(found)) for found in system.glob(path))


def read_lines(file: str) -> Iterator[str]:
    """The lines of a UTF-8 text, unchanged."""
    with (
        open_file(file, in_order=True) as stream,
        io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape") as lines,
    ):
        yield from lines


def look_ahead(items: Iterable[Item], work: Callable[[Item], Result]) -> Iterator[Result]:
    """Map ``work`` over items in order, by threads that are at most ``AHEAD`` items ahead."""
    with ThreadPoolExecutor(THREADS) as pool:
        yield from map_ahead(pool, work, items, AHEAD)
