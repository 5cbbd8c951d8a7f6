"""Soft labels of em+apl; test_entropy_max_golden.py ties them to the authors' numbers."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from sparselabel.errors import ConfigError
from sparselabel.losses.entropy_max import _upside_down
from sparselabel.losses.registry import make_method
from sparselabel.losses.step import Progress, Step
from tests.losses.steps import build_method, make_step

OBSERVED = torch.tensor([[1, -1, 0]], dtype=torch.int8)
SCORES = torch.tensor([[0.8, 0.3, 0.1]], dtype=torch.float64)


def test_soft_labels_want_a_survey_and_epochs() -> None:
    method = build_method("em+apl", OBSERVED, warm_up=1)
    with pytest.raises(ConfigError, match=r"criterion\.scan\(predict\)"):
        method(make_step(SCORES.logit(), OBSERVED))
    with pytest.raises(
        ConfigError,
        match=r"labels after `warm_up=1` epochs, but the run has 1: .* smaller `warm_up`",
    ):
        method.begin_epoch(Progress(0, 1, 0, 1e-3))
    with pytest.raises(ConfigError, match="warm_up must be at least 1 epoch, not 0"):
        make_method("em+apl", warm_up=0)


def test_nobody_looks_before_the_warm_up_is_over() -> None:
    method = build_method("em+apl", OBSERVED, warm_up=2)
    looked = []
    for epoch in range(4):
        progress = Progress(epoch, 4, 0, 1e-3)
        method.begin_epoch(progress)

        def steps(rows: Tensor | None, progress: Progress = progress) -> Iterator[Step]:
            looked.append(progress.epoch)
            yield make_step(SCORES.logit(), OBSERVED, progress=progress)

        method.scan(steps)
        method(make_step(SCORES.logit(), OBSERVED, progress=progress))
    assert looked == [2, 3]


def test_the_lowest_scores_of_all_sizes_are_told_apart() -> None:
    scores = torch.tensor([0.0, 1e-40, 1e-20, 0.1, 0.5, 1 - 2**-24, 1.0])
    assert _upside_down(scores).argsort().tolist() == [6, 5, 4, 3, 2, 1, 0]
