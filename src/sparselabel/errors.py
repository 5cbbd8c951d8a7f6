"""The exceptions of sparselabel.

    SparselabelError
    ├── DataError        a file, a table or an image is not what it must be
    ├── ConfigError      a setting is unknown, contradictory or out of range
    ├── ModelError       a backbone or its weights cannot be had
    ├── ResourceError    something does not fit into memory or onto the disk
    └── RunError         a run directory is in the way, incomplete or of another configuration; or it failed

A message names the thing, the rule, the value and the way out. The command prints it without a
traceback and exits with 1 (2 for wrong usage).
"""

import errno
from collections.abc import Iterable

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MAKE_ROOM = "make room on the disk, then go on with --resume, or take a folder on a larger disk"
"""What to do when the disk is full, wherever it is noticed."""


NO_MEMORY = "can't allocate memory"  # torch's words on a CPU


class SparselabelError(Exception):
    """Anything that sparselabel itself raises."""


class DataError(SparselabelError, ValueError):
    """A file, a table or an image is not what it must be."""


class ConfigError(SparselabelError, ValueError):
    """A setting is unknown, contradictory or out of range."""


class ModelError(SparselabelError):
    """A backbone or its weights cannot be had."""


class ResourceError(SparselabelError):
    """Something does not fit into memory or onto the disk."""


class RunError(SparselabelError):
    """A run directory is in the way, incomplete or of another configuration; or it failed."""


class DataWarning(UserWarning):
    """Data that can be used but may not be what was meant."""


def listing(items: Iterable[object], most: int = 10) -> str:
    """Items for an error message: all when few, else the first and how many more there are."""
    names = [str(item) for item in items]
    if len(names) <= most:
        return ", ".join(names)
    return ", ".join(names[:most]) + f" and {len(names) - most:,} more"


def counted(number: int, thing: str) -> str:
    """How many there are of a thing: 1 image, 2,000 images."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, whatever else an error may look like."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"  # torch's, which is not imported here
        or NO_MEMORY in str(error)
    )


def numpy_said(error: Exception) -> str:
    """What numpy says of a file that it cannot read; not its advice to allow pickles, which run programs."""
    return "not a file of arrays" if "pickle" in str(error) else str(error)


def nearest(name: str, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """A hint for a mistyped name: the nearest known one, if any is near, and all of them.

    Names in ``also`` are known too, but too many to be listed.
    """
    import difflib

    names = sorted(known)
    alike = {one.lower(): one for one in [*names, *also]}
    near = difflib.get_close_matches(name.lower(), alike, n=1)
    hint = f"did you mean {alike[near[0]]!r}? " if near else ""
    return f"{hint}known: {listing(names, 30)}"
