import json
from pathlib import Path

import pytest

from sparselabel.errors import RunError
from sparselabel.file_formats import read_json
from sparselabel.files import write_json


def test_json_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"class": "Möwe", "value": 0.1})
    assert read_json(path, dict) == {"class": "Möwe", "value": 0.1}
    assert "Möwe" in path.read_text(encoding="utf-8")
    assert {file.name for file in tmp_path.iterdir()} == {"result.json"}
    with pytest.raises(TypeError):
        write_json(path, {"value": object()})
    assert read_json(path, dict)["value"] == 0.1

    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"value": 0.2})
    assert json.loads(path.read_text())["value"] == 0.1
    assert {file.name for file in tmp_path.iterdir()} == {"result.json"}


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('{"data": ')
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00\xc3")
    for name, problem in (
        ("half.json", r"cannot be read \(.*line 1, column 10\)"),
        ("bytes.json", r"cannot be read \(it is not text in UTF-8: line 1, .*0xff\)"),
        ("nothing.json", "is not there, or not a file"),
    ):
        with pytest.raises(RunError, match=rf"{name} {problem}: bring it back") as damaged:
            read_json(tmp_path / name, dict)
        assert (damaged.value.what, damaged.value.parameters) == (tmp_path / name, ["force"])
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(RunError, match=r"list.json must hold an object of JSON, not list") as damaged:
        read_json(tmp_path / "list.json", dict, "remove it")
    assert damaged.value.remedies == ("remove it",)
