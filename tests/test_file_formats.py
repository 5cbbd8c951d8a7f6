import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparselabel.errors import ConfigError, DataError, ResourceError, RunError, SparselabelError
from sparselabel.file_formats import (
    naming,
    read_array,
    read_arrays,
    read_json,
    read_json_lines,
    read_text,
    read_toml,
    reading,
)


def test_text_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    for content in (b"M\xc3\xb6we", b"\xef\xbb\xbfM\xc3\xb6we"):
        file.write_bytes(content)
        assert read_text(file) == "Möwe"
    file.write_bytes(b"a\nb\n\xff")
    with pytest.raises(DataError, match="0xff") as refused:
        read_text(file, "save it as UTF-8")
    error = refused.value
    assert (error.what, error.where, error.remedies) == (file, "line 3", ("save it as UTF-8",))
    with pytest.raises(DataError) as refused:
        read_text(tmp_path / "a\0b")
    assert refused.value.what == tmp_path / "a\0b"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"a": 1,\n "b" 2}', "line 2, column 6"),
        ("[" * 3_000, None),
        ("[" * 200 + "]" * 200, None),
        ("[" + "9" * 5_000 + "]", None),
        ("[1" + "0" * 400 + "]", None),
        ('["\\ud800"]', None),
    ],
)
def test_json_that_is_not_to_be_used(tmp_path: Path, text: str, where: str | None) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(DataError, match=r"a\.json cannot be read") as refused:
        read_json(file, object, error=DataError)
    assert (refused.value.what, refused.value.where) == (file, where)


def test_json_that_is_unusual(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('["\\ud83d\\ude00", "\\\\ud800", "' + "1" * 400 + '", NaN]')
    found: Any = read_json(file, object, error=DataError)
    assert found[:3] == ["😀", "\\ud800", "1" * 400]


def test_lines_of_json(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n\n{"a": 2}\n')
    assert read_json_lines(file, dict[str, int]) == [{"a": 1}, {"a": 2}]
    file.write_text('{"a": 1}\n{"a": }\n')
    with pytest.raises(RunError) as refused:
        read_json_lines(file, dict[str, int])
    assert (refused.value.what, refused.value.where) == (file, "line 2, column 7")


@pytest.mark.parametrize("text", ["a = ", "a = " + "[" * 3_000, "a = " + "9" * 5_000])
def test_toml_that_is_not_to_be_used(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_toml(file)
    assert refused.value.what == file


def test_an_array_and_its_layout(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    np.save(file, np.eye(3))
    for mapped in (False, True):
        assert read_array(file, "f N N", mapped=mapped).tolist() == np.eye(3).tolist()
    for layout in ("f N", "i N N", "f N 4"):
        with pytest.raises(DataError) as refused:
            read_array(file, layout)
        assert (refused.value.what, refused.value.allowed) == (file, layout)
        assert refused.value.value == "float64 (3, 3)"


def test_arrays_of_one_length(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez(file, ids=["a", "b"], scores=np.zeros((2, 3)), more=[1])
    layouts = {"ids": "U N", "scores": "f N L"}
    assert [*read_arrays(file, layouts)] == ["ids", "scores", "more"]
    np.savez(file, ids=["a"], scores=np.zeros((2, 3)))
    with pytest.raises(RunError) as refused:
        read_arrays(file, layouts, "evaluate again")
    assert (refused.value.what, refused.value.where) == (file, "scores")
    assert refused.value.remedies == ("evaluate again",)
    with pytest.raises(RunError, match="it lacks rows"):
        read_arrays(file, {"rows": "i N"})


def test_an_archive_that_would_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    np.save(stream, np.zeros(1_000_000))
    file = tmp_path / "a.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("scores.npy", stream.getvalue())
    assert file.stat().st_size < 20_000
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1_000, "SC_PAGE_SIZE": 4_096}.__getitem__)
    with pytest.raises(RunError, match="8,000,128 bytes"):
        read_arrays(file, {"scores": "f N"})


def test_errors_of_decoders_name_the_file() -> None:
    file = Path("a.bin")
    with pytest.raises(DataError, match=r"a\.bin cannot be read \(KeyError\)"), reading(file):
        raise KeyError
    with pytest.raises(ResourceError, match=r"a\.bin does not fit") as full, reading(file):
        raise MemoryError
    assert full.value.what == file
    with pytest.raises(ConfigError, match=r"^ours$"), reading(file):
        raise ConfigError("ours")
    with pytest.raises(ConfigError, match=r"^a\.bin: ours") as named, naming(file):
        raise ConfigError("ours", value=3)
    assert (named.value.what, named.value.value) == (file, 3)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    "read",
    [
        read_text,
        read_toml,
        read_array,
        lambda file: read_json(file, dict),
        lambda file: read_arrays(file, {}),
    ],
)
def test_nobody_waits_for_a_pipe_or_reads_a_device(tmp_path: Path, read: Any, kind: str) -> None:
    file = tmp_path / "a"
    os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")
    with pytest.raises(
        SparselabelError, match=rf"{file} cannot be read \(it is a pipe, a socket or a device\)"
    ):
        read(file)
