from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import Preparation
from sparselabel.data.labels import UNKNOWN
from sparselabel.data.prepare import prepare
from sparselabel.data.readers import coco
from sparselabel.data.readers.coco import with_observed
from sparselabel.data.readers.raw_dataset import RawDataset, Size
from sparselabel.errors import ConfigError, DataError, DataWarning
from tests.data.readers.test_coco import content, write


@pytest.fixture
def source(tmp_path: Path) -> RawDataset:
    """Images 10 and 9, both with zebra and dog, and not ant."""
    return coco.read(write(tmp_path / "coco", content()))


def listed(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "coco_train_0.75left.txt"
    file.write_text(text)
    return file


def test_the_list_says_what_training_sees(source: RawDataset, tmp_path: Path) -> None:
    file = listed(tmp_path, "9.jpg,1 0 \n10.jpg,0\n")
    read = coco.read(tmp_path / "coco/labels.json", labels=file)
    train = read.splits["train"]
    assert train.labels.values.tolist() == source.splits["train"].labels.values.tolist()
    assert train.observed is not None
    assert train.observed is not None
    assert np.asarray(train.observed).tolist() == [[1, UNKNOWN, UNKNOWN], [1, 1, UNKNOWN]]  # rows 10 and 9
    with pytest.warns(DataWarning, match="1 of 3 classes have no positive label in training"):
        prepared = prepare(read, tmp_path / "out", Preparation(validation=0))
    assert prepared.train.observed.values.tolist() == np.asarray(train.observed).tolist()
    assert prepared.train.truth.values.tolist() == train.labels.values.tolist()
    with pytest.raises(ConfigError, match="there is nothing to choose for `sparsify=single-positive`"):
        prepare(read, tmp_path / "other", Preparation("single-positive"))


def test_validation_sees_all_or_the_list(tmp_path: Path, source: RawDataset) -> None:
    read = coco.read(tmp_path / "coco/labels.json", labels=listed(tmp_path, "9.jpg,1\n10.jpg,1\n"))
    full, observed = Preparation(validation=0.5), Preparation(validation=0.5, validation_labels="observed")
    for how, seen in ((full, 2), (observed, 1)):
        with pytest.warns(DataWarning, match="no positive label in training"):
            val = prepare(read, tmp_path / how.validation_labels, how).split("val")
        assert val.observed.per_image(1).tolist() == [seen]


def test_images_that_are_not_listed_are_left_out(source: RawDataset, tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match=r"left.txt names 1 of 2 training images; the others were left out"):
        split = with_observed(source.splits["train"], listed(tmp_path, "train2014/9.jpg,1\n"))
    assert split.labels.ids.tolist() == ["9"]
    assert split.spatial_labels.classes.tolist() == [0]
    assert split.observed is not None
    assert np.asarray(split.observed).tolist() == [[UNKNOWN, 1, UNKNOWN]]
    assert np.array_equal(split.labels.values, [[1, 1, 0]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9.jpg,0\n9.jpg 1\n", r"left.txt, line 2: must be `image,class class ...`, not '9.jpg 1'"),
        ("9.jpg,0\n11.jpg,1\n", r"line 2: '11.jpg' is not among the training images with a label"),
        ("9.jpg,0\n9.jpg,1\n", r"line 2: '9.jpg,1' is there a second time, after line 1"),
        ("9.jpg,0 3\n", r"line 1: a class must be a number from 0 to 2, not '3'"),
        ("9.jpg,dog\n", r"line 1: a class must be a number from 0 to 2, not 'dog'"),
        ("9.jpg,\n", r"line 1: a class must be a number from 0 to 2, and there is none"),
        ("9.jpg,2\n", r"line 1: '9.jpg,2': by its full labels, class 2 \(ant\) is not on the image"),
        ("", r"left.txt is empty"),
    ],
)
def test_lists_that_are_wrong(source: RawDataset, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        with_observed(source.splits["train"], listed(tmp_path, text))


def test_a_list_with_a_label_too_few(
    source: RawDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparselabel.data.readers.coco.PUBLISHED_LISTS", (Size(2, 4),))
    monkeypatch.setattr("sparselabel.data.readers.coco.NEARLY", 0.3)
    with_observed(source.splits["train"], listed(tmp_path, "9.jpg,1 0\n10.jpg,0 1\n"))
    with pytest.warns(DataWarning, match=r"left.txt names 3 labels of 2 images; .* has 4 of 2"):
        with_observed(source.splits["train"], listed(tmp_path, "9.jpg,1 0\n10.jpg,0\n"))
