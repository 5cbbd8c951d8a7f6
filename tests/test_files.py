import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest

from sparselabel.errors import RunError
from sparselabel.files import atomic_write, named, write_arrays, write_json


def test_a_file_gets_its_name_when_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    with atomic_write(file) as partial:
        partial.write_text("new")
        assert not file.exists()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.csv": "new"}


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("old")
    (tmp_path / "a.csv.partial").symlink_to(precious)
    with atomic_write(tmp_path / "a.csv") as partial:
        partial.write_text("new")
    assert precious.read_text() == "old"
    assert (tmp_path / "a.csv").read_text() == "new"
    assert not (tmp_path / "a.csv").is_symlink()


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("old")

    def full() -> None:
        with atomic_write(file) as partial:
            partial.write_text("ne")
            raise OSError(28, os.strerror(28))

    with pytest.raises(OSError, match="No space left on device") as raised:
        full()
    assert raised.value.filename == str(file)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.csv": "old"}


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), OSError("100000 requested and 16368 written")]
)
def test_a_full_disk_is_named_by_the_file(error: OSError) -> None:
    """Also in numpy's words, which have no number."""
    with pytest.raises(OSError, match=r"No space left|16368 written") as raised, named(Path("a.npy")):
        raise error
    assert (raised.value.errno, raised.value.filename) == (28, "a.npy")


def test_two_that_write_the_same_file_write_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    (tmp_path / "a.csv.partial").write_text("of a process that was killed")
    with atomic_write(file) as first, first.open("w") as stream:
        stream.write("begun")
        stream.flush()
        with atomic_write(file) as second:
            assert (first.name, second.name != first.name) == ("a.csv.partial", True)
            second.write_text("the other's, which is longer")
        assert file.read_text() == "the other's, which is longer"
        stream.write(" and finished")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.csv": "begun and finished"}


def test_a_pipe_in_the_way_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv.partial")
    with atomic_write(tmp_path / "a.csv") as partial:
        partial.write_text("new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.csv": "new"}


def test_an_error_of_something_else_stays() -> None:
    error = OSError("cannot identify image file")
    with pytest.raises(OSError, match="cannot identify") as raised, named(Path("a.npy")):
        raise error
    assert raised.value is error


def test_an_error_that_names_a_file_keeps_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised, atomic_write(tmp_path / "none" / "a.csv") as partial:
        partial.write_text("new")
    assert raised.value.filename == str(tmp_path / "none" / "a.csv.partial")


def test_arrays_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "maps.npz"
    write_arrays(file, rows=np.arange(3))
    good = file.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))  # as a full disk
    try:
        with pytest.raises(OSError) as error:  # noqa: PT011
            write_arrays(file, rows=np.arange(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert error.value.filename == str(file)
    assert file.read_bytes() == good
    assert [*tmp_path.iterdir()] == [file]


def test_a_name_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    write_json(file, {"data": "a"})
    with pytest.raises(RunError, match=r"run\.json cannot be written: .* no text in UTF-8, '/a/caf\\udce9'"):
        write_json(file, {"data": "/a/caf\udce9", "more": "b"})
    assert file.read_text() == '{\n "data": "a"\n}\n'
