"""Files that are there whole or not at all."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SHORT = " requested and "
"""In numpy's error of an array that was written in part, which has no number: the disk is full."""


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Give an error of the system that names no file, as that of a full disk, this one's name."""
    try:
        yield
    except OSError as error:
        number = errno.ENOSPC if SHORT in str(error) else error.errno
        if number is None or error.filename is not None:
            raise
        raise OSError(number, error.strerror or str(error), str(path)) from error


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write a file: it gets its name when all is written; if that fails, nothing of it stays."""
    partial = path.with_name(path.name + ".partial")
    try:
        with named(path):
            yield partial
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
