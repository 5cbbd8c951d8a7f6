"""The readers: from the files people have to a ``RawDataset``.

A reader is a function ``read(source: Path, ...) -> RawDataset`` in a module of its own. To add one:

1. Write ``readers/NAME.py`` with ``read``. Its keyword arguments, typed and with defaults, are its options:
   those of ``Dataset.from_files`` and the flags of ``sparselabel prepare NAME``. Its docstring is the help of
   that command: which files it takes, an example, the options. Notes are left out there; they say what the
   values in the files mean.
2. Give every split a ``LabelTable`` (POSITIVE, NEGATIVE, UNKNOWN: convert the format's own coding), the
   images' paths relative to ``RawDataset.root``, and ``SpatialLabels`` in unit coordinates for positive
   classes only. There must be a split "train"; "val" and "test" are there if the format has them.
3. Check that every image exists (``raw_dataset.Listing``). Raise a ``DataError`` that names file, line and
value for invalid content; issue a ``DataWarning`` for what is left out. A reader does not decode
   images, hold out validation or hide labels: ``prepare`` does.
4. Add a line to ``READERS`` and a test that writes a tiny set of files in the format's true layout.
"""

import importlib
from collections.abc import Callable
from inspect import Parameter, signature
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparselabel.data.readers.raw_dataset import RawDataset

READERS = {
    "coco": "coco",
    "cub": "cub",
    "cvat": "cvat",
    "fiftyone": "fiftyone",
    "folder": "class_folders",
    "imagenet": "imagenet",
    "label-studio": "label_studio",
    "nuswide": "nuswide",
    "table": "table",
    "voc": "voc",
}
"""The module of every format, imported when it is used: pycocotools and others take time."""


def options_of(name: str) -> dict[str, Parameter]:
    """The options of a reader, by name."""
    parameters = signature(reader(name)).parameters
    return {name: one for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}


def reader(name: str) -> "Callable[..., RawDataset]":
    """The function that reads a format."""
    read: Callable[..., RawDataset] = importlib.import_module(f"{__name__}.{READERS[name]}").read
    return read
