"""The pictures that are followed, and what is kept of them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from sparselabel.config import FullPhase, Settings
from sparselabel.data.dataset import Prepared
from sparselabel.data.labels import POSITIVE
from sparselabel.train.judge import scores_of
from tests.train.conftest import tiny
from tests.train.sessions import make_session


@pytest.mark.parametrize(("count", "rows"), [(0, []), (1, [0]), (3, [0, 30, 60]), (99, [*range(61)])])
def test_rows_are_spread_over_the_training_set(
    small: Prepared, tmp_path: Path, count: int, rows: list[int]
) -> None:
    session = make_session(small, tiny(watch=count), tmp_path)
    assert session.watch.rows.tolist() == rows
    if not count:
        session.watch.keep("head", 0, session.learner.classifier, session.method)
        assert not session.run.watched.exists()


def test_scores_maps_and_what_the_method_remembers(small: Prepared, tmp_path: Path) -> None:
    config = tiny("en+scl", settings=Settings(expected_positives=1.5))
    session = make_session(small, config, tmp_path)
    session.watch.keep("full", 7, session.learner.classifier, session.method)
    kept = np.load(session.run.watched / "0007.npz")
    assert sorted(kept) == ["heat_maps", "maps", "rows", "running_scores", "scores"]
    scores = scores_of(session.learner.classifier, session.inputs, "full", "train")
    assert kept["scores"] == pytest.approx(scores.numpy()[[0, 30, 60]], abs=1e-6)
    # One cell at 32 px: it says what the picture says. Memories are at their start.
    assert kept["maps"].astype(np.float32)[:, :, 0, 0] == pytest.approx(kept["scores"], abs=1e-3)
    annotated = small.train.observed.values[[0, 30, 60]] == POSITIVE
    assert np.array_equal(kept["running_scores"], annotated.astype(np.float32))
    assert np.array_equal(kept["heat_maps"], np.repeat(annotated, 4).reshape(3, 12, 2, 2) * np.uint8(255))


def test_stored_features_have_no_maps(small: Prepared, tmp_path: Path) -> None:
    config = tiny(frozen=True, full=FullPhase(epochs=0))
    session = make_session(small, config, tmp_path)
    session.watch.keep("head", 0, session.learner.head, session.method)
    kept = np.load(session.run.watched / "0000.npz")
    assert sorted(kept) == ["rows", "scores"]
    features = session.inputs.features("train")[[0, 30, 60]]
    wanted = torch.sigmoid(session.learner.head(features).logits).detach().numpy()
    assert kept["scores"] == pytest.approx(wanted, abs=1e-6)
