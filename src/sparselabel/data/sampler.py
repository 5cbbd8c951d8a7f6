"""Which rows a process works on, and in which order.

A row belongs to one process for the whole run, so that what methods remember about it stays local. The
order of an epoch depends on nothing but (seed, epoch) and the number of processes.
"""

import numpy as np
import numpy.typing as npt

from sparselabel.errors import ConfigError

PADDING = -1

Rows = npt.NDArray[np.int64]


def rows_of(count: int, shard: int, shards: int) -> Rows:
    """The rows of one process, sorted: every ``shards``-th row of ``count``."""
    return np.arange(shard, count, shards, dtype=np.int64)


def epoch_batches(
    count: int, batch: int, seed: int, epoch: int, shard: int = 0, shards: int = 1
) -> list[Rows]:
    """The batches of an epoch for one process; each row once, the last batch may be smaller.

    ``batch`` is the number of rows over all processes. Every process gets as many batches of the same sizes:
    where its rows run out it is padded with row -1, which counts for nothing.
    """
    if batch % shards:
        raise ConfigError(f"a batch of {batch} cannot be shared evenly by {shards} processes")
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, epoch, shard))))
    order = random.permutation(rows_of(count, shard, shards))
    longest = -(-count // shards)
    padded = np.concatenate([order, np.full(longest - len(order), PADDING, dtype=np.int64)])
    size = batch // shards
    return [padded[start : start + size] for start in range(0, longest, size)]
