"""Class folders: an image's folder names its labels.

SOURCE/cat/1.jpg   SOURCE/dog/nested/2.png          or       SOURCE/train/cat/1.jpg   SOURCE/val/dog/2.png
SOURCE/cat,dog/3.jpg   two labels                   SOURCE/not cat/4.jpg   SOURCE/-cat/4.jpg   a negative
"""

import os
import re
from pathlib import Path

import numpy as np

from sparselabel.data.decode import SUFFIXES
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, SparseLabels, compact
from sparselabel.data.readers.raw_dataset import SPLITS, RawDataset, RawSplit, require_folder, warn
from sparselabel.errors import DataError, listing

LIKE_SPLITS = {"val", "test", "valid", "validation", "testing"}
"""Names of splits, if there is a folder "train"."""
_NEGATIVE = re.compile(r"(?:-|not[ _-])\s*(?=\S)", re.IGNORECASE)


def read(source: Path) -> RawDataset:
    """Class folders: an image's folder is its label; "cat,dog" is two labels, "not cat" or "-cat" a negative.

    Example: `Dataset.from_files("folder", "photos")`

    Parameters
    ----------
    source
        The folder of class folders (or of train/, val/, test/ with class folders).

    Notes
    -----
    Other classes are UNKNOWN. Folders train, val and test at the top are splits, if there are no others
    beside them and "train" is one. Images are found by their suffix, at any depth below the class folder; ids
    are the relative paths.
    """
    require_folder(source)
    others: list[str] = []  # files that are no image, or lie in no class folder
    empty: list[str] = []  # class folders without images
    tops, loose = _visible(source)
    paths_of: dict[str, dict[str, list[str]]] = {}  # split -> class -> paths
    if "train" in tops and {*tops} <= {*SPLITS}:
        others += loose
        for split in (name for name in SPLITS if name in tops):
            paths_of[split] = _read_classes(source, f"{split}/", others, empty)
    elif "train" in tops and LIKE_SPLITS & {*tops}:
        raise DataError(
            f"{source} has folders {listing(tops)}: neither classes nor splits, which are named train, val "
            "and test, with nothing beside them",
            "rename or move the others",
        )
    else:
        paths_of["train"] = _read_classes(source, "", others, empty)
    if others:
        warn(
            f"{source}: {len(others):,} files were left out, which are no images or in no class folder: "
            f"{listing(sorted(others))}"
        )
    if empty:
        warn(f"{source}: class folders without images: {listing(empty)}")
    folder_names = sorted({name for folders in paths_of.values() for name in folders})
    labels_of = {name: folder_labels(source, name) for name in folder_names}
    special = [repr(name) for name, labels in labels_of.items() if labels != {name: POSITIVE}]
    if special:
        warn(
            f"{source}: folders of several labels, or of what is not there: {listing(special)}",
            "else rename them",
        )
    classes = sorted({name for labels in labels_of.values() for name in labels})
    index_of = {name: index for index, name in enumerate(classes)}
    if not classes:
        raise DataError(f"{source}: no images ({' '.join(SUFFIXES)}) in class folders")
    splits: dict[str, RawSplit] = {}
    for split, folders in paths_of.items():
        pairs = sorted((path, name) for name, paths in folders.items() for path in paths)
        names = np.asarray([path for path, _ in pairs], dtype=np.str_)
        entries = [
            (row, index_of[label], value)
            for row, (_, name) in enumerate(pairs)
            for label, value in labels_of[name].items()
        ]
        rows, columns, values = np.asarray(entries, np.int64).reshape(-1, 3).T
        labels = SparseLabels.of_entries(rows, columns, values, (len(names), len(classes)))
        splits[split] = RawSplit(LabelTable(names, tuple(classes), compact(labels)), names)
    return RawDataset(source.resolve().name, source, splits, own=True)


def folder_labels(source: Path, name: str) -> dict[str, int]:
    """The labels that a folder's name gives its images: present (1) or absent (0) classes."""
    labels: dict[str, int] = {}
    for word in (text for word in name.split(",") if (text := word.strip())):
        negative = _NEGATIVE.match(word)
        label = word[negative.end() :] if negative else word
        value = NEGATIVE if negative else POSITIVE
        if labels.setdefault(label, value) != value:
            raise DataError(
                f"{source / name}: {label!r} is there and not there", "rename the folder", what=name
            )
    return labels or {name: POSITIVE}


def _visible(folder: Path) -> tuple[list[str], list[str]]:
    """Names of the folders and of the files directly in a folder, hidden ones left out, sorted."""
    with os.scandir(folder) as entries:
        seen = sorted((entry.name, entry.is_dir()) for entry in entries if not entry.name.startswith("."))
    return [name for name, is_dir in seen if is_dir], [name for name, is_dir in seen if not is_dir]


def _read_classes(source: Path, below: str, others: list[str], empty: list[str]) -> dict[str, list[str]]:
    """The images of every class folder in ``source / below``; adds to ``others`` and ``empty``."""
    folders, loose = _visible(source / below)
    others += [below + name for name in loose]
    paths_of = {name: _images(source, below + name, others) for name in folders}
    empty += [below + name for name, paths in paths_of.items() if not paths]
    return {name: paths for name, paths in paths_of.items() if paths}


def _images(source: Path, below: str, others: list[str]) -> list[str]:
    """The images at any depth below a class folder, relative to ``source``; adds the rest to ``others``."""
    paths: list[str] = []

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error

    for folder, folders, files in os.walk(source / below, onerror=refuse):
        inner = Path(folder).relative_to(source).as_posix()
        for name in files:
            if not name.startswith("."):
                (paths if name.lower().endswith(SUFFIXES) else others).append(f"{inner}/{name}")
        folders[:] = [name for name in folders if not name.startswith(".")]
        # A linked folder may lead back to its own parent, so links inside a class folder are not followed.
        others += [f"{inner}/{name}" for name in folders if Path(folder, name).is_symlink()]
    return paths
