"""Atomic writes, checks that a path can be written, cache folders. ``file_formats.py`` reads files."""

import errno
import fcntl
import json
import os
import shutil
import stat
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparselabel.errors import RunError, param

if TYPE_CHECKING:
    import numpy.typing as npt

PARTLY_WRITTEN = " requested and "
"""The text of numpy's error for a partly written array, which has no errno: the disk is full."""
WRITTEN: set[Path] = set()
"""Folders in which this process has written a file: what is kept if it is stopped."""


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Give an OSError without a filename, as that of a full disk, this one."""
    try:
        yield
    except OSError as error:
        number = errno.ENOSPC if PARTLY_WRITTEN in str(error) else error.errno
        if number is None or error.filename is not None:
            raise
        raise OSError(number, error.strerror or str(error), str(path)) from error


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """The path to write a file to; it is renamed when all is written, and removed if that fails.

    If several processes write the same file, each writes all of it, and the last one wins.
    """
    with named(path):
        partial, lock = _partial_of(path)
    try:
        with named(path):
            yield partial
        partial.replace(path)
        WRITTEN.add(path.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _partial_of(path: Path) -> tuple[Path, int | None]:
    """The name of a file until it is complete, and a lock on it; another name if the lock is held.

    A killed process's file has no lock, and is overwritten.
    """
    partial = path.with_name(path.name + ".partial")
    while True:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(partial.lstat().st_mode):  # a link, whoever made it, is not followed
                partial.unlink()
        lock = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), partial.stat()):
                return partial, lock
        except FileNotFoundError:
            pass  # it has just got its name
        except BlockingIOError:
            os.close(lock)
            own = f"{path.name}.{os.uname().nodename}-{os.getpid()}-{threading.get_ident()}.partial"
            return path.with_name(own), None
        except OSError:  # a disk without locks
            return partial, lock
        os.close(lock)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8 atomically, its line ends as they are."""
    try:
        content = text.encode()
    except UnicodeEncodeError as error:  # a file's name, in an old encoding
        name = text[text.rfind('"', 0, error.start) + 1 :].partition('"')[0][:200]
        problem = f"{path} cannot be written: there is a name in it that is no text in UTF-8, {name!r}"
        raise RunError(problem, "rename the file or folder", what=path, value=name) from error
    with atomic_write(path) as partial:
        partial.write_bytes(content)


def write_json(path: Path, content: Any) -> None:
    """Write a small JSON file atomically."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_arrays(path: Path, **arrays: "npt.ArrayLike") -> None:
    """Write an .npz file of arrays atomically."""
    import numpy as np

    with atomic_write(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


BRING_BACK = ("bring it back as it was", f"begin anew with {param('force', True)}")

ANOTHER_OUT = (f"choose another {param('out')}",)


def cache_folder(name: str) -> Path:
    """The folder of one of our caches: below SPARSELABEL_CACHE, XDG_CACHE_HOME or ~/.cache."""
    given = os.environ.get("SPARSELABEL_CACHE")
    if given:
        return Path(given) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparselabel" / name


def require_folder_to_write(folder: Path, *remedies: str) -> None:
    """Raise unless there is such a folder, or one can be made, and files can be written in it."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, and a folder is needed", *(remedies or ANOTHER_OUT), what=folder)
    _require_writable(folder, folder, remedies or ANOTHER_OUT)


def require_file_to_write(file: Path, *remedies: str) -> None:
    """Raise unless a file can be written, or replaced, here."""
    remedies = remedies or ANOTHER_OUT
    if file.is_dir():
        raise RunError(f"{file} is a folder, and a file is needed", *remedies, what=file)
    if file.exists() and not os.access(file, os.W_OK):
        raise RunError(f"{file} cannot be written (it is read-only)", *remedies, what=file)
    _require_writable(file, file.parent, remedies)


def _require_writable(path: Path, folder: Path, remedies: tuple[str, ...]) -> None:
    """Write a temporary file in the nearest existing folder: permissions do not show everything."""
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise RunError(f"{path} cannot be written ({existing} is a file, not a folder)", *remedies, what=path)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise RunError(
            f"{path} cannot be written (nothing can be written in {existing}: {error.strerror})",
            *remedies,
            what=path,
        ) from error


class TemporaryFolder:
    """A new folder that is deleted when this object is garbage-collected or the program ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="sparselabel-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
