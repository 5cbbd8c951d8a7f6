"""Watched images, and what is saved about them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from sparselabel.config import FinetunePhase, Views
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import POSITIVE
from sparselabel.training.validate import scores_of
from tests.training.conftest import tiny
from tests.training.trainers import make_trainer


@pytest.mark.parametrize(("count", "rows"), [(0, []), (1, [0]), (3, [0, 30, 60]), (99, [*range(61)])])
def test_rows_are_spread_over_the_training_set(
    small: Dataset, tmp_path: Path, count: int, rows: list[int]
) -> None:
    trainer = make_trainer(small, tiny(watch=count), tmp_path)
    assert trainer.watched.rows.tolist() == rows
    if not count:
        trainer.watched.keep("head", 0, trainer.network.classifier, trainer.method)
        assert not trainer.run.watched.exists()


def test_scores_maps_and_what_the_method_remembers(small: Dataset, tmp_path: Path) -> None:
    config = tiny("en+scl", settings={"expected_positives": 1.5})
    trainer = make_trainer(small, config, tmp_path)
    trainer.watched.keep("finetune", 7, trainer.network.classifier, trainer.method)
    kept = np.load(trainer.run.watched / "0007.npz")
    assert sorted(kept) == ["heat_maps", "maps", "rows", "running_scores", "scores"]
    scores = scores_of(trainer.network.classifier, trainer.loaders, "finetune", "train")
    assert kept["scores"] == pytest.approx(scores.numpy()[[0, 30, 60]], abs=1e-6)
    # One cell at 32 px: it says what the image says. Memories are at their start.
    assert kept["maps"].astype(np.float32)[:, :, 0, 0] == pytest.approx(kept["scores"], abs=1e-3)
    annotated = small.train.observed.values[[0, 30, 60]] == POSITIVE
    assert np.array_equal(kept["running_scores"], annotated.astype(np.float32))
    assert np.array_equal(kept["heat_maps"], np.repeat(annotated, 4).reshape(3, 12, 2, 2) * np.uint8(255))


@pytest.mark.parametrize("frozen", [False, True])
def test_query2label_keeps_its_attention_instead_of_maps(
    small: Dataset, tmp_path: Path, frozen: bool
) -> None:
    config = tiny(classifier="query2label", views=Views(size=64), output_stride=8, frozen=frozen)
    trainer = make_trainer(small, config, tmp_path)
    phase, module = ("head", trainer.network.head) if frozen else ("finetune", trainer.network.classifier)
    trainer.watched.keep(phase, 2, module, trainer.method)
    kept = np.load(trainer.run.watched / "0002.npz")
    assert sorted(kept) == ["attention", "rows", "scores"]
    assert kept["attention"].shape == (3, 12, 8, 8)
    assert kept["attention"].astype(np.float64).sum(axis=(2, 3)) == pytest.approx(np.ones((3, 12)), abs=1e-3)
    loader = trainer.loaders.evaluation(phase, "train")
    inputs = next(iter(loader([np.array([0, 30, 60])], epoch=0))).inputs[0]
    with torch.no_grad():
        looked = module.eval()(inputs, maps=True).attention
    assert kept["attention"].astype(np.float32) == pytest.approx(looked.numpy(), abs=1e-4)


def test_stored_features_have_no_maps(small: Dataset, tmp_path: Path) -> None:
    config = tiny(frozen=True, finetune=FinetunePhase(epochs=0))
    trainer = make_trainer(small, config, tmp_path)
    trainer.watched.keep("head", 0, trainer.network.head, trainer.method)
    kept = np.load(trainer.run.watched / "0000.npz")
    assert sorted(kept) == ["rows", "scores"]
    features = trainer.loaders.features("train")[[0, 30, 60]]
    wanted = torch.sigmoid(trainer.network.head(features).logits).detach().numpy()
    assert kept["scores"] == pytest.approx(wanted, abs=1e-6)
