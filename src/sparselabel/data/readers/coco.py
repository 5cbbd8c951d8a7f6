"""COCO's instances JSON, and what others publish in its form (Objects365).

annotations/instances_train2014.json   {"images": [...], "annotations": [...], "categories": [...]}
train2014/COCO_train2014_000000000009.jpg
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparselabel.data.label_table import LabelTable, refuse_duplicates
from sparselabel.data.labels import POSITIVE, SparseLabels, Texts, compact
from sparselabel.data.masks import Masks
from sparselabel.data.readers.coco_json import Annotations, CategoryCodes, Images, read_categories
from sparselabel.data.readers.json_stream import JsonBlocks
from sparselabel.data.readers.raw_dataset import (
    IMAGES_FOLDER,
    NEARLY,
    Listing,
    RawDataset,
    RawSplit,
    Size,
    images_folder,
    lines_of,
    warn,
    warn_of_another_size,
    warn_of_lost_boxes,
    whole_number,
)
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import DataError, listing, param
from sparselabel.file_formats import naming

OFFICIAL = {"train": "train", "test": "val"}
"""Our splits and COCO's: the papers test on its official validation set."""

LISTS = ("images", "annotations", "categories")


class Instances(NamedTuple):
    """The images of a file with their labels, ordered by their ids as strings; ``names`` are file names."""

    labels: LabelTable
    names: npt.NDArray[np.bytes_]
    spatial_labels: SpatialLabels
    masks: Masks | None


def read(
    source: Path,
    *,
    images: Path | None = None,
    keep_empty: bool = False,
    skip_missing: bool = False,
    labels: Path | None = None,
) -> RawDataset:
    """COCO: the folder with annotations/ and images, or one COCO-style JSON file.

    Example: `Dataset.from_files("coco", "coco", sparsify="single-positive")`

    Parameters
    ----------
    source
        The folder, or the JSON file.
    images
        Folder of the images, if it is not where COCO has it.
    keep_empty
        Keep images without any object.
    skip_missing
        Leave out images whose file is missing, instead of stopping.
    labels
        List of the labels that training sees, as published with Hill and SPLC: `image,class class ...`.

    Notes
    -----
    A JSON file is read as "train"; its images are in its own folder. A folder's train and val, of the one
    year that it has, are read as "train" and "test".

    A class is POSITIVE on an image with an annotation of it, crowd regions included, else NEGATIVE; but if
    images list verified categories (LVIS's ``neg_category_ids``, and our own ``pos_category_ids``), all
    others are UNKNOWN. Classes come in the order of the file's categories, rows in the order of the image ids
    as strings. A box without extent is a point, its first labeled key point, if it has one; other boxes
    without area inside the image are left out with a warning. Crowd regions have neither boxes nor masks.
    Objects365 v2 names three images that are missing.
    """

    def split(file: Path, files: Listing, below: str) -> RawSplit:
        return _with_images(file, read_instances(file, keep_empty, masks=True), files, below, skip_missing)

    if not source.is_dir():
        root = images_folder(images, source.parent)
        train = split(source, Listing(root), "")
        return RawDataset(source.stem, root, {"train": with_observed(train, labels) if labels else train})
    root = images_folder(images, source)
    year = _year(source, root)
    files = Listing(root)
    splits: dict[str, RawSplit] = {}
    for name, official in OFFICIAL.items():
        file = source / "annotations" / f"instances_{official}{year}.json"
        if file.exists():
            splits[name] = split(file, files, f"{official}{year}/")
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
    return RawDataset(source.resolve().name, root, splits)


def _year(source: Path, root: Path) -> str:
    """The year of the files; raises if there are several."""
    files = (source / "annotations").glob("instances_train*.json")
    years = sorted(file.stem.removeprefix("instances_train") for file in files)
    if not years:
        raise DataError(
            f"{source}: no annotations/instances_train2014.json or ..._train2017.json",
            "to read a single file as training data, give that file",
        )
    years = [year for year in years if (root / f"train{year}").is_dir()] or years
    if len(years) > 1:
        several = f"annotations of several years ({', '.join(years)})"
        raise DataError(f"{source} has {several}", "keep one year in a folder")
    return years[0]


def read_instances(file: Path, keep_empty: bool = False, masks: bool = False) -> Instances:
    """Read a file's lists in any order, keeping only their numbers in memory.

    ``masks``: read outlines too, which takes a few times as long.
    """
    if not file.is_file():
        raise DataError(f"{file} is not there", "give a COCO-style JSON file", "a folder laid out like COCO")
    expected = f"an object with the lists {', '.join(LISTS)}"
    lists: dict[str, Any] = {}
    others: list[str] = []
    codes = CategoryCodes(file)
    with JsonBlocks(file, expected) as blocks:
        for key in blocks:
            if key not in LISTS or not blocks.is_list:
                others.append(key)
            elif key in lists:
                raise DataError(f"{file}: there are two lists {key!r}", "leave one of them out")
            elif key == "images":
                lists[key] = Images(blocks, codes)
            elif key == "categories":
                lists[key] = [category for block in blocks.elements() for category in block]
            else:  # read now if the images are known, else passed over now and read when they are
                ready = "images" in lists
                lists[key] = Annotations(blocks, lists["images"], codes, masks) if ready else blocks.position
        if len(lists) < len(LISTS):
            raise DataError(f"{file}: must be {expected}; found {listing([*lists, *others]) or 'nothing'}")
        images, annotations = lists["images"], lists["annotations"]
        if not isinstance(annotations, Annotations):
            blocks.go_to(annotations)
            annotations = Annotations(blocks, images, codes, masks)
        categories = read_categories(file, lists["categories"])
    rows = np.arange(len(images.ids)) if keep_empty else np.flatnonzero(annotations.with_any())
    class_of = {key: index for key, (index, _) in categories.items()}
    values, spatial_labels, instance_masks = annotations.build(class_of, rows)
    if annotations.first_left_out is not None:
        name, key, box = annotations.first_left_out
        warn_of_lost_boxes(file, annotations.left_out, f"{name}, {categories[key][1]!r}, bbox {box}")
    if not len(rows):
        raise DataError(f"{file}: no image has an annotation")
    names = tuple(name for _, name in categories.values())
    # Ids and names were checked to be unique, and the values are what they are.
    table = LabelTable(images.ids[rows], names, values, check=False)
    return Instances(table, images.names[rows], spatial_labels, instance_masks)


def _with_images(
    file: Path, instances: Instances, files: Listing, below: str, skip_missing: bool
) -> RawSplit:
    """The instances with their images' paths, and without those of no image if that is wanted."""
    labels, names, spatial_labels, masks = instances
    paths = _paths(file, instances, files, below)
    split = RawSplit(labels, paths, spatial_labels, masks=masks)
    missing = np.flatnonzero(paths == "")
    if len(missing):
        shown = (f"{below}{names[row].decode()} (image {labels.ids[row]})" for row in missing)
        problem = (
            f"{file}: {len(missing):,} of {len(labels):,} images are not in {files.root}: {listing(shown)}"
        )
        if not skip_missing or len(missing) == len(labels):
            raise DataError(problem, IMAGES_FOLDER, f"leave them out with {param('skip_missing', True)}")
        warn(f"{problem}; they were left out")
        split = split.take(np.flatnonzero(paths != ""))
    with naming(file):
        refuse_duplicates("image file", split.paths)
    return split


def _paths(file: Path, instances: Instances, files: Listing, below: str) -> Texts:
    """Where the images are: ``file_name``, or its last two or last one components (patch folders), or ""."""
    blocks: list[Texts] = []
    for start in range(0, len(instances.names), 65_536):  # texts of a list take much more than of an array
        paths: list[str] = []
        for row, name in enumerate(instances.names[start : start + 65_536].tolist(), start):
            folders = name.decode().split("/")
            if not folders[-1]:
                raise DataError(f"{file}: image {instances.labels.ids[row]} has no 'file_name'")
            ends = (below + "/".join(folders[-most:]) for most in (len(folders), 2, 1))
            paths.append(next((end for end in ends if end in files), ""))
        blocks.append(np.asarray(paths, dtype=np.str_))
    return np.concatenate(blocks)


# The lists of Hill and SPLC with 75 %, 40 % and one of COCO's labels: coco_train_0.75left.txt and so on.
PUBLISHED_LISTS = (Size(82_081, 181_422), Size(82_081, 96_251), Size(82_081, 82_081))


def warn_of_another_list(file: Path, size: Size) -> None:
    """Warn of a list of labels that is nearly a published one."""
    for expected in PUBLISHED_LISTS:
        near = all(abs(here / there - 1) <= NEARLY for here, there in zip(size, expected, strict=True))
        if near and size != expected:
            warn(
                f"{file} names {size.positives:,} labels of {size.images:,} images; the published list "
                f"that is most like it has {expected.positives:,} of {expected.images:,}: is it complete? "
                "Numbers may not compare with the papers'"
            )


def with_observed(split: RawSplit, file: Path) -> RawSplit:
    """The images of a split that the list names, with its labels as the observed ones.

    All other labels are UNKNOWN. Images are known by file name, whatever their folder.
    """
    row_of = {path.rpartition("/")[2]: row for row, path in enumerate(split.paths.tolist())}
    if len(row_of) < len(split.paths):
        alike = "images of several folders have one file name"
        raise DataError(f"{file}: {alike}: a list cannot tell them apart")
    truth = split.labels.matrix
    rows: list[int] = []
    columns: list[int] = []
    seen: dict[int, int] = {}  # row -> line
    for line, text in enumerate(lines_of(file), 1):
        where = f"{file}, line {line:,}"
        row = _listed_row(where, text, row_of)
        if (first := seen.setdefault(row, line)) != line:
            raise DataError(f"{where}: {text!r:.100} is there a second time, after line {first:,}")
        classes = _listed_classes(where, text, len(split.labels.classes))
        absent = [index for index in classes if truth[row, index] != POSITIVE]
        if absent:
            raise DataError(
                f"{where}: {text!r:.100}: by its full labels, class {absent[0]} "
                f"({split.labels.classes[absent[0]]}) is not on the image: is the list for this set, "
                "with classes counted from 0?"
            )
        rows += [row] * len(classes)
        columns += classes
    if not seen:
        raise DataError(f"{file} is empty: a line `image,class class ...` for each image is needed")
    positive = np.full(len(rows), POSITIVE, np.int8)
    listed = SparseLabels.of_entries(np.asarray(rows), np.asarray(columns), positive, truth.shape)
    warn_of_another_list(file, Size(len(seen), len(listed.known)))
    if len(seen) < len(row_of):
        warn(f"{file} names {len(seen):,} of {len(row_of):,} training images; the others were left out")
    return replace(split, observed=compact(listed)).take(np.asarray(sorted(seen), dtype=np.intp))


def _listed_row(where: str, text: str, row_of: Mapping[str, int]) -> int:
    name, comma, _ = text.partition(",")
    name = name.rpartition("/")[2]
    if not comma:
        raise DataError(f"{where}: must be `image,class class ...`, not {text!r:.100}")
    if name not in row_of:
        raise DataError(f"{where}: {name!r:.100} is not among the training images with a label")
    return row_of[name]


def _listed_classes(where: str, text: str, count: int) -> list[int]:
    words = text.partition(",")[2].split()
    wrong = [word for word in words if not 0 <= whole_number(word) < count]
    if wrong or not words:
        why = f"not {wrong[0]!r:.100}" if wrong else "and there is none"
        raise DataError(f"{where}: a class must be a number from 0 to {count - 1}, {why}")
    return [int(word) for word in words]
