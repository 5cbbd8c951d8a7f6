from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import SparseLabels
from sparselabel.errors import DataError, ResourceError, RunError
from sparselabel.metrics import tiled_scores
from sparselabel.metrics.average_precision import average_precision
from sparselabel.metrics.label_metrics import label_metrics
from sparselabel.metrics.tiled_scores import TiledScores, class_blocks, image_blocks, in_memory
from tests.sparse_and_dense import CLASSES, few_labels


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled_scores, "TILE", 4)
    monkeypatch.setattr(tiled_scores, "IMAGES_BLOCK", 40)
    monkeypatch.setattr(tiled_scores, "CLASSES_BLOCK", 70)


def no_room(folder: Path, size: int, free: int) -> ResourceError:
    return ResourceError(f"{folder} has no room for {size} of {free}")


def written(folder: Path, scores: np.ndarray, at_once: int = 5) -> TiledScores:
    shape = (int(scores.shape[0]), int(scores.shape[1]))
    file = TiledScores(folder / "scores.npy", shape, refusal=no_room)
    for start in range(0, len(scores), at_once):
        file.append(scores[start : start + at_once])
    return TiledScores(folder / "scores.npy", shape)


@settings(max_examples=40)
@given(st.integers(1, 14), st.integers(1, 10), st.integers(1, 20), st.data())
def test_blocks_are_those_of_the_array(
    tmp_path_factory: pytest.TempPathFactory, images: int, classes: int, at_once: int, data: st.DataObject
) -> None:
    scores = np.random.default_rng(0).random((images, classes), np.float32)
    file = written(tmp_path_factory.mktemp("scores"), scores, at_once)
    a, b = sorted(data.draw(st.tuples(st.integers(0, images), st.integers(0, images))))
    c, d = sorted(data.draw(st.tuples(st.integers(0, classes), st.integers(0, classes))))
    rows = np.asarray(data.draw(st.lists(st.integers(0, images - 1), max_size=5)), np.intp)
    assert np.array_equal(file[a:b], scores[a:b])
    assert np.array_equal(file[:, c:d], scores[:, c:d])
    assert np.array_equal(file[rows], scores[rows])
    assert np.array_equal(file[images - 1], scores[images - 1])
    assert np.array_equal(in_memory(file), scores)


def test_measures_are_those_of_arrays(tmp_path: Path) -> None:
    values = few_labels(30)
    scores = np.random.default_rng(2).random(values.shape, np.float32).round(1)  # with ties
    ids, names = np.arange(30).astype(str), tuple(map(str, range(CLASSES)))
    expected = label_metrics(scores, LabelTable(ids, names, values))
    found = label_metrics(written(tmp_path, scores), LabelTable(ids, names, SparseLabels.of_array(values)))
    assert found == expected
    known = average_precision(scores, values, unknown="ignore")
    assert found["known"] == {
        "classes": CLASSES,
        "labels": int((values != -1).sum()),
        "mean_average_precision": pytest.approx(known.mean()),
    }


def test_measures_of_complete_labels_need_no_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = (np.random.default_rng(3).random((30, CLASSES)) < 0.4).astype(np.int8)
    scores = np.random.default_rng(2).random(values.shape, np.float32).round(1)
    labels = LabelTable(np.arange(30).astype(str), tuple(map(str, range(CLASSES))), values)
    expected = label_metrics(scores, labels)
    monkeypatch.setattr(tiled_scores, "LARGEST_SCORES", 0)  # an array of them all is refused
    found = label_metrics(written(tmp_path, scores), labels)
    assert found == expected
    assert found["by_number_of_labels"]["4+"]["images"] > 0


def test_what_is_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, np.zeros((9, 3), np.float32))
    with pytest.raises(RunError, match=r"must be fractions of shape \(3, 2, 4, 4\)"):
        TiledScores(tmp_path / "scores.npy", (9, 5))
    fresh = TiledScores(tmp_path / "more.npy", (2, 2), refusal=no_room)
    with pytest.raises(DataError, match="row 1 of class 0 has nan") as caught:
        fresh.append(np.array([[0, 0], [np.nan, 0]], np.float32))
    assert caught.value.what == "scores"
    monkeypatch.setattr(tiled_scores, "LARGEST_SCORES", 100)
    with pytest.raises(ResourceError) as refused:
        in_memory(file)
    assert (refused.value.what, refused.value.value, refused.value.allowed) == ("scores", 108, 100)
    content = (tmp_path / "scores.npy").read_bytes()
    (tmp_path / "scores.npy").write_bytes(content[:-64])
    with pytest.raises(RunError, match="cut short"):
        file[8:9]


def test_blocks_cover_everything_once() -> None:
    assert [*class_blocks(10, 16)] == [slice(0, 7), slice(7, 14), slice(14, 16)]
    assert [*image_blocks(5, 20)] == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert [*image_blocks(0, 20)] == []
