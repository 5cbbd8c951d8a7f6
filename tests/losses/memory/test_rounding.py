"""Stochastic rounding is unbiased and depends only on (seed, epoch, row)."""

import torch

from sparselabel.losses.memory.rounding import LEVELS, OFFSETS, Dither, offsets


def test_numbers_are_in_the_middle_of_levels_and_never_a_whole_one() -> None:
    numbers = Dither(0, 5000)(3, torch.arange(10))
    assert numbers.shape == (10, 5000)
    assert torch.equal((numbers * LEVELS - 0.5), (numbers * LEVELS - 0.5).round())
    assert 0 < float(numbers.min()) < 0.01
    assert 0.99 < float(numbers.max()) < 1
    assert abs(float(numbers.mean()) - 0.5) < 0.01
    whole = torch.arange(256.0)[:, None]
    assert torch.equal((whole + numbers[:1, :512]).floor(), whole.expand(-1, 512))  # whole numbers stay


def test_they_depend_on_seed_epoch_and_row_only() -> None:
    rows = torch.tensor([5, 70_000, 12])
    first = Dither(1, 40)(2, rows)
    assert torch.equal(first, Dither(1, 40)(2, rows))
    assert torch.equal(first[1:2], Dither(1, 40)(2, rows[1:2]))  # not on the batch
    for other in (Dither(2, 40)(2, rows), Dither(1, 40)(3, rows), Dither(1, 40)(2, rows + 1)):
        assert (first != other).float().mean() > 0.9


def test_offsets_are_spread_evenly() -> None:
    by_epoch = torch.stack([offsets(0, epoch, torch.arange(4096)) for epoch in range(16)])
    assert by_epoch.min() >= 0
    assert by_epoch.max() < OFFSETS
    counts = torch.histc(by_epoch.float(), bins=64, min=0, max=OFFSETS)
    assert (counts - 1024).abs().max() < 5 * 32  # five standard deviations of 65,536 draws into 64 bins
    assert len(set(by_epoch[:, 0].tolist())) > 14  # a row begins elsewhere in every epoch
