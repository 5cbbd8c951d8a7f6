"""How much room there is."""

import os
from pathlib import Path

import pytest

from sparselabel.method.room import available_memory, free_disk


def test_what_is_available_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 2**20 < available_memory() < whole
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")  # a thousand processes share it
    assert available_memory() < whole / 1000
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "")  # no such line: half of all the memory
    assert available_memory() == whole // 2 // 1000
    assert free_disk(tmp_path / "not" / "there") > 0
