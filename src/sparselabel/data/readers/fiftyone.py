"""FiftyOne's exports FiftyOneImageClassificationDataset and FiftyOneImageDetectionDataset.

labels.json     {"classes": ["cat", "dog"] or null,
                 "labels": {"a": 0, "b": [0, {"label": 1}], "c": null,
                            "d": [{"label": 1, "bounding_box": [0.1, 0.2, 0.3, 0.4], "attributes": {}}]}}
data/a.jpg …
"""

import math
from pathlib import Path
from typing import Any

from sparselabel.data.decode import SUFFIXES
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.data.readers.annotation_tools import Collected
from sparselabel.data.readers.raw_dataset import Box, RawDataset, images_folder, warn
from sparselabel.errors import DataError, listing
from sparselabel.file_formats import read_json


def read(
    source: Path, *, images: Path | None = None, negatives: Path | None = None, complete: bool = False
) -> RawDataset:
    """FiftyOne: the exports FiftyOneImageClassificationDataset and FiftyOneImageDetectionDataset.

    Example: `Dataset.from_files("fiftyone", "labels.json")`

    Parameters
    ----------
    source
        The file labels.json, or its folder.
    images
        Folder of the images; default: data/ beside the file, or the folder of the file.
    negatives
        A second export of the same kind, with absent classes.
    complete
        Classes that are not named are absent on labeled images; by default they are unknown.

    Notes
    -----
    An image's key is its name without suffix.
    """
    file = source / "labels.json" if source.is_dir() else source
    collected = Collected(file, images_folder(images, file.parent / "data", file.parent))
    paths: dict[str, list[str]] = {}  # image files by their relative path without suffix
    for path in sorted(collected.root.rglob("*")):
        if path.name.lower().endswith(SUFFIXES) and path.is_file():
            name = path.relative_to(collected.root).as_posix()
            paths.setdefault(name.rpartition(".")[0], []).append(name)
    _read(collected, file, paths, POSITIVE)
    if negatives is not None:
        _read(collected, negatives / "labels.json" if negatives.is_dir() else negatives, paths, NEGATIVE)
    return collected.source(file.stem if file.stem != "labels" else file.resolve().parent.name, complete)


def _read(collected: Collected, file: Path, paths: dict[str, list[str]], value: int) -> None:
    content = read_json(
        file, object, "give the labels.json of a FiftyOne export, or its folder", error=DataError
    )
    if not isinstance(content, dict) or not isinstance(content.get("labels"), dict):
        raise DataError(
            f"{file}: must be an object with 'classes' and 'labels' by image",
            "export with dataset_type FiftyOneImageClassificationDataset or FiftyOneImageDetectionDataset",
        )
    classes = content.get("classes")
    if classes is not None and not (isinstance(classes, list) and all(isinstance(c, str) for c in classes)):
        raise DataError(f"{file}: 'classes' must be a list of names, or null, not {classes!r:.200}")
    collected.classes(classes or [])
    scored = 0
    for key, labels in content["labels"].items():
        where = f"image {key!r}"
        fitting = paths.get(key, [])
        if len(fitting) > 1:
            raise DataError(
                f"{file}, {where}: several files have this name: {listing(fitting)}", "keep one of them"
            )
        row = collected.image(where, key, [key, *fitting], labels is not None and value == POSITIVE)
        for label in labels if isinstance(labels, list) else [] if labels is None else [labels]:
            record = label if isinstance(label, dict) else {"label": label}
            scored += record.get("confidence") is not None
            name = _name(file, where, classes, record.get("label"))
            boxes = [_box(file, where, record["bounding_box"])] if "bounding_box" in record else []
            inside = [collected.box(where, name, box) for box in boxes if value == POSITIVE]
            collected.add(row, name, value, inside)
    if scored:
        warn(
            f"{file}: {scored:,} labels have a confidence, as predictions of a model have: they were taken "
            "for labels all the same"
        )


def _name(file: Path, where: str, classes: list[str] | None, label: Any) -> str:
    if isinstance(label, str) and label and (classes is None or label in classes):
        return label
    if classes is not None and type(label) is int and 0 <= label < len(classes):
        return classes[label]
    known = f"a number below {len(classes)}, the index of its class" if classes is not None else "a name"
    raise DataError(f"{file}, {where}: a label must be {known}, not {label!r:.200}")


def _box(file: Path, where: str, box: Any) -> Box:
    """[left, top, width, height] in shares of the image's width and height."""
    try:
        x, y, w, h = (float(number) for number in box)
    except (TypeError, ValueError):
        x = y = w = h = math.nan
    if not math.isfinite(x + y + w + h) or w < 0 or h < 0:
        raise DataError(
            f"{file}, {where}: bounding_box must be [left, top, width, height] in shares, not {box!r:.200}"
        )
    return Box(x, y, x + w, y + h)
