import builtins
import csv
import re
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.readers import reader, table, table_files
from sparselabel.data.readers.image_files import match_names
from sparselabel.data.readers.raw_dataset import RawSplit
from sparselabel.data.readers.table import LABEL_COLUMNS
from sparselabel.data.readers.table_files import plain_name
from sparselabel.errors import ConfigError, DataError, DataWarning

images = pytest.mark.usefixtures("_images")


@pytest.fixture
def _images(tmp_path: Path) -> None:
    (tmp_path / "img").mkdir()
    for name in ("a.jpg", "b.jpg", "c d.jpg", "img/a.jpg"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)


def write(folder: Path, text: str, name: str = "labels.csv", encoding: str = "utf-8") -> Path:
    file = folder / name
    file.write_bytes(text.encode(encoding))
    return file


def train_of(folder: Path, text: str, name: str = "labels.csv", **options: Any) -> RawSplit:
    source = table.read(write(folder, text, name), **options)
    assert list(source.splits) == ["train"]
    return source.splits["train"]


@images
def test_wide(tmp_path: Path) -> None:
    source = table.read(write(tmp_path, "dog,image,cat\n1,b.jpg,0\n,a.jpg,1.0\nnan,img/a.jpg,?\n"))
    train = source.splits["train"]
    assert (source.name, source.root) == (tmp_path.name, tmp_path)
    assert train.labels.classes == ("dog", "cat")  # the columns' order
    assert train.labels.ids.tolist() == train.paths.tolist() == ["b.jpg", "a.jpg", "img/a.jpg"]
    assert train.labels.values.tolist() == [[POSITIVE, NEGATIVE], [UNKNOWN, POSITIVE], [UNKNOWN, UNKNOWN]]
    assert reader("table") is table.read


@images
def test_wide_with_a_single_class(tmp_path: Path) -> None:
    assert train_of(tmp_path, "image,dog\na.jpg,1\nb.jpg,NaN\n").labels.values.tolist() == [
        [POSITIVE],
        [UNKNOWN],
    ]


@images
def test_long(tmp_path: Path) -> None:
    train = train_of(
        tmp_path, "image,label,value\nb.jpg,dog,1\na.jpg,cat,\nb.jpg,ant,0\nc d.jpg,,\nb.jpg,dog,\n"
    )
    assert train.labels.classes == ("ant", "cat", "dog")  # sorted
    assert train.labels.ids.tolist() == ["b.jpg", "a.jpg", "c d.jpg"]
    assert train.labels.values.tolist() == [[NEGATIVE, UNKNOWN, POSITIVE], [UNKNOWN] * 3, [UNKNOWN] * 3]


@images
def test_long_without_values_and_with_several_labels_in_a_cell(tmp_path: Path) -> None:
    train = train_of(
        tmp_path, "file\ttags\na.jpg\tdog; cat;\nb.jpg\tcat\n", image="file", label="tags", separator=";"
    )
    assert train.labels.classes == ("cat", "dog")
    assert train.labels.values.tolist() == [[POSITIVE, POSITIVE], [POSITIVE, UNKNOWN]]


@images
def test_labels_of_what_is_not_there(tmp_path: Path) -> None:
    text = "image,label\na.jpg,Dog\na.jpg,-5 °C\nb.jpg,not dog\nb.jpg,cat\nc d.jpg,-cat\n"
    with pytest.warns(DataWarning, match=r"what is not there: 'not dog', '-cat'"):
        train = train_of(tmp_path, text)
    assert train.labels.classes == ("-5 °C", "Dog", "cat")  # nothing has the label "5 °C"
    assert train.labels.values.tolist() == [[1, 1, UNKNOWN], [UNKNOWN, 0, 1], [UNKNOWN, UNKNOWN, 0]]


@images
def test_a_table_in_which_nothing_is_known(tmp_path: Path) -> None:
    train = train_of(tmp_path, "image,label\na.jpg,\nb.jpg,\n")
    assert train.labels.values.shape == (2, 0)


@images
def test_points_and_boxes(tmp_path: Path) -> None:
    train = train_of(
        tmp_path,
        "image,label,x,y,w,h\n"
        "b.jpg,dog,0.5,0.25,,\n"
        "a.jpg,cat,,,,\n"
        "b.jpg,dog,0.5,0.5,0.2,0.4\n"
        "b.jpg,cat,0.9,0.5,0.4,1\n",  # reaches over the right edge
    )
    assert train.labels.values.tolist() == [[POSITIVE, POSITIVE], [POSITIVE, UNKNOWN]]
    assert (train.spatial_labels.rows.tolist(), train.spatial_labels.classes.tolist()) == (
        [0, 0, 0],
        [1, 1, 0],
    )
    np.testing.assert_allclose(
        train.spatial_labels.centers, np.array([[0.5, 0.25], [0.5, 0.5], [0.85, 0.5]]), atol=1e-6
    )
    np.testing.assert_allclose(
        train.spatial_labels.sizes, np.array([[0, 0], [0.2, 0.4], [0.3, 1]]), atol=1e-6
    )
    assert train.spatial_labels.is_point.tolist() == [True, False, False]


@images
def test_splits(tmp_path: Path) -> None:
    text = "image,label,x,y,split\na.jpg,dog,,,test\nb.jpg,cat,.1,.2,train\nc d.jpg,dog,.3,.4,test\n"
    splits = table.read(write(tmp_path, text)).splits
    assert {name: split.labels.ids.tolist() for name, split in splits.items()} == {
        "train": ["b.jpg"],
        "test": ["a.jpg", "c d.jpg"],
    }
    assert splits["test"].labels.classes == splits["train"].labels.classes == ("cat", "dog")
    assert splits["test"].labels.values.tolist() == [[UNKNOWN, POSITIVE]] * 2
    assert (splits["train"].spatial_labels.rows.tolist(), splits["test"].spatial_labels.rows.tolist()) == (
        [0],
        [1],
    )
    wide = table.read(write(tmp_path, "image,s,dog\na.jpg,train,1\nb.jpg,val,0\n"), split="s").splits
    assert (wide["train"].labels.values.tolist(), wide["val"].labels.values.tolist()) == (
        [[POSITIVE]],
        [[NEGATIVE]],
    )


@images
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("image,dog\r\na.jpg,1\r\n\r\nb.jpg,0\r\n", "labels.csv"),
        ("\n\nimage,dog\na.jpg,1\n,\n  b.jpg ,0", "labels.csv"),
        ('"image","dog"\n"a.jpg","1"\n"b.jpg","0"\n', "labels.csv"),
        ("image;dog\na.jpg;1\nb.jpg;0\n", "labels.csv"),
        ("image\tdog\na.jpg\t1\nb.jpg\t0\n", "labels.txt"),
        ("image\tdog\na.jpg\t1\nb.jpg\t0\n", "labels.tsv"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_dialects(tmp_path: Path, text: str, name: str, encoding: str) -> None:
    train = table.read(write(tmp_path, text, name, encoding)).splits["train"]
    assert (train.labels.ids.tolist(), train.labels.classes) == (["a.jpg", "b.jpg"], ("dog",))
    assert train.labels.values.tolist() == [[POSITIVE], [NEGATIVE]]


@images
def test_class_names_may_hold_other_separators(tmp_path: Path) -> None:
    train = train_of(tmp_path, "image,one;two;three\na.jpg,1\n")
    assert (train.labels.classes, train.labels.values.tolist()) == (("one;two;three",), [[POSITIVE]])


@images
def test_quoted_cells_may_hold_anything(tmp_path: Path) -> None:
    train = train_of(tmp_path, 'image,label\n"c d.jpg","dog, ""small""\n and brown"\na.jpg,cät\n')
    assert train.labels.classes == ("cät", 'dog, "small"\n and brown')
    with pytest.raises(DataError, match=r"line 4: image 'x.jpg' is not in"):  # two lines belong to one row
        train_of(tmp_path, 'image,label\na.jpg,"dog\n"\nx.jpg,cat\n')


@images
@pytest.mark.filterwarnings("ignore:2 images of 4")  # that the table does not name
def test_images_elsewhere_and_paths_written_differently(tmp_path: Path) -> None:
    file = write(tmp_path / "img", "image,label\n./a.jpg,dog\nimg//a.jpg,cat\na.jpg,emu\n")
    source = table.read(file, images=tmp_path)
    assert source.root == tmp_path
    assert source.splits["train"].labels.ids.tolist() == ["a.jpg", "img/a.jpg"]
    with pytest.raises(DataError, match=r"nowhere is not there: a folder is needed"):
        table.read(file, images=tmp_path / "nowhere")


WRONG_TABLES = {
    "": r"labels.csv is empty",
    "\n\n": r"labels.csv is empty",
    "image,dog\n": r"has a header but no rows",
    "imgs,dog\na.jpg,1\n": r"has no column 'image' .*known: dog, imgs",
    "a.jpg,dog,cat\n": r"has no header: .* 'a.jpg', and has 3 cells, not 2 \(image, label\): name",
    "image,Dog,DOG\nb.jpg,1,\na.jpg,1,0\n": r"line 3: 'Dog' and 'DOG' are one class, which is there and not",
    "images,dog\na.jpg,1\n": r"has no column 'image' \(did you mean 'images'\?",
    "image,dog,dog\na.jpg,1,1\n": r"columns must have different names; .*: dog",
    ",image,dog\n0,a.jpg,1\n": r"column 1 has no name: if it is an index written by pandas",
    "image\na.jpg\n": r"neither a column of labels nor columns of classes: image",
    "image,dog\n,1\n": r"line 2: the image's name is empty",
    "image,dog\na.jpg,1,1\n": r"line 2: the header has 2 columns, this has 3: a.jpg, 1, 1",
    "image,dog\na.jpg\n": r"line 2: the header has 2 columns, this has 1",
    "image,dog\na.jpg,1\n\nb.jpg,1\na.jpg,0\n": r"line 5: image 'a.jpg' is on line 2 already",
    "image,dog\na.jpg,1\nx.jpg,0\ny.jpg,0\n": r"line 3: image 'x.jpg' is not in .*; 2 of 3 .*: x.jpg, y",
    "image,dog\na.jpg,2\n": r"line 2: column 'dog' must be 1 .there., 0 .* not '2'",
    "image,dog\na.jpg,-1\n": r"line 2: column 'dog' .* not '-1': write 0 if it is not there, and nothing",
    "image,dog\na.jpg,0.7\n": r"line 2: column 'dog' .* not '0.7': .* instead of a score, .* `scores`",
    "image,sort\na.jpg,dog\n": r"column 'sort' .* not 'dog': if a column holds the labels' names",
    "image,dog,split\na.jpg,1,trian\n": r"line 2: split 'trian' is unknown: did you mean 'train'\?",
    "image,dog,split\na.jpg,1,\n": r"line 2: split '' is unknown: known: test, train, val",
    "image,dog,split\na.jpg,1,val\n": r"no row has split 'train', only val",
    "image,label,value\na.jpg,dog,0.5\n": r"line 2: column 'value' .*a score",
    "image,label,value\na.jpg,dog,-1\n": r"line 2: column 'value' .*-1",
    "image,label,value\na.jpg,dog,yes\n": r"line 2: column 'value' .* not 'yes'",
    "image,label,value\na.jpg,,1\n": r"line 2: value '1' without the label",
    "image,label,value\na.jpg,dog,1\nb.jpg,dog,0\na.jpg,dog,0\n": r"line 4: value 0, but 1 on line 2 for",
    "image,label,split\na.jpg,dog,train\na.jpg,cat,val\n": r"line 3: .* 'val' here and in 'train' on line 2",
    "image,label,x\na.jpg,dog,1\n": r"points need columns x and y.* found only x",
    "image,label,x,y,w\na.jpg,dog,1,1,1\n": r"found only x, y, w",
    "image,label,x,y\na.jpg,dog,0.5,\n": r"line 2: 'dog': a point is x, y .* not 0.5, ",
    "image,label,x,y\na.jpg,dog,120,0.5\n": r"line 2: 'dog': a point .*shares \(0..1\).* not 120, 0.5",
    "image,label,x,y\na.jpg,dog,nan,0.5\n": r"not nan, 0.5",
    "image,label,x,y\na.jpg,dog,left,0.5\n": r"not left, 0.5",
    "image,label,x,y,w,h\na.jpg,dog,.5,.5,.1,\n": r"not .5, .5, .1, ",
    "image,label,x,y,w,h\na.jpg,dog,.5,.5,.1,0\n": r"'dog': .*w, h \(above 0\).* not .5, .5, .1, 0",
    "image,label,x,y\na.jpg,,0.5,0.5\n": r"line 2: a point or box needs one label, not ''",
    "image,label,value,x,y\na.jpg,dog,0,0.5,0.5\n": r"line 2: a point or box at 0.5, 0.5 of 'dog', which is "
    r"absent here: give it the value 1, or leave the coordinates empty",
    'image,label\na.jpg,"dog\nb.jpg,cat\n': r"labels.csv, line 2: a quote is not closed in the row .*close",
    'image,label\na.jpg,"dog'
    + "\nb.jpg,cat" * 20_000: r"line 2: a quote is not closed .*\(field larger than",
    'image,label\na.jpg,"dog"s\n': r"labels.csv, line 2: ',' expected after '\"'",
}


@images
@pytest.mark.parametrize("text", WRONG_TABLES)
def test_wrong_tables(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=WRONG_TABLES[text]) as caught:
        table.read(write(tmp_path, text))
    assert "labels.csv" in str(caught.value)


@images
def test_not_a_text_and_not_a_file(tmp_path: Path) -> None:
    good, wrong = "image,label\na.jpg,dög\n", b"b.jpg,d\xf6g\n"
    for lines in (1, 30_000):  # in the first block that is read, and in a later one
        (tmp_path / "labels.csv").write_bytes(good.encode() + b"a.jpg,cat\n" * lines + wrong)
        with pytest.raises(DataError, match=rf"\(line {lines + 3:,}: invalid start byte 0xf6\): save it"):
            table.read(tmp_path / "labels.csv")  # the rest is UTF-8: no other encoding, but damaged
    with pytest.raises(DataError, match=r"is not text in UTF-8 .* name its `encoding`"):
        table.read(write(tmp_path, "image,label\na.jpg,\x8d\n", encoding="latin-1"))
    with pytest.raises(DataError, match=r"is not text in utf-8 .invalid start byte"):
        table.read(write(tmp_path, good, encoding="cp1252"), encoding="utf-8")
    with pytest.raises(ConfigError, match="there is no encoding 'utf-9'") as caught:
        table.read(write(tmp_path, good), encoding="utf-9")
    assert (caught.value.what, caught.value.value) == ("encoding", "utf-9")
    with pytest.raises(DataError, match=r"none.csv is not there"):
        table.read(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"is not a file"):
        table.read(tmp_path)


@images
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_encodings_that_show(tmp_path: Path, encoding: str) -> None:
    train = table.read(write(tmp_path, "image;label\na.jpg;dög\n", encoding=encoding)).splits["train"]
    assert (train.labels.ids.tolist(), train.labels.classes) == (["a.jpg"], ("dög",))


@images
def test_the_encoding_of_windows_is_said(tmp_path: Path) -> None:
    file = write(tmp_path, "image,label\na.jpg,dög – “x”\n", encoding="cp1252")
    with pytest.warns(DataWarning, match=r"\(line 2: invalid start byte 0xf6\): it was read as .*cp1252"):
        assert table.read(file).splits["train"].labels.classes == ("dög – “x”",)
    latin = write(tmp_path, "image,label\na.jpg,dög\n", encoding="latin-1")
    assert table.read(latin, encoding="latin-1").splits["train"].labels.classes == ("dög",)


@images
@pytest.mark.parametrize("header", ["Image,Label", "filename,labels", "FILE,Tag", " path ,category"])
def test_columns_by_the_names_people_give_them(tmp_path: Path, header: str) -> None:
    train = train_of(tmp_path, f"{header}\na.jpg,dog\nb.jpg,cat\n")
    assert (train.labels.ids.tolist(), train.labels.classes) == (["a.jpg", "b.jpg"], ("cat", "dog"))


@images
def test_a_class_may_be_called_like_a_column(tmp_path: Path) -> None:
    train = train_of(tmp_path, "image,tag,path\na.jpg,1,0\n")
    assert (train.labels.classes, train.labels.values.tolist()) == (("tag", "path"), [[POSITIVE, NEGATIVE]])


@images
@pytest.mark.parametrize("text", ["a.jpg,dog\nb.jpg,\n", "a.jpg;dog\n\nb.jpg;\n"])
def test_no_header(tmp_path: Path, text: str) -> None:
    with pytest.warns(DataWarning, match="has no header: its columns were taken for image and label"):
        train = train_of(tmp_path, text)
    assert (train.labels.ids.tolist(), train.labels.classes) == (["a.jpg", "b.jpg"], ("dog",))
    assert train.labels.values.tolist() == [[POSITIVE], [UNKNOWN]]


@images
def test_a_header_of_20_000_classes(tmp_path: Path) -> None:
    """As one cell, which it is with another separator, it is too long for Python's reader."""
    classes = tuple(f"class {number}" for number in range(20_000))
    train = train_of(tmp_path, f"image,{','.join(classes)}\na.jpg,1{',' * 19_999}\n")
    assert train.labels.classes == classes
    assert train.labels.values.tolist() == [[POSITIVE] + [UNKNOWN] * 19_999]


@images
def test_files_that_names_can_only_mean(tmp_path: Path) -> None:
    (tmp_path / "labels").mkdir()
    names = ["A.JPG", "C:\\old\\photos\\b.jpg", "c d", "elsewhere/IMG/a.png"]
    file = write(tmp_path / "labels", "image,label\n" + "".join(f"{name},dog\n" for name in names))
    with pytest.warns(DataWarning, match=r"4 images found under other names: 'A.JPG' is a.jpg, 'C:"):
        train = table.read(file, images=tmp_path).splits["train"]
    assert train.paths.tolist() == ["a.jpg", "b.jpg", "c d.jpg", "img/a.jpg"]


def test_a_name_that_could_mean_two_files_means_none() -> None:
    files = ["x/a.jpg", "y/a.jpg", "y/b.jpg", "y/b.png", "c.jpg", "d.jpg"]
    assert match_names(["a.jpg", "z/a.jpg", "b", "q/C.jpg", "C.JPG"], files, set()) == {}
    assert match_names(["Y/A.jpg", "b.png", "D.jpg"], files, {"d.jpg"}) == {
        "Y/A.jpg": "y/a.jpg",
        "b.png": "y/b.png",
    }


@images
def test_images_that_the_table_does_not_name(tmp_path: Path) -> None:
    file = write(tmp_path, "image,label\na.jpg,dog\n")
    with pytest.warns(
        DataWarning, match=r"3 images of 4 in .* not in labels.csv and are not used: b.jpg"
    ) as said:
        assert len(table.read(file, images=tmp_path).splits["train"].labels) == 1
    assert said[0].message.parameters == ["unlabeled"]  # type: ignore[union-attr]
    train = table.read(file, images=tmp_path, unlabeled=True).splits["train"]
    assert train.paths.tolist() == ["a.jpg", "b.jpg", "c d.jpg", "img/a.jpg"]
    assert train.labels.values.tolist() == [[POSITIVE], [UNKNOWN], [UNKNOWN], [UNKNOWN]]


@images
def test_what_predict_wrote(tmp_path: Path) -> None:
    text = "image,labels,scores,error\na.jpg,dog;cat,0.9;0.8,\nb.jpg,,,broken\nimg/a.jpg,cat,0.7,\n"
    train = train_of(tmp_path, text)
    assert (train.labels.classes, train.labels.values.tolist()) == (
        ("cat", "dog"),
        [[POSITIVE, POSITIVE], [UNKNOWN, UNKNOWN], [POSITIVE, UNKNOWN]],
    )


@images
def test_xlsx(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")

    def read(*rows: tuple[object, ...], sheets: tuple[str, ...] = ()) -> RawSplit:
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        for name in sheets:
            book.create_sheet(name)
        book.save(tmp_path / "labels.xlsx")
        return table.read(tmp_path / "labels.xlsx").splits["train"]

    wide = read(("image", "dog", "cat", None), (), ("a.jpg", 1, None), ("b.jpg", True, 0.0))
    assert (wide.labels.classes, wide.labels.values.tolist()) == (
        ("dog", "cat"),
        [[POSITIVE, UNKNOWN], [POSITIVE, NEGATIVE]],
    )
    with pytest.warns(DataWarning, match="only its first sheet, 'Sheet', was read, not notes"):
        long = read(("File", "Class"), ("a.jpg", "dog"), sheets=("notes",))
    assert long.labels.classes == ("dog",)
    with pytest.raises(DataError, match=r"labels.xlsx, row 3: column 'dog' .* not '7'"):
        read(("image", "dog"), ("a.jpg", 1), ("b.jpg", 7))
    with pytest.raises(DataError, match=r"wrong.xlsx cannot be read .*: save it as CSV"):
        table.read(write(tmp_path, "image,dog\na.jpg,1\n", "wrong.xlsx"))


def changed(file: Path, old: bytes, new: bytes) -> None:
    """A workbook with another text in its sheet."""
    with zipfile.ZipFile(file) as book:
        members = {name: book.read(name) for name in book.namelist()}
    sheet = members["xl/worksheets/sheet1.xml"]
    assert old in sheet
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as book:
        for name, content in (members | {"xl/worksheets/sheet1.xml": sheet.replace(old, new)}).items():
            book.writestr(name, content)


@images
def test_a_sheet_is_read_whole_whatever_size_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    file, book = tmp_path / "labels.xlsx", openpyxl.Workbook()
    for row in (("image", "label"), ("a.jpg", "dog"), ("b.jpg", "cat")):
        book.active.append(row)
    book.save(file)
    whole = file.read_bytes()
    changed(file, b'ref="A1:B3"', b'ref="A1"')
    assert table.read(file).splits["train"].labels.classes == ("cat", "dog")
    changed(file, b'<row r="3"', b'<row r="99999999999"')  # blank rows before it, without end
    assert table.read(file).splits["train"].labels.classes == ("dog",)
    file.write_bytes(whole)
    changed(file, b"cat", b"c" * 200_000)
    with pytest.raises(DataError, match=r"labels.xlsx cannot be read \(a cell has 200,000 characters\)"):
        table.read(file)
    monkeypatch.setattr(table_files, "UNPACKED", 1e-6)
    with pytest.raises(
        DataError, match=r"labels.xlsx cannot be read \(it unpacks to 2.* of this machine's mem"
    ):
        table.read(file)


@images
def test_a_long_text_of_many_rows_is_in_memory_once(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file, rows = tmp_path / "labels.parquet", 20_000
    long = pa.array(["a" * (1 << 20)]).dictionary_encode().take(pa.array([0] * rows))
    parquet.write_table(pa.table({"image": ["a.jpg"] * rows, "label": long}), file)
    assert file.stat().st_size < 100_000
    with pytest.raises(DataError, match=r"labels.parquet cannot be read \(a cell has 1,048,576 characters\)"):
        table.read(file)
    labels = ["dog", None, "cat", "dog"]
    parquet.write_table(pa.table({"image": ["a.jpg", "b.jpg", "b.jpg", "a.jpg"], "label": labels}), file)
    train = table.read(file).splits["train"]
    assert (train.labels.classes, train.labels.values.tolist()) == (("cat", "dog"), [[-1, 1], [1, -1]])


@images
def test_columns_of_a_long_table_that_are_not_used_are_named(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match=r"labels.csv: columns that are not used: valeu, who"):
        train = train_of(tmp_path, "image,label,valeu,who\na.jpg,dog,0,me\n")
    assert train.labels.values.tolist() == [[POSITIVE]]


@images
def test_classes_that_are_written_alike_are_one(tmp_path: Path) -> None:
    said = r"differ only in case or spaces are one: 'Red  car' and 'red car' became 'red car'"
    with pytest.warns(DataWarning, match=said):
        train = train_of(
            tmp_path,
            "image,label,x,y\na.jpg,Red  car,.1,.2\nb.jpg,red car,,\nc d.jpg,red car,,\nb.jpg,cart,,\n",
        )
    assert train.labels.classes == ("red car", "cart")
    assert train.labels.values.tolist() == [[POSITIVE, UNKNOWN], [POSITIVE, POSITIVE], [POSITIVE, UNKNOWN]]
    assert train.spatial_labels.classes.tolist() == [0]
    with pytest.warns(DataWarning, match="'Dog' and 'DOG' became 'Dog'"):
        train = train_of(tmp_path, "image,Dog,emu,DOG\na.jpg,1,,\nb.jpg,,0,0\n")
    assert (train.labels.classes, train.labels.values.tolist()) == (
        ("Dog", "emu"),
        [[POSITIVE, UNKNOWN], [NEGATIVE, NEGATIVE]],
    )


@images
@pytest.mark.parametrize("mark", [";", "|", ","])
def test_several_labels_in_a_cell_are_said(tmp_path: Path, mark: str) -> None:
    text = f'image,label,value\na.jpg,"red{mark} blue",1\nb.jpg,blue,0\nc d.jpg,"blue{mark}gray",\n'
    with pytest.warns(
        DataWarning, match=re.escape(f"in one cell, with '{mark}' between them: 'blue{mark}gray'")
    ):
        train = train_of(tmp_path, text)
    assert train.labels.classes == ("blue", "gray", "red")
    assert train.labels.values.tolist() == [[1, UNKNOWN, 1], [0, UNKNOWN, UNKNOWN], [UNKNOWN] * 3]
    one = train_of(tmp_path, text, separator="")
    assert one.labels.classes == ("blue", f"blue{mark}gray", f"red{mark} blue")


@images
def test_a_comma_in_a_name_is_no_separator(tmp_path: Path) -> None:
    train = train_of(tmp_path, 'image,label\na.jpg,"tench, Tinca tinca"\nb.jpg,"crane, bird"\n')
    assert train.labels.classes == ("crane, bird", "tench, Tinca tinca")


@images
def test_parquet_wide_and_long(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def read(columns: Mapping[str, object], **options: Any) -> RawSplit:
        parquet.write_table(arrow.table(columns), tmp_path / "labels.parquet")
        return table.read(tmp_path / "labels.parquet", **options).splits["train"]

    wide = read({"image": ["b.jpg", "a.jpg"], "dog": [1.0, None], "cat": [True, False], "emu": [0, 1]})
    assert (wide.labels.ids.tolist(), wide.labels.classes) == (["b.jpg", "a.jpg"], ("dog", "cat", "emu"))
    assert wide.labels.values.tolist() == [[POSITIVE, POSITIVE, NEGATIVE], [UNKNOWN, NEGATIVE, POSITIVE]]
    long = read({"image": ["a.jpg", "a.jpg"], "label": ["dog|cat", "emu"], "value": [1, 0]}, separator="|")
    assert long.labels.values.tolist() == [[POSITIVE, POSITIVE, NEGATIVE]]
    points = read({"image": ["a.jpg", "b.jpg"], "label": ["dog", "dog"], "x": [0.25, None], "y": [0.5, None]})
    assert (points.spatial_labels.rows.tolist(), points.spatial_labels.centers.tolist()) == (
        [0],
        [[0.25, 0.5]],
    )
    with pytest.raises(DataError, match=r"labels.parquet, row 2: column 'dog' .* not '7'"):
        read({"image": ["a.jpg", "b.jpg"], "dog": [1, 7]})
    with pytest.raises(DataError, match=r"labels.parquet: column 'label' holds list<"):
        read({"image": ["a.jpg"], "label": [["dog", "cat"]]})
    with pytest.raises(DataError, match=r"wrong.parquet cannot be read \(Parquet magic bytes"):
        table.read(write(tmp_path, "image,dog\na.jpg,1\n", "wrong.parquet"))


@images
@pytest.mark.parametrize(("package", "extra"), [("pyarrow", "parquet"), ("openpyxl", "xlsx")])
def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> ModuleType:
        if name.startswith(package):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match=rf"needs {package}: pip install 'sparselabel\[{extra}\]'"):
        table.read(write(tmp_path, "", f"labels.{extra}"))


class_names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=5)
TEXTS = {POSITIVE: "1", NEGATIVE: "0", UNKNOWN: ""}


@settings(max_examples=40)
@given(
    classes=st.lists(
        class_names.filter(lambda name: plain_name(name) not in (*LABEL_COLUMNS, "image", "split", "value")),
        min_size=1,
        unique_by=plain_name,
    ),
    rows=st.lists(st.integers(0, 3**12 - 1), min_size=1, max_size=6),
    data=st.data(),
)
def test_what_is_written_in_either_shape_is_read_back(
    classes: list[str], rows: list[int], data: st.DataObject
) -> None:
    classes = sorted(classes)[:12]
    values = np.array(
        [[row // 3**place % 3 - 1 for place in range(len(classes))] for row in rows], dtype=np.int8
    )
    names = [f"{row}.png" for row in range(len(rows))]
    wide = [("image", *classes)] + [
        (name, *(TEXTS[int(value)] for value in line)) for name, line in zip(names, values, strict=True)
    ]
    entries = [
        (names[row], classes[index], TEXTS[int(values[row, index])])
        for row, index in np.ndindex(values.shape)
    ]
    shuffled = data.draw(st.permutations(entries))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in names:
            (folder / name).touch()
        as_wide = _round_trip(folder / "wide.csv", wide)
        as_long = _round_trip(folder / "long.csv", [("image", "label", "value"), *shuffled])
    assert as_wide.labels.ids.tolist() == names
    assert as_wide.labels.classes == as_long.labels.classes == tuple(classes)
    np.testing.assert_array_equal(as_wide.labels.values, values)
    assert as_long.labels.ids.tolist() == list(dict.fromkeys(name for name, _, _ in shuffled))
    np.testing.assert_array_equal(
        as_long.labels.values, values[[names.index(name) for name in as_long.labels.ids]]
    )


def _round_trip(file: Path, lines: Sequence[tuple[str, ...]]) -> RawSplit:
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(lines)
    return table.read(file, separator="").splits["train"]


OPEN_IMAGES = """ImageID,Source,LabelName,Confidence
000026e7ee790996,verification,/m/04hgtk,0
000026e7ee790996,verification,/m/07j7r,1
000062a39995e348,crowdsource-verification,/m/04hgtk,1
0000c64e1253d68f,verification,/m/07j7r,0
"""
NAMES = "LabelName,DisplayName\n/m/04hgtk,Human head\n/m/07j7r,Tree\n/m/01,Tree\n"


def open_images(folder: Path, **options: Any) -> RawSplit:
    columns = {"image": "ImageID", "label": "LabelName", "value": "Confidence", "suffix": ".jpg"}
    for name in ("000026e7ee790996", "000062a39995e348"):
        Image.new("RGB", (4, 4)).save(folder / f"{name}.jpg")
    with pytest.warns(DataWarning, match=r"columns that are not used: Source"):
        return train_of(folder, OPEN_IMAGES, **columns, **options)


def test_open_images(tmp_path: Path) -> None:
    names = write(tmp_path, NAMES, "class-descriptions.csv")
    with pytest.warns(
        DataWarning, match=r"1 of 3 images are missing: 0000c64e1253d68f.jpg; they were left out"
    ):
        train = open_images(tmp_path, names=names, skip_missing=True)
    assert train.labels.classes == ("Human head", "Tree")
    assert train.paths.tolist() == ["000026e7ee790996.jpg", "000062a39995e348.jpg"]
    assert train.labels.values.tolist() == [[NEGATIVE, POSITIVE], [POSITIVE, UNKNOWN]]
    with pytest.raises(
        DataError, match=r"line 5: image '0000c64e1253d68f.jpg' is not in .*`skip_missing=True`"
    ):
        open_images(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "/m/07j7r,Tree\n",
            r"names.csv has no name for 1 of 2 labels: /m/04hgtk: give the file that belongs",
        ),
        ("/m/07j7r\n", r"names.csv, line 1: must be a code and a name, not '/m/07j7r'"),
        ("/m/07j7r,Tree\n/m/07j7r,Bush\n", r"line 2: '/m/07j7r' is 'Bush' here and 'Tree' before"),
    ],
)
def test_names_that_are_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_images(tmp_path, names=write(tmp_path, text, "names.csv"))
    with pytest.raises(DataError, match=r"none.csv is not there: .* leave `names` out"):
        open_images(tmp_path, names=tmp_path / "none.csv")


def test_two_classes_with_one_name(tmp_path: Path) -> None:
    names = write(tmp_path, "/m/04hgtk,Tree\n/m/07j7r,Tree\n", "names.csv")
    with pytest.warns(DataWarning, match="left out"):
        train = open_images(tmp_path, names=names, skip_missing=True)
    assert train.labels.classes == ("Tree (/m/04hgtk)", "Tree (/m/07j7r)")


def test_a_column_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'lable'.*did you mean 'label'") as raised:
        train_of(tmp_path, "image,label\na.jpg,cat\n", label="lable")
    assert raised.value.parameters == ["label"]


def test_a_value_that_is_none_is_not_taken_for_a_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'maybe'") as raised:
        train_of(tmp_path, "image,label,value\na.jpg,cat,maybe\n")
    assert raised.value.parameters == []


def test_images_outside_of_the_folder_are_told_of(tmp_path: Path) -> None:
    images = tmp_path / "photos"
    images.mkdir()
    for file in (images / "a.jpg", tmp_path / "b.jpg"):
        file.touch()
    (tmp_path / "labels.csv").write_text("image,label\na.jpg,cat\n../b.jpg,dog\n")
    with pytest.warns(DataWarning, match=r"1 image named outside of .*photos: \.\./b\.jpg"):
        table.read(tmp_path / "labels.csv", images=images)
