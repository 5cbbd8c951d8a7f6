"""How much room there is, in RAM and on the disk."""

import os
import shutil
from pathlib import Path

import torch.distributed as dist


def available_memory() -> int:
    """Bytes of RAM that this process may take without others suffering: its share of what is free."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return free // _together()


def _together() -> int:
    """Processes of this run on this machine."""
    together = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    return int(os.environ.get("LOCAL_WORLD_SIZE", together))


def free_disk(path: Path) -> int:
    """Bytes free on the disk where ``path`` is or will be: this process's share."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(there).free // _together()


def gigabytes(number: int) -> str:
    """A number of bytes in words."""
    return f"{number / 1e9:,.2f} GB" if number >= 1e8 else f"{number / 1e6:,.2f} MB"
