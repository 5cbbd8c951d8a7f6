"""Maps of a few images, and training labels that are likely missing."""

from pathlib import Path

import numpy as np
import pytest
import torch

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import UNKNOWN
from sparselabel.inference.evaluate import evaluate_run
from sparselabel.inference.maps import write_maps
from sparselabel.inference.missing_labels import MOST, Highest, write_missing
from sparselabel.run import Run
from sparselabel.training.train_run import train_run
from tests.training.conftest import small_scenes, tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Dataset]:
    folder = tmp_path_factory.mktemp("trained")
    data = small_scenes(folder / "data", 40, 8, Preparation("single-positive"))
    config = tiny(frozen=True, head=HeadPhase(epochs=2, lr=0.1), finetune=FinetunePhase(epochs=0))
    train_run(data, config, folder / "run", Machine(accelerator="cpu", workers=0), Handling(quiet=True))
    return Run(folder / "run"), data


def test_training_keeps_the_scores(trained: tuple[Run, Dataset]) -> None:
    run, data = trained
    kept = {name: np.load(run.scores_file(name))["scores"] for name in ("val", "test")}
    assert kept["val"].shape == data.split("val").truth.values.shape
    evaluate_run(run, "test")
    assert np.load(run.scores_file("test"))["scores"] == pytest.approx(kept["test"], abs=1e-5)


def test_maps_agree_with_scores(trained: tuple[Run, Dataset]) -> None:
    run, _ = trained
    rows, classes = [3, 0, 3], [1, 2, 0]
    write_maps(run, "test", rows, classes)
    with np.load(run.maps_file("test")) as found:
        scores = np.load(run.scores_file("test"))["scores"]
        assert found["scores"] == pytest.approx(scores[rows, classes], abs=1e-5)
        means = found["cells"].mean(axis=(1, 2))
        assert 1 / (1 + np.exp(-means)) == pytest.approx(found["scores"], abs=1e-5)
        assert found["rows"].tolist() == rows
    written = run.maps_file("test").stat().st_mtime_ns
    write_maps(run, "test", rows, classes)
    assert run.maps_file("test").stat().st_mtime_ns == written
    write_maps(run, "test", rows[:1], classes[:1])
    assert np.load(run.maps_file("test"))["rows"].tolist() == [3]
    run.maps_file("test").write_bytes(b"damaged")
    write_maps(run, "test", rows, classes)
    assert len(np.load(run.maps_file("test"))["rows"]) == 3


def test_the_likeliest_unknown_labels(trained: tuple[Run, Dataset]) -> None:
    run, data = trained
    evaluate_run(run, "train")
    scores = np.load(run.scores_file("train"))["scores"]
    seen: list[int] = []
    write_missing(run, report=seen.append)
    assert sum(seen) == len(data.train)
    found = np.load(run.missing_file)
    assert found["scores"] == pytest.approx(scores[found["rows"], found["classes"]], abs=1e-5)
    assert (np.diff(found["scores"]) <= 0).all()
    assert (data.train.observed.values[found["rows"], found["classes"]] == UNKNOWN).all()
    for index in range(len(data.classes)):
        unknown = scores[data.train.observed.values[:, index] == UNKNOWN, index]
        best = np.sort(unknown)[::-1][:MOST]
        assert found["scores"][found["classes"] == index] == pytest.approx(best, abs=1e-5)


def test_the_highest_of_batches_are_the_highest_of_all() -> None:
    random = torch.Generator().manual_seed(0)
    scores = (torch.rand(50, 3, generator=random) * 10).round() / 10  # many are equal
    counts = torch.rand(50, 3, generator=random) < 0.5
    whole, parts = Highest(3, 4), Highest(3, 4)
    whole.add(scores, torch.arange(50), counts)
    for rows in torch.split(torch.arange(50), 7):
        parts.add(scores[rows], rows, counts[rows])
    assert [part.tolist() for part in parts.ranked()] == [part.tolist() for part in whole.ranked()]
    few = Highest(3, 4)
    few.add(scores[:1], torch.arange(1), torch.tensor([[True, False, False]]))
    assert [part.tolist() for part in few.ranked()] == [[0], [0], [pytest.approx(float(scores[0, 0]))]]


def test_nothing_to_show(trained: tuple[Run, Dataset], tmp_path: Path) -> None:
    run, _ = trained
    write_maps(run, "val", [], [])
    assert not run.maps_file("val").exists()
