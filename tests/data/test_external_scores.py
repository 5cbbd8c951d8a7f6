from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import Preparation
from sparselabel.data.external_scores import apply_scores
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.prepare import prepare
from sparselabel.data.prepared_files import open_prepared
from sparselabel.errors import ConfigError, DataError
from tests.data.images import random_labels, read_table

TABLE = LabelTable(
    np.asarray(["1", "2", "3"]), ("cat", "dog"), np.asarray([[1, -1], [-1, 0], [-1, -1]], dtype=np.int8)
)
PATHS = np.asarray(["a/1.jpg", "a/2.jpg", "a/3.jpg"])
WIDE = "image,dog,cat,other\na/1.jpg,0.95,0.01,1\n2,0.99,0.5,\na/9.jpg,1,1,1\n"
LONG = "image,label,score\n1,dog,0.95\n1,cat,0.01\n2,cat,0.5\n2,dog,0.99\n2,cow,1\n9,dog,1\n"


def write(folder: Path, text: str, name: str = "scores.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def arrays(folder: Path) -> Path:
    scores = np.asarray([[0.95, 0.01, 1], [0.99, 0.5, 0], [1, 1, 1]], dtype=np.float16)
    np.savez(folder / "s.npz", images=["1", "a/2.jpg", "9"], classes=["dog", "cat", "other"], scores=scores)
    return folder / "s.npz"


def parquet(folder: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    columns = {"image": ["1", "2"], "dog": [0.95, 0.99], "cat": [0.01, 0.5]}
    files.write_table(pyarrow.table(columns), folder / "s.parquet")
    return folder / "s.parquet"


@pytest.mark.parametrize("form", ["wide", "long", "npz", "parquet"])
def test_unknown_labels_are_set_and_observed_ones_stay(tmp_path: Path, form: str) -> None:
    if form in ("npz", "parquet"):
        file = arrays(tmp_path) if form == "npz" else parquet(tmp_path)
    else:
        file = write(tmp_path, WIDE if form == "wide" else LONG)
    labels, report = apply_scores(file, TABLE, PATHS, positive=0.9, negative=0.05)
    # Cat on 1 was observed, though its score is low; dog on 2 was observed to be absent; cat on 2 is between.
    assert labels.tolist() == [[POSITIVE, POSITIVE], [UNKNOWN, NEGATIVE], [UNKNOWN, UNKNOWN]]
    assert report.description() == {
        "set_positive": [0, 1],
        "set_negative": [0, 0],
        "positive": [1, 0],
        "positive_missed": [1, 0],
        "negative": [0, 1],
        "negative_missed": [0, 1],
        "unscored": 1,
    }


def test_thresholds_are_included_and_each_can_be_alone(tmp_path: Path) -> None:
    file = write(tmp_path, "image,cat,dog\n3,-2.5,7\n")
    assert apply_scores(file, TABLE, PATHS, 7, -2.5)[0][2].tolist() == [NEGATIVE, POSITIVE]
    assert apply_scores(file, TABLE, PATHS, 7, None)[0][2].tolist() == [UNKNOWN, POSITIVE]
    assert apply_scores(file, TABLE, PATHS, None, -2.5)[0][2].tolist() == [NEGATIVE, UNKNOWN]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,cat\n1,high\n", r"scores.csv, line 2: column 'cat' must be a score or empty, not 'high'"),
        ("image,label,score\n1,cat,high\n", r"line 2: column 'score' must be a score or empty, not 'high'"),
        (
            "image,cat\n1,0.5\n2,1\na/1.jpg,0.1\n",
            r"line 4: a second score of 'cat' for 'a/1.jpg': remove one",
        ),
        ("image,cow\n1,0.5\n", r"scores of none of the classes cat, dog"),
        ("image,label,score\n1,cow,1\n", r"scores of none of the classes cat, dog"),
        ("file,cat\n1,0.5\n", r"has no column 'image', only file, cat"),
        ("image,cat\n7,0.5\n", r"no score for any of the 3 training images: .* as in 1 or a/1.jpg"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        apply_scores(write(tmp_path, text), TABLE, PATHS, 0.9, 0.1)


def test_wrong_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=["1"], classes=["cat"], scores=np.zeros((2, 1)))
    with pytest.raises(
        DataError, match=r"scores must be numbers of shape \(1, 1\), not float64 of shape \(2, 1\)"
    ):
        apply_scores(tmp_path / "a.npz", TABLE, PATHS, 0.9, 0.1)
    np.savez(tmp_path / "b.npz", images=["1"])
    with pytest.raises(DataError, match=r"b.npz cannot be read .*images \(N,\), classes \(L,\) and scores"):
        apply_scores(tmp_path / "b.npz", TABLE, PATHS, 0.9, 0.1)
    with pytest.raises(DataError, match=r"none.npz is not there, or not a file"):
        apply_scores(tmp_path / "none.npz", TABLE, PATHS, 0.9, 0.1)


def test_prepared_data_keeps_them_out_of_truth_and_of_other_splits(tmp_path: Path) -> None:
    values = random_labels(10)
    source = read_table(tmp_path, values)
    lines = [f"{row:03}.jpg,0.99,0.01,0.5" for row in range(10)]
    scores = write(tmp_path, "\n".join(["image,ant,bee,cow", *lines]) + "\n")
    how = Preparation(
        sparsify="single-positive",
        validation_labels="observed",
        scores=str(scores),
        score_positive=0.9,
        score_negative=0.1,
    )
    prepared = prepare(source, tmp_path / "scored", how)
    alone = prepare(
        source, tmp_path / "alone", Preparation(sparsify="single-positive", validation_labels="observed")
    )
    before, after = alone.train.observed.values, prepared.train.observed.values
    known = before != UNKNOWN
    assert after[known].tolist() == before[known].tolist()
    expected = np.tile(np.asarray([POSITIVE, NEGATIVE, UNKNOWN], dtype=np.int8), (len(after), 1))
    assert after[~known].tolist() == expected[~known].tolist()
    assert prepared.train.truth.values.tolist() == alone.train.truth.values.tolist()
    assert prepared.split("val").observed.values.tolist() == alone.split("val").observed.values.tolist()
    assert prepared.train.digest != alone.train.digest
    made = open_prepared(tmp_path / "scored").made
    assert made["scored"]["set_positive"] == [int((~known[:, 0]).sum()), 0, 0]
    assert made["preparation"]["score_positive"] == 0.9
    assert "scored" not in alone.made


def test_a_wrong_file_is_named_before_images_are_decoded(tmp_path: Path) -> None:
    source = read_table(tmp_path, random_labels(3))
    how = Preparation(scores=str(tmp_path / "none.csv"), score_positive=0.9)
    with pytest.raises(DataError, match=r"none.csv is not there"):
        prepare(source, tmp_path / "out", how, report=lambda _: pytest.fail("decoded"))


def test_rules_that_make_no_sense() -> None:
    with pytest.raises(
        ConfigError, match=r"needs a threshold: give `score_positive`, `score_negative` or both"
    ):
        Preparation(scores="s.csv")
    with pytest.raises(ConfigError, match=r"give the file of the scores as `scores`"):
        Preparation(score_negative=0.1)
    with pytest.raises(
        ConfigError, match=r"`score_negative` must be below `score_positive`, not 0.9 and 0.1"
    ):
        Preparation(scores="s.csv", score_positive=0.1, score_negative=0.9)
