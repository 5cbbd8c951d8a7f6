"""Where a memory is kept: in RAM if it fits well, else in a file, else nowhere."""

from collections.abc import Callable
from pathlib import Path

import torch

from sparselabel.errors import ResourceError
from sparselabel.losses.layout import Layout
from sparselabel.losses.memory.row_file import RowsInFile, file_of, files_of_others
from sparselabel.losses.memory.row_store import Initial, RowMemory, RowsInRam
from sparselabel.resources import available_memory, free_disk, in_words

WAYS_OUT = (
    "use fewer classes or rows, a run folder on a larger disk, or several processes, which share the rows"
)


def make_memory(
    name: str,
    layout: Layout,
    width: int,
    initial: Initial,
    *,
    dtype: torch.dtype = torch.float32,
    dtype_in_file: torch.dtype | None = None,
    ways_out: str = WAYS_OUT,
    memory: Callable[[], int] = available_memory,
    disk: Callable[[Path], int] = free_disk,
) -> RowMemory:
    """A line of ``width`` numbers for every row of the layout: where it asks for, or where there is room.

    By itself in RAM, if the layout's memories together take at most half of what is available, else in the
    layout's folder, else it refuses. A file of this name that is already there is used again, so that a run
    can resume when more memory is available than at its start; with another number of processes it is
    decided anew, beside the files there are. ``dtype_in_file`` may be a smaller type to save disk;
    ``memory`` and ``disk`` tell the bytes available (to this process).
    """
    rows = len(layout.rows)
    # No two processes have the same first row, so their files have different names.
    first = int(layout.rows[0]) if rows else "none"
    needed = rows * width * dtype.itemsize
    in_file = None
    if layout.folder is not None:
        path = file_of(layout.folder, name, first, layout.processes)
        in_file = RowsInFile(path, rows, width, initial, dtype_in_file or dtype)
        if path.is_file():
            layout.memories.append(in_file)
            return in_file
    # The memories of a method are filled when first used: what they will take is still free.
    coming = [other.room_to_come() for other in layout.memories]
    others, others_on_disk = sum(ram for ram, _ in coming), sum(room for _, room in coming)
    ram = memory()
    together = needed + others
    if layout.keep != "file" and (2 * together <= ram or (layout.keep == "ram" and together <= ram)):
        layout.memories.append(in_ram := RowsInRam(rows, width, initial, dtype))
        return in_ram
    room = max(0, disk(in_file.path) - others_on_disk) if in_file is not None else 0
    if layout.keep != "ram" and in_file is not None and in_file.bytes <= room:
        layout.memories.append(in_file)
        return in_file
    there = _free(layout, room)
    size = in_file.bytes if in_file is not None else 2 * needed
    beside = f" together with the method's other memories, {in_words(others)}" if others else ""
    raise ResourceError(
        f"{name}-{first} ({rows:,} rows × {width:,} numbers) needs {in_words(needed)} of memory and may take "
        f"half of the {in_words(ram)} available{beside}, or {in_words(size)} of disk (two slots); {there}: "
        f"{ways_out}"
    )


def _free(layout: Layout, room: int) -> str:
    """What is free on the disk, in words; files of the processes before are there a while longer."""
    if layout.folder is None:
        return "there is no run folder"
    free = f"{in_words(room)} are free in {layout.folder}"
    old = sum(file.stat().st_size for file in files_of_others(layout.folder, layout.processes))
    if not old:
        return free
    return (
        f"{free}, beside {in_words(old)} of another number of processes, which stay until this one has a "
        "checkpoint (going on with that number needs no more room)"
    )
