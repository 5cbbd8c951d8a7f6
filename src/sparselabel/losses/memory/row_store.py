"""Row stores: an array with one row per training image, in RAM or in a file.

In a file every row has two slots, and a bit says which of them the last checkpoint has.

    write ──▶ the slot that the last checkpoint does not need        read ──▶ the newest slot
    state() ── fsync, hand out the bits ──▶ (the trainer saves its checkpoint) ──▶ on_checkpoint_saved()

So the state of the last checkpoint stays on disk until the next one is safe: a crash at any moment loses
nothing, and nothing is copied. Reads and writes are positioned ones: pages of a mapped file would count as
memory. The system's page cache hides the disk: writes return at once, and ``prefetch`` reads ahead.

A file has the number of processes in its name. A run that is resumed with another number fills new files from
the old ones (``reshard.py``), which are removed once a checkpoint of the new processes is safe.
"""

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparselabel.checksums import Sums, damaged, row_checksums
from sparselabel.errors import DISK_FULL, MAKE_ROOM, ResourceError, RunError
from sparselabel.losses.step import Layout, Memory
from sparselabel.resources import available_memory, format_bytes, free_disk

Initial = Callable[[Tensor], Tensor]
"""Local index (c,) -> (c, width): what the rows hold before the first write."""

CHUNK_BYTES = 2**24  # filled or copied at once
WAY_OUT = "bring the run folder back as it was, or start the run anew"


class RowStore(Memory):
    """``rows`` lines of ``width`` numbers, found by their index 0..rows-1; filled when first used."""

    def __init__(self, rows: int, width: int, initial: Initial, dtype: torch.dtype) -> None:
        self.rows, self.width = rows, width
        self.initial, self.dtype = initial, dtype
        self.row_bytes = width * dtype.itemsize

    def read(self, local_index: Tensor) -> Tensor:
        """(B, width) A copy of the lines at ``local_index`` (B,)."""
        raise TypeError(f"{type(self).__name__} must define read()")

    def write(self, local_index: Tensor, values: Tensor) -> None:
        """Replace the lines at ``local_index`` (B,), each named once, by ``values`` (B, width)."""
        raise TypeError(f"{type(self).__name__} must define write()")

    def fill(self, source: Initial) -> None:
        """Fill every row from ``source``, in chunks."""
        raise TypeError(f"{type(self).__name__} must define fill()")

    def prefetch(self, local_index: Tensor) -> None:
        """Start reading the lines at ``local_index`` (B,), which will be needed soon."""

    def _values_of(self, state: dict[str, Tensor]) -> Tensor:
        values = state.get("values")
        if values is None:
            raise RunError(f"the checkpoint kept {self.rows:,} rows in a file that is not there: {WAY_OUT}")
        self.refuse_unlike((len(values), values.shape[1]), values.dtype)
        return values

    def refuse_unlike(self, shape: tuple[int, int], dtype: torch.dtype) -> None:
        """Raise if rows in a checkpoint have another shape or type."""
        alike = dtype == self.dtype or (dtype.is_floating_point and self.dtype.is_floating_point)
        if shape != (self.rows, self.width) or not alike:
            raise RunError(
                f"the checkpoint's rows must be {(self.rows, self.width)} {self.dtype}, "
                f"not {shape} {dtype}: resume with the same data and settings"
            )

    def chunks(self, rows_at_once: int | None = None) -> Iterator[Tensor]:
        """The indices of all rows, in chunks of a bounded size."""
        size = rows_at_once or max(1, CHUNK_BYTES // max(1, self.row_bytes))
        for start in range(0, self.rows, size):
            yield torch.arange(start, min(start + size, self.rows))


class RamRowStore(RowStore):
    """Rows as one tensor; a checkpoint holds all of it."""

    _values: Tensor | None = None

    def bytes_still_needed(self) -> tuple[int, int]:
        """All of its RAM while it is not filled."""
        return self.rows * self.row_bytes if self._values is None else 0, 0

    def read(self, local_index: Tensor) -> Tensor:
        """(B, width) A copy of the lines at ``local_index`` (B,)."""
        return self._held().index_select(0, local_index)

    def write(self, local_index: Tensor, values: Tensor) -> None:
        """Replace the lines at ``local_index`` (B,), each named once, by ``values`` (B, width)."""
        # numpy copies whole lines; torch's index_copy_ is 70 times slower on bytes.
        self._held().numpy()[local_index.numpy()] = values.to(self.dtype).numpy()

    def state(self) -> dict[str, Tensor]:
        """The tensor itself, not a copy: save it before the next write."""
        return {"values": self._held()}

    def restore(self, state: dict[str, Tensor]) -> None:
        values = self._values_of(state)
        self.fill(lambda local_index: values[local_index])

    def fill(self, source: Initial) -> None:
        self._values = self._filled(source)

    def move_to(self, values: Tensor) -> None:
        """Keep the rows in ``values`` (rows, width) from now on, which others may share."""
        self._values = values.copy_(self._held())

    def _held(self) -> Tensor:
        if self._values is None:
            self._values = self._filled(self.initial)
        return self._values

    def _filled(self, source: Initial) -> Tensor:
        values = torch.empty(self.rows, self.width, dtype=self.dtype)
        for local_index in self.chunks():
            values[local_index] = source(local_index).to(self.dtype)
        return values


class StackedRowStore(RowStore):
    """The rows of several runs in one tensor, found by an index (R, B); their own stores are views of it."""

    def __init__(self, stores: Sequence[RamRowStore]) -> None:
        first = stores[0]
        super().__init__(first.rows, first.width, first.initial, first.dtype)
        held = torch.empty(len(stores), self.rows, self.width, dtype=self.dtype)
        for store, values in zip(stores, held, strict=True):
            store.move_to(values)
        self._values = held.view(-1, self.width)
        self._first_rows = self.rows * torch.arange(len(stores))[:, None]

    def read(self, local_index: Tensor) -> Tensor:
        """(R, B, width) A copy of the lines at ``local_index`` (R, B) of each run."""
        lines = self._values.index_select(0, (self._first_rows + local_index).flatten())
        return lines.view(*local_index.shape, self.width)

    def write(self, local_index: Tensor, values: Tensor) -> None:
        """Replace the lines at ``local_index`` (R, B) of each run by ``values`` (R, B, width)."""
        self._values.numpy()[(self._first_rows + local_index).numpy()] = values.to(self.dtype).numpy()


def stack_row_stores(stores: Sequence[RowStore]) -> StackedRowStore:
    """One store for the rows of several runs, which must be in RAM."""
    in_ram = [store for store in stores if isinstance(store, RamRowStore)]
    if len(in_ram) < len(stores):
        raise TypeError("rows in a file cannot be stacked")
    return StackedRowStore(in_ram)


HEADER_BYTES = 4096  # one disk block, for alignment; its first bytes identify the file
IDENTITY_BYTES = 16


def file_of(folder: Path, name: str, process: int | str, processes: int) -> Path:
    """The file of a process for its rows of the store ``name``."""
    return folder / f"{name}-{process}-of-{processes}.rows"


def files_of_others(folder: Path, processes: int) -> list[Path]:
    """The files that runs of another number of processes have left in a folder."""
    return [file for file in folder.glob("*-of-*.rows") if not file.stem.endswith(f"-of-{processes}")]


def is_in_file(state: dict[str, Tensor]) -> bool:
    """Whether the rows of a state are in a file."""
    return "identity" in state


def file_name(state: dict[str, Tensor]) -> str:
    """The name of the file that the rows of a state are in: no checkpoint leads out of the run's folder."""
    return Path(bytes(state["file"].tolist()).decode()).name


class FileRowStore(RowStore):
    """Rows in a file with two slots each. Only the state of the last saved checkpoint can be restored."""

    def __init__(self, path: Path, rows: int, width: int, initial: Initial, dtype: torch.dtype) -> None:
        super().__init__(rows, width, initial, dtype)
        self.path = path
        self.bytes = HEADER_BYTES + 2 * rows * self.row_bytes
        self._file: int | None = None  # made when first used: a run that resumes needs the old one
        self._identity = b""
        self._newest = self._committed = np.zeros(0, dtype=np.bool_)
        self._sums = np.zeros((2, 0), dtype=np.uint32)  # of both slots of every row
        self._waiting = False
        self._commit = 0
        self._close: Callable[[], object] = lambda: None

    def bytes_still_needed(self) -> tuple[int, int]:
        """The file takes its whole size when it is made."""
        return 0, 0 if self._file is not None or self.path.is_file() else self.bytes

    def read(self, local_index: Tensor) -> Tensor:
        """(B, width) The newest lines at ``local_index`` (B,)."""
        file = self._opened()
        wanted = local_index.numpy()
        values = torch.empty(len(local_index), self.width, dtype=self.dtype)
        lines = values.numpy().view(np.uint8)
        for line, offset in zip(lines, self._offsets(wanted, self._newest[wanted]), strict=True):
            if os.preadv(file, [line], offset) != self.row_bytes:
                raise RunError(f"{self.path} ends at byte {offset:,} of {self.bytes:,}: {WAY_OUT}")
        wrong = row_checksums(lines) != self._sums[self._newest[wanted].astype(np.intp), wanted]
        if wrong.any():
            raise damaged(self.path, WAY_OUT, where=f"row {int(wanted[np.argmax(wrong)]):,}")
        return values

    def prefetch(self, local_index: Tensor) -> None:
        """Let the system read the lines into its page cache in the background."""
        if self._file is None or not hasattr(os, "posix_fadvise"):
            return
        wanted = local_index.numpy()
        for offset in self._offsets(wanted, self._newest[wanted]):
            os.posix_fadvise(self._file, offset, self.row_bytes, os.POSIX_FADV_WILLNEED)

    def write(self, local_index: Tensor, values: Tensor) -> None:
        """Write lines into the slots that the last checkpoint does not need."""
        if self._waiting:
            raise RunError(
                f"{self.path} must not be written between state() and on_checkpoint_saved(), or a crash "
                "would spoil the last checkpoint: call on_checkpoint_saved() once the new one is safe"
            )
        file = self._opened()
        wanted = local_index.numpy()
        free = ~self._committed[wanted]
        with self._disk():
            lines = self._raw(values)
            for line, offset in zip(lines, self._offsets(wanted, free), strict=True):
                _write_all(file, line, offset)
        self._newest[wanted] = free
        self._sums[free.astype(np.intp), wanted] = row_checksums(lines)

    def state(self) -> dict[str, Tensor]:
        """Write everything to disk and return which slots are the newest.

        No write is allowed until ``on_checkpoint_saved()``. ``file`` is the file's name; the empty tensor
        ``like`` holds its rows, width and type.
        """
        file = self._opened()
        with self._disk():
            os.fsync(file)
        self._waiting = True
        return {
            "newest": torch.from_numpy(np.packbits(self._newest)),
            "checksums": torch.from_numpy(
                np.where(self._newest, self._sums[1], self._sums[0]).view(np.int32)
            ),
            "identity": torch.tensor(list(self._identity), dtype=torch.uint8),
            "commit": torch.tensor(self._commit + 1),
            "file": torch.tensor(list(self.path.name.encode()), dtype=torch.uint8),
            "like": torch.empty(0, self.rows, self.width, dtype=self.dtype),
        }

    def on_checkpoint_saved(self) -> None:
        """Protect the slots of the last ``state()``; the others may be overwritten."""
        if self._waiting:
            self._committed = self._newest.copy()
            self._waiting = False
            self._count(self._commit + 1)

    def restore(self, state: dict[str, Tensor]) -> None:
        """Load the state of the last checkpoint; a state from RAM is written into a new file."""
        if "values" in state:
            values = self._values_of(state)
            self.fill(lambda local_index: values[local_index])
            return
        self._open(state, os.O_RDWR)
        self._count(int(state["commit"]))

    @classmethod
    def saved(cls, folder: Path, state: dict[str, Tensor]) -> "FileRowStore":
        """The rows of ``state``, to be read; its file in ``folder`` is not changed."""
        _, rows, width = state["like"].shape
        unused: Initial = torch.empty_like  # a file that is there is not filled
        memory = cls(folder / file_name(state), rows, width, unused, state["like"].dtype)
        memory._open(state, os.O_RDONLY)
        return memory

    def fill(self, source: Initial) -> None:
        self._create(source)

    def _open(self, state: dict[str, Tensor], flags: int) -> None:
        """Open the file of ``state``; raises if it is another file, or has changed since."""
        bits = np.unpackbits(state["newest"].numpy()).astype(np.bool_)
        if not self.rows <= len(bits) < self.rows + 8 or len(state["checksums"]) != self.rows:
            raise RunError(f"the checkpoint has another number of rows than the {self.rows:,} of {self.path}")
        size = self.path.stat().st_size if self.path.is_file() else None
        if size != self.bytes:
            fault = "is not there" if size is None else f"has {size:,}"
            raise RunError(f"the checkpoint needs {self.path} of {self.bytes:,} bytes; it {fault}: {WAY_OUT}")
        file = os.open(self.path, flags)
        identity = bytes(state["identity"].tolist())
        if os.pread(file, IDENTITY_BYTES, 0) != identity:
            os.close(file)
            raise RunError(f"{self.path} was made by another run than the checkpoint: {WAY_OUT}")
        commit = int(state["commit"])
        # One behind: the run ended between the checkpoint and the commit to the file.
        if int.from_bytes(os.pread(file, 8, IDENTITY_BYTES), "little") not in (commit - 1, commit):
            os.close(file)
            raise RunError(
                f"{self.path} has gone on since this checkpoint; resume from the newest one, or: {WAY_OUT}"
            )
        sums = state["checksums"].numpy().view(np.uint32)
        self._use(file, identity, bits[: self.rows], np.stack([sums, sums]))  # the other slot is not read

    def _offsets(self, local_index: npt.NDArray[np.int64], second: npt.NDArray[np.bool_]) -> list[int]:
        # All first slots, then all second ones, so that filling writes sequentially.
        offsets: list[int] = (HEADER_BYTES + (local_index + self.rows * second) * self.row_bytes).tolist()
        return offsets

    def _opened(self) -> int:
        return self._create(self.initial) if self._file is None else self._file

    def _create(self, initial: Initial) -> int:
        identity = os.urandom(IDENTITY_BYTES)
        sums = np.zeros((2, self.rows), dtype=np.uint32)
        with self._disk():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)  # it may be a link, in a folder from elsewhere
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                # Allocate the whole file now, to find a full disk here and not after hours.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file, 0, self.bytes)
                else:
                    os.ftruncate(file, self.bytes)  # macOS: space is allocated as it is written
                _write_all(file, np.frombuffer(identity, np.uint8), 0)
                for local_index in self.chunks():
                    start = HEADER_BYTES + int(local_index[0]) * self.row_bytes
                    lines = self._raw(initial(local_index))
                    sums[0, local_index.numpy()] = row_checksums(lines)
                    _write_all(file, lines.reshape(-1), start)
            except BaseException:
                os.close(file)
                self.path.unlink()
                raise
        # The file's name in its folder must survive a crash too.
        folder = os.open(self.path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return self._use(file, identity, np.zeros(self.rows, dtype=np.bool_), sums)

    def _use(self, file: int, identity: bytes, newest: npt.NDArray[np.bool_], sums: Sums) -> int:
        self._close()
        self._close = weakref.finalize(self, os.close, file)
        self._file, self._identity, self._waiting = file, identity, False
        self._newest, self._committed, self._sums = newest, newest.copy(), sums
        self._commit = 0
        return file

    def _count(self, commit: int) -> None:
        """Write into the file which checkpoint it belongs to."""
        self._commit = commit
        _write_all(self._opened(), np.frombuffer(commit.to_bytes(8, "little"), np.uint8), IDENTITY_BYTES)

    def _raw(self, values: Tensor) -> npt.NDArray[np.uint8]:
        return values.to(self.dtype).contiguous().numpy().view(np.uint8)

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            free = format_bytes(free_disk(self.path))
            raise ResourceError(
                f"{self.path} needs {format_bytes(self.bytes)}, and the disk has {free} free "
                f"({error.strerror})",
                *MAKE_ROOM,
            ) from error


def _write_all(file: int, data: npt.NDArray[np.uint8], offset: int) -> None:
    while len(data):
        written = os.pwrite(file, data.data, offset)
        data = data[written:]
        offset += written


WAYS_OUT = (
    "take a method that remembers nothing of an image, as pu",
    "use a run folder on a larger disk",
    "use fewer classes or rows",
    "use several processes, which share the rows",
)


def make_row_store(
    name: str,
    layout: Layout,
    width: int,
    initial: Initial,
    *,
    dtype: torch.dtype = torch.float32,
    dtype_in_file: torch.dtype | None = None,
    ways_out: tuple[str, ...] = WAYS_OUT,
    memory: Callable[[], int] = available_memory,
    disk: Callable[[Path], int] = free_disk,
) -> RowStore:
    """A store of ``width`` numbers for every row of the layout, in RAM or in a file.

    By default in RAM, if the layout's memories together take at most half of what is available; else in a
    file in the layout's folder; else it raises. An existing file of this name is used again, so that a run
    can resume when more memory is available than at its start; with another number of processes the choice is
    made anew. ``dtype_in_file`` may be a smaller type to save disk; ``memory`` and ``disk`` return the bytes
    available to this process.
    """
    rows = len(layout.rows)
    # No two processes have the same first row, so their files have different names.
    first = int(layout.rows[0]) if rows else "none"
    needed = rows * width * dtype.itemsize
    in_file = None
    if layout.folder is not None:
        path = file_of(layout.folder, name, first, layout.processes)
        in_file = FileRowStore(path, rows, width, initial, dtype_in_file or dtype)
        if path.is_file():
            layout.memories.append(in_file)
            return in_file
    # Memories are filled when first used, so their space still counts as free.
    coming = [other.bytes_still_needed() for other in layout.memories]
    others, others_on_disk = sum(ram for ram, _ in coming), sum(room for _, room in coming)
    ram = memory()
    together = needed + others
    if layout.keep != "file" and (2 * together <= ram or (layout.keep == "ram" and together <= ram)):
        layout.memories.append(in_ram := RamRowStore(rows, width, initial, dtype))
        return in_ram
    room = max(0, disk(in_file.path) - others_on_disk) if in_file is not None else 0
    if layout.keep != "ram" and in_file is not None and in_file.bytes <= room:
        layout.memories.append(in_file)
        return in_file
    free = _free(layout, room)
    size = in_file.bytes if in_file is not None else 2 * needed
    beside = f" together with the method's other memories, {format_bytes(others)}" if others else ""
    raise ResourceError(
        f"{name}-{first} ({rows:,} rows × {width:,} numbers) needs {format_bytes(needed)} of memory and may "
        f"take half of the {format_bytes(ram)} available{beside}, or {format_bytes(size)} of disk "
        f"(two slots); {free}",
        *ways_out,
        what=name,
        value=size,
        allowed=room,
    )


def _free(layout: Layout, room: int) -> str:
    """A text on the free disk space; files of another number of processes stay for a while."""
    if layout.folder is None:
        return "there is no run folder"
    free = f"{format_bytes(room)} are free in {layout.folder}"
    old = sum(file.stat().st_size for file in files_of_others(layout.folder, layout.processes))
    if not old:
        return free
    return (
        f"{free}, beside {format_bytes(old)} of another number of processes, which stay until this one has a "
        "checkpoint (going on with that number needs no more room)"
    )
