from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.readers import cvat, reader
from sparselabel.errors import DataError, DataWarning

META = """<meta><task><id>7</id><name>photos</name><size>2</size><mode>annotation</mode><labels>
  <label><name>dog</name><color>#ff0000</color><type>any</type><attributes>
    <attribute><name>absent</name><mutable>False</mutable><input_type>checkbox</input_type></attribute>
  </attributes></label>
  <label><name>cat</name><type>any</type><attributes></attributes></label>
  <label><name>eel</name><type>any</type><attributes></attributes></label>
  <label><name>nose</name><type>points</type><attributes></attributes><parent>dog</parent></label>
</labels><owner><username>me</username></owner></task><dumped>2024</dumped></meta>"""


def image(name: str, *shapes: str, more: str = "") -> str:
    return f'<image id="0" name="{name}" {more}width="200" height="100">{"".join(shapes)}</image>'


def write(folder: Path, *images: str, names: tuple[str, ...] = ("a.jpg", "b.jpg"), head: str = "") -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(folder / name)
    file = folder / "annotations.xml"
    file.write_text(
        f'<?xml version="1.0" encoding="utf-8"?>\n{head}<annotations>\n<version>1.1</version>\n{META}\n'
        + "\n".join(images)
        + "\n</annotations>\n"
    )
    return file


TAG = '<tag label="cat" source="manual"></tag>'


def test_tags_and_shapes(tmp_path: Path) -> None:
    write(
        tmp_path,
        image(
            "a.jpg",
            TAG,
            '<box label="dog" source="manual" xtl="50.0" ytl="50.0" xbr="150.0" ybr="75.0">'
            '<attribute name="absent">false</attribute></box>',
            '<points label="cat" points="20.0,20.0;40.0,30.0" z_order="0"></points>',
        ),
        image(
            "sub/b.jpg",
            '<box label="dog" xtl="90" ytl="30" xbr="110" ybr="70" rotation="90.0"></box>',
            '<polygon label="new" points="20,10;60,10;40,90"></polygon>',
            '<ellipse label="cat" cx="100" cy="50" rx="20" ry="10"></ellipse>',
            '<mask label="cat" rle="0, 1" left="10" top="20" width="20" height="20"></mask>',
            '<cuboid label="cat" xtl1="10" ytl1="10" xbr2="50" ybr2="30"/>',
            '<skeleton label="eel"><points label="nose" points="1,1"></points></skeleton>',
        ),
        names=("images/a.jpg", "images/sub/b.jpg"),
    )
    source = cvat.read(tmp_path)
    train = source.splits["train"]
    assert (source.name, source.root) == (tmp_path.name, tmp_path / "images")
    assert train.labels.classes == ("dog", "cat", "eel", "new")  # the task's own first; a part is no class
    assert train.paths.tolist() == ["a.jpg", "sub/b.jpg"]
    assert train.labels.values.tolist() == [[1, 1, -1, -1], [1, 1, 1, 1]]
    assert train.spatial_labels.rows.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert train.spatial_labels.classes.tolist() == [0, 1, 1, 0, 3, 1, 1, 1]
    np.testing.assert_allclose(
        train.spatial_labels.centers,
        [[0.5, 0.625], [0.1, 0.2], [0.2, 0.3], [0.5, 0.5], [0.2, 0.5], [0.5, 0.5], [0.1, 0.3], [0.15, 0.2]],
        atol=1e-6,
    )
    np.testing.assert_allclose(
        train.spatial_labels.sizes,
        [[0.5, 0.25], [0.0, 0.0], [0.0, 0.0], [0.2, 0.2], [0.2, 0.8], [0.2, 0.2], [0.1, 0.2], [0.2, 0.2]],
        atol=1e-6,
    )
    assert reader("cvat") is cvat.read


def test_what_is_not_there_and_what_is_not_said(tmp_path: Path) -> None:
    absent = '<tag label="dog" source="manual"><attribute name="absent">true</attribute></tag>'
    file = write(tmp_path, image("a.jpg", TAG, absent), image("b.jpg"))
    with pytest.warns(DataWarning, match=r"1 of 2 images were left out, .*: b.jpg"):
        train = cvat.read(file, negative="absent").splits["train"]
    assert train.labels.values.tolist() == [[NEGATIVE, POSITIVE, UNKNOWN]]
    train = cvat.read(file, negative="absent", complete=True).splits["train"]
    assert train.labels.values.tolist() == [[NEGATIVE, POSITIVE, NEGATIVE], [NEGATIVE] * 3]


def test_subsets_of_a_project_are_splits(tmp_path: Path) -> None:
    images = [
        image(name, TAG, more=f'subset="{name[0].upper()}{name[1:-4]}" ')
        for name in ("train.jpg", "test.jpg")
    ]
    names = ("images/Train/train.jpg", "images/Test/test.jpg")
    source = cvat.read(write(tmp_path, *images, image("a.jpg", TAG), names=(*names, "images/a.jpg")))
    assert {name: split.paths.tolist() for name, split in source.splits.items()} == {
        "train": ["Train/train.jpg", "a.jpg"],
        "test": ["Test/test.jpg"],
    }


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ('<box label="dog" xtl="x"/>', r"annotations.xml, line 12: 'xtl' of <box> must be a number, not 'x'"),
        ('<box label="dog" xtl="1" ytl="1" xbr="2"/>', r"line 12: <box> has no 'ybr'"),
        ('<tag source="manual"/>', r"line 12: <tag> has no 'label'"),
        ('<points label="dog" points="1,2;3"/>', r"line 12: 'points' of <points> must be x,y;x,y"),
        ('<tag label="a"><attribute name="absent">?</attribute></tag>', r"line 12: .*'absent' must be true"),
        ('<tag label="dog">', r"cannot be read \(mismatched tag: line 12, column \d+\)"),
    ],
)  # fmt: skip
def test_wrong_values(tmp_path: Path, shape: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        cvat.read(write(tmp_path, image("a.jpg", shape)), negative="absent")


@pytest.mark.parametrize(
    ("whole", "message"),
    [
        ('<track id="0" label="dog"></track>', r"line 12: this is an export 'CVAT for video 1.1': export as"),
        ('<image id="0" name="a.jpg" width="0" height="5"/>', r"line 12: an image's size must be positive"),
        ('<image id="0" width="5" height="5"/>', r"line 12: <image> has no 'name'"),
        (image("no.jpg", TAG), r"1 of 1 images are not in .*: no.jpg \(line 12\): .*`images`"),
        (image("a.jpg", TAG, more='subset="Mine" '), r"line 12: subset 'Mine' is none of Train, Val"),
    ],
)
def test_wrong_images(tmp_path: Path, whole: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        cvat.read(write(tmp_path, whole))


def test_entities_are_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE a [<!ENTITY x "dog"><!ENTITY y "&x;&x;&x;">]>\n'
    with pytest.raises(DataError, match=r"line 2: a document type .* is not part of an export .*: remove it"):
        cvat.read(write(tmp_path, image("a.jpg", TAG), head=bomb))


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"annotations.xml is not there: give the XML file"):
        cvat.read(tmp_path)
    (tmp_path / "x.xml").write_text("<annotation><filename>a.jpg</filename></annotation>")
    with pytest.raises(
        DataError, match=r"x.xml, line 1: <annotations> must be the outermost, .* not <annotation>"
    ):
        cvat.read(tmp_path / "x.xml")


def test_a_misspelt_attribute_does_not_make_negatives_positive(tmp_path: Path) -> None:
    file = write(tmp_path, image("a.jpg", TAG))
    with pytest.raises(DataError, match=r"no label has an attribute 'absnt' .*did you mean 'absent'"):
        cvat.read(file, negative="absnt")
    assert cvat.read(file, negative="absent").splits["train"].labels.values.tolist() == [[-1, 1, -1]]


@pytest.mark.parametrize(
    ("drawn", "rule"),
    [
        (
            '<points label="cat" points="20,20;210,30"></points>',
            r"line \d+: a point of 'cat' must lie inside the image .* not at 1.05, 0.3: move or remove it",
        ),
        (
            '<box label="dog" xtl="50" ytl="20" xbr="50" ybr="60"></box>',
            r"line \d+: a box of 'dog' must have an area .* bottom are 0.25, 0.2, 0.25, 0.6: redraw",
        ),
    ],
)
def test_points_outside_and_boxes_of_no_area_are_refused(tmp_path: Path, drawn: str, rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        cvat.read(write(tmp_path, image("a.jpg", drawn)))
