import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparselabel.comparison.result_tables import write_by_labels, write_table
from sparselabel.comparison.summary import Row
from sparselabel.errors import ConfigError, DataError, RunError
from sparselabel.report.figures.sweep_curve import _in_order, _places, draw_sweep
from tests.report.figures.made_up import make_data, make_run

LABELS = np.eye(5, dtype=np.int8)
MU = "settings.momentum"
ROWS = [
    Row("an", {0: 0.3}, {0: 0.4}),
    Row("en", {0: 0.5, 1: 0.6}, {0: 0.6, 1: 0.8}, "0.8", by_labels={("test", "1"): [0.5, 0.7]}),
    Row("en", {0: 0.4, 1: 0.4}, {0: 0.5, 1: 0.5}, "0.5", by_labels={("validation", "4+"): [0.25]}),
]


def drawn(tables: list[Path], split: str, out: Path) -> list[list[str]]:
    with draw_sweep(tables, split, out).open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    with Image.open(out) as image:
        image.load()
    assert lines[0] == ["curve", "varied", "value", "labels", "mAP", "spread"]
    return lines[1:]


def test_a_curve_for_each_method(tmp_path: Path) -> None:
    write_table(ROWS, tmp_path / "table.csv", MU)
    assert drawn([tmp_path / "table.csv"], "test", tmp_path / "a.png") == [
        ["an", MU, "", "", "40", ""],
        ["en", MU, "0.8", "", "70", "14.14"],
        ["en", MU, "0.5", "", "50", "0"],
    ]
    assert [line[4:] for line in drawn([tmp_path / "table.csv"], "val", tmp_path / "a.png")] == [
        ["30", ""],
        ["55", "7.07"],
        ["40", "0"],
    ]


def test_several_tables_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for name in ("l1", "jsd"):
        (tmp_path / name).mkdir()
        write_table(ROWS, tmp_path / name / "table.csv", MU)
    found = drawn([tmp_path / "l1" / "table.csv", tmp_path / "jsd" / "table.csv"], "test", tmp_path / "a.png")
    assert list(dict.fromkeys(line[0] for line in found)) == ["an (l1)", "en (l1)", "an (jsd)", "en (jsd)"]


def test_by_the_number_of_labels(tmp_path: Path) -> None:
    write_by_labels(ROWS, tmp_path / "table-by-labels.csv", MU)
    found = drawn([tmp_path / "table-by-labels.csv"], "test", tmp_path / "a.png")
    assert found == [["en", MU, "0.8", "1", "60", "14.14"]]
    found = drawn([tmp_path / "table-by-labels.csv"], "val", tmp_path / "a.png")
    assert found == [["en", MU, "0.5", "4+", "25", ""]]


def test_a_image_is_in_one_panel_only(tmp_path: Path) -> None:
    names = ("1", "2", "3", "4", "5", "7+", "4+")
    subsets = {("test", name): [0.1 * number] for number, name in enumerate(names)}
    write_by_labels([Row("en", {}, {0: 0.5}, "1", by_labels=subsets)], tmp_path / "labels.csv", MU)
    found = drawn([tmp_path / "labels.csv"], "test", tmp_path / "a.png")
    assert [line[3] for line in found] == ["1", "2", "3", "4", "5", "7+"]
    with Image.open(tmp_path / "a.png") as image:
        assert image.width > 1.5 * image.height  # two rows of panels


def test_words_stand_side_by_side_and_numbers_where_they_belong(tmp_path: Path) -> None:
    assert _in_order(["10", "0.1", "1", "10"]) == ["0.1", "1", "10"]
    assert _places(["0.1", "1", "10"]) == {"0.1": 0.1, "1": 1, "10": 10}
    assert _in_order(["l2", "jsd", "l1"]) == ["l2", "jsd", "l1"]
    assert _places(["l2", "jsd", "l1"]) == {"l2": 0, "jsd": 1, "l1": 2}
    assert _in_order(["auto", "2", "1"]) == ["1", "2", "auto"]
    assert _places(["1", "2", "auto"]) == {"1": 1, "2": 2, "auto": 2.2}
    assert _places(["1", "100", "auto"])["auto"] == pytest.approx(100 * 100**0.2)  # the axis is logarithmic
    rows = [Row("en+scl", {0: 0.5}, {0: 0.5}, value) for value in ("l2", "jsd")]
    write_table(rows, tmp_path / "table.csv", "settings.distance")
    assert len(drawn([tmp_path / "table.csv"], "test", tmp_path / "a.png")) == 2
    rows = [Row("en+scl", {0: 0.5}, {0: 0.5}, value) for value in ("0.1", "10")]
    write_table(rows, tmp_path / "table.csv", "settings.weight")
    assert len(drawn([tmp_path / "table.csv"], "test", tmp_path / "a.png")) == 2


def test_what_is_no_table_of_a_sweep(tmp_path: Path) -> None:
    table, out = tmp_path / "table.csv", tmp_path / "a.png"
    with pytest.raises(ConfigError, match="nothing to draw: name a table"):
        draw_sweep([], "test", out)
    with pytest.raises(DataError, match=r"there is no table .*table.csv: `sparselabel compare"):
        draw_sweep([table], "test", out)
    write_table(ROWS, table)
    with pytest.raises(DataError, match=r"table.csv is no table of a varied setting"):
        draw_sweep([table], "test", out)
    write_table([Row("en", {0: 0.5}, {}, "1")], table, MU)
    with pytest.raises(DataError, match=r"table\.csv: no test mAP: name another `split`"):
        draw_sweep([table], "test", out)
    with pytest.raises(ConfigError, match="there is no split 'train' in a table"):
        draw_sweep([table], "train", out)
    write_table(ROWS, table, MU)
    write_table(ROWS, tmp_path / "other.csv", "settings.weight")
    write_by_labels(ROWS, tmp_path / "labels.csv", MU)
    for other in ("other.csv", "labels.csv"):
        with pytest.raises(DataError, match="do not fit into one figure"):
            draw_sweep([table, tmp_path / other], "test", out)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"method,varied,value,validation\nen,k,1,5\n",
            "line 2: the table has no column 'test' .it has method, ",
        ),
        (
            b"method,varied,value,test,spread\nan,k,1,5,\nen,k,1,abc,\n",
            "line 3: column 'test' .* 'abc': mend it",
        ),
        (b"method,varied,value,test,spread\nen,k,1,50,5x\n", "line 2: column 'spread' .* 0 on, .* '5x'"),
        (b"method,varied,value,test,spread\nen,k,1,nan,\n", "from 0 to 100, or empty, not 'nan'"),
        (b"method,varied,value,test,spread\nen,k,1,5,inf\n", "from 0 on, or empty, not 'inf'"),
        (b"method,varied,value,test,spread\nen,k,1,101,\n", "from 0 to 100, or empty, not '101'"),
        (b"method,varied,value,test,spread\nen,k,1\n", "line 2: the header has 5 columns, this has 3"),
        (b"method,varied,value,labels,mAP,spread\nen,k,1,1,5,\n", "line 2: the table has no column 'split'"),
        (b"\x89PNG\r\n\xff\xfe", "table.csv is not text in utf-8 .invalid start byte"),
        (b"", "table.csv is empty"),
    ],
)
def test_a_table_that_somebody_has_broken(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "table.csv").write_bytes(content)
    with pytest.raises(DataError, match=said):
        draw_sweep([tmp_path / "table.csv"], "test", tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_infinity_is_a_word_on_the_axis() -> None:
    assert _in_order(["inf", "2", "1", "nan"]) == ["1", "2", "inf", "nan"]


def test_tables_of_other_data_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_table_of(tmp_path / name)
        data = make_data(tmp_path / name, LABELS if name == "one" else LABELS[::-1].copy())
        make_run(tmp_path / name / "en-seed0", data)
    assert len(drawn([tmp_path / "one"], "test", tmp_path / "a.png")) == 3  # a folder means its table.csv
    said = (
        r"two/table.csv is of other data \(.*two/data, test [0-9a-f]{8}\) than .*one/table.csv \(.*one/data"
    )
    with pytest.raises(RunError, match=said):
        draw_sweep([tmp_path / "one", tmp_path / "two"], "test", tmp_path / "a.png")


def write_table_of(folder: Path) -> None:
    folder.mkdir()
    write_table(ROWS, folder / "table.csv", MU)


def test_words_are_not_joined_by_a_line(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    from sparselabel.report.figures.sweep_curve import Point, _panel

    axes = Figure().subplots()
    points = [Point("en", "k", value, "", mean, 0.5) for value, mean in (("1", 5), ("2", 6), ("auto", 7))]
    _panel(axes, points, small=False)
    joined = [line.get_xdata() for line in axes.lines if line.get_linestyle() == "-"]
    assert [np.asarray(places).tolist() for places in joined] == [[1, 2]]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "auto"]
    assert axes.get_legend_handles_labels()[1] == ["en"]
    axes = Figure().subplots()
    _panel(axes, [replace(point, value=word) for point, word in zip(points, "abc", strict=True)], small=True)
    assert [line for line in axes.lines if line.get_linestyle() == "-"] == []
    assert axes.get_xlim() == (-0.5, 2.5)
    assert axes.get_legend_handles_labels()[1] == ["en"]
