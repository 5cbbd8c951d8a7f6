"""What parts are told before training: the rows and labels of this process, and where memories may live."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE
from sparselabel.errors import DataError

ENTRIES_AT_ONCE = 2**19
"""Rows times classes that are looked at: of a million rows a mask of all labels would be gigabytes. The
choice of rows takes about 200 bytes for each."""


def rows_at_once(classes: int) -> int:
    """Rows with at most ``ENTRIES_AT_ONCE`` numbers, but at least one row."""
    return max(1, ENTRIES_AT_ONCE // max(1, classes))


def in_pieces(values: Tensor) -> tuple[Tensor, ...]:
    """Rows (n, L) in pieces (c, L) of a bounded size, at least one piece."""
    return torch.split(values, rows_at_once(values.shape[1]))


class Memory:
    """A large per-row array: in RAM (``rows.py``), or in a file with two slots a row (``rows_file.py``).

    ``by_row`` names what in its state has a line for every row of this process: it can be dealt out anew to
    another number of processes (``dealing.py``; it knows row memories by itself).
    """

    by_row: tuple[str, ...] = ()

    def room_to_come(self) -> tuple[int, int]:
        """Bytes of RAM and of disk that it will take and has not taken yet."""
        return 0, 0

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold to come back to this moment."""
        raise TypeError(f"{type(self).__name__} must define state()")

    def restore(self, state: dict[str, Tensor]) -> None:
        """Come back to the moment of ``state``."""
        raise TypeError(f"{type(self).__name__} must define restore()")

    def committed(self) -> None:
        """The checkpoint that holds ``state`` is on the disk: what came before it may be overwritten."""


@dataclass(frozen=True)
class Layout:
    """What a part is told once, before training.

    ``rows`` (n,) sorted rows that belong to this process, one of ``processes``; ``observed`` (n, L) their
    labels; ``total`` the number of rows in all processes; ``folder`` where memories too large for RAM may
    live (None: nowhere), and ``keep`` where they shall live; ``grid`` the cells of the model's maps, down and
    across, if known yet. ``memories`` are those made for it so far, which share the room there is.
    """

    rows: Tensor
    observed: Tensor
    total: int
    seed: int = 0
    processes: int = 1
    folder: Path | None = None
    keep: Literal["auto", "ram", "file"] = "auto"
    grid: tuple[int, int] | None = None
    memories: list[Memory] = field(default_factory=list, repr=False)

    @cached_property
    def has_negatives(self) -> bool:
        """Whether any label of this process is an observed negative."""
        return any(bool((some == NEGATIVE).any()) for some in self.pieces())

    def pieces(self) -> tuple[Tensor, ...]:
        """The labels (c, L) in pieces of a bounded size, at least one."""
        return in_pieces(self.observed)

    def counts(self, label: int) -> Tensor:
        """(L,) int64 How many labels of every class are ``label``, in this process."""
        counts = torch.zeros(self.observed.shape[1], dtype=torch.int64)
        for some in self.pieces():
            counts += (some == label).sum(dim=0)
        return counts

    def slots(self, rows: Tensor) -> Tensor:
        """(B,) Where the rows' entries are in an array kept for ``self.rows``; padding gives any place."""
        # Few numbers: numpy is done before torch has begun.
        known, wanted = self.rows.numpy(), rows.cpu().numpy()
        slots = np.minimum(known.searchsorted(wanted), len(known) - 1)
        strange = (known[slots] != wanted) & (wanted >= 0)
        if strange.any():
            raise DataError(
                f"row {wanted[strange][0]} is none of the {len(known):,} rows that the method was "
                "prepared for: rows in a Step are rows of the labels it was built with"
            )
        return torch.from_numpy(slots)
