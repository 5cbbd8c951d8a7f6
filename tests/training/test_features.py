"""Stored features belong to images: other labels or subsets of the images reuse them."""

import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from sparselabel.checksums import row_checksums
from sparselabel.config import Handling, HeadPhase, Machine, Preparation, TrainConfig, Views
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes
from sparselabel.data.transforms import views_of
from sparselabel.errors import DataError
from sparselabel.training.features import (
    _finish,
    _partial,
    features_elsewhere,
    features_file,
    read_features,
    sums_file,
)
from sparselabel.training.train_run import train_run

HERE, QUIET = Machine(accelerator="cpu", workers=0), Handling(quiet=True)
TINY = TrainConfig(
    method="an", backbone="test_resnet", weights="none", frozen=True, views=Views(size=32),
    head=HeadPhase(epochs=1, lr=0.01), watch=0,
)  # fmt: skip


def file_of(data: Dataset, split: str = "train", config: TrainConfig = TINY) -> Path:
    return features_file(data.split(split), data.features_folder, config, views_of(config.views)[1])


def test_features_are_shared_by_data_of_the_same_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes without positives in so few images
        source = scenes.make(tmp_path / "images", train=24, test=6, size=32, seed=0)
        first = prepare(source, tmp_path / "first", Preparation(sparsify="single-positive"))
        again = prepare(source, tmp_path / "again", Preparation(sparsify="uniform", validation=0.5))
        fewer = prepare(source, tmp_path / "fewer", Preparation(keep_train=0.5, keep_test=0.5))
    train_run(first, TINY, tmp_path / "run", HERE, QUIET)
    by_image: dict[int, Any] = {}
    for split in first.splits:
        features = np.load(file_of(first, split))
        by_image |= dict(zip(first.split(split).digests.tolist(), features, strict=True))

    def never(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr("sparselabel.training.phase_loaders.compute_features", never)
    for data in (again, fewer):
        train_run(data, TINY, tmp_path / f"run-{data.folder.name}", HERE, QUIET)
        for split, part in data.splits.items():
            rows = np.load(file_of(data, split))
            assert np.array_equal(rows, np.stack([by_image[digest] for digest in part.digests.tolist()]))
    assert len(fewer.train) < len(first.train) != len(again.train)
    other = replace(TINY, seed=1)  # other random weights
    assert features_elsewhere(file_of(first, config=other), first.train) == []
    strange = replace(first.train, digests=first.train.digests + np.uint64(1))
    assert features_elsewhere(file_of(first), strange) == []


def test_pooled_features_are_the_means_of_cells_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes without positives in so few images
        source = scenes.make(tmp_path / "images", train=40, test=6, size=64, seed=0)
        data = prepare(source, tmp_path / "data", Preparation(sparsify="single-positive"))
    config = replace(TINY, views=Views(size=64))
    train_run(data, replace(config, method="an+scl"), tmp_path / "cells", HERE, QUIET)
    stored = file_of(data, config=config)
    assert not stored.exists()
    assert file_of(data, "test", config).exists()

    def never(*_: object) -> None:
        raise AssertionError("computed again")

    with monkeypatch.context() as only_pooled:
        only_pooled.setattr("sparselabel.training.phase_loaders.compute_features", never)
        train_run(data, config, tmp_path / "pooled", HERE, QUIET)
    given = read_features(stored, cells=False)  # checked against its checksums
    stored.unlink()
    for file in data.features_folder.glob("train-*"):
        file.unlink()
    train_run(data, config, tmp_path / "again", HERE, QUIET)
    np.testing.assert_allclose(given, read_features(stored, cells=False), rtol=1e-3, atol=1e-4)


def test_features_of_images_in_memory_are_those_of_their_own_data(tmp_path: Path) -> None:
    """Of each split, and also while other data of as many images is there."""
    random = np.random.default_rng(0)
    labels = np.where(np.eye(3)[np.arange(12) % 3] == 1, 1, -1)
    images = {name: random.integers(0, 256, (12, 32, 32, 3), np.uint8) for name in ("train", "val", "other")}
    val = (images["val"], labels)
    first = Dataset.from_arrays(images["train"], labels, val=val)
    second = Dataset.from_arrays(images["other"], labels, val=val)
    for number, data in enumerate((first, second)):
        train_run(data, TINY, tmp_path / f"run{number}", HERE, QUIET)
    train, of_val, other, same = (
        np.load(file_of(data, split)) for data in (first, second) for split in ("train", "val")
    )
    assert np.array_equal(of_val, same)
    for different in (of_val, other):
        assert not np.isclose(train, different).all(axis=1).any()


def test_features_that_are_large_beside_the_ram_are_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "train.npy"
    features = np.arange(30, dtype=np.float32).reshape(10, 3)
    np.save(file, features)
    with sums_file(file).open("wb") as stream:
        np.save(stream, row_checksums(features))
    monkeypatch.setattr("sparselabel.training.features.CHECKED_AT_ONCE", 4)
    for ram, kind in ((10**6, np.ndarray), (400, np.memmap)):
        monkeypatch.setattr("sparselabel.training.features.available_memory", lambda: ram)  # noqa: B023
        read = read_features(file, cells=False)
        assert type(read) is kind
        assert np.array_equal(read, features)
    with file.open("r+b") as stream:
        stream.seek(-1, 2)
        stream.write(b"x")
    with pytest.raises(DataError) as refused:
        read_features(file, cells=False)
    assert (refused.value.what, refused.value.where) == (file, "row 9")


def test_features_with_more_rows_than_checksums_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "train.npy"
    features = np.ones((4, 3), np.float32)
    np.save(file, np.ones((5, 3), np.float32))
    with sums_file(file).open("wb") as stream:
        np.save(stream, row_checksums(features))
    with pytest.raises(DataError) as refused:
        read_features(file, cells=False)
    assert (refused.value.what, refused.value.where) == (file, "5 rows of 4")


def test_of_two_runs_that_compute_the_same_the_first_is_kept(tmp_path: Path) -> None:
    """Another machine's last bits may differ: its sums must not come beside the first one's features."""
    file, split = tmp_path / "train.npy", cast("PreparedSplit", SimpleNamespace(digests=np.arange(4)))
    for number, process in enumerate(("first", "second")):
        features = np.full((4, 3), number, np.float32)
        np.save(partial := _partial(file, process), features)
        with sums_file(partial).open("wb") as stream:
            np.save(stream, row_checksums(features))
        _finish(partial, file, split)
        assert not read_features(file, cells=False).any()
    assert len([*tmp_path.iterdir()]) == 3
