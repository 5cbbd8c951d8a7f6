"""Whether a place can be written to: asked before the work, not when its result is to be kept."""

import os
import tempfile
from pathlib import Path

from sparselabel.errors import RunError


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
