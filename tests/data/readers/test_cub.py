from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparselabel.data.readers import cub, reader
from sparselabel.data.sparsify import split_rows
from sparselabel.errors import DataError

IMAGES = ["001.Albatross/A_0046_18.jpg", "001.Albatross/A_0009_34.jpg", "002.Auklet/B_0001_1.jpg"]
LABELS = """\
1 1 0 3 27.7080
1 2 1 3 27.7080
2 1 1 4 12.1
2 2 0 1 0 1.509
3 1 1 1 3.1 2 4
3 2 1 2 3.1
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "CUB_200_2011"
    (root / "attributes").mkdir(parents=True)
    for name in IMAGES:
        (root / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(root / "images" / name)
    numbered = "".join(f"{number} {name}\n" for number, name in enumerate(IMAGES, 1))
    (root / "images.txt").write_text(numbered)
    (root / "train_test_split.txt").write_text("1 1\n2 0\n3 1\n")
    (root / "attributes/image_attribute_labels.txt").write_text(LABELS)
    (tmp_path / "attributes.txt").write_text("1 has_bill_shape::curved\n2 has_wing_color::blue\n")
    return root


def test_attributes_are_classes_in_the_official_split(root: Path) -> None:
    source = cub.read(root)
    train, test = source.splits["train"], source.splits["test"]
    assert (source.name, source.root, list(source.splits)) == (
        "CUB_200_2011",
        root / "images",
        ["train", "test"],
    )
    assert train.labels.classes == ("has_bill_shape::curved", "has_wing_color::blue")
    assert train.labels.ids.tolist() == train.paths.tolist() == [IMAGES[0], IMAGES[2]]
    assert train.labels.values.tolist() == [[0, 1], [1, 1]]
    assert test.labels.ids.tolist() == [IMAGES[1]]
    assert test.labels.values.tolist() == [[1, 0]]  # extra columns of a line do not matter
    assert reader("cub") is cub.read


def test_rows_are_in_the_order_of_the_list_and_labels_in_any_order(root: Path) -> None:
    lines = (root / "images.txt").read_text().splitlines()
    (root / "images.txt").write_text("\n".join(lines[::-1]) + "\n")
    (root / "attributes/image_attribute_labels.txt").write_text("\n".join(LABELS.splitlines()[::-1]))
    train = cub.read(root).splits["train"].labels
    assert train.ids.tolist() == [IMAGES[2], IMAGES[0]]
    assert train.values.tolist() == [[1, 1], [0, 1]]


@pytest.mark.parametrize("place", [".", "attributes", ".."])
def test_names_are_beside_or_inside(root: Path, place: str) -> None:
    (root.parent / "attributes.txt").rename(root / place / "attributes.txt")
    assert cub.read(root.parent).splits["train"].labels.classes[1] == "has_wing_color::blue"


def test_images_elsewhere(root: Path, tmp_path: Path) -> None:
    (root / "images").rename(tmp_path / "photos")
    assert cub.read(root, images=tmp_path / "photos").root == tmp_path / "photos"
    with pytest.raises(DataError, match="images is not there: a folder is needed"):
        cub.read(root)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("images.txt", "1 a.jpg\n2\n", r"images.txt, line 2: must be a number and an image, not '2'"),
        (
            "images.txt",
            "1 a.jpg\n1 b.jpg\n",
            r"images.txt, line 2: number 1 is there a second time, after line 1",
        ),
        ("images.txt", "", r"images.txt is empty"),
        (
            "images.txt",
            "1 a.jpg\n2 a.jpg\n3 c.jpg\n",
            r"names 3 of 3 images that are not in .*: a.jpg, a.jpg",
        ),
        (
            "train_test_split.txt",
            "1 1\n2 0\n",
            r"split.txt: image 3 of images.txt is not there: every image",
        ),
        ("train_test_split.txt", "1 1\n2 3\n3 1\n", r"line 2: must say 1 \(for training\) or 0, not 3"),
        ("train_test_split.txt", "1 0\n2 0\n3 0\n", r"no image is for training"),
        (
            "attributes/image_attribute_labels.txt",
            "1 1 0\n1 3 0\n",
            r"line 2: attribute 3 is not in attributes.txt",
        ),
        ("attributes/image_attribute_labels.txt", "9 1 0\n", r"line 1: image 9 is not in images.txt"),
        ("attributes/image_attribute_labels.txt", "1 1 2\n", r"line 1: must say 1 \(present\) or 0, not 2"),
        (
            "attributes/image_attribute_labels.txt",
            LABELS + "2 1 1 4\n",
            r"line 7: image 2 has attribute 1 a second time",
        ),
        (
            "attributes/image_attribute_labels.txt",
            LABELS.rpartition("3 2 1")[0],
            r"1 of 6 labels are not there, the first that of image 3 and attribute 2: is the file comp",
        ),
        (
            "attributes/image_attribute_labels.txt",
            "one\n",
            r"line 1: must begin with 3 whole numbers, not 'one'",
        ),
    ],
)
def test_files_that_are_wrong(root: Path, file: str, text: str, message: str) -> None:
    (root / file).write_text(text)
    with pytest.raises(DataError, match=message):
        cub.read(root)


def test_folders_that_are_not_cub(root: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"no images.txt with attributes/image_attribute_labels.txt beside it"
    ):
        cub.read(tmp_path / "CUB_200_2011" / "images")
    (tmp_path / "attributes.txt").unlink()
    with pytest.raises(DataError, match=r"attributes.txt, with the attributes' names, is not there"):
        cub.read(root)


def test_the_papers_split() -> None:
    train, val = split_rows(5994, 0.2)
    assert (len(train), len(val), int(val.sum())) == (4795, 1199, 3_558_234)
    assert np.array_equal(np.sort(np.concatenate([train, val])), np.arange(5994))
