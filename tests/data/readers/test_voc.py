import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.data.readers import reader, voc
from sparselabel.errors import DataError, DataWarning

REAL = Path(__file__).parents[4] / "shared" / "data" / "VOC2012"

LABELS = {
    "dog_train": "2008_000003 -1\n2008_000001  1\n2008_000002  0\n2008_000004 -1\n",
    "train_train": "2008_000003  1\n2008_000001  1\n2008_000002 -1\n2008_000004 -1\n",
    "dog_val": "2008_000005  1\n",
    "train_val": "2008_000005 -1\n",
}


def annotation(objects: str, size: str = "<width>200</width><height>100</height>") -> str:
    return f"<annotation><folder>VOC2012</folder><size>{size}</size>{objects}</annotation>"


def an_object(name: str, edges: tuple[float, float, float, float], inner: str = "") -> str:
    tags = "".join(f"<{t}>{v}</{t}>" for t, v in zip(("xmin", "ymin", "xmax", "ymax"), edges, strict=True))
    return f"<object><name>{name}</name>{inner}<bndbox>{tags}</bndbox></object>"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "VOCdevkit" / "VOC2012"
    for folder in ("ImageSets/Main", "JPEGImages", "Annotations"):
        (root / folder).mkdir(parents=True)
    for name, text in LABELS.items():
        (root / "ImageSets/Main" / f"{name}.txt").write_text(text)
    (root / "ImageSets/Main/train.txt").write_text("2008_000001\n")  # the set of all classes, not of class ""
    (root / "ImageSets/Main/dog_trainval.txt").write_text("2008_000001 1\n")
    for number in (1, 2, 3, 4, 5):
        Image.new("RGB", (20, 10)).save(root / "JPEGImages" / f"2008_00000{number}.jpg")
    part = an_object("dog", (1, 1, 9, 9)).replace("object>", "part>")
    objects = [
        an_object("dog", (1, 1, 200, 100), part),  # the whole image
        an_object("train", (51, 26, 150, 75.0)),
        an_object("train", (190, 1, 230, 50)),  # reaches over the right edge
        an_object("hand", (1, 1, 2, 2)),
    ]
    (root / "Annotations/2008_000001.xml").write_text(annotation("".join(objects)))
    far = an_object("dog", (1, 1, 20, 20), "<difficult>1</difficult>")
    (root / "Annotations/2008_000003.xml").write_text(annotation(far))
    return root


def test_labels_are_of_images_with_a_positive_sorted_by_name(root: Path) -> None:
    source = voc.read(root)
    train, test = source.splits["train"], source.splits["test"]
    assert (source.name, source.root, list(source.splits)) == ("VOC2012", root, ["train", "test"])
    assert train.labels.classes == test.labels.classes == ("dog", "train")
    assert train.labels.ids.tolist() == ["2008_000001", "2008_000003"]  # 2 is "difficult", 4 has nothing
    assert train.labels.values.tolist() == [[POSITIVE, POSITIVE], [NEGATIVE, POSITIVE]]
    assert train.paths.tolist() == ["JPEGImages/2008_000001.jpg", "JPEGImages/2008_000003.jpg"]
    assert test.labels.values.tolist() == [[POSITIVE, NEGATIVE]]
    assert reader("voc") is voc.read


def test_an_object_of_a_class_that_is_labeled_absent_is_refused(root: Path) -> None:
    file = root / "Annotations/2008_000003.xml"
    file.write_text(annotation(an_object("train", (1, 1, 9, 9)) + an_object("dog", (1, 1, 20, 20))))
    with pytest.raises(
        DataError, match=r"2008_000003.xml: object 2 is a dog, which ImageSets/Main/dog_\*.txt says"
    ):
        voc.read(root)


def test_boxes_are_unit_boxes_of_positive_classes(root: Path) -> None:
    spatial_labels = voc.read(root).splits["train"].spatial_labels
    assert spatial_labels.rows.tolist() == [0, 0, 0]  # the dog of image 3 is difficult to see, and negative
    assert spatial_labels.classes.tolist() == [0, 1, 1]
    np.testing.assert_allclose(
        spatial_labels.centers, [[0.5, 0.5], [0.5, 0.5], [(189 / 200 + 1) / 2, 0.25]], atol=1e-6
    )
    np.testing.assert_allclose(
        spatial_labels.sizes, np.array([[1, 1], [0.5, 0.5], [11 / 200, 0.5]]), atol=1e-6
    )


def draw_objects(root: Path, name: str, parts: dict[int, tuple[int, int, int, int]]) -> None:
    """An object mask of 20 × 10 pixels: numbers, and their left, top, right and bottom."""
    pixels = np.zeros((10, 20), np.uint8)
    for number, (left, top, right, bottom) in parts.items():
        pixels[top:bottom, left:right] = number
    image = Image.fromarray(pixels)
    image.putpalette([*range(256)] * 3)
    (root / "SegmentationObject").mkdir(exist_ok=True)
    image.save(root / "SegmentationObject" / f"{name}.png")


def test_masks_are_those_of_the_objects_in_their_order(root: Path) -> None:
    parts = {1: (0, 0, 20, 10), 2: (6, 3, 14, 7), 3: (19, 0, 20, 4), 255: (0, 0, 1, 1)}
    draw_objects(root, "2008_000001", parts)
    train = voc.read(root).splits["train"]
    assert train.masks is not None
    assert train.masks.there.tolist() == [True] * 3
    assert [int(train.masks.decode(spatial_label).sum()) for spatial_label in range(3)] == [
        200 - 1 - 32 - 4,
        32,
        4,
    ]
    assert train.masks.decode(1)[3:7, 6:14].all()
    assert voc.read(root).splits["test"].masks is None


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ({1: (0, 0, 20, 10), 3: (6, 3, 14, 7)}, r"2008_000001.png \(0% of object 3 in its box\)"),
        ({5: (0, 0, 2, 2)}, r"2008_000001.png \(object 5, but the XML file has 4\)"),
    ],
)
def test_masks_of_other_objects_are_refused(
    root: Path, parts: dict[int, tuple[int, int, int, int]], rule: str
) -> None:
    draw_objects(root, "2008_000001", parts)
    with pytest.raises(DataError, match=rf"masks of 1 of 1 images are not those .*{rule}"):
        voc.read(root)


def test_a_mask_in_colors_is_refused(root: Path) -> None:
    (root / "SegmentationObject").mkdir()
    Image.new("RGB", (20, 10)).save(root / "SegmentationObject/2008_000001.png")
    with pytest.raises(DataError, match=r"2008_000001.png: object masks have a palette .* not of mode RGB"):
        voc.read(root)


@pytest.mark.parametrize("up", [0, 1, 2])
def test_the_devkit_is_found_from_folders_above(root: Path, up: int) -> None:
    assert voc.read([root, *root.parents][up]).root.resolve() == root.resolve()


def test_without_val_files_there_is_no_test_split(root: Path) -> None:
    for name in ("dog", "train"):
        (root / f"ImageSets/Main/{name}_val.txt").unlink()
    assert list(voc.read(root).splits) == ["train"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "dog_train",
            "2008_000001 1\n\n2008_000002 2\n",
            r"dog_train.txt, line 3: .* 1, -1 or 0, not '2008_000002 2'",
        ),
        ("dog_train", "2008_000001\n", r"dog_train.txt, line 1: .* not '2008_000001'"),
        ("dog_train", "a 1\na 1\n", r"dog_train.txt, line 2: image 'a' is listed a second time"),
        ("train_train", "2008_000001 1\n", r"must list the same images.*2008_000002, 2008_000003"),
        ("cat_train", "2008_000001 1\n", r"these lack one: cat"),
        ("dog_val", "2008_000005 -1\n", r"no image has a positive label in the <class>_val.txt"),
    ],
)
def test_label_files_that_are_wrong(root: Path, name: str, text: str, message: str) -> None:
    (root / "ImageSets/Main" / f"{name}.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        voc.read(root)


def test_boxes_outside_their_image_are_counted_and_the_first_is_named(root: Path) -> None:
    objects = [an_object("dog", (1, 1, 9, 9)), an_object("train", (201, 1, 230, 50))]
    (root / "Annotations/2008_000001.xml").write_text(annotation("".join(objects)))
    (root / "Annotations/2008_000005.xml").write_text(annotation(an_object("dog", (1, 1, 9, 9))))
    said = (
        r"Annotations: 1 box without area .*000001.xml, object 2, 'train', xmin 201, ymin 1, xmax 230, ymax"
    )
    with pytest.warns(DataWarning, match=said):
        train = voc.read(root).splits["train"]
    assert (train.spatial_labels.rows.tolist(), train.spatial_labels.classes.tolist()) == ([0], [0])
    assert train.labels.values[0].tolist() == [POSITIVE, POSITIVE]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotation>", r"2008_000001.xml cannot be read \(no element found: line 1"),
        (annotation("", "<width>10</width>"), r"2008_000001.xml: <size/height> must be a number, not None"),
        (annotation("", "<width>0</width><height>5</height>"), r"size must be positive, not 0 × 5"),
        (annotation(an_object("dog", (9, 1, 5, 5))), r"2008_000001.xml: a box must not end before it begins"),
        (annotation("<object><name>dog</name></object>"), r"<bndbox/xmin> must be a number, not None"),
    ],
)
def test_xml_files_that_are_wrong(root: Path, text: str, message: str) -> None:
    (root / "Annotations/2008_000001.xml").write_text(text)
    with pytest.raises(DataError, match=message):
        voc.read(root)


def test_a_missing_image_is_named(root: Path) -> None:
    (root / "JPEGImages/2008_000003.jpg").unlink()
    with pytest.raises(DataError, match=r"_train.txt files name 1 images .*: JPEGImages/2008_000003.jpg"):
        voc.read(root)


def test_a_folder_that_is_not_voc(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}: no ImageSets/Main")):
        voc.read(tmp_path)


@pytest.mark.skipif(not REAL.is_dir(), reason="Pascal VOC 2012 is not in ../shared/data")
def test_the_real_data_is_that_of_the_papers() -> None:
    splits = voc.read(REAL).splits
    train, test = splits["train"], splits["test"]
    assert (len(train.labels), len(test.labels)) == (5717, 5823)
    assert " ".join(train.labels.classes) == (
        "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person "
        "pottedplant sheep sofa train tvmonitor"
    )
    counts = dict(zip(train.labels.classes, train.labels.counts().tolist(), strict=True))
    assert {name: counts[name] for name in ("aeroplane", "person", "train", "cow")} == {
        "aeroplane": 327,
        "person": 1994,
        "train": 273,
        "cow": 151,
    }
    assert round(float(train.labels.per_image().mean()), 2) == 1.46
    assert train.labels.complete
    assert (len(train.spatial_labels), len(test.spatial_labels)) == (15002, 15092)
    assert train.masks is not None
    assert test.masks is not None
    assert (int(train.masks.there.sum()), int(test.masks.there.sum())) == (2491, 2386)
    # Every positive has a box, and no box is of anything else.
    marked = np.zeros_like(train.labels.values)
    marked[train.spatial_labels.rows, train.spatial_labels.classes] = POSITIVE
    np.testing.assert_array_equal(marked, train.labels.values)
