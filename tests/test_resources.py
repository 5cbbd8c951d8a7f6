"""Available RAM and disk."""

import errno
import os
import weakref
from pathlib import Path

import numpy as np
import pytest

from sparselabel import resources as room
from sparselabel.errors import ResourceError
from sparselabel.resources import available_memory, free_disk, give_back_memory, mapped_array


def test_what_is_available_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 2**20 < available_memory() < whole
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")  # a thousand processes share it
    assert available_memory() < whole / 1000
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "")  # no such line: half of all the memory
    assert available_memory() == whole // 2 // 1000
    alone = free_disk(tmp_path / "not" / "there")
    assert alone > 0
    monkeypatch.setenv("WORLD_SIZE", "4000")  # on four machines, which share the disk
    assert free_disk(tmp_path) == pytest.approx(alone / 4, rel=0.5)


def limited(folder: Path, limit: tuple[str, str], usage: tuple[str, int], statistics: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (limit, usage, ("memory.stat", statistics)):
        (folder / name).write_text(f"{content}\n")


@pytest.mark.parametrize("path", ["/job/step", "/", "/of/the/host"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_control_group_may_leave_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, path: str
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    top = tmp_path / "groups" / "memory" if version == 1 else tmp_path / "groups"
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    limit, usage, cache = names if version == 1 else ("memory.max", "memory.current", "inactive_file")
    own = tmp_path / "own"
    own.write_text(f"5:cpu,cpuacct:/else\n4:memory:{path}\n" if version == 1 else f"0::{path}\n")
    monkeypatch.setattr(room, "OWN_GROUPS", own)
    monkeypatch.setattr(room, "GROUPS", tmp_path / "groups")
    free = available_memory()
    limited(top, (limit, "max" if version == 2 else str(2**63 - 4096)), (usage, 2**20), f"{cache} 0")
    assert available_memory() == pytest.approx(free, rel=0.2)  # no limit
    limited(top / "job", (limit, str(9 * 2**20)), (usage, 4 * 2**20), f"anon 1\n{cache} {2**20}")
    inside = path == "/job/step"
    assert (available_memory() == 6 * 2**20) == inside  # 9 − 4 and the megabyte that can be given back
    limited(top, (limit, str(5 * 2**20)), (usage, 4 * 2**20), f"{cache} 0")
    assert available_memory() == 2**20  # the group above leaves less
    limited(top, (limit, str(2**20)), (usage, 4 * 2**20), f"{cache} 0")
    assert available_memory() == 0


def test_memory_is_given_back() -> None:
    class Held:
        """Refers to itself: only the collector frees it."""

        def __init__(self) -> None:
            self.own = self

    held = weakref.ref(Held())
    assert held() is not None
    give_back_memory()
    assert held() is None


def no_room(folder: Path, size: int, free: int) -> ResourceError:
    return ResourceError(f"{folder} has {free} of {size}", what=folder, value=size)


def test_a_mapped_array_that_does_not_fit_is_refused_before_it_is_written(small_disk: Path) -> None:
    file = small_disk / "scores.npy"
    with pytest.raises(ResourceError) as caught:
        mapped_array(file, np.float16, (1000, 1000), no_room)
    assert (caught.value.what, caught.value.value) == (small_disk, 2_000_128)
    assert [*small_disk.iterdir()] == []
    fits = mapped_array(file, np.float16, (100, 1000), no_room)
    assert file.stat().st_blocks * 512 >= 200_000  # not a hole that is filled later
    (small_disk / "another").write_bytes(bytes(free_disk(small_disk)))
    fits[:] = 1  # would end the process
    del fits


def test_a_mapped_array_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("important")
    (tmp_path / "scores.npy").symlink_to(tmp_path / "other")
    mapped_array(tmp_path / "scores.npy", np.float32, (3,), no_room)[:] = 1
    assert (tmp_path / "other").read_text() == "important"
    assert np.load(tmp_path / "scores.npy").tolist() == [1, 1, 1]


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, ResourceError), (errno.EIO, OSError)])
def test_what_the_disk_says_of_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(kind):
        mapped_array(tmp_path / "a.npy", np.float32, (3,), no_room)
    assert [*tmp_path.iterdir()] == []
