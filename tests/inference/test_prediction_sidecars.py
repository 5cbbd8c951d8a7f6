import json
import os
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from sparselabel.errors import RunError
from sparselabel.inference.prediction_sidecars import (
    FiftyOneFile,
    LabelStudioFile,
    SortedImages,
    XmpSidecars,
    xmp_text,
)
from sparselabel.inference.predictor import Prediction

LI = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}li"
SUBJECT = "{http://purl.org/dc/elements/1.1/}subject"


def predicted(image: Path, *labels: tuple[str, float], error: str | None = None) -> Prediction:
    return Prediction(str(image), labels, np.zeros(0), error)


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    files = [tmp_path / "photos" / name for name in ("a.jpg", "b/a.jpg", "c d.jpg")]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(file)
    return files


def test_sidecars_have_keywords_and_leave_images_and_others_alone(photos: list[Path]) -> None:
    before = [file.read_bytes() for file in photos]
    theirs = photos[1].with_name("a.jpg.xmp")
    theirs.write_text('<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="XMP Core 6.0.0"/>')
    made = XmpSidecars()
    made.write(predicted(photos[0], ("dog & <cat>", 0.9), ("caf\x00é", 0.5)))
    made.write(predicted(photos[1], ("dog", 0.9)))
    made.write(predicted(photos[2]))  # nothing to say
    made.write(predicted(photos[2], error="broken"))
    assert made.finish() == f"1 XMP sidecar; 1 sidecar of other programs left as they are, the first {theirs}"
    tree = ElementTree.parse(photos[0].with_name("a.jpg.xmp"))
    assert [element.text for element in tree.iter(LI)] == ["dog & <cat>", "café"]
    assert len([*tree.iter(SUBJECT)]) == 1
    assert "XMP Core" in theirs.read_text()
    assert not photos[2].with_name("c d.jpg.xmp").exists()
    made.write(predicted(photos[0]))  # one of ours says what is predicted now
    assert [*ElementTree.parse(photos[0].with_name("a.jpg.xmp")).iter(LI)] == []
    assert [file.read_bytes() for file in photos] == before


def test_links_and_pipes_among_sidecars_are_left_alone(tmp_path: Path, photos: list[Path]) -> None:
    """Somebody else's archive may have them: what they point to is not written, and nothing is waited for."""
    precious = tmp_path / "precious"
    precious.write_text(xmp_text(["old"]))
    pipe, link, dangling = (Path(f"{photo}.xmp") for photo in photos)
    os.mkfifo(pipe)
    link.symlink_to(precious)
    dangling.symlink_to(tmp_path / "new")
    made = XmpSidecars()
    for photo in photos:
        made.write(predicted(photo, ("dog", 0.9)))
    assert made.finish().startswith("0 XMP sidecars; 3 sidecars of other programs left as they are")
    assert precious.read_text() == xmp_text(["old"])
    assert not (tmp_path / "new").exists()
    dangling.unlink()
    dangling.with_name(f"{dangling.name}.partial").symlink_to(precious)
    made.write(predicted(photos[2], ("dog", 0.9)))
    assert "dog" in dangling.read_text()
    assert not dangling.is_symlink()
    assert precious.read_text() == xmp_text(["old"])


def test_two_classes_never_share_a_folder(tmp_path: Path, photos: list[Path]) -> None:
    classes = [".a", "_a", "..", "a/b", "a:b", "A_b"]
    made = SortedImages(tmp_path / "sorted", classes, links=False, force=False)
    assert len({name.lower() for name in made.names.values()}) == len(classes)
    assert not any(name.startswith(".") or "/" in name for name in made.names.values())


@pytest.mark.parametrize("links", [False, True])
def test_images_sorted_by_label(
    tmp_path: Path, photos: list[Path], links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = SortedImages(Path("sorted"), ["dog", "../up"], links=links, force=False)
    inner = [file.relative_to(tmp_path) for file in photos]
    made.write(predicted(inner[0], ("dog", 0.9), ("../up", 0.8)))
    made.write(predicted(inner[1], ("dog", 0.7)))
    made.write(predicted(inner[2]))
    made.write(predicted(inner[2], error="broken"))
    what = "links" if links else "copies"
    assert made.finish() == f"sorted: 3 {what}; 1 image without a label in no folder"
    files = sorted(
        path.relative_to("sorted").as_posix() for path in Path("sorted").rglob("*") if path.is_file()
    )
    assert files == ["__up/photos/a.jpg", "dog/photos/a.jpg", "dog/photos/b/a.jpg"]
    assert Path("sorted/dog/photos/a.jpg").is_symlink() == links
    assert Path("sorted/dog/photos/b/a.jpg").read_bytes() == photos[1].read_bytes()
    with pytest.raises(RunError) as caught:
        SortedImages(Path("sorted"), ["dog"], links=links, force=False)
    assert caught.value.parameters == ["sort_into", "force"]


def test_fiftyone_names_images_without_their_suffix(tmp_path: Path) -> None:
    made = FiftyOneFile(tmp_path / "fiftyone.json", ["cat"])
    for name in ("a.jpg", "a.png", "b.jpg"):
        made.write(predicted(tmp_path / name, ("cat", 0.9)))
    assert made.finish().endswith("; 1 image not in it: others have the same name before the suffix")


def test_files_for_annotation_tools(tmp_path: Path, photos: list[Path]) -> None:
    predictions = [
        predicted(photos[1], ("dog", 0.91234), ("cat", 0.5)),
        predicted(photos[2]),
        predicted(photos[0], error="broken"),
    ]
    for kind, name in ((FiftyOneFile, "fiftyone.json"), (LabelStudioFile, "tasks.json")):
        made = kind(tmp_path / name, ["cat", "dog"])
        for prediction in predictions:
            made.write(prediction)
        assert str(tmp_path / name) in made.finish()
    assert json.loads((tmp_path / "fiftyone.json").read_text()) == {
        "classes": ["cat", "dog"],
        "labels": {"b/a": [{"label": 1, "confidence": 0.9123}, {"label": 0, "confidence": 0.5}], "c d": []},
    }
    first, second = json.loads((tmp_path / "tasks.json").read_text())
    assert first["data"] == {"image": "/data/local-files/?d=b/a.jpg"}
    assert second["data"] == {"image": "/data/local-files/?d=c%20d.jpg"}
    choices = {
        "from_name": "labels",
        "to_name": "image",
        "type": "choices",
        "value": {"choices": ["dog", "cat"]},
    }
    assert first["predictions"] == [{"model_version": "sparselabel", "score": 0.5, "result": [choices]}]
    assert second["predictions"][0]["result"] == []
