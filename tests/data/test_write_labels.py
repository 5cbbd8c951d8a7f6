import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sparselabel.config import Preparation
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import UNKNOWN
from sparselabel.data.prepare import prepare
from sparselabel.data.readers import coco, table
from sparselabel.data.write_labels import Which, write_labels
from sparselabel.errors import DataError, RunError
from tests.data.images import paint, random_labels, read_table

pytestmark = pytest.mark.filterwarnings("ignore:.*have no positive label:sparselabel.errors.DataWarning")


def from_table(folder: Path) -> Dataset:
    values = random_labels(10)
    values[8, 1] = values[9, 0] = UNKNOWN
    source = read_table(folder, values, ["train"] * 8 + ["test"] * 2)
    return prepare(source, folder / "prepared", Preparation(sparsify="single-positive"))


def from_boxes(folder: Path, **how: Any) -> Dataset:
    names = {7: "a.jpg", 30: "sub/b.jpg", 111: "c.jpg"}
    for seed, name in enumerate(names.values()):
        paint(folder / name, seed, width=40, height=20)
    data = {
        "images": [{"id": key, "file_name": name, "width": 40, "height": 20} for key, name in names.items()],
        "categories": [{"id": 5, "name": "image"}, {"id": 3, "name": "dog"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 3, "bbox": [4, 5, 10, 10]},
            {"id": 2, "image_id": 7, "category_id": 3, "bbox": [0, 0, 40, 20]},
            {"id": 3, "image_id": 30, "category_id": 5, "bbox": [1.5, 2.25, 3, 4]},
            {"id": 4, "image_id": 111, "category_id": 3, "bbox": [1, 1, 30, 10]},
            {"id": 5, "image_id": 111, "category_id": 5, "bbox": [1, 1, 30, 12]},
        ],
    }
    (folder / "in.json").write_text(json.dumps(data))
    return prepare(coco.read(folder / "in.json"), folder / "prepared", Preparation(validation=0, **how))


@pytest.mark.parametrize("which", ["observed", "full"])
def test_a_table_there_and_back(tmp_path: Path, which: Which) -> None:
    prepared = from_table(tmp_path)
    file = tmp_path / "out.csv"
    write_labels(prepared, None, which, file, force=False)
    source = table.read(file)
    assert list(source.splits) == ["train", "val", "test"]
    for name, split in source.splits.items():
        expected = prepared.splits[name].observed if which == "observed" else prepared.splits[name].truth
        assert split.labels.classes == expected.classes
        assert split.labels.ids.tolist() == expected.ids.tolist()
        assert split.labels.values.tolist() == expected.values.tolist()
    with file.open() as stream:
        rows = [*csv.reader(stream)]
    assert rows[0] == ["image", "ant", "bee", "cow", "split"]
    cells = [cell for row in rows[1:] for cell in row[1:-1]]
    assert {*cells} == {"0", "1", ""}
    hidden = sum(int((part.observed.values == UNKNOWN).sum()) for part in prepared.splits.values())
    assert cells.count("") == (hidden if which == "observed" else 2)


def test_one_split_of_a_table(tmp_path: Path) -> None:
    write_labels(from_table(tmp_path), "test", "full", tmp_path / "out.csv", force=False)
    assert [line.split(",")[0] for line in (tmp_path / "out.csv").read_text().split()] == [
        "image",
        "008.jpg",
        "009.jpg",
    ]


def test_full_boxes_are_coco_as_everyone_knows_it(tmp_path: Path) -> None:
    prepared = from_boxes(tmp_path)
    write_labels(prepared, "train", "full", tmp_path / "out.json", force=False)
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["categories"] == [{"id": 1, "name": "image"}, {"id": 2, "name": "dog"}]
    assert content["images"][1] == {"id": 30, "file_name": "sub/b.jpg", "width": 40, "height": 20}
    first = content["annotations"][0]
    assert (first["bbox"], first["area"], first["iscrowd"]) == ([1, 1, 30, 10], 300, 0)
    assert (first["image_id"], first["category_id"], first["id"]) == (111, 2, 1)
    there_and_back(prepared, tmp_path / "out.json", "full")


def there_and_back(prepared: Dataset, file: Path, which: Which) -> None:
    again = coco.read(file).splits["train"]
    train = prepared.train
    expected = train.observed if which == "observed" else train.truth
    assert again.labels.ids.tolist() == expected.ids.tolist()
    assert again.labels.classes == expected.classes
    assert again.labels.values.tolist() == expected.values.tolist()
    seen = expected.values[train.spatial_labels.rows, train.spatial_labels.classes] == 1
    assert again.spatial_labels.rows.tolist() == train.spatial_labels.rows[seen].tolist()
    assert again.spatial_labels.classes.tolist() == train.spatial_labels.classes[seen].tolist()
    np.testing.assert_allclose(again.spatial_labels.centers, train.spatial_labels.centers[seen], atol=1e-4)
    np.testing.assert_allclose(again.spatial_labels.sizes, train.spatial_labels.sizes[seen], atol=1e-4)


def test_points_there_and_back(tmp_path: Path) -> None:
    prepared = from_boxes(tmp_path)
    spatial_labels = prepared.train.spatial_labels
    sizes = np.array(spatial_labels.sizes)
    sizes[[0, 3]] = 0
    train = replace(prepared.train, spatial_labels=replace(spatial_labels, sizes=sizes))
    pointed = replace(prepared, splits={"train": train})
    write_labels(pointed, "train", "full", tmp_path / "out.json", force=False)
    annotations = json.loads((tmp_path / "out.json").read_text())["annotations"]
    assert [one.get("num_keypoints", 0) for one in annotations] == [1, 0, 0, 1, 0]
    there_and_back(pointed, tmp_path / "out.json", "full")
    assert coco.read(tmp_path / "out.json").splits["train"].spatial_labels.sizes[[0, 3]].tolist() == [
        [0, 0],
        [0, 0],
    ]


def test_observed_boxes_do_not_give_hidden_labels_away(tmp_path: Path) -> None:
    prepared = from_boxes(tmp_path, sparsify="single-positive")
    write_labels(prepared, "train", "observed", tmp_path / "out.json", force=False)
    content = json.loads((tmp_path / "out.json").read_text())
    assert len(content["annotations"]) < 5
    assert [image["neg_category_ids"] for image in content["images"]] == [[], [], []]
    there_and_back(prepared, tmp_path / "out.json", "observed")


def test_labels_without_boxes_are_not_made_into_boxes(tmp_path: Path) -> None:
    prepared = from_table(tmp_path)
    write_labels(prepared, "train", "full", tmp_path / "out.json", force=False)
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["annotations"] == []
    values = prepared.train.truth.values
    assert content["images"][0]["neg_category_ids"] == (np.flatnonzero(values[0] == 0) + 1).tolist()
    assert content["images"][0]["pos_category_ids"] == (np.flatnonzero(values[0] == 1) + 1).tolist()
    again = coco.read(tmp_path / "out.json").splits["train"].labels
    order = [
        prepared.train.paths.tolist().index(path)
        for path in coco.read(tmp_path / "out.json").splits["train"].paths
    ]
    assert again.values.tolist() == values[order].tolist()


def test_images_on_their_side(tmp_path: Path) -> None:
    prepared = from_boxes(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (20, 40)).save(tmp_path / "c.jpg", exif=exif)
    write_labels(prepared, "train", "full", tmp_path / "out.json", force=False)
    image = json.loads((tmp_path / "out.json").read_text())["images"][0]
    assert (image["file_name"], image["width"], image["height"]) == ("c.jpg", 40, 20)


def test_points_are_keypoints(tmp_path: Path) -> None:
    prepared = from_boxes(tmp_path)
    train = prepared.train
    points = replace(train.spatial_labels, sizes=np.zeros_like(train.spatial_labels.sizes))
    prepared = replace(prepared, splits={"train": replace(train, spatial_labels=points)})
    write_labels(prepared, "train", "full", tmp_path / "out.json", force=False)
    first = json.loads((tmp_path / "out.json").read_text())["annotations"][0]
    assert (first["bbox"], first["keypoints"], first["num_keypoints"]) == ([16, 6, 0, 0], [16, 6, 2], 1)


def test_what_is_refused(tmp_path: Path) -> None:
    prepared = from_boxes(tmp_path)
    with pytest.raises(DataError, match=r"class cannot be called image there: write a .json"):
        write_labels(prepared, None, "full", tmp_path / "out.csv", force=False)
    with pytest.raises(DataError, match=r"out.txt: the name must end with .csv .* or .json"):
        write_labels(prepared, None, "full", tmp_path / "out.txt", force=False)
    (tmp_path / "out.json").write_text("mine")
    with pytest.raises(
        RunError, match=r"out.json exists: choose another `out`, or replace it with `force=True`"
    ):
        write_labels(prepared, None, "full", tmp_path / "out.json", force=False)
    write_labels(prepared, None, "full", tmp_path / "out.json", force=True)
    assert (tmp_path / "out.json").read_text().startswith('{"info"')
    with pytest.raises(DataError, match=r"no split 'tain', only train"):
        write_labels(prepared, "tain", "full", tmp_path / "x.json", force=False)
    (tmp_path / "c.jpg").write_bytes(b"")
    with pytest.raises(DataError, match=r"c.jpg cannot be read as an image .*, and its size is needed"):
        write_labels(prepared, None, "full", tmp_path / "x.json", force=False)
    (tmp_path / "two").mkdir()
    two = from_table(tmp_path / "two")
    with pytest.raises(DataError, match=r"a file for each split: name one of train, val, test with `split`"):
        write_labels(two, None, "full", tmp_path / "x.json", force=False)
