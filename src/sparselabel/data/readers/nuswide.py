r"""NUS-WIDE: as the authors of the single-positive labels publish it, or in its own layout.

formatted_train_images.npy  formatted_train_labels.npy     150,000 images, (150000, 81) of 0 and 1
formatted_val_images.npy    formatted_val_labels.npy       the test set: 60,260 images
Flickr/actor/0001_2124494179.jpg

ImageList/Imagelist.txt  TrainImagelist.txt  TestImagelist.txt     "actor\0001_2124494179.jpg" a line
ConceptsList/Concepts81.txt
Groundtruth/AllLabels/Labels_airport.txt                           0 or 1 a line, in Imagelist.txt's order
           /TrainTestLabels/Labels_airport_Train.txt  ..._Test.txt
"""

from pathlib import Path

import numpy as np

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, Labels, Texts, as_labels
from sparselabel.data.readers.raw_dataset import (
    Listing,
    RawDataset,
    RawSplit,
    first_there,
    images_folder,
    lines_of,
    refuse_missing,
    require_folder,
    warn,
    warn_of_another_size,
)
from sparselabel.errors import DataError
from sparselabel.file_formats import naming, read_array

CONCEPTS = 81
AGAIN = "download it again: names and labels come in pairs"
OFFICIAL = {"train": "Train", "test": "Test"}
ARRAYS = {"train": ("train",), "test": ("val", "test")}
"""Our splits and what the arrays are called: their "val" is the test set, which others have renamed."""

FAULT = ("Labels_lake_Train.txt", 78_372, "-1130179")
"""A line of the published files that says neither 0 nor 1. AllLabels is sound."""


def read(source: Path, *, images: Path | None = None) -> RawDataset:
    """NUS-WIDE: formatted_train_images.npy and so on, or ImageList/ and Groundtruth/; images in Flickr/.

    Example: `Dataset.from_files("nuswide", "nuswide", sparsify="single-positive")`

    Parameters
    ----------
    source
        The folder.
    images
        Folder of the images; default: Flickr/ or Images/ in the source folder, or that itself.

    Notes
    -----
    The published arrays are read if they are there. Labels are complete: 1 is POSITIVE, 0 NEGATIVE. Images
    without any concept stay in. Rows are in the order of the arrays or lists.
    """
    root = images_folder(images, *(require_folder(source) / name for name in ("Flickr", "Images", "")))
    files = Listing(root)
    if (source / "formatted_train_images.npy").is_file():
        splits = _read_arrays(source, files)
        warn_of_another_size("nuswide", splits)
    else:
        splits = _read_lists(source, files)
        warn(
            f"{source}: NUS-WIDE's own lists of train and test are other images than the 150,000 and "
            "60,260 of the papers, so numbers do not compare with theirs: for those, give the folder with "
            "formatted_train_images.npy"
        )
    return RawDataset(source.resolve().name, root, splits)


def _read_arrays(source: Path, files: Listing) -> dict[str, RawSplit]:
    splits: dict[str, RawSplit] = {}
    for name, stems in ARRAYS.items():
        there = [stem for stem in stems if (source / f"formatted_{stem}_images.npy").is_file()]
        if len(there) > 1:
            raise DataError(
                f"{source} has formatted_{there[0]}_images.npy and formatted_{there[1]}_images.npy, which "
                "are both names of the test set",
                "keep one of them",
            )
        for stem in there:
            file = source / f"formatted_{stem}_images.npy"
            images = read_array(file, "U N", AGAIN)
            labels = read_array(source / f"formatted_{stem}_labels.npy", "", AGAIN)
            classes = _concepts(source) or [f"concept {number:02}" for number in range(1, CONCEPTS + 1)]
            with naming(source / f"formatted_{stem}_labels.npy"):
                values = as_labels(labels)
                if (values < NEGATIVE).any():
                    rule = "full labels are 1 or 0, not -1"
                    raise DataError(rule, "take the file without _obs in its name")
            splits[name] = _split(file, images, classes, values, files)
    return splits


def _concepts(source: Path) -> list[str]:
    """The concepts in their order, if the list is there."""
    file = first_there((source / "ConceptsList", source), ["Concepts81.txt"])
    if file is None:
        return []
    names = lines_of(file)
    if len(names) != CONCEPTS or "" in names:
        raise DataError(f"{file} must have {CONCEPTS} lines with a concept each, not {len(names)}")
    return names


def _read_lists(source: Path, files: Listing) -> dict[str, RawSplit]:
    lists = {
        name: first_there((source / "ImageList", source), [f"{official}Imagelist.txt"])
        for name, official in OFFICIAL.items()
    }
    everything, by_split = (
        next((folder / name for folder in (source / "Groundtruth", source) if (folder / name).is_dir()), None)
        for name in ("AllLabels", "TrainTestLabels")
    )
    if lists["train"] is None or (everything or by_split) is None:
        raise DataError(
            f"{source}: neither formatted_train_images.npy, nor ImageList/TrainImagelist.txt with "
            "Groundtruth/AllLabels or Groundtruth/TrainTestLabels",
            "give the folder that has one of them",
        )
    images_of = {name: (file, _names(file)) for name, file in lists.items() if file is not None}
    whole = first_there((source / "ImageList", source), ["Imagelist.txt"])
    if everything is not None and whole is not None:
        return _read_all(source, everything, whole, images_of, files)
    if by_split is None:
        absent = "ImageList/Imagelist.txt, which is not there"
        raise DataError(f"{everything} is in the order of {absent}", "add it")
    splits: dict[str, RawSplit] = {}
    for name, (file, images) in images_of.items():
        classes = _concepts(source) or _labeled(by_split, f"_{OFFICIAL[name]}.txt")
        values = _columns(by_split, classes, f"_{OFFICIAL[name]}.txt", len(images), file)
        splits[name] = _split(file, images, classes, values, files)
    return splits


def _read_all(
    source: Path, folder: Path, whole: Path, lists: dict[str, tuple[Path, Texts]], files: Listing
) -> dict[str, RawSplit]:
    """Labels of all images; the lists of train and test say which are whose, and in which order."""
    everything = _names(whole)
    classes = _concepts(source) or _labeled(folder, ".txt")
    values = _columns(folder, classes, ".txt", len(everything), whole)
    order = np.argsort(everything)
    splits: dict[str, RawSplit] = {}
    for name, (file, images) in lists.items():
        positions = order[np.minimum(np.searchsorted(everything, images, sorter=order), len(order) - 1)]
        wrong = np.flatnonzero(everything[positions] != images)
        if len(wrong):
            raise DataError(f"{file}, line {wrong[0] + 1:,}: {images[wrong[0]]} is not in {whole}")
        splits[name] = _split(file, images, classes, values[positions], files)
    return splits


def _names(file: Path) -> Texts:
    lines = [line.replace("\\", "/") for line in lines_of(file)]
    if "" in lines:
        raise DataError(f"{file}, line {lines.index('') + 1:,} is empty: every line must name an image")
    return np.asarray(lines, dtype=np.str_)


def _labeled(folder: Path, ending: str) -> list[str]:
    """The concepts that have a file, in alphabetical order, which is that of Concepts81.txt."""
    names = sorted(file.name[7 : -len(ending)] for file in folder.glob(f"Labels_*{ending}"))
    if len(names) != CONCEPTS:
        raise DataError(
            f"{folder} must have {CONCEPTS} files Labels_<concept>{ending}, not {len(names)}",
            "unpack it again",
        )
    return names


def _columns(folder: Path, classes: list[str], ending: str, count: int, order: Path) -> Labels:
    """(count, L) The labels of all concepts, a file each."""
    values = np.empty((count, len(classes)), dtype=np.int8)
    for index, name in enumerate(classes):
        file = folder / f"Labels_{name}{ending}"
        lines = lines_of(file)
        if len(lines) != count:
            other = f"{order} has {count:,}: they must be as many"
            raise DataError(f"{file} has {len(lines):,} lines, but {other}")
        column = np.asarray(lines, dtype=np.str_)
        for line in np.flatnonzero((column != "1") & (column != "0")).tolist():
            if (file.name, line + 1, lines[line]) != FAULT:
                raise DataError(f"{file}, line {line + 1:,}: must be 1 or 0, not {lines[line]!r:.100}")
            warn(
                f"{file}, line {line + 1:,} says {lines[line]}, a known fault of the published file: it "
                "counts as 0. With Groundtruth/AllLabels and ImageList/Imagelist.txt, labels are theirs"
            )
        values[:, index] = column == "1"
    return values


def _split(file: Path, images: Texts, classes: list[str], values: Labels, files: Listing) -> RawSplit:
    if not len(images):
        raise DataError(f"{file} names no image", what=file)
    paths = np.asarray(np.strings.replace(images, "\\", "/"), dtype=np.str_)
    with naming(file):
        table = LabelTable(paths, tuple(classes), values)
    refuse_missing(files, paths.tolist(), file)
    return RawSplit(table, paths)
