"""Labels of prepared data as files for other programs: a wide CSV table, or COCO's JSON.

The readers ``table`` and ``coco`` read both back.
"""

import csv
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np

from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.decode import upright_size_of
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, positives_of
from sparselabel.errors import DataError, RunError, listing, param
from sparselabel.files import atomic_write

Which = Literal["observed", "full"]

OWN_COLUMNS = ("image", "split", "label")
"""Columns with another meaning for the ``table`` reader."""


def write_labels(prepared: Dataset, split: str | None, which: Which, file: Path, force: bool) -> None:
    """Write the labels of one split, or of all, in the form that the file's suffix names."""
    splits = [*prepared.splits.values()] if split is None else [prepared.split(split)]
    if file.exists() and not force:
        raise RunError(
            f"{file} exists", f"choose another {param('out')}", f"replace it with {param('force', True)}"
        )
    if file.suffix.lower() not in (".csv", ".json"):
        raise DataError(
            f"{file}: the name must end with .csv (a column for each class) or .json (COCO's form)"
        )
    if file.suffix.lower() == ".json" and len(splits) > 1:
        raise DataError(
            "COCO's form has a file for each split",
            f"name one of {listing(prepared.splits)} with {param('split')}",
        )
    with atomic_write(file) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
        if file.suffix.lower() == ".csv":
            _write_csv(stream, prepared.classes, splits, which)
        else:
            _write_coco(stream, splits[0], which)


def _labels(split: PreparedSplit, which: Which) -> LabelTable:
    return split.observed if which == "observed" else split.truth


def _write_csv(stream: TextIO, classes: tuple[str, ...], splits: list[PreparedSplit], which: Which) -> None:
    """One row per image, one column per class: 1, 0, or empty where it is unknown."""
    taken = [name for name in classes if name in OWN_COLUMNS]
    if taken:
        raise DataError(
            f"a table has columns {', '.join(OWN_COLUMNS)} of its own, so that a class cannot be called "
            f"{listing(taken)} there",
            "write a .json",
        )
    texts = {POSITIVE: "1", NEGATIVE: "0", UNKNOWN: ""}
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["image", *classes, "split"])
    for split in splits:
        labels = _labels(split, which).values
        for row, path in enumerate(split.paths):
            writer.writerow([path, *(texts[value] for value in labels[row].tolist()), split.name])


def _write_coco(stream: TextIO, split: PreparedSplit, which: Which) -> None:
    """Boxes are annotations; a label without a box is not made into one.

    If all labels are known and every positive one has a box, this is plain COCO. Otherwise each image has two
    lists: ``neg_category_ids`` (LVIS's name) of absent classes, and ``pos_category_ids`` of classes present
    without a box. All others are unknown.
    """
    table = _labels(split, which)
    plain = table.complete and _all_shown(split, table)
    keys = _image_ids(table)
    stream.write(
        '{"info": {"description": ' + json.dumps(f"{which} labels of the split {split.name}") + "},\n"
    )
    stream.write('"categories": [\n')
    _write_list(stream, ({"id": index, "name": name} for index, name in enumerate(table.classes, 1)))
    stream.write('],\n"images": [\n')
    sizes = np.empty((len(split), 2))
    _write_list(stream, _images(split, table, keys, sizes, plain))
    stream.write('],\n"annotations": [\n')
    _write_list(stream, _annotations(split, table, keys, sizes))
    stream.write("]}\n")


def _all_shown(split: PreparedSplit, table: LabelTable) -> bool:
    """Whether every positive label has a box or a point."""
    spatial_labels, (rows, classes) = split.spatial_labels, positives_of(table.matrix)
    shown = spatial_labels.rows * len(table.classes) + spatial_labels.classes
    return bool(np.isin(rows * len(table.classes) + classes, shown).all())


def _write_list(stream: TextIO, records: Iterator[dict[str, Any]]) -> None:
    for number, record in enumerate(records):
        stream.write((",\n" if number else "") + json.dumps(record, ensure_ascii=False))
    stream.write("\n")


def _image_ids(table: LabelTable) -> list[int]:
    """The images' ids if they are whole numbers, as COCO's are; else they are numbered."""
    ids = table.ids.tolist()
    if all(key.isascii() and key.isdecimal() and str(int(key)) == key for key in ids):
        return [int(key) for key in ids]
    return [*range(1, len(ids) + 1)]


def _images(
    split: PreparedSplit, table: LabelTable, keys: list[int], sizes: Any, plain: bool
) -> Iterator[dict[str, Any]]:
    for row, key in enumerate(keys):
        sizes[row] = width, height = _size(split, row)
        record = {"id": key, "file_name": str(split.paths[row]), "width": width, "height": height}
        if not plain:
            values = table.matrix[row]
            record["neg_category_ids"] = (np.flatnonzero(values == NEGATIVE) + 1).tolist()
            shown = split.spatial_labels.classes[split.spatial_labels.of_rows([row])[0]]
            alone = np.setdiff1d(np.flatnonzero(values == POSITIVE), shown)
            record["pos_category_ids"] = (alone + 1).tolist()
        yield record


def _size(split: PreparedSplit, row: int) -> tuple[int, int]:
    file = split.place(row)
    try:
        return upright_size_of(file, None if split.stored is None else split.content(row))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as an image ({error}), and its size is needed") from error


def _annotations(
    split: PreparedSplit, table: LabelTable, keys: list[int], sizes: Any
) -> Iterator[dict[str, Any]]:
    spatial_labels = split.spatial_labels
    numbers = count(1)
    for row, index, center, size in zip(
        spatial_labels.rows, spatial_labels.classes, spatial_labels.centers, spatial_labels.sizes, strict=True
    ):
        if table.matrix[row, index] != POSITIVE:
            continue  # hidden: where it is would give it away
        scale = sizes[row]
        low = (center.astype(np.float64) - size.astype(np.float64) / 2) * scale
        extent = size.astype(np.float64) * scale
        x, y, w, h = (round(float(number), 3) for number in (*low, *extent))
        record: dict[str, Any] = {"id": next(numbers), "image_id": keys[row], "category_id": int(index) + 1}
        record |= {"bbox": [x, y, w, h], "area": round(w * h, 3), "iscrowd": 0, "segmentation": []}
        if not size.any():
            record |= {"keypoints": [x, y, 2], "num_keypoints": 1}
        yield record
