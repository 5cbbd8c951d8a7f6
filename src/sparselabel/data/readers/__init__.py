"""The readers: from the files people have to a ``RawDataset``.

A reader is a function ``read(source: Path, ...) -> RawDataset`` in a module of its own. To add one:

1. Write ``readers/NAME.py`` with ``read``. Its keyword arguments, typed and with defaults, are its options;
   its docstring says which files it takes and what their values mean.
2. Give every split a ``LabelTable`` (POSITIVE, NEGATIVE, UNKNOWN: convert the format's own coding), the
   images' paths relative to ``RawDataset.root``, and ``SpatialLabels`` in unit coordinates for positive
   classes only. There must be a split "train"; "val" and "test" are there if the format has them.
3. Check that every image exists (``raw_dataset.Listing``). Raise a ``DataError`` that names file, line and
   value for what cannot be meant; issue a ``DataWarning`` for what is left out. A reader does not decode
   images, hold out validation or hide labels: ``prepare`` does.
4. Add a line to ``READERS`` and a test that writes a tiny set of files in the format's true layout.
"""

from collections.abc import Callable

from sparselabel.data.readers import class_folders as folder
from sparselabel.data.readers import coco, cub, cvat, fiftyone, imagenet, label_studio, nuswide, table, voc
from sparselabel.data.readers.raw_dataset import RawDataset

READERS: dict[str, Callable[..., RawDataset]] = {
    "coco": coco.read,
    "cub": cub.read,
    "cvat": cvat.read,
    "fiftyone": fiftyone.read,
    "folder": folder.read,
    "imagenet": imagenet.read,
    "label-studio": label_studio.read,
    "nuswide": nuswide.read,
    "table": table.read,
    "voc": voc.read,
}
