"""Running scores, and their precision in a file of 16 bits."""

from pathlib import Path
from typing import Literal

import pytest
import torch

from sparselabel.data.labels import UNKNOWN
from sparselabel.losses.running_scores import RunningScores
from sparselabel.losses.step import Layout
from tests.losses.steps import make_step

OBSERVED = torch.full((1, 1), UNKNOWN, dtype=torch.int8)
STEP = make_step(torch.tensor([[0.9]]).logit(), OBSERVED)


@pytest.mark.parametrize(
    ("keep", "momentum", "end"),
    [("ram", 0.99, 0.9), ("file", 0.8, 0.8989), ("file", 0.9, 0.8979), ("file", 0.99, 0.876)],
)
def test_in_a_file_scores_stop_short_of_where_they_go(
    tmp_path: Path, keep: Literal["ram", "file"], momentum: float, end: float
) -> None:
    scores = RunningScores(momentum)
    scores.prepare(Layout(torch.tensor([0]), OBSERVED, 1, folder=tmp_path, keep=keep))
    for _ in range(1000):
        scores.update(STEP)
    assert float(scores(torch.tensor([0]))) == pytest.approx(end, abs=1e-4)
