"""Prepared data with compressed labels gives the same results as with arrays."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparselabel.data import labels
from sparselabel.data.answers import Answer, with_answers
from sparselabel.data.checks import label_problems
from sparselabel.data.dataset import Dataset, hides_labels
from sparselabel.data.describe import count_all, description
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import SparseLabels, compact
from sparselabel.data.prepared_files import COMPRESSED, FORMAT, open_prepared
from sparselabel.data.readers import coco, table
from sparselabel.data.write_labels import write_labels
from sparselabel.errors import DataError, DataWarning
from tests.sparse_and_dense import are_in_compressed_rows, both, few_labels

Pair = tuple[Dataset, Dataset]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return both(tmp_path_factory.mktemp("pair"), validation=0.2)


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed rows at any size and density."""
    monkeypatch.setattr(labels, "SPARSE_FROM", 1)
    monkeypatch.setattr(labels, "SMALLER", 0)


def test_the_files_and_what_they_hold(pair: Pair) -> None:
    dense, sparse = (open_prepared(data.folder) for data in pair)
    assert (dense.made["format"], sparse.made["format"]) == (FORMAT, COMPRESSED)
    assert are_in_compressed_rows(sparse)
    assert not (sparse.folder / "train" / "observed.npy").exists()
    for name, split in sparse.splits.items():
        for kind in ("truth", "observed"):
            ours, theirs = getattr(split, kind), getattr(dense.splits[name], kind)
            assert np.array_equal(ours.values, theirs.values)
            assert ours.ids.tolist() == theirs.ids.tolist()


def test_counts_and_problems_are_the_same(pair: Pair) -> None:
    dense, sparse = (count_all(data) for data in pair)
    of_dense, of_sparse = (json.dumps(description(*one)) for one in zip(pair, (dense, sparse), strict=True))
    assert of_dense == of_sparse
    assert label_problems(pair[0], dense) == label_problems(pair[1], sparse)


def test_wrong_and_hidden_labels_are_counted(pair: Pair, forced: None) -> None:
    dense, sparse = pair
    truth, observed = few_labels(60), few_labels(60, seed=5)
    changed = []
    for data, form in ((dense, lambda values: values), (sparse, SparseLabels.of_array)):
        split = replace(
            data.train,
            paths=np.arange(60).astype(str),
            truth=LabelTable(np.arange(60).astype(str), data.classes, form(truth)),
            observed=LabelTable(np.arange(60).astype(str), data.classes, form(observed)),
        )
        changed.append(count_all(replace(data, splits={"train": split}))["train"])
        assert hides_labels(split.truth.matrix, split.observed.matrix)
        assert not hides_labels(split.truth.matrix, split.truth.matrix)
    one, other = changed
    assert (one.wrong, one.first_wrong) == (other.wrong, other.first_wrong)
    assert one.wrong > 0
    assert np.allclose(one.uniform, other.uniform)
    assert np.allclose(one.spread, other.spread)
    same = {(a, b): one.columns[a] == one.columns[b] for a in range(9) for b in range(9)}
    assert same == {(a, b): other.columns[a] == other.columns[b] for a in range(9) for b in range(9)}


def test_damage_is_found(pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(pair[1].folder, folder)
    file = folder / "train" / "observed_columns.npy"
    columns = np.load(file)
    columns[3] = 99
    np.save(file, columns)
    with pytest.raises(DataError, match="observed_columns"):
        count_all(open_prepared(folder))


def test_answers_are_laid_over(pair: Pair) -> None:
    image = str(pair[0].train.paths[7])
    names = pair[0].classes
    answers = [Answer(image, names[number], number % 2) for number in range(9)]
    with pytest.warns(DataWarning, match="contradict labels"):
        dense, sparse = (with_answers(data, answers, "here") for data in pair)
    assert isinstance(sparse.train.observed.matrix, SparseLabels)
    assert np.array_equal(dense.train.observed.values, sparse.train.observed.values)
    assert sparse.train.observed.values[7].tolist() == [number % 2 for number in range(9)]
    assert np.array_equal(pair[0].train.observed.values, pair[1].train.observed.values)


def test_written_labels_are_the_same(pair: Pair, tmp_path: Path) -> None:
    written = []
    for data in pair:
        file = tmp_path / f"{data.folder.name}.csv"
        write_labels(data, None, "observed", file, force=False)
        written.append(file.read_text())
    assert written[0] == written[1]


def test_a_long_table_is_read_into_compressed_rows(tmp_path: Path, forced: None) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jpg").touch()
    file = tmp_path / "labels.csv"
    file.write_text("image,label,value\nb.jpg,dog,1\na.jpg,cat,0\nb.jpg,cat,1\nb.jpg,dog,1\nc.jpg,dog,\n")
    read = table.read(file).splits["train"].labels
    assert isinstance(read.matrix, SparseLabels)
    assert (read.ids.tolist(), read.classes) == (["b.jpg", "a.jpg", "c.jpg"], ("cat", "dog"))
    assert read.values.tolist() == [[1, 1], [0, -1], [-1, -1]]
    file.write_text("image,label,value\nb.jpg,dog,1\na.jpg,cat,0\nb.jpg,cat,1\na.jpg,cat,1\n")
    with pytest.raises(DataError, match="line 5: value 1, but 0 on line 3") as caught:
        table.read(file)
    assert caught.value.where == "line 5"


def test_coco_with_verified_categories(tmp_path: Path, forced: None) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.jpg").touch()
    content = {
        "images": [
            {"id": 1, "file_name": "1.jpg", "width": 8, "height": 8, "neg_category_ids": [2]},
            {"id": 2, "file_name": "2.jpg", "width": 8, "height": 8, "pos_category_ids": [3]},
        ],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 4, 4]}],
        "categories": [{"id": number, "name": name} for number, name in enumerate("xyz", 1)],
    }
    file = tmp_path / "lvis.json"
    file.write_text(json.dumps(content))
    read = coco.read(file).splits["train"].labels
    assert isinstance(read.matrix, SparseLabels)
    assert read.values.tolist() == [[1, 0, -1], [-1, -1, 1]]
    content["annotations"][0]["category_id"] = 2
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match="category 2 in neg_category_ids"):
        coco.read(file)


def test_small_data_stays_in_arrays(pair: Pair) -> None:
    matrix = pair[0].train.observed.matrix
    assert compact(matrix) is matrix
