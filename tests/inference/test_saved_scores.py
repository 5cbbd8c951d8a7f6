from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparselabel.data.dataset import Dataset
from sparselabel.errors import RunError
from sparselabel.inference.saved_scores import saved_scores
from sparselabel.run import Run
from tests.report.figures.made_up import TRAIN, make_data, make_run, score

TEST = np.eye(5, dtype=np.int8)[:3]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_data(tmp_path_factory.mktemp("made-up"), TEST)


@pytest.fixture
def run(tmp_path: Path, data: Dataset) -> Run:
    return make_run(tmp_path / "run", data)


def test_scores_come_with_the_labels_they_are_judged_by(run: Run, data: Dataset) -> None:
    score(run, data, "test", TEST / 2)
    saved = saved_scores(run, "test")
    assert np.array_equal(saved.scores, TEST / 2)
    assert np.array_equal(saved.labels.values, TEST)
    score(run, data, "train", TRAIN / 2)
    assert np.array_equal(saved_scores(run, "train").labels.values, TRAIN)  # all, not the observed ones


def test_without_scores_the_command_is_named(run: Run) -> None:
    with pytest.raises(
        RunError, match=r"no .*scores-test.npz: `sparselabel evaluate .*run` with `split=test` writes"
    ):
        saved_scores(run, "test")


def test_scores_that_do_not_fit(run: Run, data: Dataset) -> None:
    file = run.path / "scores-test.npz"
    for wrong in ({"ids": np.array(["a", "b", "c"]), "scores": TEST / 2}, {"scores": (TEST / 2)[:2]}):
        arrays: Any = {"ids": np.asarray(data.split("test").truth.ids), **wrong}
        np.savez(file, **arrays)
        with pytest.raises(RunError, match="scores of other images or classes: `sparselabel evaluate"):
            saved_scores(run, "test")
    np.savez(file, scores=TEST / 2)
    with pytest.raises(RunError, match=r"cannot be read \(.*ids.*\): `sparselabel evaluate .* again"):
        saved_scores(run, "test")
    file.write_bytes(b"PK\x03\x04 nothing more")
    with pytest.raises(RunError, match="cannot be read"):
        saved_scores(run, "test")
