import csv
from pathlib import Path

import pytest
from PIL import Image

from sparselabel.compare.rows import Row
from sparselabel.compare.tables import write_by_labels, write_table
from sparselabel.errors import ConfigError, DataError
from sparselabel.report.sweep import _in_order, _numbers, draw_sweep

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
        ["55", ""],
        ["40", ""],
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


def test_a_picture_is_in_one_panel_only(tmp_path: Path) -> None:
    names = ("1", "2", "3", "4", "5", "7+", "4+")
    subsets = {("test", name): [0.1 * number] for number, name in enumerate(names)}
    write_by_labels([Row("en", {}, {0: 0.5}, "1", by_labels=subsets)], tmp_path / "labels.csv", MU)
    found = drawn([tmp_path / "labels.csv"], "test", tmp_path / "a.png")
    assert [line[3] for line in found] == ["1", "2", "3", "4", "5", "7+"]
    with Image.open(tmp_path / "a.png") as image:
        assert image.width > 1.5 * image.height  # two rows of panels


def test_words_stand_side_by_side_and_numbers_where_they_belong(tmp_path: Path) -> None:
    assert _in_order(["10", "0.1", "1", "10"]) == ["0.1", "1", "10"]
    assert _numbers(["0.1", "1", "10"]) == [0.1, 1, 10]
    assert _in_order(["l2", "jsd", "l1"]) == ["l2", "jsd", "l1"]
    assert _numbers(["l2", "jsd", "l1"]) == [0, 1, 2]
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
    with pytest.raises(DataError, match="the tables have no test mAP: name another --split"):
        draw_sweep([table], "test", out)
    with pytest.raises(ConfigError, match="there is no split 'train' in a table"):
        draw_sweep([table], "train", out)
    write_table(ROWS, table, MU)
    write_table(ROWS, tmp_path / "other.csv", "settings.weight")
    write_by_labels(ROWS, tmp_path / "labels.csv", MU)
    for other in ("other.csv", "labels.csv"):
        with pytest.raises(DataError, match="do not fit into one figure"):
            draw_sweep([table, tmp_path / other], "test", out)
