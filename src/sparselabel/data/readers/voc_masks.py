"""Pascal VOC's object masks: ``SegmentationObject/<picture>.png``, for the pictures that have one.

A pixel's palette number is i on the i-th object of the picture's XML file, 0 on none, 255 on outlines.
"""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image
from pycocotools import mask as run_lengths

from sparselabel.data.readers.common import Box
from sparselabel.errors import DataError, DataWarning, listing

OUTLINE = 255
LEAST_INSIDE = 0.5  # of an object's pixels must lie in its box, with a pixel around it
MOST_WRONG = 0.05  # of the pictures may have slips; more are another numbering
SLIPS = ("2008_005245", "2009_005069", "2011_002644", "2011_002863", "2011_003205")
"""Pictures of VOC 2012 whose masks and XML files do not number the same objects."""


class Object(NamedTuple):
    """An object of an XML file: its number there, counted from 1, its class's name and its box.

    One that is ``difficult`` to see does not count as present: its class may be absent.
    """

    number: int
    label: str
    box: Box
    difficult: bool = False


class ObjectMasks:
    """The masks of pictures' objects; pictures whose masks and boxes do not agree have none."""

    def __init__(self) -> None:
        self._pictures = 0
        self._wrong: list[str] = []

    def of(self, file: Path, objects: list[Object], numbered: int) -> list[dict[str, Any] | None]:
        """The mask of each object; ``numbered``: how many the XML file has, with those that have no box."""
        if file.stem in SLIPS:
            return [None] * len(objects)
        pixels = _pixels(file)
        self._pictures += 1
        highest = int(np.where(pixels == OUTLINE, 0, pixels).max(initial=0))
        if highest > numbered:
            self._wrong.append(f"{file.name} (object {highest}, but the XML file has {numbered})")
            return [None] * len(objects)
        masks = pixels[..., None] == np.array([item.number for item in objects], np.uint8)
        for place, item in enumerate(objects):
            inside = _inside(masks[..., place], item.box)
            if inside < LEAST_INSIDE:
                self._wrong.append(f"{file.name} ({inside:.0%} of object {item.number} in its box)")
                return [None] * len(objects)
        encoded = run_lengths.encode(np.asfortranarray(masks, dtype=np.uint8))
        return [mask if run_lengths.area(mask) else None for mask in encoded]

    def finish(self, folder: Path) -> None:
        """Say which pictures' masks were left out; raise if they are too many to be slips."""
        if not self._wrong:
            return
        said = (
            f"{folder}: the object masks of {len(self._wrong):,} of {self._pictures:,} pictures are not "
            f"those of the objects in their XML files: {listing(self._wrong)}"
        )
        if len(self._wrong) > max(1.0, MOST_WRONG * self._pictures) or self._pictures == 1:
            raise DataError(f"{said}; number i must be the i-th object: bring the two together, or remove it")
        warnings.warn(f"{said}; their boxes were kept without masks", DataWarning, stacklevel=4)


def _pixels(file: Path) -> npt.NDArray[np.uint8]:
    """(h, w) The palette numbers of a PNG file."""
    try:
        with Image.open(file) as image:
            mode, pixels = image.mode, np.asarray(image)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as a picture: {error}") from error
    if mode not in ("P", "L"):
        raise DataError(f"{file}: object masks have a palette or are 8-bit grey, not of mode {mode}")
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
