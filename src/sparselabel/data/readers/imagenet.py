"""ImageNet-1K (ILSVRC 2012): one known label per image; and ReaL, reassessed labels of its validation set.

train/n01440764/n01440764_10026.JPEG          or all of it in ILSVRC/Data/CLS-LOC, as Kaggle's archive has it
val/n01751748/ILSVRC2012_val_00000001.JPEG    or val/ILSVRC2012_val_00000001.JPEG and a file of labels
LOC_val_solution.csv                          or imagenet_2012_validation_synset_labels.txt, or the devkit's
real.json                                     a list of labels for each of ILSVRC2012_val_00000001 to 50000
LOC_synset_mapping.txt                        or synset_words.txt: "n01440764 tench, Tinca tinca"
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sparselabel.data.decode import SUFFIXES
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, positives_of
from sparselabel.data.readers.raw_dataset import (
    RawDataset,
    RawSplit,
    first_there,
    lines_of,
    require_folder,
    warn_of_another_size,
    whole_number,
    with_one_label,
)
from sparselabel.errors import DataError, listing, param
from sparselabel.file_formats import read_json

NUMBERED = re.compile(r"ILSVRC2012_val_(\d{8})\.")
HEADER = "ImageId,PredictionString"
AGREE = 0.5
"""ReaL keeps nine in ten of the single labels; below a half, classes are in another order."""


def is_synset(name: str) -> bool:
    """Whether this is a synset id, as in n01440764."""
    return len(name) == 9 and name[0] == "n" and name[1:].isdecimal()


def read_single(file: Path, synsets: Path | None, images: Sequence[str], ids: Sequence[str]) -> Indices:
    """(N,) The class of each image, from a file that names synsets or the devkit's numbers.

    LOC_val_solution.csv goes by file name; the others have a line for each of the images, by their numbers.
    """
    lines = lines_of(file)
    if lines and lines[0] == HEADER:
        return _from_solution(file, lines, images, ids)
    if lines and lines[0].isdecimal():
        order = _devkit_order(file, synsets)
        for line, text in enumerate(lines, 1):
            if not 1 <= whole_number(text) <= len(order):
                rule = f"a number from 1 to {len(order):,}, the lines of {synsets}"
                raise DataError(f"{file}, line {line:,}: must be {rule}, not {text!r:.100}")
        lines = [order[int(text) - 1] for text in lines]
    numbers = _numbers(images, file, len(lines))
    index_of = {key: index for index, key in enumerate(ids)}
    for number in numbers:
        if (key := lines[number]) not in index_of:
            where = f"{file}, line {number + 1:,}"
            raise DataError(f"{where}: must be the synset id of a class folder, not {key!r:.100}")
    return np.asarray([index_of[lines[number]] for number in numbers], dtype=np.intp)


def _from_solution(file: Path, lines: list[str], images: Sequence[str], ids: Sequence[str]) -> Indices:
    """ILSVRC2012_val_00048981,n03995372 85 1 499 272 ...: the synset, its box, and perhaps others of it."""
    index_of = {key: index for index, key in enumerate(ids)}
    class_of: dict[str, int] = {}
    for line, text in enumerate(lines[1:], 2):
        name, _, prediction = text.partition(",")
        key = prediction.split(" ")[0]
        if key not in index_of:
            rule = "must be an image and the synset id of a class folder"
            raise DataError(f"{file}, line {line:,}: {rule}, not {text!r:.100}")
        class_of[name] = index_of[key]
    missing = [name for name in images if Path(name).stem not in class_of]
    if missing:
        raise DataError(f"{file} has no label of {len(missing):,} images in val: {listing(missing)}")
    return np.asarray([class_of[Path(name).stem] for name in images], dtype=np.intp)


def _devkit_order(file: Path, synsets: Path | None) -> list[str]:
    if synsets is None:
        raise DataError(
            f"{file} has the devkit's numbers, whose order is in meta.mat",
            f"name a text file of the synset ids in that order with {param('synsets')} (docs/readers.md)",
            "use LOC_val_solution.csv",
        )
    order = lines_of(synsets)
    for line, text in enumerate(order, 1):
        if not is_synset(text):
            raise DataError(f"{synsets}, line {line:,}: must be a synset id, not {text!r:.100}")
    return order


def _numbers(images: Sequence[str], file: Path, count: int) -> list[int]:
    """The positions of images in a file that goes by their numbers, which start with 1."""
    numbers: list[int] = []
    for name in images:
        match = NUMBERED.match(name)
        number = int(match[1]) if match else 0
        if not 1 <= number <= count:
            rule = f"the {count:,} of {file}" if match else "ILSVRC2012_val_00000001.JPEG and so on"
            raise DataError(f"{file} goes by the numbers of the images: {name} is not among {rule}")
        numbers.append(number - 1)
    return numbers


def read_real(file: Path, split: RawSplit) -> RawSplit:
    """The split with ReaL's labels beside its own; an image that ReaL gives none has UNKNOWN ones."""
    lists = read_json(file, object, f"leave {param('real')} out", "name ReaL's real.json", error=DataError)
    if not isinstance(lists, list) or not lists:
        raise DataError(f"{file} must hold a list of lists, one for each image, not {lists!r:.100}")
    ids, classes = split.labels.ids.tolist(), len(split.labels.classes)
    real = np.full(split.labels.matrix.shape, UNKNOWN, dtype=np.int8)
    for row, number in enumerate(_numbers(ids, file, len(lists))):
        match lists[number]:
            case []:
                continue
            case [*labels] if all(isinstance(label, int) and 0 <= label < classes for label in labels):
                real[row] = NEGATIVE
                real[row, np.asarray(labels, dtype=np.intp)] = POSITIVE
            case wrong:
                raise DataError(
                    f"{file}, list {number + 1:,} ({ids[row]}): must hold numbers of the {classes:,} "
                    f"classes, from 0, not {wrong!r:.100}: ReaL is for all 1,000 classes"
                )
    labeled = real[:, 0] != UNKNOWN
    if not labeled.any():
        raise DataError(f"{file} has no label for any of the {len(ids):,} images in val: is it real.json?")
    agreed = (real == POSITIVE) & (split.labels.values == POSITIVE)
    share = agreed[labeled].any(axis=1).mean()
    if share < AGREE:
        raise DataError(
            f"{file} keeps the single label of only {share:.0%} of the images: one of the two is in "
            "another order of classes, or of images",
            f"check the files of {param('labels')} and {param('synsets')}",
        )
    return replace(split, real=real)


TREES = ("", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC")
LABELS = (
    "LOC_val_solution.csv",
    "imagenet_2012_validation_synset_labels.txt",
    "ILSVRC2012_validation_ground_truth.txt",
)
WORDS = ("LOC_synset_mapping.txt", "synset_words.txt")


def read(
    source: Path, *, labels: Path | None = None, synsets: Path | None = None, real: Path | None = None
) -> RawDataset:
    """ImageNet-1K: train/ and val/, or Kaggle's folder; with ReaL's labels if real.json is there.

    Example: `Dataset.from_files("imagenet", "imagenet")`

    Parameters
    ----------
    source
        The folder.
    labels
        Labels of a val/ without class folders, if they are not in the folder: LOC_val_solution.csv, one
        synset id per image, or the devkit's numbers.
    synsets
        Synset ids in the devkit's order, one per line, for the devkit's numbers.
    real
        ReaL's real.json, if it is not in the folder.

    Notes
    -----
    An image's one label is POSITIVE, all else UNKNOWN. The validation set becomes "test". Classes are the
    folders of ``train``, sorted, which is the order of every published network and of ReaL.
    """
    trees = [require_folder(source) / tree for tree in TREES]
    root = next((tree for tree in trees if (tree / "train").is_dir()), None)
    if root is None:
        absent = f"{source} has no folder train, nor ILSVRC/Data/CLS-LOC/train"
        raise DataError(absent, "give the folder that has it")
    ids = [name for name, is_folder in _entries(root / "train") if is_folder and is_synset(name)]
    if not ids:
        raise DataError(
            f"{root / 'train'} has no class folders like n01440764", "unpack the archives of the classes"
        )
    classes = _names(ids, first_there((source, root), WORDS))
    splits = {"train": _read_folders(root, "train", ids, classes)}
    folders = (source, root, source / "ILSVRC2012_devkit_t12" / "data")
    if (root / "val").is_dir():
        single = labels or first_there(folders, LABELS)
        test = _read_validation(root, ids, classes, single, synsets)
        real_file = real or first_there(folders, ["real.json"])
        splits["test"] = test if real_file is None else read_real(real_file, test)
    elif labels or real:
        raise DataError(
            f"{root} has no folder val, which {labels or real} is for", "add it", "leave the file out"
        )
    warn_of_another_size("imagenet", splits)
    return RawDataset(source.resolve().name, root, splits)


def _entries(folder: Path) -> list[tuple[str, bool]]:
    """Names and whether they are folders, sorted."""
    with os.scandir(folder) as entries:
        return sorted((entry.name, entry.is_dir()) for entry in entries)


def _images(folder: Path) -> list[str]:
    return [name for name, is_folder in _entries(folder) if not is_folder and name.lower().endswith(SUFFIXES)]


def _names(ids: list[str], words: Path | None) -> tuple[str, ...]:
    """Synset ids, with the first of their words where a file has them: "n01440764 tench"."""
    if words is None:
        return tuple(ids)
    word_of: dict[str, str] = {}
    for line, text in enumerate(lines_of(words), 1):
        key, _, rest = text.partition(" ")
        if not (is_synset(key) and rest):
            raise DataError(f"{words}, line {line:,}: must be a synset id and words, not {text!r:.100}")
        word_of[key] = rest.split(",")[0].strip()
    return tuple(f"{key} {word_of[key]}" if key in word_of else key for key in ids)


def _read_folders(root: Path, split: str, ids: list[str], classes: tuple[str, ...]) -> RawSplit:
    """Images in class folders."""
    paths: list[str] = []
    column: list[int] = []
    for index, key in enumerate(ids):
        names = _images(root / split / key) if (root / split / key).is_dir() else []
        paths += [f"{split}/{key}/{name}" for name in names]
        column += [index] * len(names)
    if not paths:
        raise DataError(f"{root / split} has no images ({' '.join(SUFFIXES)}) in its class folders")
    texts = np.asarray(paths, dtype=np.str_)
    return with_one_label(texts, texts, classes, np.asarray(column, dtype=np.intp))


def _read_validation(
    root: Path, ids: list[str], classes: tuple[str, ...], labels: Path | None, synsets: Path | None
) -> RawSplit:
    """The validation set, sorted by file name, which is its official order; its ids are the file names."""
    folder = root / "val"
    folders = [name for name, is_folder in _entries(folder) if is_folder and not name.startswith(".")]
    flat = _images(folder)
    if folders and not flat:
        odd = sorted({*folders} - {*ids})
        if odd:
            raise DataError(f"{folder} has class folders that {root / 'train'} has not: {listing(odd)}")
        split = _read_folders(root, "val", ids, classes)
        names = np.asarray([path.rpartition("/")[2] for path in split.paths.tolist()], dtype=np.str_)
        order = np.argsort(names)
        column = positives_of(split.labels.matrix)[1][order]
        return with_one_label(names[order], split.paths[order], classes, column)
    if folders or not flat:
        content = f"{len(flat):,} images beside {len(folders):,} folders" if flat else "no images"
        raise DataError(f"{folder} has {content}: it must hold images alone, or class folders alone")
    if labels is None:
        raise DataError(
            f"{folder} has {len(flat):,} images and no class folders, and their labels are not there",
            f"add {LABELS[0]}",
            f"name a file with {param('labels')}",
            "sort the images into class folders",
        )
    column = read_single(labels, synsets, flat, ids)
    paths = np.asarray([f"val/{name}" for name in flat], dtype=np.str_)
    return with_one_label(np.asarray(flat, dtype=np.str_), paths, classes, column)
