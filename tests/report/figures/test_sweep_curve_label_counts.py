import csv
from pathlib import Path

import pytest
from PIL import Image

from sparselabel.comparison.result_tables import write_table
from sparselabel.comparison.summary import Row
from sparselabel.errors import ConfigError, DataError
from sparselabel.report.figures.sweep_curve import draw_label_numbers


def table(path: Path, images: int) -> Path:
    rows = [
        Row("bce", {}, {0: 0.5 + images / 1000, 1: 0.5 + images / 1000}, labels=20 * images),
        Row("role", {}, {0: 0.4}, labels=images),
        Row("an", {0: 0.4}, {}, labels=images),  # never tested
    ]
    write_table(rows, path)
    return path


def test_a_point_for_each_table_and_method(tmp_path: Path) -> None:
    tables = [table(tmp_path / f"{images}.csv", images) for images in (200, 100)]
    with draw_label_numbers(tables, tmp_path / "a.png").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [
            ["method", "labels", "mAP", "spread"],
            ["bce", "4000", "70", "0"],
            ["role", "200", "40", ""],
            ["bce", "2000", "60", "0"],
            ["role", "100", "40", ""],
        ]
    with Image.open(tmp_path / "a.png") as image:
        image.load()


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    out = tmp_path / "a.png"
    with pytest.raises(ConfigError, match="nothing to draw: name tables"):
        draw_label_numbers([], out)
    with pytest.raises(DataError, match=r"there is no table .*no.csv"):
        draw_label_numbers([tmp_path / "no.csv"], out)
    (tmp_path / "other.csv").write_text("method,test\nan,3\n")
    with pytest.raises(DataError, match=r"other.csv has no numbers of labels"):
        draw_label_numbers([tmp_path / "other.csv"], out)
    write_table([Row("an", {}, {0: 0.5}, "2", labels=3)], tmp_path / "varied.csv", "settings.weight")
    with pytest.raises(DataError, match=r"varied.csv varies a setting: `sparselabel figure sweep`"):
        draw_label_numbers([tmp_path / "varied.csv"], out)
    write_table([Row("an", {0: 0.5}, labels=3)], tmp_path / "untested.csv")
    with pytest.raises(DataError, match=r"csv: no test mAP"):
        draw_label_numbers([tmp_path / "untested.csv"], out)
