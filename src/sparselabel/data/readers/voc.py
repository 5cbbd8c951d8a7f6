"""Pascal VOC: labels from ``ImageSets/Main``, boxes from the XML files, masks where there are some.

VOC2012/ImageSets/Main/<class>_train.txt, <class>_val.txt   "2008_000008 -1" a line
       /Annotations/<image>.xml
       /JPEGImages/<image>.jpg
       /SegmentationObject/<image>.png
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as Xml

import numpy as np
import numpy.typing as npt
from PIL import Image
from pycocotools import mask as run_lengths

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, Texts
from sparselabel.data.masks import MaskColumns, Masks
from sparselabel.data.readers.raw_dataset import (
    Box,
    Listing,
    RawDataset,
    RawSplit,
    SpatialLabelColumns,
    warn,
    warn_of_another_size,
    warn_of_lost_boxes,
)
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import DataError, listing
from sparselabel.file_formats import read_text, reading

OUTLINE = 255
LEAST_INSIDE = 0.5  # of an object's pixels must lie in its box, with a pixel around it
MOST_WRONG = 0.05  # of the images may have slips; more are another numbering
SLIPS = ("2008_005245", "2009_005069", "2011_002644", "2011_002863", "2011_003205")
"""Images of VOC 2012 whose masks and XML files do not number the same objects."""


class Object(NamedTuple):
    """An object of an XML file: its number there, counted from 1, its class's name and its box.

    One that is ``difficult`` to see does not count as present: its class may be absent.
    """

    number: int
    label: str
    box: Box
    difficult: bool = False


class ObjectMasks:
    """The masks of images' objects; images whose masks and boxes do not agree have none."""

    def __init__(self) -> None:
        self._images = 0
        self._wrong: list[str] = []

    def of(self, file: Path, objects: list[Object], numbered: int) -> list[dict[str, Any] | None]:
        """The mask of each object; ``numbered``: how many the XML file has, with those that have no box."""
        if file.stem in SLIPS:
            return [None] * len(objects)
        pixels = _pixels(file)
        self._images += 1
        highest = int(np.where(pixels == OUTLINE, 0, pixels).max(initial=0))
        if highest > numbered:
            self._wrong.append(f"{file.name} (object {highest}, but the XML file has {numbered})")
            return [None] * len(objects)
        masks = pixels[..., None] == np.array([item.number for item in objects], np.uint8)
        for channel, item in enumerate(objects):
            inside = _inside(masks[..., channel], item.box)
            if inside < LEAST_INSIDE:
                self._wrong.append(f"{file.name} ({inside:.0%} of object {item.number} in its box)")
                return [None] * len(objects)
        encoded = run_lengths.encode(np.asfortranarray(masks, dtype=np.uint8))
        return [mask if run_lengths.area(mask) else None for mask in encoded]

    def finish(self, folder: Path) -> None:
        """Warn of images whose masks were left out; raise if they are too many to be slips."""
        if not self._wrong:
            return
        problem = (
            f"{folder}: the object masks of {len(self._wrong):,} of {self._images:,} images are not "
            f"those of the objects in their XML files: {listing(self._wrong)}"
        )
        if len(self._wrong) > max(1.0, MOST_WRONG * self._images) or self._images == 1:
            raise DataError(
                f"{problem}, where number i must be the i-th object", "bring the two together", "remove it"
            )
        warn(f"{problem}; their boxes have no masks")


def _pixels(file: Path) -> npt.NDArray[np.uint8]:
    """(h, w) The palette numbers of a PNG file."""
    with reading(file), Image.open(file, formats=["PNG"]) as image:
        mode, pixels = image.mode, np.asarray(image)
    if mode not in ("P", "L"):
        raise DataError(f"{file}: object masks have a palette or are 8-bit gray, not of mode {mode}")
    return pixels


def _inside(mask: npt.NDArray[np.bool_], box: Box) -> float:
    """The share of a mask's pixels in a box with a pixel around it; 1 if it has none."""
    height, width = mask.shape
    rows, columns = np.nonzero(mask)
    if not len(rows):
        return 1.0
    across = (columns + 0.5 >= box.left * width - 1) & (columns + 0.5 <= box.right * width + 1)
    down = (rows + 0.5 >= box.top * height - 1) & (rows + 0.5 <= box.bottom * height + 1)
    return float((across & down).mean())


OFFICIAL = {"train": "train", "test": "val"}
"""Our splits and VOC's: the papers test on its official validation set."""

EDGES = ("xmin", "ymin", "xmax", "ymax")
CODES = {"1": POSITIVE, "-1": NEGATIVE, "0": NEGATIVE}
"""0 is "difficult": the objects there are ones that even people overlook. The field counts it as negative."""


def read(source: Path) -> RawDataset:
    """Pascal VOC: the VOCdevkit folder, or VOC2012 inside it. The official val set becomes the test split.

    Example: `Dataset.from_files("voc", "VOCdevkit", sparsify="single-positive")`

    Parameters
    ----------
    source
        The folder VOC2012, or one that it is in.

    Notes
    -----
    "train" is VOC's train set and "test" its val set. Rows are the images with at least one positive
    class, sorted by name; 1 is POSITIVE, -1 and 0 ("difficult") are NEGATIVE. Marks are the boxes of all
    objects whose class is positive on the image, and masks those of the images that have them.
    """
    root = _locate(source)
    main = root / "ImageSets" / "Main"
    classes_of = {name: _classes(main, official) for name, official in OFFICIAL.items()}
    classes = classes_of["train"]
    if classes_of["test"] not in (classes, ()):
        odd = sorted({*classes_of["test"]} ^ {*classes})
        raise DataError(f"{main}: every class needs a _train and a _val file; these lack one: {listing(odd)}")
    files = Listing(root)
    splits: dict[str, RawSplit] = {}
    for name in (name for name in OFFICIAL if classes_of[name]):
        table = _read_labels(main, classes, OFFICIAL[name])
        paths = _images(files, table, main, OFFICIAL[name])
        spatial_labels, masks = _read_spatial_labels(root, files, table)
        splits[name] = RawSplit(table, paths, spatial_labels, masks=masks)
    warn_of_another_size("voc", splits)
    return RawDataset(root.resolve().name, root, splits)


def _locate(source: Path) -> Path:
    for folder in (source, source / "VOC2012", source / "VOCdevkit" / "VOC2012"):
        if (folder / "ImageSets" / "Main").is_dir() and _classes(folder / "ImageSets" / "Main", "train"):
            return folder
    raise DataError(
        f"{source}: no ImageSets/Main with <class>_train.txt files in it, in VOC2012 or in VOCdevkit/VOC2012 "
        "below it",
        "give the unpacked VOCdevkit",
    )


def _classes(main: Path, official: str) -> tuple[str, ...]:
    ending = f"_{official}.txt"
    return tuple(sorted(file.name.removesuffix(ending) for file in main.glob(f"*{ending}")))


def _read_labels(main: Path, classes: Sequence[str], official: str) -> LabelTable:
    """The labels of all images with at least one positive, sorted by name."""
    columns = [_read_class(main / f"{name}_{official}.txt") for name in classes]
    names = sorted(columns[0])
    for name, column in zip(classes, columns, strict=True):
        if column.keys() != columns[0].keys():
            odd = sorted(column.keys() ^ columns[0].keys())
            raise DataError(
                f"{main / f'{name}_{official}.txt'} and {classes[0]}_{official}.txt must list the same "
                f"images; only one of them has {listing(odd)}"
            )
    values = np.array([[column[name] for name in names] for column in columns], dtype=np.int8).T
    table = LabelTable(np.asarray(names, dtype=np.str_), tuple(classes), values)
    table = table.take(np.flatnonzero(table.per_image(POSITIVE)))
    if not len(table):
        raise DataError(f"{main}: no image has a positive label in the <class>_{official}.txt files")
    return table


def _read_class(file: Path) -> dict[str, int]:
    """Image -> label from one class's file."""
    labels: dict[str, int] = {}
    for line, text in enumerate(read_text(file).splitlines(), 1):
        match text.split():
            case []:
                continue
            case [name, value] if value in CODES:
                if name in labels:
                    raise DataError(f"{file}, line {line}: image {name!r} is listed a second time")
                labels[name] = CODES[value]
            case _:
                raise DataError(f"{file}, line {line}: must be an image and 1, -1 or 0, not {text.strip()!r}")
    return labels


def _images(files: Listing, table: LabelTable, main: Path, official: str) -> Texts:
    paths = [f"JPEGImages/{name}.jpg" for name in table.ids]
    missing = [path for path in paths if path not in files]
    if missing:
        raise DataError(
            f"{main}: the <class>_{official}.txt files name {len(missing):,} images that are not in "
            f"{files.root}: {listing(missing)}"
        )
    return np.asarray(paths, dtype=np.str_)


def _read_spatial_labels(root: Path, files: Listing, table: LabelTable) -> tuple[SpatialLabels, Masks | None]:
    index_of = {name: index for index, name in enumerate(table.classes)}
    spatial_labels, masks, images = SpatialLabelColumns(), MaskColumns(), ObjectMasks()
    lost: list[str] = []
    for row, name in enumerate(table.ids):
        path, drawn = f"Annotations/{name}.xml", f"SegmentationObject/{name}.png"
        if path not in files:
            continue
        objects, numbered = _objects(root / path, lost)
        object_masks = images.of(root / drawn, objects, numbered) if drawn in files else [None] * len(objects)
        for item, mask in zip(objects, object_masks, strict=True):
            index = index_of.get(item.label)
            if index is not None and table.matrix[row, index] == POSITIVE:
                spatial_labels.add(row, index, item.box)
                masks.add(mask)
            elif index is not None and not item.difficult:
                raise DataError(
                    f"{root / path}: object {item.number} is a {item.label}, which "
                    f"ImageSets/Main/{item.label}_*.txt says is not on the image (-1, or 0 for difficult "
                    "ones)",
                    "mend one of the two",
                )
    images.finish(root)
    if lost:
        warn_of_lost_boxes(root / "Annotations", len(lost), lost[0])
    return spatial_labels.build(), masks.build()


def _objects(file: Path, lost: list[str]) -> tuple[list[Object], int]:
    """The objects of an image that have a box in it, not their parts, and how many the file has.

    It counts pixels from 1 and includes the last one. Objects without such a box are added to ``lost``.
    """
    with reading(file):
        annotation = Xml.fromstring(file.read_bytes())
    width, height = (_number(file, annotation, f"size/{side}") for side in ("width", "height"))
    if width <= 0 or height <= 0:
        raise DataError(f"{file}: an image's size must be positive, not {width:g} × {height:g}")
    objects, elements = [], annotation.findall("object")
    for number, item in enumerate(elements, 1):
        edges = Box(*(_number(file, item, f"bndbox/{edge}") for edge in EDGES))
        if edges.right < edges.left or edges.bottom < edges.top:
            raise DataError(f"{file}: a box must not end before it begins: {[f'{edge:g}' for edge in edges]}")
        left, top, right, bottom = edges
        inside = Box((left - 1) / width, (top - 1) / height, right / width, bottom / height).clipped()
        label = item.findtext("name", "").strip()
        if inside is not None:
            difficult = item.findtext("difficult", "0").strip() == "1"
            objects.append(Object(number, label, inside, difficult))
        else:
            corners = ", ".join(f"{name} {edge:g}" for name, edge in zip(EDGES, edges, strict=True))
            lost.append(f"{file.name}, object {number}, {label!r}, {corners}")
    return objects, len(elements)


def _number(file: Path, item: Xml.Element, path: str) -> float:
    text = item.findtext(path)
    try:
        number = float(text or "")
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise DataError(f"{file}: <{path}> must be a number, not {text!r}")
    return number
