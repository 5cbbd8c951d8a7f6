"""The best rows of every class: equal to sorting, whatever the pieces and ties."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparselabel.method import selection
from sparselabel.method.selection import Piece, best_rows, nobody


def by_sorting(scores: Tensor, rows: Tensor, candidate: Tensor, wanted: Tensor) -> Tensor:
    """(n, L) The slow and obvious way: sort by score, downwards, then by row, upwards."""
    chosen = torch.zeros_like(candidate)
    for number, count in enumerate(wanted.tolist()):
        order = np.lexsort((rows.numpy(), -scores[:, number].numpy()))
        free = [place for place in order if candidate[place, number]]
        chosen[free[:count], number] = True
    return chosen


def in_pieces(scores: Tensor, rows: Tensor, candidate: Tensor, size: int) -> Iterator[Piece]:
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        yield Piece(rows[part], scores[part], candidate[part])


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(1, 5),
    st.integers(1, 9),
    st.sampled_from([0, 7]),
)
def test_equal_to_sorting(seed: int, count: int, classes: int, size: int, held: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    levels = int(torch.randint(1, 30, (), generator=generator))  # few levels: many ties
    scores = torch.randint(0, levels, (count, classes), generator=generator) / levels
    spread = int(torch.randint(1, 5000, (), generator=generator))
    rows = torch.randperm(count * spread, generator=generator)[:count].sort().values
    candidate = torch.rand(count, classes, generator=generator) < 0.7
    wanted = (torch.rand(classes, generator=generator) * (candidate.sum(0) + 1)).long()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "HELD_ENTRIES", held or selection.HELD_ENTRIES)
        found = best_rows(lambda: in_pieces(scores, rows, candidate, size), wanted, count * spread)
    chosen = found.chooses(scores, rows) & candidate
    assert torch.equal(chosen, by_sorting(scores, rows, candidate, wanted))
    assert chosen.sum(0).tolist() == wanted.tolist()


def test_neighbouring_floats_and_rows_are_told_apart() -> None:
    near = torch.nextafter(torch.tensor(0.3), torch.tensor(1.0))
    scores = torch.tensor([[0.3], [near], [0.3], [0.3]])
    rows = torch.tensor([5, 900_000, 70_000, 1_000_000])
    everyone = torch.ones(4, 1, dtype=torch.bool)
    for count, last in ((1, (float(near), 900_000)), (2, (scores[0, 0], 5)), (3, (scores[0, 0], 70_000))):
        found = best_rows(lambda: [Piece(rows, scores, everyone)], torch.tensor([count]), 1_000_001)
        assert (float(found.score[0]), int(found.row[0])) == (float(last[0]), last[1])


def test_nobody_is_chosen_where_nobody_is_wanted() -> None:
    none = nobody(2)
    assert not none.chooses(torch.ones(3, 2), torch.arange(3)).any()
    found = best_rows(
        lambda: [Piece(torch.arange(3), torch.ones(3, 2), torch.ones(3, 2, dtype=torch.bool))],
        torch.tensor([0, 3]),
        3,
    )
    assert found.chooses(torch.ones(3, 2), torch.arange(3)).sum(0).tolist() == [0, 3]
