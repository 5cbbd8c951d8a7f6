"""Files that are there whole or not at all."""

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sparselabel.errors import RunError

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


def write_json(path: Path, content: Any) -> None:
    """Write a small file so that it is there whole or not at all."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


BRING_BACK = "bring it back as it was, or begin anew with --force"


def read_json(path: Path, way_out: str = BRING_BACK) -> dict[str, Any]:
    """Read a file that ``write_json`` wrote; ``way_out`` says what to do if it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # bytes that are no text, or text that is no JSON
        raise RunError(f"{path} cannot be read ({error}): {way_out}") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} must hold an object of JSON, not {type(content).__name__}: {way_out}")
    return content


def require_folder_to_write(folder: Path, instead: str = "choose another --out") -> None:
    """Raise unless there is such a folder, or one could be made, and files can be written in it."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, and a folder is needed: {instead}")
    _try(folder, folder, instead)


def require_file_to_write(file: Path, instead: str = "choose another --out") -> None:
    """Raise unless a file could be written, or replaced, here."""
    if file.is_dir():
        raise RunError(f"{file} is a folder, and a file is needed: {instead}")
    if file.exists() and not os.access(file, os.W_OK):
        raise RunError(f"{file} cannot be written (it is read-only): {instead}")
    _try(file, file.parent, instead)


def _try(wanted: Path, folder: Path, instead: str) -> None:
    """Write a file without a name in the nearest folder that is there: permissions do not tell everything."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise RunError(f"{wanted} cannot be written ({there} is a file, not a folder): {instead}")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise RunError(
            f"{wanted} cannot be written (nothing can be written in {there}: {error.strerror}): {instead}"
        ) from error
