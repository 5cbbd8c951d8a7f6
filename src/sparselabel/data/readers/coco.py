"""COCO's instances JSON, and what others publish in its form (Objects365).

annotations/instances_train2014.json   {"images": [...], "annotations": [...], "categories": [...]}
train2014/COCO_train2014_000000000009.jpg
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparselabel.data.labels import NEGATIVE, POSITIVE, LabelTable, Texts, refuse_duplicates
from sparselabel.data.readers.common import (
    Box,
    Listing,
    MarkColumns,
    naming,
    refuse_empty,
    require_folder,
)
from sparselabel.data.readers.label_list import with_observed
from sparselabel.data.readers.published import warn_of_another_size
from sparselabel.data.source import Source, Split
from sparselabel.errors import DataError, listing

PARTS = {"train": "train", "test": "val"}
"""Our splits and COCO's: the papers test on its official validation set."""

Record = Mapping[str, Any]


def read(
    source: Path, *, images: Path | None = None, keep_empty: bool = False, labels: Path | None = None
) -> Source:
    """Read one COCO-style JSON file (as "train"), or a folder laid out like COCO (train and val as "test").

    A class is POSITIVE on a picture with an annotation of it, crowd regions included, else NEGATIVE. Classes
    come in the order of the file's categories, rows in the order of the image ids as strings.

    Parameters
    ----------
    source
        The JSON file, or the folder with ``annotations/instances_train2014.json`` (or another year).
    images
        The pictures' folder; by default the JSON file's own folder, or the folder laid out like COCO.
    keep_empty
        Keep pictures without any annotation; all their labels are NEGATIVE.
    labels
        A published list of the positive labels that training may see (see ``label_list``).
    """
    if not source.is_dir():
        root = require_folder(images or source.parent)
        split = _read_split(source, Listing(root), "", keep_empty)
        return Source(source.stem, root, {"train": with_observed(split, labels) if labels else split})
    root = require_folder(images or source)
    year = _year(source, root)
    files = Listing(root)
    splits: dict[str, Split] = {}
    for name, part in PARTS.items():
        file = _annotations(source, part + year)
        if file.exists():
            splits[name] = _read_split(file, files, f"{part}{year}/", keep_empty)
    if len({split.labels.classes for split in splits.values()}) > 1:
        odd = set.symmetric_difference(*({*split.labels.classes} for split in splits.values()))
        raise DataError(
            f"{source}: train{year} and val{year} must have the same categories in the same order; "
            f"only one of them has: {listing(sorted(odd)) or 'none, but the order differs'}"
        )
    if not keep_empty and year == "2014":
        warn_of_another_size("coco", splits)
    if labels is not None:
        splits["train"] = with_observed(splits["train"], labels)
    return Source(source.resolve().name, root, splits)


def _annotations(source: Path, part: str) -> Path:
    return source / "annotations" / f"instances_{part}.json"


def _year(source: Path, root: Path) -> str:
    """The year whose files are there; it is an error if there are several."""
    ends = _annotations(source, "train*")
    years = sorted(file.stem.removeprefix("instances_train") for file in ends.parent.glob(ends.name))
    if not years:
        raise DataError(
            f"{source}: no annotations/instances_train2014.json or ..._train2017.json; "
            f"to read a single file as training data, give that file"
        )
    years = [year for year in years if (root / f"train{year}").is_dir()] or years
    if len(years) > 1:
        raise DataError(
            f"{source} has annotations of several years ({', '.join(years)}): keep one year in a folder"
        )
    return years[0]


def _read_split(file: Path, files: Listing, below: str, keep_empty: bool) -> Split:
    content = _load(file)
    names, index_of = _categories(file, content["categories"])
    images = {
        str(_get(file, "image", place, image, "id")): image for place, image in enumerate(content["images"])
    }
    if len(images) < len(content["images"]):
        with naming(file):
            refuse_duplicates("image id", np.asarray([str(image["id"]) for image in content["images"]]))
    ids = sorted(images)
    sizes = [_size(file, key, images[key]) for key in ids]
    row_of = {key: row for row, key in enumerate(ids)}
    values = np.full((len(ids), len(names)), NEGATIVE, dtype=np.int8)
    marks = MarkColumns()
    for place, annotation in enumerate(content["annotations"]):
        row = row_of.get(str(_get(file, "annotation", place, annotation, "image_id")))
        index = index_of.get(str(_get(file, "annotation", place, annotation, "category_id")))
        if row is None or index is None:
            key, what = ("image_id", "images") if row is None else ("category_id", "categories")
            name = _name("annotation", place, annotation)
            raise DataError(f"{file}: {name}: {key} {annotation[key]!r} is not among the {what}")
        values[row, index] = POSITIVE
        if not annotation.get("iscrowd", 0):
            box = _box(file, place, annotation, *sizes[row])
            if box is not None:
                marks.add(row, index, box)
    with naming(file):
        table = LabelTable(np.asarray(ids, dtype=np.str_), names, values)
    kept = np.arange(len(ids)) if keep_empty else np.flatnonzero(table.per_picture(POSITIVE))
    table = table.take(kept)
    refuse_empty(table, f"{file}: no image has an annotation")
    return Split(table, _pictures(file, files, below, table, images), marks.build().take(kept))


def _load(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise DataError(
            f"{file} is not there: give a COCO-style JSON file, or a folder laid out like COCO"
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not JSON in UTF-8: {error.reason} at byte {error.start:,}") from error
    except json.JSONDecodeError as error:
        raise DataError(
            f"{file}, line {error.lineno}, column {error.colno} is not JSON: {error.msg}"
        ) from error
    lists = ("images", "annotations", "categories")
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in lists):
        found = listing(content) if isinstance(content, dict) else f"a {type(content).__name__}"
        raise DataError(f"{file}: must be an object with the lists {', '.join(lists)}; found {found}")
    for key in ("images", "categories"):
        if not content[key]:
            raise DataError(f"{file}: {key!r} is empty")
    return content


def _categories(file: Path, categories: list[Record]) -> tuple[tuple[str, ...], dict[str, int]]:
    """Class names in the file's order, and category id -> class index."""
    names = [str(_get(file, "category", place, item, "name")) for place, item in enumerate(categories)]
    keys = [str(_get(file, "category", place, item, "id")) for place, item in enumerate(categories)]
    with naming(file):
        refuse_duplicates("category", np.asarray(names, dtype=np.str_))
        refuse_duplicates("category id", np.asarray(keys, dtype=np.str_))
    return tuple(names), {key: index for index, key in enumerate(keys)}


def _name(kind: str, place: int, record: Any) -> str:
    """How messages call a record: by its id, or by its place in the list if it has none."""
    known = isinstance(record, dict) and "id" in record
    return f"{kind} {record['id']}" if known else f"{kind} at position {place} (counted from 0)"


def _get(file: Path, kind: str, place: int, record: Any, key: str) -> Any:
    try:
        return record[key]
    except (KeyError, TypeError, IndexError):
        raise DataError(f"{file}: {_name(kind, place, record)} has no {key!r}: {record!r:.200}") from None


def _size(file: Path, key: str, image: Record) -> tuple[float, float]:
    width, height = image.get("width"), image.get("height")
    if not (isinstance(width, int | float) and isinstance(height, int | float) and width > 0 and height > 0):
        raise DataError(
            f"{file}: image {key} must have a width and a height above 0, not {width!r} and {height!r}"
        )
    return width, height


def _box(file: Path, place: int, annotation: Record, width: float, height: float) -> Box | None:
    """The part of an annotation's box inside the picture; None if it has no area."""
    match _get(file, "annotation", place, annotation, "bbox"):
        case [int() | float() as x, int() | float() as y, int() | float() as w, int() | float() as h] if (
            math.isfinite(x + y + w + h) and w >= 0 and h >= 0
        ):
            return Box(x / width, y / height, (x + w) / width, (y + h) / height).clipped()
        case wrong:
            name = _name("annotation", place, annotation)
            raise DataError(f"{file}: {name}: bbox must be [x, y, width, height] in pixels, not {wrong!r}")


def _pictures(
    file: Path, files: Listing, below: str, table: LabelTable, images: Mapping[str, Record]
) -> Texts:
    """Where the pictures are: ``file_name``, or its last two or last one components (patch folders)."""
    paths: list[str] = []
    missing: list[str] = []
    for place, key in enumerate(table.ids.tolist()):
        name = str(_get(file, "image", place, images[key], "file_name"))
        parts = name.split("/")
        ends = (below + "/".join(parts[-most:]) for most in (len(parts), 2, 1))
        path = next((end for end in ends if end in files), None)
        if path is None:
            missing.append(f"{below}{name} (image {key})")
        else:
            paths.append(path)
    if missing:
        raise DataError(
            f"{file}: {len(missing):,} of {len(table):,} pictures are not in {files.root}: "
            f"{listing(missing)}; name the pictures' folder with --images"
        )
    with naming(file):
        refuse_duplicates("picture file", np.asarray(paths, dtype=np.str_))
    return np.asarray(paths, dtype=np.str_)
