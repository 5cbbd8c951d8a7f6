"""Locks: one process writes a run, a comparison or prepared data at a time.

The lock of a folder is the file ``.lock`` in it, that of a file ``.NAME.lock`` beside it, with the processes
that have it. The lock is the system's (``flock``), which releases it when a process ends in any way: the file
alone is no lock. The file is removed by its holder, unless that was killed.
"""

import contextlib
import fcntl
import json
import os
import platform
import shlex
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparselabel.errors import RunError, param
from sparselabel.files import named, require_folder_to_write

LOCK = ".lock"

_open: set[int] = set()


def _close_in_child() -> None:
    """Loaders are forked and may outlive a killed process for seconds: they must not keep its locks."""
    for descriptor in _open:
        os.close(descriptor)
    _open.clear()


os.register_at_fork(after_in_child=_close_in_child)


@contextmanager
def locked(folder: Path, *remedies: str, file: str = "", shared: bool = False) -> Iterator[None]:
    """Hold the lock of a folder, which is made if necessary, or of a file in it; raises if it is taken.

    Several may hold it ``shared``, to write atomic files; then the folder cannot be replaced.
    """
    lock = folder / (f".{file}{LOCK}" if file else LOCK)
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    remedies = remedies or (() if shared else (f"choose another {param('out')}",))
    descriptor = _take(folder / file, lock, remedies, shared)
    if descriptor is None:
        yield
        return
    _open.add(descriptor)
    try:
        yield
        made = []
    finally:
        if descriptor in _open:  # not in a child
            _open.remove(descriptor)
            _let_go(descriptor, lock, made)


def _take(path: Path, file: Path, remedies: tuple[str, ...], shared: bool) -> int | None:
    """The descriptor that holds the lock; None if nothing can be written there."""
    while True:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # In a folder from elsewhere a lock may be a link: nothing is written where it points to.
            descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError:
            if shared:
                return None
            require_folder_to_write(file.parent)  # says why not
            raise
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # a pipe: whoever reads it would wait
                raise RunError(f"{file} is no file", "remove it", what=file)
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if not _is(descriptor, file):  # its holder has just removed it
                os.close(descriptor)
                continue
            if not shared:
                os.ftruncate(descriptor, 0)
            with named(file):
                os.write(descriptor, _own_line())
        except BlockingIOError:
            os.close(descriptor)
            raise _taken(path, file, remedies) from None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _let_go(descriptor: int, file: Path, made: list[Path]) -> None:
    """Remove the lock, unless others share it, and folders made for a run that failed."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is(descriptor, file):
            file.unlink()
        for folder in made:
            folder.rmdir()
    os.close(descriptor)


def _is(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _own_line() -> bytes:
    words = " ".join([Path(sys.argv[0]).name, *map(shlex.quote, sys.argv[1:2])])
    about = {"process": os.getpid(), "host": platform.node(), "command": words}
    return json.dumps(about).encode() + b"\n"


def _taken(path: Path, file: Path, remedies: tuple[str, ...]) -> RunError:
    holders = [*_holders(file)]
    names = [f"process {process} on {host} ({words})" for process, host, words in holders]
    return RunError(
        f"{path} is in use by {' and '.join(names) or 'another process'}",
        "wait until it ends, or end it",
        *remedies,
        what=path,
        value=[process for process, _, _ in holders],
    )


def _holders(file: Path) -> Iterator[tuple[int, str, str]]:
    """The processes that wrote their names into a lock, without those of this host that have ended."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        for line in file.read_text(encoding="utf-8").splitlines():
            about = json.loads(line)
            process, host = int(about["process"]), str(about["host"])
            if host == platform.node() and not _lives(process):
                continue
            yield process, host, str(about["command"])


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
