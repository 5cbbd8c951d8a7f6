"""RAM and disk that this process may use, within the limits of its container."""

import ctypes
import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparselabel.errors import DISK_FULL, ResourceError
from sparselabel.files import named

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

OWN_GROUPS = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def available_memory() -> int:
    """Bytes of RAM that this process may take: its share of what is free.

    In a container or a batch job that is what its control group (cgroup) leaves, if that is less.
    """
    free = _kernel_bytes(Path("/proc/meminfo"), "MemAvailable:")
    if free is None:
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return min([free, *_left_by_groups()]) // _local_processes()


def _left_by_groups() -> Iterator[int]:
    """Bytes left by each control group, of version 1 or 2, that this process is in and that has a limit."""
    for line in _lines(OWN_GROUPS):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = GROUPS / "memory" if controllers else GROUPS
        limit, usage, cache = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if controllers
            else ("memory.max", "memory.current", "inactive_file")
        )
        # Groups above limit it too. In a container the path may be the host's, and not be there.
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            most, used = _lines(folder / limit), _lines(folder / usage)
            if most and used and most[0].isdecimal() and used[0].isdecimal():
                statistics = dict(line.split(" ", 1) for line in _lines(folder / "memory.stat"))
                # Inactive file pages are reclaimed when memory is short.
                yield max(0, int(most[0]) - int(used[0]) + int(statistics.get(cache, 0)))
            if folder == top:
                break


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _kernel_bytes(file: Path, name: str) -> int | None:
    """A number of bytes that Linux tells in a line of a file, if it does."""
    return next((int(line.split()[1]) * 1024 for line in _lines(file) if line.startswith(name)), None)


def peak_memory() -> int:
    """Peak bytes of RAM of this process since the last ``forget_peak``."""
    peak = _kernel_bytes(STATUS, "VmHWM:")
    if peak is None:
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak = most if sys.platform == "darwin" else most * 1024
    return peak


def forget_peak() -> None:
    """Reset the peak on Linux; elsewhere it counts from the process's start."""
    with suppress(OSError):
        RESET.write_text("5", encoding="ascii")


def _local_processes() -> int:
    """Processes of this run on this machine."""
    dist = sys.modules.get("torch.distributed")  # who has not imported it has started no processes
    started = dist is not None and dist.is_available() and dist.is_initialized()
    world_size = dist.get_world_size() if dist is not None and started else 1
    return int(os.environ.get("LOCAL_WORLD_SIZE", world_size))


def free_disk(path: Path) -> int:
    """Bytes free on the disk where ``path`` is or will be: this process's share.

    All processes of the run share it, as its disk is shared.
    """
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(existing).free // int(os.environ.get("WORLD_SIZE", _local_processes()))


Refusal = Callable[[Path, int, int], ResourceError]
"""Makes the error of a full disk: of the folder, the bytes that are needed and those that are free."""


def mapped_array(
    file: Path, kind: "npt.DTypeLike", shape: tuple[int, ...], refusal: Refusal
) -> "np.memmap[Any, np.dtype[Any]]":
    """A new memory-mapped .npy file, allocated in full: a full disk would otherwise kill the process."""
    import numpy as np

    try:
        with named(file):
            file.unlink(missing_ok=True)  # it may be a link, in a folder from elsewhere
            array = np.lib.format.open_memmap(file, "w+", kind, shape)
    except OSError:
        file.unlink(missing_ok=True)
        raise
    _claim(file, refusal)
    return array


def _claim(file: Path, refusal: Refusal) -> None:
    if not hasattr(os, "posix_fallocate"):
        return
    size = file.stat().st_size
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        file.unlink()
        if error.errno not in DISK_FULL:
            raise
        raise refusal(file.parent, size, free_disk(file.parent)) from error
    finally:
        os.close(descriptor)


def format_bytes(number: int) -> str:
    """A number of bytes in words."""
    return f"{number / 1e9:,.2f} GB" if number >= 1e8 else f"{number / 1e6:,.2f} MB"


M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # names and numbers of glibc's malloc.h


def give_back_memory() -> None:
    """Return unused memory to the system, after ``keep_freed_memory``.

    For the end of one of many runs, whose leftovers would add up. Linux with glibc only.
    """
    gc.collect()
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next tensor instead of giving it back to the system.

    By default every large tensor is mapped afresh, and touching fresh pages takes as long as the convolutions
    themselves: MobileNetV2 at 224 px scores 34 images per second without this and 54 with it (one core,
    batches of 4). Does nothing where the C library is another one.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)
        mallopt(M_TOP_PAD, 2**28)
