"""Per-row memories: one line of numbers for every picture, in RAM or in a file.

In a file every row has two slots, and one bit says which of them the last checkpoint knows:

    write ──▶ the slot that is not committed        read ──▶ the newest slot
    state() ── fsync, hand out the bits ──▶ (the trainer saves its checkpoint) ──▶ committed()

So the state of the last checkpoint stays on the disk, untouched, until the next one is safe: a crash at any
moment loses nothing, and nothing is ever copied. Reads and writes are positioned ones, not a mapped file,
whose pages would count as memory.
"""

import errno
import os
import shutil
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from sparselabel.errors import ResourceError, RunError
from sparselabel.method.base import Memory

Initial = Callable[[Tensor], Tensor]
"""Slots (c,) -> (c, width): what the rows hold before anybody has written to them."""

CHUNK_BYTES = 2**24  # what is filled or copied at once
HEADER_BYTES = 4096  # one disk block, so that rows lie well; its first bytes name the file
IDENTITY_BYTES = 16
_WAY_OUT = "bring the run folder back as it was, or start the run anew"


class RowMemory(Memory):
    """``rows`` lines of ``width`` numbers, found by their slot 0..rows-1; filled when first used."""

    def __init__(self, rows: int, width: int, initial: Initial, dtype: torch.dtype) -> None:
        self.rows, self.width = rows, width
        self.initial, self.dtype = initial, dtype
        self.row_bytes = width * dtype.itemsize

    def read(self, slots: Tensor) -> Tensor:
        """(B, width) A copy of the lines at ``slots`` (B,)."""
        raise TypeError(f"{type(self).__name__} must define read()")

    def write(self, slots: Tensor, values: Tensor) -> None:
        """Replace the lines at ``slots`` (B,), each named once, by ``values`` (B, width)."""
        raise TypeError(f"{type(self).__name__} must define write()")

    def _values_of(self, state: dict[str, Tensor]) -> Tensor:
        values = state.get("values")
        if values is None:
            raise RunError(f"the checkpoint kept {self.rows:,} rows in a file that is not there: {_WAY_OUT}")
        if values.shape != (self.rows, self.width) or values.dtype != self.dtype:
            raise RunError(
                f"the checkpoint's rows must be {(self.rows, self.width)} {self.dtype}, "
                f"not {tuple(values.shape)} {values.dtype}: resume with the same data and settings"
            )
        return values

    def chunks(self, rows_at_once: int | None = None) -> Iterator[Tensor]:
        """All slots, in pieces of a bounded size."""
        size = rows_at_once or max(1, CHUNK_BYTES // max(1, self.row_bytes))
        for start in range(0, self.rows, size):
            yield torch.arange(start, min(start + size, self.rows))


class RowsInRam(RowMemory):
    """Rows as one tensor; a checkpoint holds all of it."""

    by_row = ("values",)

    _values: Tensor | None = None

    def read(self, slots: Tensor) -> Tensor:
        """(B, width) A copy of the lines at ``slots`` (B,)."""
        return self._held().index_select(0, slots)

    def write(self, slots: Tensor, values: Tensor) -> None:
        """Replace the lines at ``slots`` (B,), each named once, by ``values`` (B, width)."""
        self._held().index_copy_(0, slots, values)

    def state(self) -> dict[str, Tensor]:
        """The tensor itself, not a copy: save it before the next write."""
        return {"values": self._held()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over the values of a checkpoint."""
        self._values = self._values_of(state).clone()

    def _held(self) -> Tensor:
        if self._values is None:
            self._values = torch.empty(self.rows, self.width, dtype=self.dtype)
            for slots in self.chunks():
                self._values[slots] = self.initial(slots)
        return self._values


class RowsInFile(RowMemory):
    """Rows in a file with two slots each. Only the state that was committed last can be restored."""

    def __init__(self, path: Path, rows: int, width: int, initial: Initial, dtype: torch.dtype) -> None:
        super().__init__(rows, width, initial, dtype)
        self.path = path
        self.bytes = HEADER_BYTES + 2 * rows * self.row_bytes
        self._file: int | None = None  # made when first used: a run that resumes needs the old one
        self._identity = b""
        self._newest = self._committed = np.zeros(0, dtype=np.bool_)
        self._waiting = False
        self._close: Callable[[], object] = lambda: None

    def read(self, slots: Tensor) -> Tensor:
        """(B, width) The newest lines at ``slots`` (B,)."""
        file = self._opened()
        wanted = slots.numpy()
        parts = []
        for offset in self._offsets(wanted, self._newest[wanted]):
            parts.append(os.pread(file, self.row_bytes, offset))
            if len(parts[-1]) != self.row_bytes:
                raise RunError(f"{self.path} ends at byte {offset:,} of {self.bytes:,}: {_WAY_OUT}")
        if not parts:
            return torch.empty(0, self.width, dtype=self.dtype)
        return torch.frombuffer(bytearray(b"".join(parts)), dtype=self.dtype).view(-1, self.width)

    def write(self, slots: Tensor, values: Tensor) -> None:
        """Write lines into the slots that the last checkpoint does not need."""
        if self._waiting:
            raise RunError(
                f"{self.path} must not be written between state() and committed(), or a crash would spoil "
                "the last checkpoint: call committed() once the new one is safe"
            )
        file = self._opened()
        wanted = slots.numpy()
        free = ~self._committed[wanted]
        with self._disk():
            for line, offset in zip(self._raw(values), self._offsets(wanted, free), strict=True):
                _write_all(file, line, offset)
        self._newest[wanted] = free

    def state(self) -> dict[str, Tensor]:
        """Bring everything to the disk and say which slots are the newest; no write until ``committed()``."""
        file = self._opened()
        with self._disk():
            os.fsync(file)
        self._waiting = True
        return {
            "newest": torch.from_numpy(np.packbits(self._newest)),
            "identity": torch.tensor(list(self._identity), dtype=torch.uint8),
        }

    def committed(self) -> None:
        """From now on the slots of the last ``state()`` are kept, and the others are free."""
        if self._waiting:
            self._committed = self._newest.copy()
            self._waiting = False

    def restore(self, state: dict[str, Tensor]) -> None:
        """Come back to the last committed state; one that was kept in RAM is written into a new file."""
        if "values" in state:
            values = self._values_of(state)
            self._create(lambda slots: values[slots])
            return
        bits = np.unpackbits(state["newest"].numpy()).astype(np.bool_)
        if not self.rows <= len(bits) < self.rows + 8:
            raise RunError(f"the checkpoint has another number of rows than the {self.rows:,} of {self.path}")
        size = self.path.stat().st_size if self.path.is_file() else None
        if size != self.bytes:
            fault = "is not there" if size is None else f"has {size:,}"
            raise RunError(
                f"the checkpoint needs {self.path} of {self.bytes:,} bytes; it {fault}: {_WAY_OUT}"
            )
        file = os.open(self.path, os.O_RDWR)
        identity = bytes(state["identity"].tolist())
        if os.pread(file, IDENTITY_BYTES, 0) != identity:
            os.close(file)
            raise RunError(f"{self.path} was made by another run than the checkpoint: {_WAY_OUT}")
        self._use(file, identity, bits[: self.rows])

    def _offsets(self, slots: npt.NDArray[np.int64], second: npt.NDArray[np.bool_]) -> list[int]:
        # All first slots come first, then all second ones: filling is then one long run of writing.
        offsets: list[int] = (HEADER_BYTES + (slots + self.rows * second) * self.row_bytes).tolist()
        return offsets

    def _opened(self) -> int:
        return self._create(self.initial) if self._file is None else self._file

    def _create(self, initial: Initial) -> int:
        identity = os.urandom(IDENTITY_BYTES)
        with self._disk():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                # Claim the whole file now: a full disk is found here and not after hours.
                os.posix_fallocate(file, 0, self.bytes)
                _write_all(file, np.frombuffer(identity, np.uint8), 0)
                for slots in self.chunks():
                    start = HEADER_BYTES + int(slots[0]) * self.row_bytes
                    _write_all(file, self._raw(initial(slots)).reshape(-1), start)
            except BaseException:
                os.close(file)
                self.path.unlink()
                raise
        # The file's name in its folder must survive a crash too.
        folder = os.open(self.path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return self._use(file, identity, np.zeros(self.rows, dtype=np.bool_))

    def _use(self, file: int, identity: bytes, newest: npt.NDArray[np.bool_]) -> int:
        self._close()
        self._close = weakref.finalize(self, os.close, file)
        self._file, self._identity, self._waiting = file, identity, False
        self._newest, self._committed = newest, newest.copy()
        return file

    def _raw(self, values: Tensor) -> npt.NDArray[np.uint8]:
        return values.to(self.dtype).contiguous().numpy().view(np.uint8)

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            free = _gigabytes(free_disk(self.path))
            raise ResourceError(
                f"{self.path} needs {_gigabytes(self.bytes)}, and the disk has {free} free "
                f"({error.strerror}): make room there, or take a run folder on a larger disk"
            ) from error


def available_memory() -> int:
    """Bytes of RAM that this process may take without others suffering: its share of what is free."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    together = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    return free // int(os.environ.get("LOCAL_WORLD_SIZE", together))


def free_disk(path: Path) -> int:
    """Bytes free on the disk where ``path`` is or will be."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(there).free


def make_memory(
    name: str,
    rows: int,
    width: int,
    initial: Initial,
    *,
    folder: Path | None,
    dtype: torch.dtype = torch.float32,
    memory: Callable[[], int] = available_memory,
    disk: Callable[[Path], int] = free_disk,
) -> RowMemory:
    """Rows in RAM if they take at most half of what is available, else in ``folder``, else refuse.

    A file of this name that is already there is used again, so that a run can resume when more memory is
    available than at its start. ``memory`` and ``disk`` tell the bytes available (to this process).
    """
    needed = rows * width * dtype.itemsize
    in_file = RowsInFile(folder / f"{name}.rows", rows, width, initial, dtype) if folder is not None else None
    if in_file is not None and in_file.path.is_file():
        return in_file
    ram = memory()
    if 2 * needed <= ram:
        return RowsInRam(rows, width, initial, dtype)
    room = disk(in_file.path) if in_file is not None else 0
    if in_file is not None and in_file.bytes <= room:
        return in_file
    there = f"{_gigabytes(room)} are free in {folder}" if folder else "there is no run folder"
    raise ResourceError(
        f"{name} ({rows:,} rows × {width:,} numbers) needs {_gigabytes(needed)} of memory and may take half "
        f"of the {_gigabytes(ram)} available, or {_gigabytes(2 * needed)} of disk (two slots); {there}: "
        "use fewer classes or rows, a run folder on a larger disk, or several processes, which share the rows"
    )


def _write_all(file: int, data: npt.NDArray[np.uint8], offset: int) -> None:
    while len(data):
        written = os.pwrite(file, data.data, offset)
        data = data[written:]
        offset += written


def _gigabytes(number: int) -> str:
    return f"{number / 1e9:,.2f} GB"
