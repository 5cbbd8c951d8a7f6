import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.readers import label_studio, reader
from sparselabel.errors import DataError, DataWarning


def choices(*names: Any, control: str = "choice") -> dict[str, Any]:
    return {"from_name": control, "to_name": "image", "type": "choices", "value": {"choices": [*names]}}


def shape(kind: str, name: str, **value: Any) -> dict[str, Any]:
    sizes = {"original_width": 200, "original_height": 100, "image_rotation": 0}
    return {"id": "x", "from_name": "label", "type": kind, "value": {**value, kind: [name]}, **sizes}


def task(number: int, image: str, *results: list[Any], **more: Any) -> dict[str, Any]:
    annotations = [{"id": 1, "was_cancelled": False, "result": result} for result in results]
    return {"id": number, "data": {"image": image}, "annotations": annotations, "predictions": []} | more


def write(folder: Path, *tasks: Any, names: tuple[str, ...] = ("a.jpg", "b.jpg", "c.jpg")) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(folder / name)
    file = folder / "project-1.json"
    file.write_text(json.dumps([*tasks]))
    return file


def test_choices_and_shapes(tmp_path: Path) -> None:
    box = shape("rectanglelabels", "dog", x=25, y=50, width=50, height=25, rotation=0)
    turned = shape("rectanglelabels", "dog", x=50, y=50, width=10, height=40, rotation=90)
    point = shape("keypointlabels", "eye", x=10, y=20, width=0.5)
    ellipse = shape("ellipselabels", "sun", x=50, y=50, radiusX=10, radiusY=20)
    polygon = shape("polygonlabels", "tree", points=[[10, 10], [30, 20], [20, 90]])
    brush = shape("brushlabels", "sky", format="rle", rle=[0, 1])
    file = write(
        tmp_path,
        task(1, "a.jpg", [choices("cat", "indoor"), box, point]),
        task(2, "b.jpg", [turned, ellipse, polygon, brush]),
    )
    source = label_studio.read(file)
    train = source.splits["train"]
    assert (source.name, source.root, list(source.splits)) == ("project-1", tmp_path, ["train"])
    assert train.labels.classes == ("cat", "indoor", "dog", "eye", "sun", "tree", "sky")
    assert train.paths.tolist() == train.labels.ids.tolist() == ["a.jpg", "b.jpg"]
    assert train.labels.values.tolist() == [[1, 1, 1, 1, -1, -1, -1], [-1, -1, 1, -1, 1, 1, 1]]
    assert train.spatial_labels.rows.tolist() == [0, 0, 1, 1, 1]
    assert train.spatial_labels.classes.tolist() == [2, 3, 2, 4, 5]
    # 20 × 40 pixels at (100, 50), a quarter turn clockwise about that corner: 40 pixels to the left, 20 down.
    np.testing.assert_allclose(
        train.spatial_labels.centers,
        [[0.5, 0.625], [0.1, 0.2], [0.4, 0.6], [0.5, 0.5], [0.2, 0.5]],
        atol=1e-6,
    )
    np.testing.assert_allclose(
        train.spatial_labels.sizes, [[0.5, 0.25], [0.0, 0.0], [0.2, 0.2], [0.2, 0.4], [0.2, 0.8]], atol=1e-6
    )
    assert reader("label-studio") is label_studio.read


@pytest.mark.parametrize(
    ("named", "stored"),
    [
        ("/data/upload/1/8f3c2d1e-a.jpg", "a.jpg"),
        ("/data/upload/1/8f3c2d1e-a.jpg", "8f3c2d1e-a.jpg"),
        ("/data/upload/1/8f3c2d1e-a.jpg", "upload/1/8f3c2d1e-a.jpg"),
        ("/data/upload/8f3c2-a.jpg", "a.jpg"),
        ("/data/local-files/?d=photos/day%201/a.jpg", "day 1/a.jpg"),
        ("/data/local-files/?d=photos%5Ca.jpg", "a.jpg"),
        ("https://example.org/x/a%20b.jpg?token=1", "a b.jpg"),
        ("s3://bucket/x/a.jpg", "x/a.jpg"),
        ("../../a.jpg", "a.jpg"),
        ("odd name?.jpg", "odd name?.jpg"),
    ],
)
def test_where_images_are(tmp_path: Path, named: str, stored: str) -> None:
    file = write(tmp_path, task(1, named, [choices("cat")]), names=())
    images = tmp_path / "images"
    write(images, names=(stored,))
    train = label_studio.read(file, images=images).splits["train"]
    assert train.paths.tolist() == [stored]


def test_what_is_not_there_and_what_is_not_said(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        task(1, "a.jpg", [choices("cat"), choices("dog", control="absent")]),
        task(2, "b.jpg", []),  # someone looked and found nothing
    )
    with pytest.warns(DataWarning, match=r"1 of 2 images were left out, of which nothing is known: b.jpg"):
        train = label_studio.read(file, negative="absent").splits["train"]
    assert (train.labels.classes, train.labels.values.tolist()) == (("cat", "dog"), [[POSITIVE, NEGATIVE]])
    train = label_studio.read(file, negative="absent", complete=True).splits["train"]
    assert train.labels.values.tolist() == [[POSITIVE, NEGATIVE], [NEGATIVE, NEGATIVE]]


def test_annotations_that_do_not_count(tmp_path: Path) -> None:
    skipped = task(2, "b.jpg", [choices("dog")])
    skipped["annotations"][0]["was_cancelled"] = True
    rejected = task(3, "c.jpg", [choices("dog")], [choices("cat")])
    rejected["annotations"][0]["reviews"] = [{"accepted": True}, {"accepted": False}]
    predicted = task(4, "d.jpg") | {"predictions": [{"result": [choices("dog")]}]}
    names = ("a.jpg", "b.jpg", "c.jpg", "d.jpg")
    file = write(tmp_path, task(1, "a.jpg", [choices("cat")]), skipped, rejected, predicted, names=names)
    with pytest.warns(DataWarning, match=r"2 of 4 images were left out, .*: b.jpg, d.jpg"):
        train = label_studio.read(file, complete=True).splits["train"]
    assert (train.paths.tolist(), train.labels.classes) == (["a.jpg", "c.jpg"], ("cat",))


def test_annotators_who_disagree(tmp_path: Path) -> None:
    box = shape("rectanglelabels", "dog", x=0, y=0, width=50, height=50)
    absent = choices("dog", control="absent")
    file = write(tmp_path, task(1, "a.jpg", [choices("cat"), box], [choices("ant"), absent]))
    with pytest.warns(DataWarning, match=r"1 labels are said to be there and not .*unknown: dog on a.jpg"):
        train = label_studio.read(file, negative="absent").splits["train"]
    assert train.labels.values.tolist() == [[POSITIVE, UNKNOWN, POSITIVE]]
    assert len(train.spatial_labels) == 0


def test_what_says_nothing_of_the_image(tmp_path: Path) -> None:
    of_a_box = choices("blurred")
    of_a_box["value"] |= {"x": 1, "y": 1, "width": 1, "height": 1}
    text = {"from_name": "t", "type": "textarea", "value": {"text": ["hello"]}}
    relation = {"type": "relation", "from_id": "x", "to_id": "y"}
    file = write(tmp_path, task(1, "a.jpg", [choices("cat"), of_a_box, text, relation]))
    with pytest.warns(
        DataWarning, match=r"passed over: choices of a shape \(1\), relation \(1\), textarea \(1\)"
    ):
        train = label_studio.read(file).splits["train"]
    assert train.labels.classes == ("cat",)


def test_two_tasks_with_one_image(tmp_path: Path) -> None:
    file = write(tmp_path, task(1, "a.jpg", [choices("cat")]), task(2, "a.jpg", [choices("dog")]))
    assert label_studio.read(file).splits["train"].labels.values.tolist() == [[1, 1]]
    first, second = "/data/upload/1/00000001-a.jpg", "/data/upload/1/00000002-a.jpg"
    file = write(tmp_path, task(1, first, [choices("cat")]), task(2, second, [choices("dog")]))
    with pytest.raises(
        DataError, match=r"task 2: '.*2-a.jpg' and '.*1-a.jpg' \(task 1\) are both found as a.jpg"
    ):
        label_studio.read(file)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([{"id": 1, "image": "a.jpg", "choice": "cat"}], r"task at position 0 .* 'data', as in .*JSON-MIN"),
        (
            [task(7, "no.jpg", [choices("cat")])],
            r"1 of 1 images are not in .*: no.jpg \(task 7\): .*`images`",
        ),
        ([{"id": 7, "data": {"img": "a.jpg"}}], r"task 7: its data has no image 'image' .*img.*: .*`image`"),
        ([task(7, "a.jpg", [{"type": "choices"}])], r"task 7: a result must have a 'type' and a 'value'"),
        (
            [task(7, "a.jpg", [choices(3)])],
            r"task 7: the value of 'choices' must be a list of names, not \[3\]",
        ),
        ([task(7, "a.jpg", [shape("rectanglelabels", "dog", x=1)])], r"task 7: a shape .*'y'"),
        (
            [task(7, "a.jpg", [shape("polygonlabels", "dog", points=[])])],
            r"task 7: a shape of 'polygonlabels'",
        ),
        ([task(7, "a.jpg", annotations=3)], r"task 7: 'annotations' must be a list, not 3"),
        ([task(7, "a.jpg", annotations=[3])], r"task 7: an annotation must have a list 'result': 3"),
        ([task(7, "a.jpg", [])], r"no image has a label"),
        ([], r"project-1.json has no tasks"),
    ],
)
@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_wrong_values(tmp_path: Path, tasks: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        label_studio.read(write(tmp_path, *tasks))


def test_not_a_file_of_json(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.json is not there, or not a file: give the JSON file"):
        label_studio.read(tmp_path / "none.json")
    (tmp_path / "x.json").write_text("[{]")
    with pytest.raises(DataError, match=r"x.json cannot be read \(.*: line 1, column 3\)"):
        label_studio.read(tmp_path / "x.json")


def test_a_misspelt_control_does_not_make_negatives_positive(tmp_path: Path) -> None:
    file = write(tmp_path, task(1, "a.jpg", [choices("cat"), choices("dog", control="absent")]))
    with pytest.raises(DataError, match=r"of a control 'abs' .*'absent'.* known: absent, choice"):
        label_studio.read(file, negative="abs")


@pytest.mark.parametrize(
    ("drawn", "rule"),
    [
        (
            ("keypointlabels", {"x": 120, "y": 20, "width": 0.5}),
            r"task 1: a point of 'eye' must lie inside the image .* not at 1.2, 0.2",
        ),
        (
            ("rectanglelabels", {"x": 20, "y": 20, "width": 0, "height": 5}),
            r"task 1: a box of 'eye' must have an area .* right and bottom are 0.2, 0.2, 0.2, 0.25: redraw",
        ),
    ],
)
def test_points_outside_and_boxes_of_no_area_are_refused(
    tmp_path: Path, drawn: tuple[str, dict[str, float]], rule: str
) -> None:
    file = write(tmp_path, task(1, "a.jpg", [shape(drawn[0], "eye", **drawn[1])]))
    with pytest.raises(DataError, match=rule):
        label_studio.read(file)
