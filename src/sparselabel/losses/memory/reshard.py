"""Redistribute the row stores of a checkpoint over another number of processes.

Of P processes, number r % P has row r of the data, in its slot r // P (``data/loaders.py``). New rows are
read in chunks, and old files are not changed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from sparselabel.data.loaders import rows_of
from sparselabel.losses.memory.row_store import FileRowStore, Initial, RowStore, is_in_file
from sparselabel.losses.step import Memory

State = dict[str, Tensor]


class Share(NamedTuple):
    """Which of the new processes this is."""

    process: int
    processes: int

    def row_count(self, rows: int) -> int:
        """The number of rows of this process."""
        return len(rows_of(rows, self.process, self.processes))


class _Saved(NamedTuple):
    """Rows of an old process in a checkpoint."""

    rows: int
    width: int
    dtype: torch.dtype
    read: Initial


def restore_resharded(memory: Memory, states: Sequence[State], folder: Path, share: Share) -> None:
    """Fill ``memory`` with its share of ``states``, one per old process, or of their files in ``folder``."""
    if isinstance(memory, RowStore):
        parts = [_saved(state, folder) for state in states]
        rows = share.row_count(sum(part.rows for part in parts))
        memory.refuse_unlike((rows, parts[0].width), parts[0].dtype)
        memory.fill(resharded_reader([part.read for part in parts], share))
    else:
        anew = {key: _resharded([state[key] for state in states], share) for key in memory.by_row}
        memory.restore(states[0] | anew)


def resharded_reader(parts: Sequence[Initial], share: Share) -> Initial:
    """The rows of the old processes, as a function of the local index of a new process."""

    def read(local_index: Tensor) -> Tensor:
        rows = share.process + share.processes * local_index
        owners = rows % len(parts)
        rows_read = torch.cat([part(rows[owners == n] // len(parts)) for n, part in enumerate(parts)])
        return rows_read.index_select(0, owners.argsort(stable=True).argsort())

    return read


def _resharded(parts: Sequence[Tensor], share: Share) -> Tensor:
    local_index = torch.arange(share.row_count(sum(map(len, parts))))
    return resharded_reader([_lines(part) for part in parts], share)(local_index)


def _saved(state: State, folder: Path) -> _Saved:
    if is_in_file(state):
        old = FileRowStore.saved(folder, state)
        return _Saved(old.rows, old.width, old.dtype, old.read)
    values = state["values"]  # memory-mapped
    return _Saved(len(values), values.shape[1], values.dtype, _lines(values))


def _lines(values: Tensor) -> Initial:
    return lambda local_index: values.index_select(0, local_index)
