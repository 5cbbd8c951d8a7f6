"""``sparselabel prepare``: read a data set, check it and write the prepared form.

A command is its signature and its help: what is given goes to the reader of the same name.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from sparselabel.cli.arguments import FROM_FILE, FromFile
from sparselabel.cli.help import HELP_FLAGS
from sparselabel.cli.terminal import progress
from sparselabel.config import Preparation
from sparselabel.errors import DataError, counted, param

if TYPE_CHECKING:
    from sparselabel.data.readers.raw_dataset import RawDataset
    from sparselabel.data.stored_images import StoredImages

Flat = Parameter(name="*")
DEFAULT = Preparation()


@dataclass(frozen=True)
class Target:
    """Where prepared data goes, and how it is prepared.

    Parameters
    ----------
    out
        Folder to write.
    force
        Replace what is in --out.
    cluster
        Address of a Ray cluster (`auto` for the one that this machine belongs to) that reads the images.
    """

    out: Path
    force: bool = False
    cluster: str | None = None
    how: Annotated[Preparation, Flat] = DEFAULT
    given: Annotated[FromFile, Flat] = FROM_FILE


To = Annotated[Target, Flat]
app = App(
    name="prepare",
    help="""Read a data set, check every image, and write it in the form that training opens at once.

    Example: `sparselabel prepare table labels.csv --images photos --out prepared`
    """,
    help_flags=HELP_FLAGS,
)


def write(read: Callable[[], "RawDataset"], to: Target) -> None:
    """Read, check, write and describe a data set; an occupied folder is refused before reading."""
    from sparselabel.cli.data import describe
    from sparselabel.data.prepare import prepare
    from sparselabel.data.split_writer import refuse_taken

    refuse_taken(to.out, to.force)
    if to.how.scores is not None and not Path(to.how.scores).is_file():
        problem = f"{param('scores', to.how.scores)} is not a file"
        raise DataError(problem, "give a CSV, TSV, Parquet or .npz file")
    source = read()
    everything = sum(len(split.labels) for split in source.splits.values())
    with progress(everything, f"checking {counted(everything, 'image')}") as advance:
        describe(prepare(source, to.out, to.how, force=to.force, report=advance, cluster=to.cluster))


def reader(signature: Callable[..., None]) -> None:
    """Decorator: make a command that passes the source and the options to the reader of the same name."""
    name, defaults = signature.__name__.replace("_", "-"), signature.__kwdefaults__ or {}

    @functools.wraps(signature)
    def command(source: Path, *, to: Target, **options: Any) -> None:
        from sparselabel.data import readers

        def read() -> "RawDataset":
            given = defaults | options
            if "column" in given:  # the one reader whose images may be in shards
                given |= {"images": _images(given["images"], given.pop("column"), to.cluster)}
            return readers.reader(name)(source, **given)

        write(read, to)

    app.command(command, name=name)


def _images(images: str | None, column: str | None, cluster: str | None) -> "Path | StoredImages | None":
    """The folder of the images, or the stored images if they are in shards or at a URL."""
    from sparselabel.data.stored_images import are_stored, scan

    if not are_stored(images):
        return None if images is None else Path(images)
    with progress(None, "reading images") as advance:
        return scan([str(images)], column, cluster=cluster, report=advance)


@reader
def voc(source: Path, /, *, to: To) -> None:
    """Pascal VOC: the VOCdevkit folder, or VOC2012 inside it. The official val set becomes the test split.

    Example: `sparselabel prepare voc VOCdevkit --sparsify single-positive --out prepared`

    Parameters
    ----------
    source
        The folder VOC2012.
    """


@reader
def coco(
    source: Path,
    /,
    *,
    images: Path | None = None,
    keep_empty: bool = False,
    skip_missing: bool = False,
    labels: Path | None = None,
    to: To,
) -> None:
    """COCO: the folder with annotations/ and images, or one COCO-style JSON file.

    Example: `sparselabel prepare coco coco --sparsify single-positive --out prepared`

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
    """


@reader
def table(
    source: Path,
    /,
    *,
    images: str | None = None,
    column: str | None = None,
    image: str | None = None,
    label: str | None = None,
    value: str = "value",
    split: str = "split",
    separator: str | None = None,
    encoding: str | None = None,
    suffix: str = "",
    names: Path | None = None,
    skip_missing: bool = False,
    unlabeled: bool = False,
    to: To,
) -> None:
    """A CSV, TSV, XLSX or Parquet table: a row per label (image, label), or a column per class (1, 0, empty).

    Example: `sparselabel prepare table labels.csv --images photos --out prepared`

    Parameters
    ----------
    source
        The table.
    images
        Folder of the images; default: the table's folder. Also tars ('shards/*.tar'), Parquet tables that
        contain images, or a URL (s3://bucket/photos): images stay there, and training reads them there.
    column
        Column of --images with the images' bytes, if that is a Parquet table.
    image
        Column with the image's file name; default: image, filename, file, path or the like.
    label
        Column with the label; default: label, labels, class, tags or the like. A table without it has a
        column per class.
    value
        Column that says whether the label is present (1) or absent (0).
    split
        Column that says train, val or test.
    separator
        What separates several labels in one cell; default: detected. '' means that nothing does.
    encoding
        Text encoding of the table, such as cp1252 or utf-16; default: detected.
    suffix
        Suffix to append to the names of images to get file names (.jpg).
    names
        Table of codes and their names, if the labels are codes.
    skip_missing
        Leave out images whose file is missing, instead of stopping.
    unlabeled
        Also train on images in the folder that the table does not name.
    """


@reader
def folder(source: Path, /, *, to: To) -> None:
    """Class folders: an image's folder is its label; "cat,dog" is two labels, "not cat" or "-cat" a negative.

    Example: `sparselabel prepare folder photos --out prepared`

    Parameters
    ----------
    source
        The folder of class folders (or of train/, val/, test/ with class folders).
    """


@app.command
def scenes(*, train: int = 3000, test: int = 1000, size: int = 96, seed: int = 0, to: To) -> None:
    """The built-in data: drawn images with several objects each, fully labeled.

    Example: `sparselabel prepare scenes --train 2000 --test 500 --sparsify single-positive --out scenes`

    Parameters
    ----------
    train
        Number of training images (some become the validation split).
    test
        Number of test images.
    size
        Side of an image in pixels.
    seed
        Random seed of the images.
    """
    from sparselabel.data.scenes import generate as maker

    def draw() -> "RawDataset":
        with progress(train + test, "drawing scenes") as advance:
            return maker.make(to.out, train=train, test=test, size=size, seed=seed, progress=advance)

    write(draw, to)


@reader
def nuswide(source: Path, /, *, images: Path | None = None, to: To) -> None:
    """NUS-WIDE: formatted_train_images.npy and so on, or ImageList/ and Groundtruth/; images in Flickr/.

    Example: `sparselabel prepare nuswide nuswide --sparsify single-positive --out prepared`

    Parameters
    ----------
    source
        The folder.
    images
        Folder of the images, if it is not Flickr/ or Images/ in the source folder.
    """


@reader
def cub(source: Path, /, *, images: Path | None = None, to: To) -> None:
    """CUB-200-2011 with its 312 attributes: the folder CUB_200_2011.

    Example: `sparselabel prepare cub CUB_200_2011 --sparsify single-positive --out prepared`

    Parameters
    ----------
    source
        The folder.
    images
        Folder of the images, if it is not images/ in the source folder.
    """


@reader
def imagenet(
    source: Path,
    /,
    *,
    labels: Path | None = None,
    synsets: Path | None = None,
    real: Path | None = None,
    to: To,
) -> None:
    """ImageNet-1K: train/ and val/, or Kaggle's folder; with ReaL's labels if real.json is there.

    Example: `sparselabel prepare imagenet imagenet --out prepared`

    Parameters
    ----------
    source
        The folder.
    labels
        Labels of a val/ without class folders, if they are not in the folder: LOC_val_solution.csv, one
        synset id per image, or the devkit's numbers.
    synsets
        Synset ids in the devkit's order, for the devkit's numbers.
    real
        ReaL's real.json, if it is not in the folder.
    """


@reader
def label_studio(
    source: Path,
    /,
    *,
    images: Path | None = None,
    image: str = "image",
    negative: str | None = None,
    complete: bool = False,
    to: To,
) -> None:
    """Label Studio: the export "JSON", with choices, boxes, points and other labeled shapes.

    Example: `sparselabel prepare label-studio export.json --images photos --out prepared`

    Parameters
    ----------
    source
        The exported file.
    images
        Folder of the images; default: the folder of the file.
    image
        Key of the tasks' data that holds the image.
    negative
        Control (from_name) whose choices name absent classes.
    complete
        Classes that annotators did not name are absent; by default they are unknown.
    """


@reader
def cvat(
    source: Path,
    /,
    *,
    images: Path | None = None,
    negative: str | None = None,
    complete: bool = False,
    to: To,
) -> None:
    """CVAT: the export "CVAT for images 1.1", with tags, boxes, points and other shapes.

    Example: `sparselabel prepare cvat annotations.xml --images photos --out prepared`

    Parameters
    ----------
    source
        The file annotations.xml, or its folder.
    images
        Folder of the images; default: images/ beside the file, or the folder of the file.
    negative
        Checkbox attribute that marks the class of a tag or shape as absent.
    complete
        Classes that annotators did not mark are absent; by default they are unknown.
    """


@reader
def fiftyone(
    source: Path,
    /,
    *,
    images: Path | None = None,
    negatives: Path | None = None,
    complete: bool = False,
    to: To,
) -> None:
    """FiftyOne: the exports FiftyOneImageClassificationDataset and FiftyOneImageDetectionDataset.

    Example: `sparselabel prepare fiftyone labels.json --out prepared`

    Parameters
    ----------
    source
        The file labels.json, or its folder.
    images
        Folder of the images; default: data/ beside the file, or the folder of the file.
    negatives
        A second export, with absent classes.
    complete
        Classes that are not named are absent; by default they are unknown.
    """
