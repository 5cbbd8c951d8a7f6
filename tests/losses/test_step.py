"""Counting labels in chunks of bounded size gives the same result."""

import pytest
import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.losses import step as module
from sparselabel.losses.expected_negatives import ExpectedLabels
from sparselabel.losses.pu import AnnotationLikelihood
from sparselabel.losses.registry import make_method
from sparselabel.losses.step import Layout, in_chunks
from tests.losses.steps import after_one_epoch, make_step, targets_of

OBSERVED = torch.tensor([[1, -1, 0], [-1, -1, 1], [1, 1, -1], [-1, 0, -1], [1, -1, -1]], dtype=torch.int8)


def layout_of(observed: Tensor) -> Layout:
    return Layout(torch.arange(len(observed)), observed, len(observed))


@pytest.mark.parametrize(("entries", "rows"), [(2, [1] * 5), (7, [2, 2, 1]), (2**19, [5])])
def test_chunks_are_bounded_by_entries(
    monkeypatch: pytest.MonkeyPatch, entries: int, rows: list[int]
) -> None:
    monkeypatch.setattr(module, "ENTRIES_AT_ONCE", entries)
    layout = layout_of(OBSERVED)
    assert [len(some) for some in in_chunks(OBSERVED)] == rows
    assert torch.equal(torch.cat(in_chunks(OBSERVED)), OBSERVED)
    assert layout.counts(POSITIVE).tolist() == [3, 1, 1]
    assert layout.counts(NEGATIVE).tolist() == [0, 1, 1]
    assert layout.counts(UNKNOWN).tolist() == [2, 3, 3]
    assert layout.per_image(POSITIVE).tolist() == [1, 1, 2, 0, 1]
    assert layout.per_image(UNKNOWN).tolist() == [1, 2, 1, 2, 2]
    assert layout.has_negatives
    assert not layout_of(OBSERVED[4:]).has_negatives


def test_no_rows_and_no_classes() -> None:
    assert layout_of(OBSERVED[:0]).counts(POSITIVE).tolist() == [0, 0, 0]
    assert [some.shape for some in in_chunks(torch.zeros(3, 0))] == [(3, 0)]


@pytest.mark.parametrize("entries", [3, 2**19])
def test_no_method_looks_at_all_labels_at_once(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    """What they find in one chunk, they find in chunks of one row."""
    monkeypatch.setattr(module, "ENTRIES_AT_ONCE", entries)
    found = make_method("en", expected_positives=2.0)
    found.prepare(layout_of(OBSERVED))
    # K·N = 10 positives by (3, 1, 1) observed ones: (6, 2, 2), at most 5 images; less the observed ones.
    wanted = [part.num_to_select.tolist() for part in found.parts() if isinstance(part, ExpectedLabels)]
    assert wanted == [[2, 1, 1]]
    likelihood = make_method("pu", expected_positives=2.0)
    likelihood.prepare(layout_of(OBSERVED))
    assert isinstance(likelihood.label_loss, AnnotationLikelihood)
    torch.testing.assert_close(likelihood.label_loss.observed_share, torch.tensor([3 / 5, 1 / 2, 1 / 2]))
    maps = make_method("en+scl", expected_positives=2.0, top_maps=2)
    maps.prepare(layout_of(OBSERVED))
    logits = torch.arange(15.0).view(5, 3) / 15
    maps = after_one_epoch(maps, logits, OBSERVED, None)
    # One unknown label of classes 1 and 2, two of class 0: those of the last rows, which score best.
    weight = [[1, 1, 1], [0, 1, 1], [1, 1, 1], [0, 1, 1], [1, 0, 0]]
    assert targets_of(maps, make_step(logits, OBSERVED)).weight.tolist() == weight
