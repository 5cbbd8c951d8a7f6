import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from sparselabel.errors import RunError
from sparselabel.locks import LOCK, locked

FORK = multiprocessing.get_context("fork")


@contextmanager
def held_elsewhere(folder: Path, *, shared: bool = False) -> Iterator[BaseProcess]:
    """Another process that holds the lock of a folder."""
    ready = FORK.Event()

    def hold() -> None:
        with locked(folder, shared=shared):
            ready.set()
            signal.pause()

    process = FORK.Process(target=hold)
    process.start()
    assert ready.wait(30)
    try:
        yield process
    finally:
        process.kill()
        process.join()


def test_a_lock_names_the_process_that_has_it(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path) as other, pytest.raises(RunError) as error, locked(tmp_path):
        pass
    assert error.value.what == tmp_path
    assert error.value.value == [other.pid]


def test_a_killed_process_blocks_nobody(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path):
        pass
    assert (tmp_path / LOCK).exists()  # killed: it could not remove it
    with locked(tmp_path), pytest.raises(RunError) as error, locked(tmp_path):
        pass
    assert error.value.value == [os.getpid()]
    assert not (tmp_path / LOCK).exists()


def test_a_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    with locked(tmp_path):
        child = FORK.Process(target=signal.pause)
        child.start()
    try:
        with locked(tmp_path):
            assert child.is_alive()
    finally:
        child.kill()
        child.join()


def test_several_share_but_none_may_have_it_alone(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path, shared=True) as other:
        with locked(tmp_path, shared=True):
            pass
        with pytest.raises(RunError) as error, locked(tmp_path):
            pass
        assert error.value.value == [other.pid, os.getpid()] or error.value.value == [other.pid]
    with held_elsewhere(tmp_path), pytest.raises(RunError), locked(tmp_path, shared=True):
        pass


def test_a_folder_that_was_made_for_what_failed_goes_with_the_lock(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path / "a" / "b"):
        raise KeyError
    assert [*tmp_path.iterdir()] == []
    with locked(tmp_path / "a"):
        assert (tmp_path / "a" / LOCK).exists()
    assert [*(tmp_path / "a").iterdir()] == []


def test_files_have_locks_of_their_own(tmp_path: Path) -> None:
    with locked(tmp_path, file="a.csv"), locked(tmp_path, file="b.csv"), locked(tmp_path):
        with pytest.raises(RunError) as error, locked(tmp_path, file="a.csv"):
            pass
        assert error.value.what == tmp_path / "a.csv"
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("shared", [False, True])
def test_a_lock_that_is_a_link_changes_nothing(tmp_path: Path, shared: bool) -> None:
    precious = tmp_path / "precious"
    precious.write_text("old")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / LOCK).symlink_to(precious)
    refused = nullcontext() if shared else pytest.raises(OSError, match="symbolic links")
    with refused, locked(folder, shared=shared):
        pass
    assert precious.read_text() == "old"


def test_a_lock_that_is_a_pipe_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(RunError, match=r"\.lock is no file: remove it"), locked(tmp_path):
        pass
