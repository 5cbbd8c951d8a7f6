from pathlib import Path

import numpy as np
from PIL import Image

from sparselabel.inference.prediction_sidecars import MapFolder, inside
from sparselabel.inference.predictor import Prediction
from tests.inference.stub import CLASSES, paint, predictor


def test_a_image_for_every_class_found(tmp_path: Path) -> None:
    path = paint(tmp_path / "x.png", 255, 255)
    one = predictor()
    (found,) = one([path], maps=True)
    written = MapFolder(tmp_path / "maps", CLASSES, one.view).write(found)
    base = tmp_path / "maps" / path.lstrip("/")
    assert written == {"red": f"{base}.red.png", "green": f"{base}.green.png"}
    with Image.open(written["red"]) as image:
        assert (image.format, image.size) == ("PNG", (20, 10))
    assert MapFolder(tmp_path / "maps", CLASSES, one.view).write(Prediction(path, (), np.zeros(3))) == {}


def test_no_map_leaves_its_folder() -> None:
    assert inside("../../etc/./a.jpg").as_posix() == "etc/a.jpg"
    assert inside("/etc/a.jpg").as_posix() == "etc/a.jpg"
    assert inside("/home/ann/photos/b/a.jpg", "/home/ann/photos").as_posix() == "b/a.jpg"
    assert inside("photos2/a.jpg", "photos").as_posix() == "photos2/a.jpg"
    folder = MapFolder(Path("maps"), ("a/b", "..", "cat"), predictor().view)
    assert list(folder.names.values()) == ["a_b", "_", "cat"]
    same = MapFolder(Path("maps"), ("a/b", "a?b"), predictor().view)
    assert list(same.names.values()) == ["0-a_b", "1-a_b"]
    hidden = MapFolder(Path("maps"), (".a", "_a", ""), predictor().view)
    assert list(hidden.names.values()) == ["0-_a", "1-_a", "2-_"]
