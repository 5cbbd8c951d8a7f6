"""A flipped byte in any file that is read again is noticed."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation
from sparselabel.data.dataset import Dataset
from sparselabel.data.prepared_files import open_prepared, require_as_written
from sparselabel.errors import DataError, RunError
from sparselabel.inference.saved_scores import keep_scores, new_scores, saved_scores
from sparselabel.inference.scorer import load_classifier
from sparselabel.losses.memory.row_store import HEADER_BYTES, FileRowStore
from sparselabel.metrics import tiled_scores
from sparselabel.run import Run
from sparselabel.training.checkpoint import Checkpoint
from sparselabel.training.load_external_scores import external_scores_in, save_external_scores
from sparselabel.training.train_run import run_metadata, train_run
from tests.training.conftest import small_scenes, tiny
from tests.training.trainers import make_trainer

HERE = Machine(accelerator="cpu", workers=0)
QUIET = Handling(quiet=True)


def flip(file: Path, place: float = 0.9) -> None:
    """Flip one bit."""
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1
    file.write_bytes(content)


@pytest.fixture(scope="module")
def stopped(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with everything that a checkpoint may have, and that is not finished."""
    run: Path = tmp_path_factory.mktemp("stopped") / "run"
    head = HeadPhase(epochs=2, lr=1e-2, batch_size=16, ema_decay=0.5)
    config = tiny("en+scl", head=head, finetune=FinetunePhase(epochs=0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparselabel.training.train_run.finish", lambda *_: {})
        train_run(small, config, run, replace(HERE, memories="file"), QUIET)
    return run


NAMES = ("model.safetensors", "average.safetensors", "optimizer.pt", "method.safetensors",
         "memory-0.safetensors", "state.json")  # fmt: skip


def use(data: Dataset, run: Path) -> None:
    """Read all that a resumed run reads of its newest checkpoint."""
    checkpoint = Checkpoint(run / "checkpoints" / "0002")
    checkpoint.model(), checkpoint.average(), checkpoint.optimizer()
    trainer = make_trainer(data, Run(run).config(), run)
    checkpoint.restore_method(trainer.method, trainer.fabric)
    for memory in trainer.method.row_stores().values():
        if isinstance(memory, FileRowStore):
            memory.read(torch.arange(len(data.train)))


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_of_a_checkpoint_is_noticed(
    small: Dataset, stopped: Path, tmp_path: Path, name: str
) -> None:
    shutil.copytree(stopped, run := tmp_path / "run")
    use(small, run)
    flip(file := run / "checkpoints" / "0002" / name)
    with pytest.raises(RunError) as error:
        use(small, run)
    assert error.value.what == file


def test_a_flipped_bit_of_a_row_is_noticed(small: Dataset, stopped: Path, tmp_path: Path) -> None:
    for file in (stopped / "memory").iterdir():
        shutil.copytree(stopped, run := tmp_path / file.stem)
        damaged = run / "memory" / file.name
        slots = (file.stat().st_size - HEADER_BYTES) / 2
        for slot in range(2):  # the checkpoint has one of the two
            flip(damaged, (HEADER_BYTES + (slot + 0.5) * slots) / file.stat().st_size)
        with pytest.raises(RunError) as error:
            use(small, run)
        assert error.value.what == damaged
        assert error.value.where == f"row {len(small.train) // 2}"


def test_flipped_bytes_of_scores_are_noticed(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run", small)
    run.begin(tiny("an"), run_metadata(small, ["train"]), resume=False, force=False)
    shape = small.split("test").truth.matrix.shape
    scores = np.random.default_rng(0).random(shape, np.float32)
    monkeypatch.setattr(tiled_scores, "LARGEST_SCORES", 100)
    large = new_scores(run, small.split("test"))
    assert large is not None
    large.append(scores)
    keep_scores(run, small.split("test"), large)
    assert np.array_equal(saved_scores(run, "test").scores[:], scores)
    given = run.given_scores_file
    save_external_scores(run, np.zeros(small.train.truth.matrix.shape, np.float32))
    assert not external_scores_in(given, small).any()
    for file, read in (
        (run.large_scores_file("test"), lambda: saved_scores(run, "test")),
        (given, lambda: external_scores_in(given, small)),
    ):
        flip(file, 0.5)
        with pytest.raises(RunError) as error:
            read()
        assert error.value.what == file


@pytest.mark.parametrize("method", ["an", "en+scl"])
def test_flipped_bytes_of_features_and_the_model_are_noticed(tmp_path: Path, method: str) -> None:
    data = small_scenes(tmp_path / "data", 20, 5, Preparation(sparsify="single-positive"))
    config = tiny(method, frozen=True, finetune=FinetunePhase(epochs=0))
    run = Run(tmp_path / "run")
    train_run(data, config, run.path, HERE, QUIET)
    flip(run.model_file)
    with pytest.raises(RunError) as error:
        load_classifier(run)
    assert error.value.what == run.model_file
    (features,) = (data.folder / "features").glob("train-*.npy")
    flip(features)
    with pytest.raises(DataError) as of_features:
        train_run(data, config, run.path, HERE, replace(QUIET, force=True))
    assert of_features.value.what == features
    assert str(of_features.value.where).startswith("row ")


def test_flipped_bytes_of_prepared_data_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_scenes(tmp_path / "data", 20, 5, Preparation(sparsify="single-positive"))
    for file in [*sorted((data.folder / "train").iterdir()), data.folder / "dataset.json"]:
        good = file.read_bytes()
        flip(file, 0.999)
        with pytest.raises(DataError) as error:
            open_prepared(data.folder)
        assert file.name in str(error.value)
        file.write_bytes(good)
    index = data.folder / "dataset.json"
    good = index.read_bytes()
    index.write_bytes(good.replace(b'"checksum"', b'"checksul"'))
    with pytest.raises(DataError):
        open_prepared(data.folder)
    index.write_bytes(good)
    monkeypatch.setattr("sparselabel.data.prepared_files.CHECKED_AT_ONCE", 0)  # as if all were large
    observed = data.folder / "train" / "observed.npy"
    flip(observed)
    opened = open_prepared(data.folder)
    with pytest.raises(DataError) as error:
        train_run(opened, tiny(), tmp_path / "run", HERE, QUIET)
    assert error.value.what == observed
    require_as_written(opened, "test")


def test_an_image_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    data = small_scenes(tmp_path / "data", 20, 5, Preparation(sparsify="single-positive"))
    first, second = data.train.path(0), data.train.path(1)
    first.write_bytes(second.read_bytes())
    with pytest.raises(DataError) as error:
        train_run(data, tiny(), tmp_path / "run", HERE, QUIET)
    assert error.value.what == first
