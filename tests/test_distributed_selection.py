"""Top rows per class equal those by sorting, for any chunks and ties."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparselabel import distributed as selection
from sparselabel.distributed import Chunk, no_rows, topk_per_class


def by_sorting(scores: Tensor, rows: Tensor, candidate: Tensor, num_to_select: Tensor) -> Tensor:
    """(n, L) The slow and obvious way: sort by score, downwards, then by row, upwards."""
    chosen = torch.zeros_like(candidate)
    for number, count in enumerate(num_to_select.tolist()):
        order = np.lexsort((rows.numpy(), -scores[:, number].numpy()))
        free = [place for place in order if candidate[place, number]]
        chosen[free[:count], number] = True
    return chosen


def in_chunks(scores: Tensor, rows: Tensor, candidate: Tensor, size: int) -> Iterator[Chunk]:
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        yield Chunk(rows[part], scores[part], candidate[part])


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
    num_to_select = (torch.rand(classes, generator=generator) * (candidate.sum(0) + 1)).long()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "HELD_ENTRIES", held or selection.HELD_ENTRIES)
        found = topk_per_class(
            lambda: in_chunks(scores, rows, candidate, size), num_to_select, count * spread
        )
    chosen = found.selects(scores, rows) & candidate
    assert torch.equal(chosen, by_sorting(scores, rows, candidate, num_to_select))
    assert chosen.sum(0).tolist() == num_to_select.tolist()


def of_three_scores() -> tuple[Tensor, Tensor, Tensor]:
    """Scores of 61 rows and 4 classes that are nearly all equal to others; who may be chosen; how many."""
    generator = torch.Generator().manual_seed(5)
    scores = torch.randint(0, 3, (61, 4), generator=generator) / 4
    scores[:, 3] = 0.5  # only rows tell them apart
    candidate = torch.rand(61, 4, generator=generator) < 0.8
    return scores, candidate, torch.tensor([7, 20, 1, 30])


def chosen_by(process: int, meeting: Path) -> list[list[float]]:
    """What one of two processes chooses, each with every second row."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=process, world_size=2)
    try:
        scores, candidate, num_to_select = of_three_scores()
        rows = torch.arange(61)[process::2]
        found = topk_per_class(lambda: in_chunks(scores[rows], rows, candidate[rows], 9), num_to_select, 61)
        return [found.score.tolist(), found.row.tolist()]
    finally:
        dist.destroy_process_group()


def test_two_processes_break_ties_as_one_does(tmp_path: Path) -> None:
    scores, candidate, num_to_select = of_three_scores()
    rows = torch.arange(61)
    alone = topk_per_class(lambda: in_chunks(scores, rows, candidate, 9), num_to_select, 61)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        both = list(pool.map(chosen_by, (0, 1), [tmp_path / "meeting"] * 2))
    assert both == [[alone.score.tolist(), alone.row.tolist()]] * 2
    chosen = alone.selects(scores, rows) & candidate
    assert torch.equal(chosen, by_sorting(scores, rows, candidate, num_to_select))
    last = int(candidate[:, 3].nonzero()[29])
    assert (float(alone.score[3]), int(alone.row[3])) == (0.5, last)


def test_neighboring_floats_and_rows_are_told_apart() -> None:
    near = torch.nextafter(torch.tensor(0.3), torch.tensor(1.0))
    scores = torch.tensor([[0.3], [near], [0.3], [0.3]])
    rows = torch.tensor([5, 900_000, 70_000, 1_000_000])
    everyone = torch.ones(4, 1, dtype=torch.bool)
    for count, last in ((1, (float(near), 900_000)), (2, (scores[0, 0], 5)), (3, (scores[0, 0], 70_000))):
        found = topk_per_class(lambda: [Chunk(rows, scores, everyone)], torch.tensor([count]), 1_000_001)
        assert (float(found.score[0]), int(found.row[0])) == (float(last[0]), last[1])


def test_nobody_is_chosen_where_nobody_is_wanted() -> None:
    none = no_rows(2)
    assert not none.selects(torch.ones(3, 2), torch.arange(3)).any()
    found = topk_per_class(
        lambda: [Chunk(torch.arange(3), torch.ones(3, 2), torch.ones(3, 2, dtype=torch.bool))],
        torch.tensor([0, 3]),
        3,
    )
    assert found.selects(torch.ones(3, 2), torch.arange(3)).sum(0).tolist() == [0, 3]
