import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparselabel.data.loaders import PADDING, epoch_batches, rows_of
from sparselabel.errors import ConfigError

counts, shard_counts, sizes = st.integers(0, 60), st.integers(1, 7), st.integers(1, 9)


@given(counts, shard_counts)
def test_shards_share_the_rows_out(count: int, shards: int) -> None:
    parts = [rows_of(count, shard, shards) for shard in range(shards)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for part in parts:
        assert (np.diff(part) > 0).all()


@given(counts, shard_counts, sizes, st.integers(0, 3))
def test_an_epoch_has_every_row_once(count: int, shards: int, size: int, epoch: int) -> None:
    batches = [epoch_batches(count, size * shards, 5, epoch, shard, shards) for shard in range(shards)]
    shown = np.concatenate([np.empty(0, np.int64), *(batch for part in batches for batch in part)])
    assert sorted(shown[shown != PADDING].tolist()) == list(range(count))
    assert (shown == PADDING).sum() == -count % shards  # no more than makes the shards equally long
    for part in batches:
        assert [len(batch) for batch in part] == [len(batch) for batch in batches[0]]
        assert all(len(batch) == size for batch in part[:-1])
        assert len(part) == -(-count // (size * shards))  # as many steps as one process alone would do


@given(counts, shard_counts, sizes)
def test_a_row_stays_in_its_shard(count: int, shards: int, size: int) -> None:
    for shard in range(shards):
        own = {*rows_of(count, shard, shards).tolist(), PADDING}
        for epoch in range(3):
            for batch in epoch_batches(count, size * shards, 0, epoch, shard, shards):
                assert {*batch.tolist()} <= own


def flat(batches: list[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> list[int]:
    return [row for batch in batches for row in batch.tolist()]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    first = epoch_batches(50, 8, seed=1, epoch=3)
    np.random.default_rng(0).random(5)
    assert flat(epoch_batches(50, 8, seed=1, epoch=3)) == flat(first)
    assert flat(epoch_batches(50, 16, seed=1, epoch=3)) == flat(first)  # the batch only cuts it up
    others = [epoch_batches(50, 8, seed, epoch) for seed, epoch in ((1, 4), (2, 3), (3, 1))]
    assert len({tuple(flat(order)) for order in (first, *others)}) == 4


def test_the_order_is_shuffled_evenly() -> None:
    places = np.zeros((6, 6))
    for epoch in range(600):
        places[np.arange(6), flat(epoch_batches(6, 6, seed=0, epoch=epoch))] += 1
    assert places.min() > 70  # 100 are expected, with a deviation of 9
    assert places.max() < 130


def test_more_shards_than_rows() -> None:
    batches = [epoch_batches(2, 6, 0, 0, shard, 3) for shard in range(3)]
    assert [[batch.tolist() for batch in part] for part in batches] == [[[0]], [[1]], [[PADDING]]]


@pytest.mark.parametrize(("batch", "shards"), [(16, 3), (1, 2), (7, 4)])
def test_a_batch_that_cannot_be_shared_is_refused(batch: int, shards: int) -> None:
    with pytest.raises(
        ConfigError, match=f"a batch of {batch} cannot be shared evenly by {shards} processes"
    ):
        epoch_batches(100, batch, 0, 0, 0, shards)
