import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparselabel.data.image_paths import (
    check_image_words,
    common_folder,
    count_images,
    image_paths,
    other_files,
)
from sparselabel.errors import ConfigError, DataError


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("b.jpg", "a.PNG", "notes.md", ".hidden.jpg", "sub/c.webp", ".git/d.jpg", "odd[1].jpg"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


ALL = ["photos/a.PNG", "photos/b.jpg", "photos/odd[1].jpg", "photos/sub/c.webp"]


def test_a_folder_that_cannot_be_read_is_named(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(folder: str, onerror: Callable[[OSError], None]) -> Iterator[Any]:
        onerror(PermissionError(13, "Permission denied", f"{folder}/sub"))
        yield from ()

    monkeypatch.setattr("os.walk", denied)
    with pytest.raises(DataError, match="sub cannot be read: Permission denied") as caught:
        list(image_paths([str(photos)]))
    assert caught.value.what == f"{photos}/sub"


def test_folders_files_patterns_and_lists(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(image_paths(["photos"])) == ALL
    assert list(image_paths(["photos/b.jpg", "photos/notes.md"])) == ["photos/b.jpg", "photos/notes.md"]
    assert list(image_paths(["photos/**/*"])) == ALL
    assert list(image_paths(["photos/odd[1].jpg"])) == ["photos/odd[1].jpg"]  # a file, not a pattern
    Path("list.txt").write_text("\ufeffphotos/b.jpg\r\n\n gone.jpg \n", encoding="utf-8")
    assert list(image_paths(["list.txt"])) == ["photos/b.jpg", " gone.jpg "]
    monkeypatch.setattr("sys.stdin", io.StringIO("x.jpg\ny.jpg\n"))
    assert list(image_paths(["photos/b.jpg", "-"])) == ["photos/b.jpg", "x.jpg", "y.jpg"]
    assert count_images(["photos", "list.txt"]) == 6
    assert count_images(["photos", "-"]) is None
    folders = (["photos"], ["photos/b.jpg", "photos"], ["photos/sub", "photos"], ["list.txt"], ["-"])
    assert [common_folder(words) for words in folders] == ["photos", "photos", "photos", "", ""]


def test_they_come_one_by_one(photos: Path) -> None:
    found = image_paths(["photos", "photos"])
    assert next(found) == ALL[0]
    Path("photos/b.jpg").rename("photos/z.jpg")  # listed already: an image that is gone shows when it is read
    assert next(found) == "photos/b.jpg"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "there is nothing to predict"),
        (
            ("photos", "nowhere.jpg"),
            r"there is no image, folder or list 'nowhere\.jpg': check the name, or give a",
        ),
        (("photos/*.gif",), r"no file matches 'photos/\*\.gif'"),
    ],
)
def test_what_is_not_there(photos: Path, words: tuple[str, ...], said: str) -> None:
    with pytest.raises((ConfigError, DataError), match=said):
        check_image_words(words)
    check_image_words(["photos", "photos/*.jpg", "-"])


def test_files_that_are_no_images_are_counted(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.MOV", "in/c.mov", "in/notes", ".hidden", "a.jpg.xmp", ".git/x.txt", "d.HEIC"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert other_files([str(tmp_path), str(tmp_path / "a.jpg")]) == {".mov": 2, "notes": 1}
    assert [Path(path).name for path in image_paths([str(tmp_path)])] == ["a.jpg", "d.HEIC"]
