"""Stochastic rounding to integers, with random numbers that depend only on (seed, epoch, row).

Moving averages in 8 bits stall when they are rounded to the nearest level: a step below half a level is lost.
Rounding up with the probability of the fraction is right in expectation. Drawing new numbers for every cell
in every step would dominate a step's time, so one long table is drawn from the seed, and (seed, epoch, row)
determine where a row's numbers begin in it.
"""

import numpy as np
import torch
from torch import Tensor

OFFSETS = 2**16  # where a row's numbers may begin
LEVELS = 2**10  # (j + ½)/1024: added to any value in 0..255 it is exact in float32, and never a whole 1


class Dither:
    """Numbers in 0..1 for ``width`` cells of a row."""

    def __init__(self, seed: int, width: int) -> None:
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, width))))
        drawn = random.integers(0, LEVELS, OFFSETS + width, dtype=np.uint16).astype(np.float32)
        self._windows = torch.from_numpy((drawn + np.float32(0.5)) / LEVELS).unfold(0, width, 1)
        self._seed = seed

    def __call__(self, epoch: int, rows: Tensor) -> Tensor:
        """(B, width) The numbers of rows (B,) in an epoch."""
        return self._windows.index_select(0, offsets(self._seed, epoch, rows.cpu()))


def offsets(seed: int, epoch: int, rows: Tensor) -> Tensor:
    """(B,) Where in the table each row's numbers begin: a hash of (seed, epoch, row) in 64-bit arithmetic."""
    key = np.uint64((seed * 1_000_003 + epoch) * 0x9E3779B97F4A7C15 % 2**64)
    mixed = rows.numpy().astype(np.uint64) * np.uint64(0xD1B54A32D192ED03) ^ key
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return torch.from_numpy(((mixed >> np.uint64(31)) % np.uint64(OFFSETS)).astype(np.int64))
