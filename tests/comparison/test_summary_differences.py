from pathlib import Path

import numpy as np
import pytest

from sparselabel.comparison.planned_runs import Outcome, plan_runs
from sparselabel.comparison.summary import Row, TestDraws, rows_of, with_differences
from sparselabel.data.dataset import Dataset
from sparselabel.inference.saved_scores import keep_scores, saved_scores
from sparselabel.metrics.bootstrap import paired_bootstrap
from sparselabel.run import Run
from tests.comparison.test_runner import RESULT, TINY, data  # noqa: F401

SEEDS = (0, 1)


@pytest.fixture
def made(data: Dataset, tmp_path: Path) -> list[Outcome]:  # noqa: F811
    """Runs of which nothing but random scores of the test images is there."""
    random = np.random.default_rng(0)
    outcomes = []
    for run in plan_runs(TINY, ["role", "an", "bce"], SEEDS, tmp_path):
        folder, part = Run(run.path), data.split("test")
        about = {
            "data": str(data.folder),
            "classes": list(data.classes),
            "data_digest": {name: split.digest for name, split in data.splits.items()},
        }
        folder.begin(run.config, about, resume=False, force=False)
        keep_scores(folder, part, random.random(part.truth.values.shape, dtype=np.float32))
        outcomes.append(Outcome(run, RESULT))
    return outcomes


def test_the_mean_over_seeds_is_compared(made: list[Outcome]) -> None:
    said: list[str] = []
    role, an, bce = with_differences(rows_of(made), "an", said.append, TestDraws(50))
    assert (an.difference, said) == (None, [])
    assert role.difference is not None
    assert bce.difference is not None
    pairs = [[saved_scores(Run(row.paths[seed]), "test") for seed in SEEDS] for row in (an, role)]
    found = [
        paired_bootstrap(one.scores, other.scores, one.positive, samples=50)
        for one, other in zip(*pairs, strict=True)
    ]
    assert role.difference.first == pytest.approx(np.mean([one.first for one in found]))
    assert role.difference.second == pytest.approx(np.mean([one.second for one in found]))
    assert role.difference.low < role.difference.difference < role.difference.high
    assert role.difference.samples == 50
    widths = [one.high - one.low for one in found]
    assert role.difference.high - role.difference.low < max(widths)  # a mean varies less


def test_seeds_that_both_have_are_compared(made: list[Outcome]) -> None:
    rows = rows_of([one for one in made if not (one.run.method == "an" and one.run.seed == 0)])
    role = with_differences(rows, "an", print, TestDraws(20))[0]
    scores = [saved_scores(Run(row.paths[1]), "test") for row in (rows[1], rows[0])]
    assert role.difference == paired_bootstrap(scores[0].scores, scores[1].scores, scores[0].positive, 20)


def test_nothing_to_compare_with(made: list[Outcome]) -> None:
    rows = rows_of(made)
    assert with_differences(rows, "wan", print) == rows
    assert with_differences([Row("an"), Row("role")], "an", print) == [Row("an"), Row("role")]


def test_scores_that_are_not_there(made: list[Outcome]) -> None:
    (made[0].run.path / "scores-test.npz").unlink()
    said: list[str] = []
    role, _, bce = with_differences(rows_of(made), "an", said.append, TestDraws(20))
    assert role.difference is None
    assert bce.difference is not None
    assert len(said) == 1
    assert said[0].startswith("no bootstrap for role: there is no ")
    assert "sparselabel evaluate" in said[0]
