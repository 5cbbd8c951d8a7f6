"""Answers are on disk before they are acknowledged."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sparselabel.data.answers import HEADER, SKIPPED, Answer, read_answers
from sparselabel.errors import ConfigError, DataError, RunError
from sparselabel.review.answer_log import AnswerFile


def test_every_answer_is_there_at_once(tmp_path: Path) -> None:
    file = tmp_path / "new" / "answers.csv"
    with AnswerFile(file, "ann") as kept:
        assert file.read_bytes() == HEADER
        kept.add([("a.jpg", "cat", 1)])
        kept.add([("a.jpg", "dog", SKIPPED), ("b.jpg", "cat", 0)])
        kept.add([("a.jpg", "cat", None)])
        lines = file.read_text().splitlines()
        assert [line.split(",")[:3] for line in lines[1:]] == [
            ["a.jpg", "cat", "1"],
            ["a.jpg", "dog", "?"],
            ["b.jpg", "cat", "0"],
            ["a.jpg", "cat", ""],
        ]
        assert {line.split(",")[4] for line in lines[1:]} == {"ann"}
        assert all(line.split(",")[3].endswith("+00:00") for line in lines[1:])
        assert kept.last_words() == {("a.jpg", "dog"): SKIPPED, ("b.jpg", "cat"): 0}
    with AnswerFile(file, "bob") as again:  # it goes on where it was
        again.add([("c.jpg", "cat", 1)])
        assert [answer.reviewer for answer in again.answers] == ["ann"] * 4 + ["bob"]
    assert len(read_answers(file)) == 5


@pytest.mark.parametrize(
    ("torn", "kept", "said"),
    [
        (b"b.jpg,dog,0,2026-03", [Answer("b.jpg", "dog", 0, "2026-03", "")], "it was finished"),
        (b"b.jpg,dog,1,", [Answer("b.jpg", "dog", 1, "", "")], "it was finished"),
        (b'"b, c.jpg",dog,1,now,an', [Answer("b, c.jpg", "dog", 1, "now", "an")], "it was finished"),
        (b"b.jpg,dog,1", [], "it had no answer yet and was taken off"),
        (b'"b\n', [], "it had no answer yet and was taken off"),
        (b"b.jpg,d", [], "it had no answer yet and was taken off"),
        (b"b.jpg,dog,\xc3", [], "it had no answer yet and was taken off"),
    ],
)
def test_a_torn_line_is_mended(tmp_path: Path, torn: bytes, kept: list[Answer], said: str) -> None:
    file = tmp_path / "answers.csv"
    whole = [Answer("a.jpg", "cat", 1, "now", "ann")]
    file.write_bytes(HEADER + whole[0].line() + torn)
    with AnswerFile(file) as opened:
        assert opened.mended.endswith(said)
        assert opened.answers == whole + kept
        opened.add([("z.jpg", "cat", 1)])
    assert [answer.image for answer in read_answers(file)] == [a.image for a in whole + kept] + ["z.jpg"]
    with AnswerFile(file) as opened:
        assert opened.mended == ""


def test_a_torn_header(tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    file.write_bytes(HEADER[:10])
    with AnswerFile(file) as opened:
        opened.add([("a.jpg", "cat", 1)])
    assert [answer.image for answer in read_answers(file)] == ["a.jpg"]


def test_only_one_writes(tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    with AnswerFile(file), pytest.raises(RunError) as error:
        AnswerFile(file)
    assert (error.value.what, error.value.value) == (file, [os.getpid()])
    assert error.value.parameters == ["answers"]
    AnswerFile(file).close()


def test_a_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("image,label\na.jpg,cat\n")
    with pytest.raises(DataError, match="is not a file of answers"):
        AnswerFile(file)
    assert file.read_text() == "image,label\na.jpg,cat\n"
    file.write_text("my diary")  # no line is finished
    with pytest.raises(DataError, match="is not a file of answers"):
        AnswerFile(file)
    assert file.read_text() == "my diary"
    with pytest.raises(RunError, match="cannot be written"):
        AnswerFile(tmp_path)


def test_answers_go_to_no_link_and_no_pipe(tmp_path: Path) -> None:
    """In a run from elsewhere answers.csv may be one: a shell's profile would get lines with its classes."""
    (tmp_path / "link.csv").symlink_to(tmp_path / "profile")
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("link.csv", "pipe.csv"):
        with pytest.raises(RunError) as error:
            AnswerFile(tmp_path / name)
        assert (error.value.what, error.value.parameters) == (tmp_path / name, ["answers"])
    assert not (tmp_path / "profile").exists()


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with AnswerFile(tmp_path / "answers.csv", "ann") as kept:
        kept.add([("a.jpg", "cat", 1)])
        before, write = kept.path.read_bytes(), os.write
        calls: list[int] = []

        def full(file: int, content: Any) -> int:
            calls.append(1)
            if len(calls) > 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(file, bytes(content[:4]))

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(OSError, match="No space left"):
                kept.add([("b.jpg", "cat", 1)])
        assert kept.path.read_bytes() == before
        assert len(kept.answers) == 1
        kept.add([("b.jpg", "cat", 1)])
    assert len(read_answers(tmp_path / "answers.csv")) == 2


def test_a_reviewer_of_another_encoding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        AnswerFile(tmp_path / "answers.csv", "Ren\udce9")
    assert error.value.what == "reviewer"
    assert [*tmp_path.iterdir()] == []
