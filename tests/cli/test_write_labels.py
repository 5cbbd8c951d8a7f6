"""``sparselabel prepare`` and ``labels``: labels of other programs in and out."""

import json
from pathlib import Path

from tests.cli.conftest import Command, images
from tests.cli.test_data import cells

XML = """<annotations><image id="0" name="0.png" width="8" height="8"><tag label="cat"/></image>
<image id="1" name="1.png" width="8" height="8"><box label="dog" xtl="0" ytl="0" xbr="4" ybr="8"/></image>
</annotations>"""


def exported() -> None:
    """The same labels as Label Studio, CVAT and FiftyOne export them."""
    images(Path(), photos=2)
    box = {"x": 0, "y": 0, "width": 50, "height": 100, "rectanglelabels": ["dog"]}
    results = [{"type": "choices", "value": {"choices": ["cat"]}}, {"type": "rectanglelabels", "value": box}]
    tasks = [
        {
            "id": number,
            "data": {"img": f"/data/upload/3/0123abcd-{number}.png"},
            "annotations": [{"result": [one]}],
        }
        for number, one in enumerate(results)
    ]
    Path("tasks.json").write_text(json.dumps(tasks))
    Path("annotations.xml").write_text(XML)
    labels = {"0": [{"label": "cat"}], "1": [{"label": "dog", "bounding_box": [0, 0, 0.5, 1]}]}
    Path("labels.json").write_text(json.dumps({"classes": None, "labels": labels}))


def test_exports_in_and_labels_out(command: Command) -> None:
    exported()
    common = ("--images", "photos", "--complete", "--validation", "0")
    for reader, file, more in (
        ("label-studio", "tasks.json", ("--image", "img")),
        ("cvat", "annotations.xml", ()),
        ("fiftyone", "labels.json", ()),
    ):
        assert command("prepare", reader, file, *common, *more, "--out", reader) == 0
        done = command("labels", reader, "--out", f"{reader}.csv")
        assert (done, done.out) == (0, f"observed labels of 2 images and 2 classes in {reader}.csv\n")
        assert Path(f"{reader}.csv").read_text() == "image,cat,dog,split\n0.png,1,0,train\n1.png,0,1,train\n"
        assert (
            command("labels", reader, "--split", "train", "--which", "full", "--out", f"{reader}.json") == 0
        )
        content = json.loads(Path(f"{reader}.json").read_text())
        assert [annotation["bbox"] for annotation in content["annotations"]] == [[0, 0, 4, 8]]
        assert [image["pos_category_ids"] for image in content["images"]] == [[1], []]
    done = command("labels", "cvat", "--out", "cvat.csv")
    assert (done, done.err) == (
        1,
        "sparselabel: error: cvat.csv exists: choose another --out, or replace it with --force\n",
    )


def test_scores_are_reported(command: Command) -> None:
    images(Path(), photos=4)
    Path("labels.csv").write_text("image,cat,dog\n0.png,1,\n1.png,,0\n2.png,,1\n3.png,0,\n")
    Path("scores.csv").write_text("image,cat,dog\n0.png,.9,.9\n1.png,.1,.9\n2.png,.5,.1\n")
    scores = ("--scores", "scores.csv", "--score-positive", ".8", "--score-negative", ".2")
    done = command(
        "prepare", "table", "labels.csv", "--images", "photos", "--validation", "0", *scores, "--out", "d"
    )
    assert done == 0
    rows = cells(done.out)
    assert ["cat", "0", "1", "0 of 1", "0 of 0"] in rows
    assert ["dog", "1", "0", "1 of 1", "1 of 1"] in rows
    assert ["all", "1", "1", "1 of 2", "1 of 1"] in rows
    assert "1 images have no score" in done.out
    assert "wrong-labels" not in done.out  # nobody knows the truth
    assert json.loads(command("data", "d", "--json").out)["scored"]["set_positive"] == [0, 1]
    done = command(
        "prepare", "table", "labels.csv", "--images", "photos", "--scores", "scores.csv", "--out", "e"
    )
    assert done == 2
    assert "needs a threshold: give --score-positive, --score-negative or both" in done.err
