import csv
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparselabel.config import Preparation
from sparselabel.data.dataset import Dataset
from sparselabel.data.label_table import LabelTable
from sparselabel.data.prepare import prepare
from sparselabel.data.readers.raw_dataset import RawDataset, RawSplit
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import DataWarning
from sparselabel.report.figures.contact_sheet import draw_sheet, labels_of, random_rows
from sparselabel.report.figures.panels import COLOR_OF

CLASSES = ("ant", "bee $x_1$", "a class with a very long name, [and] more")
GRAY = (119, 119, 119)


def rgb(color: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(color[1:]))


def make(
    folder: Path, values: list[list[int]], spatial_labels: SpatialLabels, sparsify: bool = False
) -> Dataset:
    """Plain gray images, twice as wide as high, with these labels and marks."""
    for row in range(len(values)):
        folder.mkdir(exist_ok=True)
        Image.new("RGB", (200, 100), GRAY).save(folder / f"{row}.png")
    ids = np.array([f"{row}.png" for row in range(len(values))])
    split = RawSplit(LabelTable(ids, CLASSES, np.array(values, np.int8)), ids, spatial_labels)
    how = Preparation("single-positive" if sparsify else "none", validation=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # not every class is on such few images
        return prepare(RawDataset("made", folder, {"train": split}), folder / "out", how)


def marks_of(*spatial_labels: tuple[int, int, float, float, float, float]) -> SpatialLabels:
    columns = np.array(spatial_labels, dtype=np.float64).reshape(-1, 6)
    return SpatialLabels(
        columns[:, 0].astype(np.int64),
        columns[:, 1].astype(np.int32),
        columns[:, 2:4].astype(np.float32),
        columns[:, 4:].astype(np.float32),
    )


def image_on(sheet: np.ndarray) -> tuple[int, int, int, int]:
    """Where the one gray image is on a sheet: left, top, right and bottom pixel."""
    gray = np.abs(sheet.astype(int) - GRAY).max(2) <= 1
    rows, columns = np.flatnonzero(gray.sum(1) > 50), np.flatnonzero(gray.sum(0) > 50)
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def inked(sheet: np.ndarray, color: str, box: tuple[int, int, int, int]) -> np.ndarray:
    """(n, 2) Where pixels of a color are in a part of the sheet, in shares of it: x and y."""
    left, top, right, bottom = box
    part = sheet[top:bottom, left:right]
    y, x = np.nonzero(np.abs(part.astype(int) - rgb(color)).max(2) <= 8)
    return np.stack([(x + 0.5) / (right - left), (y + 0.5) / (bottom - top)], axis=1)


def test_boxes_are_where_they_belong(tmp_path: Path) -> None:
    data = make(tmp_path / "p", [[1, 0, 0]], marks_of((0, 0, 0.7, 0.6, 0.4, 0.3)))
    draw_sheet(data.train, 0, tmp_path / "sheet.png")
    sheet = np.asarray(Image.open(tmp_path / "sheet.png").convert("RGB"))
    box = image_on(sheet)
    assert (box[2] - box[0]) / (box[3] - box[1]) == pytest.approx(2, abs=0.02)
    ink = inked(sheet, COLOR_OF["annotated"], box)
    assert ink[:, 0].min() == pytest.approx(0.5, abs=0.01)
    assert ink[:, 0].max() == pytest.approx(0.9, abs=0.01)
    assert ink[:, 1].max() == pytest.approx(0.75, abs=0.02)
    below = ink[ink[:, 1] > 0.48]  # the name stands above the box
    assert set(np.round(below[np.abs(below[:, 1] - 0.6) < 0.05, 0], 1)) == {0.5, 0.9}


def test_points_are_where_they_belong(tmp_path: Path) -> None:
    data = make(tmp_path / "p", [[1, 0, 0]], marks_of((0, 0, 0.25, 0.8, 0, 0)))
    draw_sheet(data.train, 0, tmp_path / "sheet.png")
    sheet = np.asarray(Image.open(tmp_path / "sheet.png").convert("RGB"))
    ink = inked(sheet, COLOR_OF["annotated"], image_on(sheet))
    dot = ink[ink[:, 0] < 0.265]  # the name stands to the right of it
    assert dot.mean(0).tolist() == pytest.approx([0.25, 0.8], abs=0.015)


def test_hidden_labels_look_different(tmp_path: Path) -> None:
    spatial_labels = marks_of((0, 0, 0.25, 0.5, 0.3, 0.5), (0, 1, 0.75, 0.5, 0.3, 0.5))
    data = make(tmp_path / "p", [[1, 1, 0]], spatial_labels, sparsify=True)
    (shown, kind), (hidden, other) = labels_of(data.train, 0)
    assert (kind, other, {shown, hidden}) == ("annotated", "present", {0, 1})
    draw_sheet(data.train, 0, tmp_path / "sheet.png")
    sheet = np.asarray(Image.open(tmp_path / "sheet.png").convert("RGB"))
    box = image_on(sheet)
    for index, its_kind in ((shown, "annotated"), (hidden, "present")):
        x = inked(sheet, COLOR_OF[its_kind], box)[:, 0]  # type: ignore[index]
        assert ((x < 0.5) if index == 0 else (x > 0.5)).all()


def test_the_numbers_beside_it(tmp_path: Path) -> None:
    data = make(tmp_path / "p", [[1, 0, -1], [-1, -1, -1], [-1, 0, 1]], SpatialLabels.none())
    numbers = draw_sheet(data.train, 0, tmp_path / "new" / "sheet.png")
    assert numbers == tmp_path / "new" / "sheet.csv"
    with numbers.open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["row", "image", "class", "kind"],
            ["0", "0.png", "ant", "annotated"],
            ["1", "1.png", "", "none"],
            ["2", "2.png", CLASSES[2], "annotated"],
        ]


def test_another_seed_shows_other_images() -> None:
    one, other = random_rows(40, 0), random_rows(40, 1)
    assert (len(set(one)), one) == (24, sorted(one))
    assert one == random_rows(40, 0) != other
    assert random_rows(3, 5) == [0, 1, 2]
