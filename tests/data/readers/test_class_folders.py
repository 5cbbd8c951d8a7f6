import warnings
from pathlib import Path

import pytest
from PIL import Image

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.readers import class_folders as folder
from sparselabel.data.readers import reader
from sparselabel.errors import DataError, DataWarning


def images(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(root / name, format="PNG")
    return root


def test_the_folder_is_the_single_positive(tmp_path: Path) -> None:
    root = images(
        tmp_path / "pets", "dog/1.JPG", "cat/1.JPG", "cat/deep/er/2.webp", "cat/.hidden.jpg", ".git/x.jpg"
    )
    source = folder.read(root)
    train = source.splits["train"]
    assert (source.name, source.root, list(source.splits)) == ("pets", root, ["train"])
    assert train.labels.classes == ("cat", "dog")
    assert (
        train.labels.ids.tolist() == train.paths.tolist() == ["cat/1.JPG", "cat/deep/er/2.webp", "dog/1.JPG"]
    )
    assert train.labels.values.tolist() == [[POSITIVE, UNKNOWN], [POSITIVE, UNKNOWN], [UNKNOWN, POSITIVE]]
    assert len(train.spatial_labels) == 0
    assert reader("folder") is folder.read


def test_folders_named_like_splits_are_splits(tmp_path: Path) -> None:
    root = images(tmp_path, "train/cat/1.png", "train/dog/2.png", "test/cat/3.png", "val/emu/4.png")
    splits = folder.read(root).splits
    assert list(splits) == ["train", "val", "test"]
    assert {split.labels.classes for split in splits.values()} == {("cat", "dog", "emu")}
    assert splits["train"].labels.ids.tolist() == ["train/cat/1.png", "train/dog/2.png"]
    assert splits["test"].labels.values.tolist() == [[POSITIVE, UNKNOWN, UNKNOWN]]
    assert splits["val"].labels.values.tolist() == [[UNKNOWN, UNKNOWN, POSITIVE]]


def test_train_beside_other_classes_is_a_class(tmp_path: Path) -> None:
    splits = folder.read(images(tmp_path, "train/1.png", "bus/2.png")).splits
    assert list(splits) == ["train"]
    assert splits["train"].labels.classes == ("bus", "train")


@pytest.mark.parametrize("other", ["valid", "validation", "test"])
def test_half_a_split_layout_is_refused(tmp_path: Path, other: str) -> None:
    root = images(tmp_path, "train/cat/1.png", f"{other}/cat/2.png", "extra/cat/3.png")
    with pytest.raises(DataError, match=rf"extra, .*{other}.*neither classes nor splits"):
        folder.read(root)


def test_an_empty_split_stays_for_prepare_to_refuse(tmp_path: Path) -> None:
    root = images(tmp_path, "train/cat/1.png")
    (root / "val").mkdir()
    val = folder.read(root).splits["val"]
    assert (val.labels.values.shape, len(val.paths)) == ((0, 1), 0)


def test_files_left_out_are_named(tmp_path: Path) -> None:
    root = images(tmp_path, "train/cat/1.png", "loose.png", "train/looser.png")
    (root / "train/cat/notes.txt").write_text("hello")
    with pytest.warns(
        DataWarning, match=r"3 files were left out.*: loose.png, train/cat/notes.txt, train/looser.png"
    ):
        source = folder.read(root)
    assert source.splits["train"].labels.ids.tolist() == ["train/cat/1.png"]


def test_a_linked_folder_inside_a_class_is_named_and_not_followed(tmp_path: Path) -> None:
    root = images(tmp_path, "cat/1.png")
    try:
        (root / "cat" / "again").symlink_to(root / "cat")
    except OSError:
        pytest.skip("links cannot be made here")
    with pytest.warns(DataWarning, match=r"cat/again"):
        assert len(folder.read(root).splits["train"].labels) == 1


def test_class_folders_without_images_are_named_and_stay_out(tmp_path: Path) -> None:
    root = images(tmp_path, "cat/1.png")
    (root / "dog").mkdir()
    (root / "emu/.cache").mkdir(parents=True)
    with pytest.warns(DataWarning, match=r"class folders without images: dog, emu"):
        source = folder.read(root)
    assert source.splits["train"].labels.classes == ("cat",)


def test_no_images_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no images \(.jpg .jpeg .* in class folders"):
        folder.read(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        with pytest.raises(DataError, match=r"no images"):
            folder.read(images(tmp_path, "1.png"))
    with pytest.raises(DataError, match=r"none is not there: a folder is needed"):
        folder.read(tmp_path / "none")


def test_several_labels_and_negatives_in_a_name(tmp_path: Path) -> None:
    root = images(
        tmp_path,
        "cat/1.png",
        "cat, dog/2.png",
        "not cat/3.png",
        "-dog/4.png",
        "cat,-dog/5.png",
        "notes/6.png",
    )
    with pytest.warns(
        DataWarning, match=r"of several labels, or of what is not there: '-dog', 'cat, dog', 'cat,-dog', 'not"
    ):
        train = folder.read(root).splits["train"].labels
    assert train.classes == ("cat", "dog", "notes")
    assert dict(zip(train.ids.tolist(), train.values.tolist(), strict=True)) == {
        "-dog/4.png": [UNKNOWN, NEGATIVE, UNKNOWN],
        "cat, dog/2.png": [POSITIVE, POSITIVE, UNKNOWN],
        "cat,-dog/5.png": [POSITIVE, NEGATIVE, UNKNOWN],
        "cat/1.png": [POSITIVE, UNKNOWN, UNKNOWN],
        "not cat/3.png": [NEGATIVE, UNKNOWN, UNKNOWN],
        "notes/6.png": [UNKNOWN, UNKNOWN, POSITIVE],
    }
    with pytest.raises(DataError, match="'cat' is there and not there"):
        folder.read(images(tmp_path / "odd", "cat,not cat/1.png"))
