"""Arguments of a step that cannot be, and those that can."""

from typing import Any

import numpy as np
import pytest
import torch

from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import DataError, DataWarning
from sparselabel.losses.sparse_loss import SparseLoss
from tests.losses.test_sparse_loss import CLASSES, MAPS, OBSERVED, WHOLE, criterion_of


@pytest.mark.parametrize(
    ("maps", "views", "what"),
    [
        (MAPS.permute(0, 2, 3, 1), WHOLE, "maps"),
        (torch.zeros(4, CLASSES + 1, 2, 2), WHOLE, "maps"),
        (MAPS.flatten(2), WHOLE, "maps"),
        (MAPS[:2], WHOLE, "maps"),
        (MAPS.int(), WHOLE, "maps"),
        (MAPS.numpy(), WHOLE, "maps"),
        (MAPS, ViewGeometry.whole(2), "geometry"),
        (MAPS, torch.zeros(4, 4), "geometry"),
        (MAPS, [1] * 4, "geometry"),
    ],
)
def test_maps_and_geometry_are_checked_in_the_first_step(maps: Any, views: Any, what: str) -> None:
    criterion = criterion_of("en+scl")
    criterion.set_epoch(0)
    with pytest.raises(DataError, match=f"{what} must be") as raised:
        criterion(torch.zeros(4, CLASSES), torch.arange(4), maps, views)
    assert raised.value.what == what
    assert raised.value.value is not None


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (None, "index is missing: the position of every image"),
        (torch.ones(4, dtype=torch.bool), "bool"),
        ([True] * 4, "bool"),
        (torch.zeros(4), "float32"),
        (torch.zeros(4, CLASSES, dtype=torch.int8), rf"\(4, {CLASSES}\) and int8"),
        ("abcd", "'abcd'"),
    ],
)
def test_an_index_that_is_none(index: Any, words: str) -> None:
    criterion = criterion_of("an")
    criterion.set_epoch(0)
    with pytest.raises(DataError, match=words) as raised:
        criterion(torch.zeros(4, CLASSES), index)
    assert raised.value.what == "index"
    assert "position" in raised.value.problem


@pytest.mark.parametrize("index", [[0, 5, 2], np.array([0, 5, 2]), np.array([0, 5, 2], np.uint8)])
def test_an_index_of_any_kind(index: Any) -> None:
    criterion, logits = criterion_of("en+cl"), torch.ones(3, CLASSES)
    criterion.set_epoch(0)
    assert torch.equal(criterion(logits, index), criterion(logits, torch.tensor([0, 5, 2])))


@pytest.mark.parametrize(
    ("logits", "words"),
    [
        (np.zeros((4, CLASSES), np.float32), "must be a tensor.*not an array"),
        (torch.zeros(4, CLASSES, dtype=torch.int64), "floating-point.*int64"),
        (torch.zeros(4, CLASSES + 1), rf"must be \(4, {CLASSES}\)"),
        ([], "must be a tensor"),
    ],
)
def test_logits_that_are_none(logits: Any, words: str) -> None:
    criterion = criterion_of("an")
    criterion.set_epoch(0)
    with pytest.raises(DataError, match=words) as raised:
        criterion(logits, torch.arange(4))
    assert (raised.value.what, raised.value.allowed) == ("logits", (4, CLASSES))


def test_scores_in_place_of_logits_are_noticed_once(recwarn: pytest.WarningsRecorder) -> None:
    criterion = SparseLoss("an", OBSERVED)
    criterion.set_epoch(0)
    criterion(torch.zeros(2, OBSERVED.shape[1]), [0, 1])  # a head that starts from zeros
    assert not recwarn.list
    criterion = SparseLoss("an", OBSERVED)
    criterion.set_epoch(0)
    scores = torch.linspace(0.1, 0.9, 2 * OBSERVED.shape[1]).view(2, -1)
    criterion(scores, [0, 1])
    criterion(scores, [0, 1])
    (warned,) = recwarn.list
    assert isinstance(warned.message, DataWarning)
    assert (warned.message.what, warned.filename) == ("logits", __file__)
