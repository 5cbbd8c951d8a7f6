from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import Preparation
from sparselabel.data.dataset import Dataset
from sparselabel.data.decode import load
from sparselabel.data.labels import POSITIVE, UNKNOWN
from sparselabel.data.prepare import prepare
from sparselabel.data.prepared_files import open_prepared
from sparselabel.errors import DataError
from tests.data.images import CLASSES, read_table

VALUES = [[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]]
ARRAYS = ("ids", "paths", "truth", "observed", "digests")
CUTS = (None, 0, 3, 60)  # bytes that are left; None: no file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = read_table(tmp_path / "photos", np.array(VALUES, np.int8), ["train"] * 4 + ["test"])
    prepare(source, tmp_path / "out", Preparation("single-positive", validation=0))
    return tmp_path / "out"


@pytest.fixture
def prepared(folder: Path) -> Dataset:
    return open_prepared(folder)


def test_what_was_prepared_is_opened(prepared: Dataset, folder: Path) -> None:
    assert (prepared.folder, prepared.name, prepared.classes) == (folder, "photos", CLASSES)
    train = prepared.train
    assert (train.name, len(train), train.root) == ("train", 4, folder.parent / "photos")
    assert train.truth.values.tolist() == VALUES[:4]
    assert train.truth.ids.tolist() == ["000.jpg", "001.jpg", "002.jpg", "003.jpg"]
    assert train.observed.values[0].tolist() == [POSITIVE, UNKNOWN, UNKNOWN]
    assert load(train.path(2)).size == (24, 16)
    assert len(train.spatial_labels) == 0
    assert len(np.unique(train.digests)) == 4


def test_arrays_are_mapped_and_not_read(prepared: Dataset) -> None:
    train = prepared.train
    arrays = (train.paths, train.truth.ids, train.truth.matrix, train.observed.matrix, train.digests)
    assert all(isinstance(array, np.memmap) for array in arrays)


def test_writing_to_an_array_leaves_the_file_as_it_is(prepared: Dataset, folder: Path) -> None:
    before = (folder / "train" / "truth.npy").read_bytes()
    prepared.train.truth.values[:] = 0
    assert (folder / "train" / "truth.npy").read_bytes() == before
    assert open_prepared(folder).train.truth.values.tolist() == VALUES[:4]


@pytest.mark.parametrize(
    ("name", "why"), [("nothing", "there is no such folder"), ("photos", "it has no dataset.json")]
)
def test_other_folders_are_refused(folder: Path, name: str, why: str) -> None:
    said = rf"{name} is not prepared data \({why}\): .*`sparselabel prepare READER"
    with pytest.raises(DataError, match=said):
        open_prepared(folder.parent / name)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "dataset.json cannot be read .*prepare the data again"),
        ('{"format": 1, "na', "dataset.json cannot be read .*prepare the data again"),
        ("\xff", "dataset.json cannot be read .*prepare the data again"),
        ("[1]", "dataset.json does not describe prepared data"),
        ('{"classes": []}', "dataset.json does not describe prepared data"),
        ('{"format": 99}', "has format 99, this program reads format 3: prepare the data again"),
    ],
)
def test_a_wrong_index_is_refused(folder: Path, text: str, rule: str) -> None:
    (folder / "dataset.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=rule):
        open_prepared(folder)


@pytest.mark.parametrize(
    ("name", "kept"),
    [(name, kept) for name in ARRAYS for kept in (*CUTS, -1)]
    + [(name, kept) for name in ("mark_rows", "mark_sizes") for kept in CUTS],
)
def test_a_damaged_array_is_named(folder: Path, name: str, kept: int | None) -> None:
    file = folder / "train" / f"{name}.npy"
    whole = file.read_bytes()
    if kept is None:
        file.unlink()
    else:
        file.write_bytes(whole[:kept])
    problem = "is not there, or not a file" if kept is None else r"cannot be read \(.*\)"
    with pytest.raises(DataError, match=rf"train/{name}.npy {problem}: prepare the data again"):
        open_prepared(folder)


def test_pickles_are_not_opened(folder: Path) -> None:
    np.save(folder / "train" / "ids.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"ids.npy cannot be read"):
        open_prepared(folder)


def test_garbage_is_not_said_to_need_pickles(folder: Path) -> None:
    (folder / "train" / "observed.npy").write_bytes(b"garbage")
    with pytest.raises(DataError, match=r"observed.npy cannot be read \(not a file of arrays\): prepare"):
        open_prepared(folder)


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_another_split_is_named(folder: Path, name: str) -> None:
    (folder / "train" / f"{name}.npy").write_bytes((folder / "test" / f"{name}.npy").read_bytes())
    with pytest.raises(DataError, match=rf"train/{name}.npy: .*\(4,.*, not .*\(1,.*: prepare the data"):
        open_prepared(folder)
