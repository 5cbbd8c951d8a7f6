import json
from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation
from sparselabel.data.labels import UNKNOWN
from sparselabel.errors import DataError, RunError
from sparselabel.inference.evaluate import evaluate_run
from sparselabel.metrics.imagenet_real import real_metrics
from sparselabel.run import Run
from sparselabel.training.train_run import train_run
from tests.training.conftest import small_scenes, tiny

HERE = Machine(accelerator="cpu", workers=0)
SINGLE = Preparation("single-positive")


def test_data_that_was_moved(tmp_path: Path) -> None:
    data = small_scenes(tmp_path / "data", 40, 8, SINGLE)
    config = tiny(frozen=True, head=HeadPhase(epochs=1), finetune=FinetunePhase(epochs=0))
    run, moved = tmp_path / "run", tmp_path / "moved"
    result = train_run(data, config, run, HERE, Handling(quiet=True))
    data.folder.rename(moved)
    with pytest.raises(RunError, match=r"run is no longer in .*data") as raised:
        evaluate_run(Run(run), "test")
    assert raised.value.parameters == ["data"]
    measured = evaluate_run(Run(run, moved), "test")
    assert measured["images"] == len(Run(run, moved).split("test")) == 8
    assert measured["mean_average_precision"]["sklearn"]["mean"] == pytest.approx(result["test"]["value"])

    other = small_scenes(tmp_path / "other", 40, 9, SINGLE).folder
    with pytest.raises(RunError, match=r"split 'test' of .*other is not what .*run was trained with"):
        evaluate_run(Run(run, other), "test")
    with pytest.raises(DataError, match="nowhere is not prepared data"):
        evaluate_run(Run(run, tmp_path / "nowhere"), "test")


def test_real_labels_are_measured_where_the_data_has_them(tmp_path: Path) -> None:
    data = small_scenes(tmp_path / "data", 40, 8, SINGLE)
    run = tmp_path / "run"
    config = tiny(frozen=True, head=HeadPhase(epochs=1), finetune=FinetunePhase(epochs=0))
    train_run(data, config, run, HERE, Handling(quiet=True))
    assert evaluate_run(Run(run), "test")["real"] is None
    index = data.folder / "dataset.json"
    made = json.loads(index.read_text())
    made["splits"]["test"]["real"] = True
    made["format"] = 1  # which has no checksum
    index.write_text(json.dumps(made))
    real = np.array(data.split("test").truth.values)
    real[0] = UNKNOWN
    np.save(data.folder / "test" / "real.npy", real)
    measured = evaluate_run(Run(run), "test")
    assert json.loads((run / "evaluation-test.json").read_text()) == measured
    scores = np.load(run / "scores-test.npz")["scores"]
    assert measured["real"] == real_metrics(scores, data.split("test").truth.values, real)
    assert measured["real"]["images"] == 7
