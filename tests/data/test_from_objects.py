"""Data sets of Python objects: arrays, torch datasets, Hugging Face datasets."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, DataError

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (10, 8, 9, 3), dtype=np.uint8)
LABELS = np.where(RANDOM.random((10, 3)) < 0.4, 1, -1)
LABELS[:, 0] = 1


def pixels(data: Dataset, split: str, row: int) -> Any:
    return np.asarray(data.split(split).image(row))


def test_arrays() -> None:
    data = Dataset.from_arrays(IMAGES, LABELS, test=(list(IMAGES[:4]), (LABELS[:4] > 0).astype(int)))
    assert (data.classes, {name: len(split) for name, split in data.splits.items()}) == (
        ("0", "1", "2"),
        {"train": 8, "val": 2, "test": 4},
    )
    for split in ("train", "val", "test"):
        for row, name in enumerate(data.split(split).truth.ids.tolist()):
            number = int(name.rpartition("-")[2])
            assert (pixels(data, split, row) == IMAGES[number]).all()
            if split != "test":
                assert data.split(split).truth.values[row].tolist() == LABELS[number].tolist()
    folder = data.folder
    assert folder.is_dir()
    del data
    assert not folder.exists()


def test_a_frame_names_the_classes_and_labels_can_be_hidden() -> None:
    complete = pd.DataFrame(np.arange(30).reshape(10, 3) % 4 < 2, columns=["cat", "dog", "car"]).astype(int)
    data = Dataset.from_arrays(IMAGES, complete, sparsify="single-positive", validation=0)
    assert data.classes == ("cat", "dog", "car")
    assert (data.train.observed.per_image() == 1).all()
    assert data.train.truth.complete


class Items(TorchDataset[Any]):
    def __init__(self, labels: Any) -> None:
        self.labels_of_items = labels

    def __len__(self) -> int:
        return len(self.labels_of_items)

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(IMAGES[index]).permute(2, 0, 1), self.labels_of_items[index]


def test_a_torch_dataset_of_indices_and_of_vectors() -> None:
    data = Dataset.from_torch(Items([0, 2, 1, 2]), validation=0)
    assert data.train.observed.values.tolist() == [[1, -1, -1], [-1, -1, 1], [-1, 1, -1], [-1, -1, 1]]
    assert (pixels(data, "train", 3) == IMAGES[3]).all()
    vectors = Items([torch.tensor([1, 0, -1]), torch.tensor([0, 1, 1])])
    data = Dataset.from_torch(vectors, classes=["a", "b", "c"], validation=0)
    assert (data.classes, data.train.observed.values.tolist()) == (("a", "b", "c"), [[1, 0, -1], [0, 1, 1]])
    lists = Dataset.from_torch(Items([[0, torch.tensor(2)], [np.int64(1)]]), validation=0)
    assert (lists.classes, lists.train.observed.values.tolist()) == (
        ("0", "1", "2"),
        [[1, -1, 1], [-1, 1, -1]],
    )
    names = Dataset.from_torch(Items([["dog", "cat"], "dog"]), validation=0)
    assert (names.classes, names.train.observed.values.tolist()) == (("cat", "dog"), [[1, 1], [-1, 1]])
    given = Dataset.from_torch(Items([0] * 10), LABELS, validation=0)
    assert given.train.observed.values.tolist() == LABELS.tolist()


class Column:
    def __init__(self, names: Any = None, feature: Any = None) -> None:
        if names is not None:
            self.names = names
        if feature is not None:
            self.feature = feature


class HuggingFace:
    """What a dataset of that library has, as far as it is used."""

    def __init__(self, labels: list[Any], feature: Any) -> None:
        self.labels, self.features = labels, {"image": None, "objects": feature}
        self.column_names = ["image", "objects"]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, key: Any) -> Any:
        return (
            self.labels if key == "objects" else {"image": IMAGES[int(key)], "objects": self.labels[int(key)]}
        )


def test_a_hugging_face_dataset() -> None:
    names = Column(feature=Column(names=["cat", "dog", "car"]))
    splits = {"train": HuggingFace([[0], [1, 2], []], names), "validation": HuggingFace([[2]], names)}
    data = Dataset.from_huggingface(
        splits, label="objects", unlisted={"validation": "unknown", "val": "negative"}
    )
    assert data.classes == ("cat", "dog", "car")
    assert data.train.observed.values.tolist() == [[1, -1, -1], [-1, 1, 1], [-1, -1, -1]]
    assert data.split("val").observed.values.tolist() == [[0, 0, 1]]
    vectors = HuggingFace([[1, 0, -1], [0, 1, 1]], Column(feature=Column()))
    assert Dataset.from_huggingface(
        vectors, label="objects", validation=0
    ).train.observed.values.tolist() == [
        [1, 0, -1],
        [0, 1, 1],
    ]
    texts = HuggingFace(["dog", "cat"], Column())
    data = Dataset.from_huggingface(texts, label="objects", validation=0)
    assert (data.classes, data.train.observed.values.tolist()) == (("cat", "dog"), [[-1, 1], [1, -1]])


def test_items_that_are_dictionaries() -> None:
    items = [
        {"image": image, "tags": tags} for image, tags in zip(IMAGES, ["cat", ["dog", "cat"]], strict=False)
    ]
    test = [{"image": IMAGES[2], "tags": torch.tensor([0, 1])}]
    data = Dataset.from_huggingface(items, label="tags", validation=0)
    assert (data.classes, data.train.observed.values.tolist()) == (("cat", "dog"), [[1, -1], [1, 1]])
    assert (pixels(data, "train", 1) == IMAGES[1]).all()
    splits = {"train": [{"image": IMAGES[0], "tags": torch.tensor([1, 1])}], "test": test}
    data = Dataset.from_huggingface(splits, label="tags", validation=0)
    assert [split.observed.values.tolist() for split in data.splits.values()] == [[[1, 1]], [[0, 1]]]


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(DataError) as lengths:
        Dataset.from_arrays(IMAGES[:9], LABELS)
    assert (lengths.value.what, lengths.value.value, lengths.value.allowed) == ("labels", 10, 9)
    with pytest.raises(ConfigError, match="sparsify") as unknown:
        Dataset.from_arrays(IMAGES, LABELS, sparsifi="none")
    assert unknown.value.what == "sparsifi"
    with pytest.raises(DataError, match="objects") as column:
        Dataset.from_huggingface(HuggingFace([[0]], Column()), label="object")
    assert (column.value.what, column.value.value) == ("column", "object")
    with pytest.raises(DataError) as split:
        Dataset.from_huggingface({"training": HuggingFace([[0]], Column())}, label="objects")
    assert split.value.what == "splits"
    with pytest.raises(DataError, match="have no length"):
        Dataset.from_arrays(iter(IMAGES), LABELS)
    with pytest.raises(DataError) as label:
        Dataset.from_huggingface(HuggingFace([[5]], Column(feature=Column(names=["a"]))), label="objects")
    assert label.value.value == 5


@pytest.mark.parametrize(
    ("make", "what", "value"),
    [
        (lambda: Dataset.from_huggingface([(IMAGES[0], 1)]), "dataset", "tuple"),
        (lambda: Dataset.from_huggingface([{"image": 0, "label": {"category": [1]}}]), "dataset", "dict"),
        (lambda: Dataset.from_huggingface([{"image": 0, "label": 1}], unlisted="no"), "unlisted", "no"),  # type: ignore[arg-type]
        (lambda: Dataset.from_torch([{"image": IMAGES[0], "label": 1}]), "dataset", "dict"),
        (lambda: Dataset.from_torch([(IMAGES[0], {"labels": [1]})]), "dataset", "dict"),
        (lambda: Dataset.from_torch([(IMAGES[0], [{"category_id": 1}])]), "dataset", "dict"),
        (lambda: Dataset.from_torch([(IMAGES[0], -1)]), "labels", -1),
        (lambda: Dataset.from_torch([]), "images", 0),
        (lambda: Dataset.from_torch(DataLoader([(0, 0)])), "images", "DataLoader"),  # type: ignore[arg-type]
        (lambda: Dataset.from_torch(iter([(0, 0)])), "images", "list_iterator"),
        (lambda: Dataset.from_arrays(IMAGES, LABELS, val=IMAGES), "val", "ndarray"),  # type: ignore[arg-type]
    ],
)
def test_data_of_another_kind_is_refused_by_name(
    make: Callable[[], Dataset], what: str, value: object
) -> None:
    with pytest.raises(DataError) as refused:
        make()
    assert (refused.value.what, refused.value.value) == (what, value)


@pytest.mark.parametrize("images", [IMAGES.astype(np.float32), torch.randn(10, 3, 8, 8), ["a.jpg"] * 10])
def test_images_that_are_none_are_refused_at_once(images: Any) -> None:
    with pytest.raises(DataError) as refused:
        Dataset.from_arrays(images, LABELS)
    assert (refused.value.what, refused.value.where) == ("images", 0)


def test_items_may_be_images_alone_where_labels_are_given() -> None:
    data = Dataset.from_torch(list(IMAGES), LABELS, validation=0)
    assert data.train.images is not None
    assert data.train.images[1].size == IMAGES.shape[2:0:-1]


def test_lists_of_one_index_are_no_vectors_where_classes_are_named() -> None:
    ones = HuggingFace([[0], [1]], Column(feature=Column()))
    data = Dataset.from_huggingface(ones, label="objects", classes=["cat", "dog"], validation=0)
    assert data.train.observed.values.tolist() == [[1, -1], [-1, 1]]
