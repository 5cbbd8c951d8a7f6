"""Files of answers, and labels with answers laid over them."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import Preparation
from sparselabel.data.answers import (
    HEADER,
    SKIPPED,
    Answer,
    answered_labels,
    file_of,
    finished_length,
    last_words,
    lay_over,
    read_answers,
    with_answers,
)
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.data.prepare import prepare
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import DataError, DataWarning
from tests.data.images import CLASSES, read_table

TRUTH = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1]], np.int8)


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    (tmp_path / "photos").mkdir()
    source = read_table(tmp_path / "photos", TRUTH, ["train", "train", "train", "test"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return prepare(source, tmp_path / "data", Preparation(sparsify="single-positive", validation=0))


def write(file: Path, *lines: str) -> Path:
    file.write_bytes(HEADER + "".join(f"{line}\n" for line in lines).encode())
    return file


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    answers = [
        Answer('a "b", c.jpg', "ant", 1, "2026-03-01T09:12:44+00:00", "ann"),
        Answer("two\nlines.jpg", "bee", SKIPPED, "now", "bob"),
        Answer("two\nlines.jpg", "bee", None, "then", "bob"),
    ]
    (tmp_path / "answers.csv").write_bytes(file_of(answers))
    assert read_answers(tmp_path / "answers.csv") == answers
    assert file_of([]) == b""


def test_an_unfinished_line_is_none(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "x.jpg,ant,1,now,ann")
    whole = file.read_bytes()
    for torn in (b"y.jpg,ant", b"y.jpg,ant,0,now,ann", b'"y\n.jpg', b'"y\n'):
        file.write_bytes(whole + torn)
        assert read_answers(file) == [Answer("x.jpg", "ant", 1, "now", "ann")]
        assert finished_length(Path("a.csv"), whole + torn) == len(whole)


def test_the_last_word_counts_and_can_be_taken_back() -> None:
    said = [("a", 1), ("a", 0), ("b", 1), ("b", None), ("c", None), ("d", 0), ("d", 1), ("d", None)]
    words = last_words(Answer(image, "ant", value) for image, value in said)
    assert words == {("a", "ant"): 0, ("d", "ant"): 0}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "x.jpg,ant,2,now,ann",
            "line 2: a value must be 1 (there), 0 (not there), ? (cannot tell) or nothing",
        ),
        ("x.jpg,ant,1", "line 2: must be image, label, value, time, reviewer, not x.jpg, ant, 1"),
        (",ant,1,now,ann", "line 2: must be image, label"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_answers(write(tmp_path / "a.csv", line))
    assert message in str(caught.value)
    assert "mend the line, or move the file away" in str(caught.value)


def test_files_of_another_kind(tmp_path: Path) -> None:
    other = tmp_path / "labels.csv"
    other.write_text("image,label\na.jpg,ant\n")
    with pytest.raises(DataError, match="is not a file of answers: its columns must be image, label, value"):
        read_answers(other)
    with pytest.raises(DataError, match=r"gone\.csv is not there, or not a file: give a file of answers"):
        read_answers(tmp_path / "gone.csv")
    other.write_bytes(HEADER + b"\xff,ant,1,now,ann\n")
    with pytest.raises(DataError, match="is not text in UTF-8"):
        read_answers(other)
    other.write_bytes(b"")
    assert read_answers(other) == []


def test_answers_add_to_what_is_observed_and_to_nothing_else(data: Dataset) -> None:
    first = data.train.observed.values[0].tolist()
    hidden = 1 if first[0] == 1 else 0  # the positive of row 0 that training does not see
    answers = [
        Answer("000.jpg", CLASSES[hidden], 1),
        Answer("000.jpg", "cow", 0),
        Answer("001.jpg", "ant", SKIPPED),
    ]
    seen = with_answers(data, answers, "answers.csv")
    assert seen.train.observed.values[0].tolist() == [1, 1, 0]
    assert np.array_equal(seen.train.observed.values[1:], data.train.observed.values[1:])
    assert np.array_equal(seen.train.truth.values, data.train.truth.values)
    assert np.array_equal(seen.split("test").observed.values, TRUTH[3:])
    assert data.train.observed.values[0].tolist() == first
    assert np.array_equal(open_prepared(data.folder).train.observed.values, data.train.observed.values)
    assert seen.answers == tuple(answers)
    assert seen.annotations is data.annotations is data.train.observed
    assert with_answers(seen, [Answer("001.jpg", "ant", 0)], "more").annotations is data.train.observed


def test_the_digest_says_what_was_answered_and_not_when(data: Dataset) -> None:
    def digest(*answers: Answer) -> str:
        return with_answers(data, answers, "here").train.digest

    one, two = Answer("000.jpg", "cow", 0, "now", "ann"), Answer("001.jpg", "ant", 0, "now", "ann")
    assert digest() == digest(Answer("000.jpg", "cow", SKIPPED)) == data.train.digest
    assert digest(one, two) == digest(two, Answer("000.jpg", "cow", 0, "later", "bob"))
    assert len({digest(), digest(one), digest(two), digest(one, two)}) == 4


def test_answers_about_other_data_are_refused(data: Dataset) -> None:
    with pytest.raises(DataError, match=r"here: 1 of 1 images are not in the data: cat\.jpg: give the"):
        with_answers(data, [Answer("cat.jpg", "ant", 1)], "here")
    with pytest.raises(DataError, match=r"here: the data has no class 'cows' \(did you mean 'cow'\?"):
        with_answers(data, [Answer("000.jpg", "cows", 1)], "here")
    with pytest.raises(
        DataError, match=r"1 images are neither in training nor in validation, but in another split: 003\.jpg"
    ):
        with_answers(data, [Answer("003.jpg", "ant", 1)], "here")


def test_what_changed_is_counted() -> None:
    observed = np.array([[1, -1, 0]], np.int8)
    words = {("a", "ant"): 0, ("a", "bee"): 1, ("a", "cow"): 0}
    laid = lay_over(words, observed, (np.array(["a"]),), CLASSES, "here")
    assert (np.asarray(laid.values).tolist(), laid.changed) == ([[0, 1, 0]], 1)
    assert laid.known == [(0, 0, 0), (0, 1, 1), (0, 2, 0)]


def test_a_quotation_mark_that_never_ends_is_an_error_and_nothing_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    lines = ["image,label,value,time,reviewer", "a.jpg,cat,1,t,r", '5" nail.jpg,cat,1,t,r', "b.jpg,cat,0,t,r"]
    for count in (3, 4):  # also as the last line
        file.write_text("\n".join(lines[:count]) + "\n")
        before = file.read_bytes()
        with pytest.raises(DataError, match=r"line 3: a quotation mark begins there and never ends"):
            read_answers(file)
        assert file.read_bytes() == before


@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_a_no_takes_the_mark_away(data: Dataset) -> None:
    rows, classes = np.nonzero(data.train.observed.values == POSITIVE)
    places = np.full((len(rows), 2), 0.5, np.float32)
    spatial_labels = SpatialLabels(
        rows.astype(np.int64), classes.astype(np.int32), places, np.zeros_like(places)
    )
    marked = replace(data, splits=data.splits | {"train": replace(data.train, seen=spatial_labels)})
    image, label = str(data.train.paths[rows[0]]), data.classes[classes[0]]
    kept = with_answers(marked, [Answer(image, label, NEGATIVE)], "answers.csv").train.seen
    assert (kept.rows.tolist(), kept.classes.tolist()) == (rows[1:].tolist(), classes[1:].tolist())


def test_answers_about_validation_count_there(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    truth = TRUTH.copy()
    truth[2, 1] = -1
    source = read_table(tmp_path / "photos", truth, ["train", "train", "val", "test"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        data = prepare(source, tmp_path / "data", Preparation())
    answers = [Answer("000.jpg", "cow", 0), Answer("002.jpg", "bee", 1), Answer("x.jpg", "ant", 1)]
    seen = with_answers(data, answers[:2], "here")
    assert seen.split("val").observed.values[0].tolist() == [1, 1, 0]
    assert seen.split("val").truth.values[0].tolist() == [1, -1, 0]
    assert seen.train.observed.values[0, 2] == 0
    assert seen.split("val").digest != data.split("val").digest
    assert seen.split("test") is data.split("test")
    values, answered = answered_labels(data.split("val"), answers)
    assert (np.asarray(values).tolist(), answered.tolist()) == ([[1, 1, 0]], [[0, 1]])
