import json
import math
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as run_lengths

from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.data.readers import coco, reader
from sparselabel.data.readers.json_stream import JsonBlocks
from sparselabel.data.readers.raw_dataset import Box
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import DataError, DataWarning


def content() -> dict[str, Any]:
    """Three images, one of them without annotations; categories neither sorted nor numbered from 0."""
    sizes = {"width": 200, "height": 100}
    return {
        "images": [{"id": number, "file_name": f"{number}.jpg", **sizes} for number in (9, 10, 11)],
        "annotations": [
            {"id": 1, "image_id": 9, "category_id": 18, "bbox": [50, 25, 100, 50], "iscrowd": 0},
            {"id": 2, "image_id": 10, "category_id": 1, "bbox": [150, -1, 60, 51]},
            {"id": 3, "image_id": 10, "category_id": 18, "bbox": [0, 0, 200, 100], "iscrowd": 1},
            {"id": 4, "image_id": 9, "category_id": 1, "bbox": [20, 20, 5, 10], "iscrowd": 1},
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
    # Crowds count for presence only.
    assert (train.spatial_labels.rows.tolist(), train.spatial_labels.classes.tolist()) == ([0, 1], [1, 0])
    np.testing.assert_allclose(train.spatial_labels.centers, [[0.875, 0.25], [0.5, 0.5]], atol=1e-6)
    np.testing.assert_allclose(train.spatial_labels.sizes, [[0.25, 0.5], [0.5, 0.5]], atol=1e-6)
    assert reader("coco") is coco.read


def test_boxes_without_area_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    data = content()
    data["annotations"] += [
        {"id": 5, "image_id": 9, "category_id": 1, "bbox": [10, 10, 0, 20]},
        {"id": 6, "image_id": 11, "category_id": 90, "bbox": [500, 10, 20, 20]},
        {"id": 7, "image_id": 9, "category_id": 90, "bbox": [10, 10, 0, 0], "num_keypoints": 1},  # a point
    ]
    said = r"labels.json: 2 boxes without area .* annotation 5, 'dog', bbox \[10, 10, 0, 20\]; their classes"
    with pytest.warns(DataWarning, match=said):
        train = coco.read(write(tmp_path, data)).splits["train"]
    assert train.labels.ids.tolist() == ["10", "11", "9"]
    assert train.labels.values[1].tolist() == [NEGATIVE, NEGATIVE, POSITIVE]
    assert train.spatial_labels.classes.tolist() == [1, 0, 2]
    assert train.spatial_labels.is_point.tolist() == [False, False, True]


def test_a_point_lies_where_its_key_point_is(tmp_path: Path) -> None:
    data = content()
    point = {"id": 7, "image_id": 9, "category_id": 90, "bbox": [0, 0, 0, 0], "num_keypoints": 1}
    data["annotations"].append(
        point | {"keypoints": [0, 0, 0, 50, 25, 2, 7, 7, 1]}
    )  # the first is not labeled
    spatial_labels = coco.read(write(tmp_path, data)).splits["train"].spatial_labels
    assert spatial_labels.is_point.tolist() == [False, False, True]
    assert spatial_labels.centers[2].tolist() == [0.25, 0.25]  # of 200 x 100 pixels


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([500, 25, 2], "the key point 500, 25 lies outside its image of 200 x 100 pixels"),
        ([math.nan, 25, 2], "the key point nan, 25 lies outside its image"),
        ([5, 25], r"its keypoints are \[5, 25\]: they must be x, y and visibility"),
        ([5, 25, 0], r"its keypoints are \[5, 25, 0\]: .* one of them labeled"),
        (["a", 25, 2], "they must be x, y and visibility"),
        (None, "its keypoints are None"),
    ],
)
def test_a_wrong_key_point_is_named(tmp_path: Path, given: Any, why: str) -> None:
    data = content()
    point = {"id": 7, "image_id": 9, "category_id": 90, "bbox": [0, 0, 0, 0], "num_keypoints": 1}
    data["annotations"].append(point | {"keypoints": given})
    with pytest.raises(DataError, match=f"annotation 7.*{why}"):
        coco.read(write(tmp_path, data))


def test_masks_of_polygons_and_run_lengths(tmp_path: Path) -> None:
    data = content()
    pixels = np.zeros((100, 200), np.uint8)
    pixels[0:50, 150:200] = 1
    runs = run_lengths.encode(np.asfortranarray(pixels))
    plain = [150 * 100, *[50, 50] * 50]
    data["annotations"][0]["segmentation"] = [[50, 25, 150, 25, 150, 75, 50, 75], [1, 1, 2, 2]]
    for counts in (runs["counts"].decode(), plain):
        data["annotations"][1]["segmentation"] = {"size": [100, 200], "counts": counts}
        data["annotations"][2]["segmentation"] = {"size": [100, 200], "counts": counts}  # a crowd
        train = coco.read(write(tmp_path, data)).splits["train"]
        assert train.masks is not None
        assert train.masks.there.tolist() == [True, True]  # in the order of the marks, not of the file
        np.testing.assert_array_equal(train.masks.decode(0), pixels.astype(bool))
        filled = train.masks.decode(1)
        assert (int(filled.sum()), bool(filled[25:75, 50:150].all())) == (5000, True)
    del data["annotations"][0]["segmentation"], data["annotations"][1]["segmentation"]
    assert coco.read(write(tmp_path, data)).splits["train"].masks is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([[1, 2, 3, 4, 5, 6, 7]], "even number of numbers"),
        ([["a", 2, 3, 4, 5, 6]], "even number of numbers"),
        ({"size": [100, 100], "counts": [10000]}, r"its size is \[100, 100\]"),
        ({"size": [100, 200], "counts": [1, 2]}, "its runs are of 3 pixels"),
        ({"size": [100, 200], "counts": "abc"}, "they are damaged"),
        ({"size": [100, 200], "counts": "01"}, "its runs are of 1 pixels"),
        ({"size": [100, 200], "counts": "ü"}, "ascii"),
        ({"size": [100, 200]}, "'counts'"),
        ("no", "not a list of lists"),
        ([[0, 0, 1e7, 0, 5, 5]], "an outline is 2e[+]07 pixels long"),
        ([[0, 0, 1e9, 0, 5, 5]], "a corner at 1e[+]09"),
        ([[0, 0, -1e308, 0, 1e308, 5]], "a corner at 1e[+]308"),
        ({"size": [100, 200], "counts": [2**63 - 1, 2**63 - 1, 20002]}, "one of its runs is of 9,223"),
        ({"size": [100, 200], "counts": "o" * 30 + "0"}, "they are damaged"),
    ],
)
def test_a_wrong_mask_is_named(tmp_path: Path, given: Any, why: str) -> None:
    data = content()
    data["annotations"][1]["segmentation"] = given
    with pytest.raises(DataError, match=rf"annotation 2.*: segmentation must be polygons .*{why}"):
        coco.read(write(tmp_path, data))


def test_keep_empty(tmp_path: Path) -> None:
    train = coco.read(write(tmp_path, content()), keep_empty=True).splits["train"]
    assert train.labels.ids.tolist() == ["10", "11", "9"]
    assert train.labels.values[1].tolist() == [NEGATIVE] * 3
    assert train.spatial_labels.rows.tolist() == [0, 2]


@pytest.mark.parametrize("stored", ["images/v1/patch0/{}", "patch0/{}", "{}"])
def test_patch_folders_of_objects365(tmp_path: Path, stored: str) -> None:
    data = content()
    for image in data["images"]:
        image["file_name"] = f"images/v1/patch0/{image['id']}.jpg"
    file = write(tmp_path, data, names=())
    images = tmp_path / "images"
    write(images, {}, names=tuple(stored.format(f"{number}.jpg") for number in (9, 10)))
    source = coco.read(file, images=images)
    assert source.root == images
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
    # The annotations of another year without its images are no obstacle; with them, nothing is guessed.
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
        ("annotations", 0, {"bbox": ["1", 2, 3, 4]}, r"annotation 1: bbox .*not \['1', 2, 3, 4\]"),
        ("annotations", 0, {"bbox": None}, r"annotation 1: bbox .*not None"),
        (
            "images",
            2,
            {"height": 0},
            r"labels.json: image 11 must have a width and a height above 0 and up to 1,000,000, "
            "not 200 and 0",
        ),
        ("images", 2, {"id": "9"}, r"every image id must be named once; these occur more often: 9"),
        (
            "images",
            0,
            {"file_name": "no.jpg"},
            r"1 of 2 images are not in .*: no.jpg \(image 9\): .* `images`",
        ),
        ("images", 0, {"file_name": "10.jpg"}, r"every image file must be named once; .*: 10.jpg"),
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
        ('{"categories": [], "info": 1}', r"the lists images, .*; found categories, info"),
        ("{}", r"the lists images, .*; found nothing"),
        ('{"categories": [], "categories": []}', r"there are two lists 'categories'"),
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


@pytest.mark.parametrize("order", [*permutations(("images", "annotations", "categories"))])
def test_the_lists_may_come_in_any_order(tmp_path: Path, order: tuple[str, ...]) -> None:
    data = content()
    for number, annotation in enumerate(data["annotations"]):
        annotation["segmentation"] = [[1.5, 2, 3, 4], []]
        annotation["note"] = 0 if number else {"of": "a}, {b", "size": [1, 2]}
    data = {"info": {"images": []}} | {key: data[key] for key in order} | {"licenses": [{"id": 1}]}
    split = coco.read(write(tmp_path, data)).splits["train"]
    assert split.labels.ids.tolist() == ["10", "9"]
    assert split.labels.values.tolist() == [[POSITIVE, POSITIVE, NEGATIVE]] * 2
    assert (split.spatial_labels.rows.tolist(), split.spatial_labels.classes.tolist()) == ([0, 1], [1, 0])


@pytest.mark.parametrize("names", [("9", "10", "11"), (9, "10", 11), ("b/ü", "a", "c"), (9, 10, 10**30)])
def test_ids_may_be_numbers_or_texts(tmp_path: Path, names: tuple[Any, ...]) -> None:
    data = content()
    for image, name in zip(data["images"], names, strict=True):
        image["id"] = name
    for annotation in data["annotations"]:
        annotation["image_id"] = names[{9: 0, 10: 1}[annotation["image_id"]]]
    split = coco.read(write(tmp_path, data), keep_empty=True).splits["train"]
    assert split.labels.ids.tolist() == sorted(map(str, names))
    assert split.labels.values[sorted(map(str, names)).index(str(names[0]))].tolist() == [1, 1, 0]


def test_images_that_are_not_there_can_be_left_out(tmp_path: Path) -> None:
    file = write(tmp_path, content(), names=("9.jpg",))
    with pytest.raises(
        DataError, match=r"1 of 2 images are not in .*: 10.jpg \(image 10\): .*`skip_missing=True`"
    ):
        coco.read(file)
    with pytest.warns(DataWarning, match=r"1 of 2 images are not in .*: 10.jpg .*; they were left out"):
        train = coco.read(file, skip_missing=True).splits["train"]
    assert (train.labels.ids.tolist(), train.paths.tolist(), train.spatial_labels.rows.tolist()) == (
        ["9"],
        ["9.jpg"],
        [0],
    )
    (tmp_path / "9.jpg").unlink()
    with pytest.raises(DataError, match=r"2 of 2 images are not in"):
        coco.read(file, skip_missing=True)


def test_what_was_looked_for(tmp_path: Path) -> None:
    """LVIS says which categories are not there; of the others that have no annotation nothing is known."""
    data = content()
    data["images"][0] |= {"neg_category_ids": [90], "not_exhaustive_category_ids": [18]}
    data["images"][1] |= {"neg_category_ids": []}
    data["images"][2] |= {"neg_category_ids": [1], "pos_category_ids": [90]}
    for image in data["images"]:
        image["coco_url"] = f"http://images.example.org/train2017/{image.pop('file_name')}"
    train = coco.read(write(tmp_path, data)).splits["train"]
    assert train.paths.tolist() == ["10.jpg", "11.jpg", "9.jpg"]
    assert train.labels.values.tolist() == [[1, 1, -1], [-1, 0, 1], [1, 1, 0]]
    data["images"][1]["neg_category_ids"] = [18]
    with pytest.raises(DataError, match=r"image 10 has category 18 in neg_category_ids, and an annotation"):
        coco.read(write(tmp_path, data))
    data["images"][1]["neg_category_ids"] = [7]
    with pytest.raises(DataError, match=r"image 10: 7 of neg_category_ids is not among the categories"):
        coco.read(write(tmp_path, data))


def straightforward(data: dict[str, Any]) -> tuple[list[str], list[list[int]], list[tuple[Any, ...]]]:
    """Ids, labels and marks as a few loops give them."""
    images = {str(image["id"]): image for image in data["images"]}
    index_of = {category["id"]: index for index, category in enumerate(data["categories"])}
    ids = sorted({str(annotation["image_id"]) for annotation in data["annotations"]})
    labels = [[0] * len(index_of) for _ in ids]
    spatial_labels = []
    for annotation in data["annotations"]:
        row, index = ids.index(str(annotation["image_id"])), index_of[annotation["category_id"]]
        labels[row][index] = 1
        if not annotation["iscrowd"]:
            x, y, w, h = annotation["bbox"]
            image = images[ids[row]]
            box = Box(
                x / image["width"], y / image["height"], (x + w) / image["width"], (y + h) / image["height"]
            ).clipped()
            if box:
                spatial_labels.append((row, index, *box))
    return ids, labels, sorted(spatial_labels, key=lambda spatial_label: spatial_label[0])


@pytest.mark.parametrize("block", [100, 3000, 1 << 20])
def test_many_annotations_against_a_few_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    random = np.random.default_rng(0)
    keys = random.permutation(5000)[:60].tolist()
    data = {
        "images": [
            {"id": key, "file_name": f"{key}.jpg", "width": 100 + key % 7, "height": 80 + key % 5}
            for key in keys
        ],
        "annotations": [
            {
                "segmentation": [[1.25] * 2 * int(random.integers(1, 30))],
                "id": number,
                "image_id": keys[int(random.integers(0, 50))],
                "category_id": int(random.integers(1, 9)) * 10,
                "bbox": (random.random(4) * 90).round(2).tolist(),
                "iscrowd": int(random.random() < 0.1),
            }
            for number in range(300)
        ],
        "categories": [{"id": number * 10, "name": f"c{number}"} for number in (3, 1, 2, 8, 7, 6, 5, 4)],
    }
    monkeypatch.setattr(coco, "JsonBlocks", partial(JsonBlocks, block=block))
    ids, labels, spatial_labels = straightforward(data)
    lost = sum(not annotation["iscrowd"] for annotation in data["annotations"]) - len(spatial_labels)
    with pytest.warns(DataWarning, match=rf"labels.json: {lost} boxes without area inside"):
        read = coco.read_instances(write(tmp_path, data, names=()))
    assert read.labels.ids.tolist() == ids
    assert read.labels.values.tolist() == labels
    assert read.names.tolist() == [f"{key}.jpg".encode() for key in ids]
    edges = np.asarray([spatial_label[2:] for spatial_label in spatial_labels])
    assert read.spatial_labels.rows.tolist() == [spatial_label[0] for spatial_label in spatial_labels]
    assert read.spatial_labels.classes.tolist() == [spatial_label[1] for spatial_label in spatial_labels]
    np.testing.assert_array_equal(
        read.spatial_labels.centers, ((edges[:, :2] + edges[:, 2:]) / 2).astype(np.float32)
    )
    np.testing.assert_array_equal(read.spatial_labels.sizes, (edges[:, 2:] - edges[:, :2]).astype(np.float32))
    SpatialLabels(
        read.spatial_labels.rows,
        read.spatial_labels.classes,
        read.spatial_labels.centers,
        read.spatial_labels.sizes,
    )  # nothing to refuse
