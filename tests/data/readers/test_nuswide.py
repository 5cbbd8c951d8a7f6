import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparselabel.config import Preparation
from sparselabel.data.labels import UNKNOWN
from sparselabel.data.prepare import prepare
from sparselabel.data.readers import nuswide, reader
from sparselabel.data.sparsify import split_rows
from sparselabel.errors import DataError, DataWarning

OWN_LISTS = "NUS-WIDE's own lists of train and test are other images than the 150,000 and 60,260"
pytestmark = pytest.mark.filterwarnings(f"ignore:.*{OWN_LISTS}:sparselabel.errors.DataWarning")

TRAIN = ["actor/0001_1.jpg", "zebra/0009_2.jpg", "actor/0002_3.jpg"]
TEST = ["sky/0001_4.jpg"]
CONCEPTS = ["airport", "sky", *(f"thing{number:02}" for number in range(3, 81)), "zebra"]


def labels_of(images: list[str]) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    """The first and the last concept are where the number in the name is odd; image 3 has nothing."""
    values = np.zeros((len(images), 81))
    for row, name in enumerate(images):
        values[row, [0, 80]] = name.endswith("_1.jpg")
        values[row, 1] = name.endswith(("_2.jpg", "_4.jpg"))
    return values


def paint(folder: Path) -> None:
    for name in TRAIN + TEST:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(folder / name)


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    root = tmp_path / "nuswide"
    paint(root / "Flickr")
    for part, images in (("train", TRAIN), ("val", TEST)):
        np.save(root / f"formatted_{part}_images.npy", np.array(images))
        np.save(root / f"formatted_{part}_labels.npy", labels_of(images))
    return root


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    root = tmp_path / "NUS-WIDE"
    paint(root / "Flickr")
    everything = sorted(TRAIN + TEST)
    for folder in ("ImageList", "ConceptsList", "Groundtruth/AllLabels", "Groundtruth/TrainTestLabels"):
        (root / folder).mkdir(parents=True)
    (root / "ConceptsList/Concepts81.txt").write_text("".join(f"{name}\r\n" for name in CONCEPTS))
    for part, images in (("", everything), ("Train", TRAIN), ("Test", TEST)):
        written = "".join(name.replace("/", "\\") + "\r\n" for name in images)
        (root / f"ImageList/{part}Imagelist.txt").write_text(written)
        folder = "TrainTestLabels" if part else "AllLabels"
        for name, column in zip(CONCEPTS, labels_of(images).T, strict=True):
            file = root / f"Groundtruth/{folder}/Labels_{name}{f'_{part}' if part else ''}.txt"
            file.write_text("".join(f"{value:.0f}\n" for value in column))
    return root


def check(source_root: Path, classes: tuple[str, ...]) -> None:
    source = nuswide.read(source_root)
    train, test = source.splits["train"], source.splits["test"]
    assert (source.name, source.root) == (source_root.name, source_root / "Flickr")
    assert list(source.splits) == ["train", "test"]
    assert train.labels.ids.tolist() == train.paths.tolist() == TRAIN  # the order of the list
    assert test.labels.ids.tolist() == TEST
    assert train.labels.classes == classes
    assert train.labels.values.tolist() == labels_of(TRAIN).tolist()
    assert train.labels.per_image().tolist() == [2, 1, 0]  # an image without a concept stays in
    assert test.labels.values.tolist() == labels_of(TEST).tolist()


def test_published_arrays(arrays: Path) -> None:
    check(arrays, tuple(f"concept {number:02}" for number in range(1, 82)))
    (arrays / "Concepts81.txt").write_text("\n".join(CONCEPTS) + "\n")
    check(arrays, tuple(CONCEPTS))
    for what in ("images", "labels"):
        (arrays / f"formatted_val_{what}.npy").rename(arrays / f"formatted_test_{what}.npy")
    check(arrays, tuple(CONCEPTS))
    assert reader("nuswide") is nuswide.read


def test_its_own_layout_by_either_label_files(lists: Path) -> None:
    check(lists, tuple(CONCEPTS))
    (lists / "Groundtruth/AllLabels").rename(lists / "kept")
    check(lists, tuple(CONCEPTS))
    (lists / "ConceptsList/Concepts81.txt").unlink()
    check(lists, tuple(CONCEPTS))
    (lists / "kept").rename(lists / "AllLabels")
    check(lists, tuple(CONCEPTS))


def test_its_own_lists_are_not_those_of_the_papers(lists: Path, arrays: Path) -> None:
    with pytest.warns(DataWarning, match=OWN_LISTS):
        nuswide.read(lists)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nuswide.read(arrays)


def test_a_image_without_a_concept_observes_nothing(arrays: Path, tmp_path: Path) -> None:
    how = Preparation("single-positive", validation=0)
    with pytest.warns(DataWarning, match="classes have no positive label in training"):
        train = prepare(nuswide.read(arrays), tmp_path / "out", how).train
    assert (train.observed.values == 1).sum(axis=1).tolist() == [1, 1, 0]
    assert (train.observed.values[2] == UNKNOWN).all()


def test_the_known_fault_of_the_published_files(lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nuswide.FAULT == ("Labels_lake_Train.txt", 78_372, "-1130179")
    file = lists / "Groundtruth/TrainTestLabels/Labels_sky_Train.txt"
    file.write_text("0\n-1130179\n0\n")
    (lists / "Groundtruth/AllLabels").rename(lists / "kept")
    with pytest.raises(DataError, match=r"Labels_sky_Train.txt, line 2: must be 1 or 0, not '-1130179'"):
        nuswide.read(lists)
    monkeypatch.setattr(nuswide, "FAULT", (file.name, 2, "-1130179"))
    with pytest.warns(DataWarning, match=r"line 2 says -1130179, a known fault .* counts as 0"):
        train = nuswide.read(lists).splits["train"].labels
    assert train.values[:, 1].tolist() == [0, 0, 0]
    (lists / "kept").rename(lists / "Groundtruth/AllLabels")  # which is sound
    assert nuswide.read(lists).splits["train"].labels.values[:, 1].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "ImageList/TrainImagelist.txt",
            "a.jpg\n",
            r"TrainImagelist.txt, line 1: a.jpg is not in .*Imagelist.txt",
        ),
        ("ImageList/Imagelist.txt", "a.jpg\n\nb.jpg", r"/Imagelist.txt, line 2 is empty"),
        ("ConceptsList/Concepts81.txt", "sky\n", r"Concepts81.txt must have 81 lines .*, not 1"),
        (
            "Groundtruth/AllLabels/Labels_sky.txt",
            "1\n",
            r"Labels_sky.txt has 1 lines, but .*Imagelist.txt has 4",
        ),
        (
            "Groundtruth/AllLabels/Labels_sky.txt",
            "1\n0\nx\n1\n",
            r"Labels_sky.txt, line 3: must be 1 or 0, not 'x'",
        ),
    ],
)
def test_text_files_that_are_wrong(lists: Path, file: str, text: str, message: str) -> None:
    (lists / file).write_text(text)
    with pytest.raises(DataError, match=message):
        nuswide.read(lists)


def test_arrays_that_are_wrong(arrays: Path) -> None:
    images, labels = arrays / "formatted_train_images.npy", arrays / "formatted_train_labels.npy"
    np.save(labels, labels_of(TRAIN) - 2)
    with pytest.raises(DataError, match=r"train_labels.npy: labels must be 1, 0 or -1 \(unknown\), not -2"):
        nuswide.read(arrays)
    np.save(labels, labels_of(TRAIN) * 2 - 1)
    with pytest.raises(DataError, match=r"train_labels.npy: full labels are 1 or 0, not -1: .* without _obs"):
        nuswide.read(arrays)
    np.save(labels, labels_of(TRAIN)[:2])
    with pytest.raises(DataError, match=r"3 images and 81 classes must have shape \(3, 81\), not \(2, 81\)"):
        nuswide.read(arrays)
    labels.write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"train_labels.npy cannot be read \(not a file of arrays\)"):
        nuswide.read(arrays)
    labels.unlink()
    with pytest.raises(
        DataError, match=r"train_labels.npy is not there, or not a file: .*names and labels come in pairs"
    ):
        nuswide.read(arrays)
    np.save(labels, labels_of(TRAIN))
    np.save(images, np.arange(3))
    with pytest.raises(DataError, match=r"train_images.npy: must be texts of shape \(3,\), not int64"):
        nuswide.read(arrays)
    np.save(images, np.array([*TRAIN[:2], "gone.jpg"]))
    with pytest.raises(
        DataError, match=r"names 1 of 3 images that are not in .*Flickr: gone.jpg: .* `images`"
    ):
        nuswide.read(arrays)


def test_folders_that_are_something_else(arrays: Path, lists: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        DataError, match=r"neither formatted_train_images.npy, nor ImageList/TrainImagelist.txt"
    ):
        nuswide.read(tmp_path / "empty")
    for what in ("images", "labels"):
        np.save(arrays / f"formatted_test_{what}.npy", np.arange(2))
    with pytest.raises(DataError, match="both names of the test set: keep one of them"):
        nuswide.read(arrays)
    (lists / "Groundtruth/AllLabels/Labels_sky.txt").unlink()
    with pytest.raises(DataError, match=r"Labels_sky.txt is not there"):
        nuswide.read(lists)


def test_the_papers_split() -> None:
    train, val = split_rows(150_000, 0.2)
    assert (len(train), len(val), int(val.sum())) == (120_000, 30_000, 2_243_968_737)
    assert val[:5].tolist() == [2, 4, 5, 7, 9]
