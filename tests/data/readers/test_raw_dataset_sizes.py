import warnings
from pathlib import Path

import numpy as np
import pytest

from sparselabel.data.label_table import LabelTable
from sparselabel.data.readers.coco import PUBLISHED_LISTS, warn_of_another_list
from sparselabel.data.readers.raw_dataset import PUBLISHED, RawSplit, Size, warn_of_another_size
from sparselabel.data.sparsify import split_rows
from sparselabel.errors import DataWarning

# Verelst 2023 supplement table K.1: images and labels of train, val and test (VOC's labels from K.3: K.1 has
# misprints).
TABLE = {
    "coco": ((65_665, 16_416, 40_137), (193_078, 47_957, 116_592), 2.9),
    "voc": ((4_574, 1_143, 5_823), (6_665, 1_666, 8_351), 1.5),
    "nuswide": ((120_000, 30_000, 60_260), (226_833, 57_778, 113_418), 1.9),
    "cub": ((4_795, 1_199, 5_794), (150_551, 37_792, 182_704), 31.5),
}


@pytest.mark.parametrize("reader", TABLE)
def test_sizes_are_those_of_the_paper(reader: str) -> None:
    images, labels, expected = TABLE[reader]
    train, test = PUBLISHED[reader]["train"], PUBLISHED[reader]["test"]
    assert tuple(len(rows) for rows in split_rows(train.images, 0.2)) == images[:2]
    assert train.positives == labels[0] + labels[1]
    assert test == (images[2], labels[2])
    assert round(labels[1] / images[1], 1) == expected  # K, counted in validation


def split_of(images: int, positives: int) -> RawSplit:
    values = np.zeros((images, 2), dtype=np.int8)
    values.reshape(-1)[:positives] = 1
    ids = np.arange(images).astype(np.str_)
    return RawSplit(LabelTable(ids, ("a", "b"), values), ids)


def test_what_is_nearly_a_published_set_is_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_another_size("voc", {"train": split_of(5_717, 8_331), "test": split_of(5_823, 8_351)})
        warn_of_another_size("voc", {"train": split_of(40, 50)})  # a part of it, or something else
    with pytest.warns(
        DataWarning, match=r"^train has 5,717 .* 8,330 positive labels; .* voc has 5,717 and 8,331"
    ):
        warn_of_another_size("voc", {"train": split_of(5_717, 8_330)})
    with pytest.warns(DataWarning, match=r"^test has 5,800 images .* in the papers voc has 5,823 and 8,351"):
        warn_of_another_size("voc", {"test": split_of(5_800, 8_351)})


def test_what_is_nearly_a_published_list_is_warned_of() -> None:
    assert {size.images for size in PUBLISHED_LISTS} == {PUBLISHED["coco"]["train"].images}
    assert [round(size.positives / PUBLISHED["coco"]["train"].positives, 2) for size in PUBLISHED_LISTS] == [
        0.75, 0.4, 0.34,
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in PUBLISHED_LISTS:
            warn_of_another_list(Path("list.txt"), size)
        warn_of_another_list(Path("list.txt"), Size(82_081, 120_000))  # a list of one's own
        warn_of_another_list(Path("list.txt"), Size(2, 3))
    with pytest.warns(DataWarning, match=r"list.txt names 96,250 labels of 82,081 .* has 96,251 of 82,081"):
        warn_of_another_list(Path("list.txt"), Size(82_081, 96_250))
    with pytest.warns(DataWarning, match=r"names 82,000 labels of 82,000 images; .* has 82,081 of 82,081"):
        warn_of_another_list(Path("list.txt"), Size(82_000, 82_000))
