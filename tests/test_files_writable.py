import tempfile
from pathlib import Path
from typing import Any

import pytest

from sparselabel.errors import RunError
from sparselabel.files import require_file_to_write, require_folder_to_write


def test_what_can_be_written_is_left_alone(tmp_path: Path) -> None:
    require_folder_to_write(tmp_path / "new" / "folder")
    require_file_to_write(tmp_path / "new" / "file.png")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old.png").write_text("old")
    require_file_to_write(tmp_path / "old.png")
    assert (tmp_path / "old.png").read_text() == "old"


def test_what_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file is a file, and a folder is needed") as taken:
        require_folder_to_write(tmp_path / "file")
    assert (taken.value.what, taken.value.parameters) == (tmp_path / "file", ["out"])
    with pytest.raises(RunError, match=r"file/new cannot be written \(.*file is a file, not a folder\)"):
        require_folder_to_write(tmp_path / "file" / "new")
    with pytest.raises(RunError, match=r"is a folder, and a file is needed: do so"):
        require_file_to_write(tmp_path, "do so")


def test_a_folder_that_takes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    said = rf"new/a\.png cannot be written \(nothing can be written in {tmp_path}: Permission denied\)"
    with pytest.raises(RunError, match=said):
        require_file_to_write(tmp_path / "new" / "a.png")
