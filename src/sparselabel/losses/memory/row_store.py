"""Per-row memories: one line of numbers for every image, kept in RAM (``rows_file.py``: in a file)."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sparselabel.errors import RunError
from sparselabel.losses.base import Memory

Initial = Callable[[Tensor], Tensor]
"""Slots (c,) -> (c, width): what the rows hold before anybody has written to them."""

CHUNK_BYTES = 2**24  # what is filled or copied at once
WAY_OUT = "bring the run folder back as it was, or start the run anew"


class RowStore(Memory):
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

    def fill(self, source: Initial) -> None:
        """Hold what ``source`` says of every slot, asked for in pieces."""
        raise TypeError(f"{type(self).__name__} must define fill()")

    def prefetch(self, slots: Tensor) -> None:
        """The lines at ``slots`` (B,) will be read soon: fetch them meanwhile, if that takes time."""

    def _values_of(self, state: dict[str, Tensor]) -> Tensor:
        values = state.get("values")
        if values is None:
            raise RunError(f"the checkpoint kept {self.rows:,} rows in a file that is not there: {WAY_OUT}")
        self.refuse_unlike((len(values), values.shape[1]), values.dtype)
        return values

    def refuse_unlike(self, shape: tuple[int, int], dtype: torch.dtype) -> None:
        """Raise if rows of this shape and type in a checkpoint cannot be these."""
        alike = dtype == self.dtype or (dtype.is_floating_point and self.dtype.is_floating_point)
        if shape != (self.rows, self.width) or not alike:
            raise RunError(
                f"the checkpoint's rows must be {(self.rows, self.width)} {self.dtype}, "
                f"not {shape} {dtype}: resume with the same data and settings"
            )

    def chunks(self, rows_at_once: int | None = None) -> Iterator[Tensor]:
        """All slots, in pieces of a bounded size."""
        size = rows_at_once or max(1, CHUNK_BYTES // max(1, self.row_bytes))
        for start in range(0, self.rows, size):
            yield torch.arange(start, min(start + size, self.rows))


class RamRowStore(RowStore):
    """Rows as one tensor; a checkpoint holds all of it."""

    _values: Tensor | None = None

    def room_to_come(self) -> tuple[int, int]:
        """All of it, until it is filled."""
        return self.rows * self.row_bytes if self._values is None else 0, 0

    def read(self, slots: Tensor) -> Tensor:
        """(B, width) A copy of the lines at ``slots`` (B,)."""
        return self._held().index_select(0, slots)

    def write(self, slots: Tensor, values: Tensor) -> None:
        """Replace the lines at ``slots`` (B,), each named once, by ``values`` (B, width)."""
        # numpy copies whole lines; torch's index_copy_ goes number by number, 70 times slower on bytes.
        self._held().numpy()[slots.numpy()] = values.to(self.dtype).numpy()

    def state(self) -> dict[str, Tensor]:
        """The tensor itself, not a copy: save it before the next write."""
        return {"values": self._held()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over the values of a checkpoint."""
        values = self._values_of(state)
        self.fill(lambda slots: values[slots])

    def fill(self, source: Initial) -> None:
        """Take over what ``source`` says of every slot."""
        self._values = self._filled(source)

    def _held(self) -> Tensor:
        if self._values is None:
            self._values = self._filled(self.initial)
        return self._values

    def _filled(self, source: Initial) -> Tensor:
        values = torch.empty(self.rows, self.width, dtype=self.dtype)
        for slots in self.chunks():
            values[slots] = source(slots).to(self.dtype)
        return values
