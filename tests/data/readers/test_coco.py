import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.data.readers import READERS, coco
from sparselabel.errors import DataError


def content() -> dict[str, Any]:
    """Three pictures, one of them without annotations; categories neither sorted nor numbered from 0."""
    sizes = {"width": 200, "height": 100}
    return {
        "images": [{"id": number, "file_name": f"{number}.jpg", **sizes} for number in (9, 10, 11)],
        "annotations": [
            {"id": 1, "image_id": 9, "category_id": 18, "bbox": [50, 25, 100, 50], "iscrowd": 0},
            {"id": 2, "image_id": 10, "category_id": 1, "bbox": [150, -1, 60, 51]},
            {"id": 3, "image_id": 10, "category_id": 18, "bbox": [0, 0, 200, 100], "iscrowd": 1},
            {"id": 4, "image_id": 9, "category_id": 1, "bbox": [20, 20, 0, 10], "iscrowd": 0},
        ],
        "categories": [{"id": 18, "name": "zebra"}, {"id": 1, "name": "dog"}, {"id": 90, "name": "ant"}],
    }


def write(folder: Path, data: Any, names: tuple[str, ...] = ("9.jpg", "10.jpg", "11.jpg")) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10)).save(folder / name)
    file = folder / "labels.json"
    file.write_text(json.dumps(data))
    return file


def test_presence_boxes_and_order(tmp_path: Path) -> None:
    source = coco.read(write(tmp_path, content()))
    assert (source.name, source.root, list(source.splits)) == ("labels", tmp_path, ["train"])
    train = source.splits["train"]
    assert train.labels.classes == ("zebra", "dog", "ant")
    assert train.labels.ids.tolist() == ["10", "9"]  # as strings; 11 has no annotation
    assert train.paths.tolist() == ["10.jpg", "9.jpg"]
    assert train.labels.values.tolist() == [[POSITIVE, POSITIVE, NEGATIVE]] * 2
    # The crowd and the box without area count for presence only.
    assert (train.marks.rows.tolist(), train.marks.classes.tolist()) == ([0, 1], [1, 0])
    np.testing.assert_allclose(train.marks.centres, [[0.875, 0.25], [0.5, 0.5]], atol=1e-6)
    np.testing.assert_allclose(train.marks.sizes, [[0.25, 0.5], [0.5, 0.5]], atol=1e-6)
    assert READERS["coco"] is coco.read


def test_keep_empty(tmp_path: Path) -> None:
    train = coco.read(write(tmp_path, content()), keep_empty=True).splits["train"]
    assert train.labels.ids.tolist() == ["10", "11", "9"]
    assert train.labels.values[1].tolist() == [NEGATIVE] * 3
    assert train.marks.rows.tolist() == [0, 2]


@pytest.mark.parametrize("stored", ["images/v1/patch0/{}", "patch0/{}", "{}"])
def test_patch_folders_of_objects365(tmp_path: Path, stored: str) -> None:
    data = content()
    for image in data["images"]:
        image["file_name"] = f"images/v1/patch0/{image['id']}.jpg"
    file = write(tmp_path, data, names=())
    pictures = tmp_path / "pictures"
    write(pictures, {}, names=tuple(stored.format(f"{number}.jpg") for number in (9, 10)))
    source = coco.read(file, images=pictures)
    assert source.root == pictures
    assert source.splits["train"].paths.tolist() == [stored.format("10.jpg"), stored.format("9.jpg")]


def layout(root: Path, years: tuple[str, ...] = ("2017",)) -> Path:
    (root / "annotations").mkdir(parents=True)
    for year in years:
        for part in ("train", "val"):
            write(root / f"{part}{year}", {})
            (root / "annotations" / f"instances_{part}{year}.json").write_text(json.dumps(content()))
    return root


@pytest.mark.parametrize("year", ["2014", "2017"])
def test_cocos_own_layout(tmp_path: Path, year: str) -> None:
    source = coco.read(layout(tmp_path / "coco", (year,)))
    assert (source.name, list(source.splits)) == ("coco", ["train", "test"])
    assert source.splits["train"].paths.tolist() == [f"train{year}/10.jpg", f"train{year}/9.jpg"]
    assert source.splits["test"].paths.tolist() == [f"val{year}/10.jpg", f"val{year}/9.jpg"]


def test_layout_with_other_files_of_annotations(tmp_path: Path) -> None:
    root = layout(tmp_path / "coco", ("2017",))
    # The annotations of another year without its pictures are no obstacle; with them, nothing is guessed.
    (root / "annotations/instances_train2014.json").write_text("{}")
    assert coco.read(root).splits["train"].paths[0] == "train2017/10.jpg"
    (root / "train2014").mkdir()
    with pytest.raises(DataError, match=r"several years \(2014, 2017\)"):
        coco.read(root)


def test_layout_without_training_file(tmp_path: Path) -> None:
    root = layout(tmp_path / "coco")
    (root / "annotations/instances_train2017.json").unlink()
    with pytest.raises(DataError, match=r"to read a single file as training data, give that file"):
        coco.read(root)


@pytest.mark.parametrize(
    ("names", "said"), [("cat dog ant", "cat, zebra"), ("dog zebra ant", "the order differs")]
)
def test_train_and_val_must_have_the_same_categories(tmp_path: Path, names: str, said: str) -> None:
    root = layout(tmp_path / "coco")
    data = content()
    for item, name in zip(data["categories"], names.split(), strict=True):
        item["name"] = name
    (root / "annotations/instances_val2017.json").write_text(json.dumps(data))
    with pytest.raises(DataError, match=rf"must have the same categories in the same order; .*{said}"):
        coco.read(root)


@pytest.mark.parametrize(
    ("key", "place", "change", "message"),
    [
        (
            "annotations",
            1,
            {"image_id": 77},
            r"labels.json: annotation 2: image_id 77 is not among the images",
        ),
        (
            "annotations",
            1,
            {"category_id": "x"},
            r"annotation 2: category_id 'x' is not among the categories",
        ),
        ("annotations", 1, {"category_id": None}, r"annotation 2: category_id None is not"),
        ("annotations", 0, {"bbox": [1, 2, 3]}, r"annotation 1: bbox must be \[x, y, width.*not \[1, 2, 3\]"),
        ("annotations", 0, {"bbox": [1, 2, -3, 4]}, r"annotation 1: bbox .*not \[1, 2, -3, 4\]"),
        ("annotations", 0, {"bbox": [1, 2, float("nan"), 4]}, r"annotation 1: bbox .*nan"),
        (
            "images",
            2,
            {"height": 0},
            r"labels.json: image 11 must have a width and a height above 0, not 200 and 0",
        ),
        ("images", 2, {"id": "9"}, r"every image id must be named once; these occur more often: 9"),
        (
            "images",
            0,
            {"file_name": "no.jpg"},
            r"1 of 2 pictures are not in .*: no.jpg \(image 9\); .* --images",
        ),
        ("images", 0, {"file_name": "10.jpg"}, r"every picture file must be named once; .*: 10.jpg"),
        ("categories", 0, {"name": "dog"}, r"labels.json: every category must be named once; .*: dog"),
        ("categories", 0, {"id": 90}, r"every category id must be named once; .*: 90"),
    ],
)
def test_wrong_values(tmp_path: Path, key: str, place: int, change: dict[str, Any], message: str) -> None:
    data = content()
    data[key][place] |= change
    with pytest.raises(DataError, match=message):
        coco.read(write(tmp_path, data))


@pytest.mark.parametrize(
    ("key", "missing", "message"),
    [
        ("annotations", "image_id", r"annotation 1 has no 'image_id': \{'id': 1"),
        ("annotations", "category_id", r"annotation 1 has no 'category_id'"),
        ("annotations", "bbox", r"annotation 1 has no 'bbox'"),
        ("images", "id", r"image at position 0 \(counted from 0\) has no 'id'"),
        ("images", "width", r"image 9 must have a width .*not None and 100"),
        ("images", "file_name", r"image 9 has no 'file_name'"),
        ("categories", "name", r"category 18 has no 'name'"),
    ],
)
def test_missing_keys(tmp_path: Path, key: str, missing: str, message: str) -> None:
    data = content()
    del data[key][0][missing]
    with pytest.raises(DataError, match=message):
        coco.read(write(tmp_path, data))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"images": [,]}', r"labels.json, line 1, column 13 is not JSON: Expecting value"),
        ("[]", r"must be an object with the lists images, annotations, categories; found a list"),
        ('{"images": [], "info": 1}', r"the lists images, .*; found images, info"),
        ('{"images": [], "annotations": [], "categories": [1]}', r"labels.json: 'images' is empty"),
    ],
)
def test_not_coco_at_all(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "labels.json"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        coco.read(file)


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.json is not there"):
        coco.read(tmp_path / "none.json")
    with pytest.raises(DataError, match=r"no image has an annotation"):
        coco.read(write(tmp_path, content() | {"annotations": []}))
    (tmp_path / "labels.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(DataError, match=r"not JSON in UTF-8: invalid start byte at byte 0"):
        coco.read(tmp_path / "labels.json")
