"""Several runs with one frozen backbone, evaluated in one pass: the same results as one by one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, Views
from sparselabel.data.dataset import Dataset
from sparselabel.errors import RunError
from sparselabel.inference.evaluate import evaluate_run, evaluate_together
from sparselabel.run import Run
from sparselabel.training.train_run import train_run
from tests.training.conftest import small_scenes, tiny

HERE = Machine(accelerator="cpu", workers=0)
CONFIG = tiny(frozen=True, head=HeadPhase(epochs=1), finetune=FinetunePhase(epochs=0), views=Views(size=64))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_scenes(tmp_path_factory.mktemp("data"), 20, 14, Preparation("single-positive"))


def test_the_same_as_apart(data: Dataset, tmp_path: Path) -> None:
    runs = [tmp_path / method for method in ("an", "role")]
    for run in runs:
        train_run(data, replace(CONFIG, method=run.name), run, HERE, Handling(quiet=True))
    apart = [evaluate_run(Run(run), "test") for run in runs]
    kept = [dict(np.load(run / "location-test.npz")) for run in runs]
    scores = [np.load(run / "scores-test.npz")["scores"] for run in runs]
    seen: list[int] = []
    for run in runs:
        (run / "evaluation-test.json").unlink()
    evaluate_together([Run(run) for run in runs], "test", report=seen.append)
    assert sum(seen) == 14
    for run, measured, places, values in zip(runs, apart, kept, scores, strict=True):
        assert json.loads((run / "evaluation-test.json").read_text()) == json.loads(json.dumps(measured))
        np.testing.assert_array_equal(np.load(run / "location-test.npz")["shares"], places["shares"])
        np.testing.assert_array_equal(np.load(run / "scores-test.npz")["scores"], values)
    assert (kept[0]["shares"] != kept[1]["shares"]).any()


def test_other_backbones_are_refused(data: Dataset, tmp_path: Path) -> None:
    for seed in (0, 1):  # random weights are those of the seed
        train_run(data, replace(CONFIG, seed=seed), tmp_path / str(seed), HERE, Handling(quiet=True))
    with pytest.raises(RunError, match="have different backbones"):
        evaluate_together([Run(tmp_path / name) for name in "01"], "test")
