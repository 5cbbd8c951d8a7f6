import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.readers import fiftyone, reader
from sparselabel.errors import DataError, DataWarning


def write(folder: Path, content: Any, names: tuple[str, ...] = ("data/a.jpg", "data/b.png")) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(folder / name)
    folder.mkdir(exist_ok=True)
    (folder / "labels.json").write_text(json.dumps(content))
    return folder


def test_classification(tmp_path: Path) -> None:
    content = {
        "classes": ["cat", "dog", "eel"],
        "labels": {"b": 1, "a": {"label": 0, "attributes": {"x": 1}}},
    }
    source = fiftyone.read(write(tmp_path / "exported", content))
    train = source.splits["train"]
    assert (source.name, source.root) == ("exported", tmp_path / "exported/data")
    assert (train.labels.classes, train.paths.tolist()) == (("cat", "dog", "eel"), ["b.png", "a.jpg"])
    assert train.labels.values.tolist() == [[UNKNOWN, POSITIVE, UNKNOWN], [POSITIVE, UNKNOWN, UNKNOWN]]
    assert reader("fiftyone") is fiftyone.read


@pytest.mark.parametrize("classes", [["cat", "dog"], None])
def test_several_classes(tmp_path: Path, classes: list[str] | None) -> None:
    names: tuple[Any, ...] = ("cat", "dog") if classes is None else (0, 1)
    labels = {"a": [names[0], {"label": names[1]}], "deep/c": [], "b": None}
    folder = write(
        tmp_path, {"classes": classes, "labels": labels}, ("data/a.jpg", "data/deep/c.jpg", "data/b.png")
    )
    with pytest.warns(DataWarning, match=r"2 of 3 images were left out, .*: deep/c.jpg, b.png"):
        train = fiftyone.read(folder).splits["train"]
    assert train.labels.values.tolist() == [[POSITIVE, POSITIVE]]
    with pytest.warns(DataWarning, match=r"1 of 3 images were left out, .*: b.png"):  # nobody looked at it
        train = fiftyone.read(folder / "labels.json", complete=True).splits["train"]
    assert train.labels.values.tolist() == [[POSITIVE, POSITIVE], [NEGATIVE, NEGATIVE]]


def test_detections(tmp_path: Path) -> None:
    labels = {
        "a": [
            {"label": 1, "bounding_box": [0.1, 0.2, 0.3, 0.4]},
            {"label": 0, "bounding_box": [0.9, 0, 0.4, 1]},
        ]
    }
    train = fiftyone.read(write(tmp_path, {"classes": ["cat", "dog"], "labels": labels})).splits["train"]
    assert train.labels.values.tolist() == [[POSITIVE, POSITIVE]]
    assert train.spatial_labels.classes.tolist() == [1, 0]
    np.testing.assert_allclose(train.spatial_labels.centers, [[0.25, 0.4], [0.95, 0.5]], atol=1e-6)
    np.testing.assert_allclose(train.spatial_labels.sizes, [[0.3, 0.4], [0.1, 1]], atol=1e-6)


def test_a_second_export_of_what_is_not_there(tmp_path: Path) -> None:
    folder = write(tmp_path, {"classes": None, "labels": {"a": ["cat"], "b": ["dog"]}})
    other = write(tmp_path / "not", {"classes": None, "labels": {"a": ["dog"], "b": ["dog", "ant"]}}, ())
    with pytest.warns(DataWarning, match=r"1 labels are said to be there and not to be there, .*dog on b"):
        train = fiftyone.read(folder, negatives=other).splits["train"]
    assert train.labels.classes == ("cat", "dog", "ant")
    assert train.labels.values.tolist() == [[POSITIVE, NEGATIVE, UNKNOWN], [UNKNOWN, UNKNOWN, NEGATIVE]]


def test_predictions_are_named(tmp_path: Path) -> None:
    content = {"classes": None, "labels": {"a": [{"label": "cat", "confidence": 0.7}]}}
    with pytest.warns(DataWarning, match=r"1 labels have a confidence, as predictions"):
        fiftyone.read(write(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"labels.json: must be an object with 'classes' and 'labels'.*FiftyOneImageDetectionDataset"),
        ({"classes": 3, "labels": {}}, r"'classes' must be a list of names, or null, not 3"),
        ({"classes": ["cat"], "labels": {"a": 1}}, r"image 'a': a label must be a number below 1, .*not 1"),
        ({"classes": None, "labels": {"a": 1}}, r"image 'a': a label must be a name, not 1"),
        ({"classes": None, "labels": {"c": "cat"}}, r"1 of 1 images are not in .*: c \(image 'c'\)"),
        (
            {"classes": None, "labels": {"a": [{"label": "x", "bounding_box": [1, 2]}]}},
            r"'a': bounding_box .*\[1, 2\]",
        ),
        ({"classes": None, "labels": {}}, r"no image has a label"),
    ],
)
def test_wrong_values(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fiftyone.read(write(tmp_path, content))


def test_two_files_with_one_name(tmp_path: Path) -> None:
    folder = write(tmp_path, {"classes": None, "labels": {"a": "cat"}}, ("data/a.jpg", "data/a.png"))
    with pytest.raises(DataError, match=r"image 'a': several files have this name: a.jpg, a.png"):
        fiftyone.read(folder)


def test_a_box_of_no_area_is_refused(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.jpg")
    boxes = [{"label": "dog", "bounding_box": [0.5, 0.25, 0.1, 0]}]
    (tmp_path / "labels.json").write_text(json.dumps({"classes": None, "labels": {"a.jpg": boxes}}))
    with pytest.raises(
        DataError, match=r"image 'a.jpg': a box of 'dog' must have an area .* 0.5, 0.25, 0.6, 0.25"
    ):
        fiftyone.read(tmp_path / "labels.json", images=tmp_path)
