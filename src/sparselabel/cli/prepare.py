"""``sparselabel prepare``: read a data set, check it and write the prepared form."""

from collections.abc import Callable
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


How = Annotated[Preparation, Parameter(name="*")]
Given = Annotated[FromFile, Parameter(name="*")]
DEFAULT, GIVEN = Preparation(), FROM_FILE


def write(read: Callable[[], "RawDataset"], out: Path, force: bool, how: Preparation) -> Any:
    """Read, check and write a data set, and say what it was; what is in the way is found before reading."""
    from sparselabel.cli.data import describe
    from sparselabel.data.prepare import prepare
    from sparselabel.data.split_writer import refuse_taken

    refuse_taken(out, force)
    if how.scores is not None and not Path(how.scores).is_file():
        raise DataError(
            f"{param('scores', how.scores)} is not a file",
            "give a CSV, TSV, Parquet or .npz file",
            what="scores",
            value=how.scores,
        )
    source = read()
    everything = sum(len(split.labels) for split in source.splits.values())
    with progress(everything, f"checking {counted(everything, 'image')}") as advance:
        prepared = prepare(source, out, how, force=force, report=advance)
    describe(prepared)
    return prepared


app = App(
    name="prepare",
    help="""Read a data set, check every image, and write it in the form that training opens at once.

    Example: `sparselabel prepare table labels.csv --images photos --out prepared`
    """,
    help_flags=HELP_FLAGS,
)


@app.command
def voc(source: Path, /, *, out: Path, force: bool = False, how: How = DEFAULT, given: Given = GIVEN) -> None:
    """Pascal VOC: the VOCdevkit folder, or VOC2012 inside it. The official val set becomes the test split.

    Example: `sparselabel prepare voc VOCdevkit --sparsify single-positive --out prepared`

    Parameters
    ----------
    source
        The folder VOC2012.
    out
        Folder to write.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    write(lambda: READERS["voc"](source), out, force, how)


@app.command
def coco(
    source: Path,
    /,
    *,
    out: Path,
    images: Path | None = None,
    keep_empty: bool = False,
    skip_missing: bool = False,
    labels: Path | None = None,
    force: bool = False,
    how: How = DEFAULT,
    given: Given = GIVEN,
) -> None:
    """COCO: the folder with annotations/ and images, or one COCO-style JSON file.

    Example: `sparselabel prepare coco coco --sparsify single-positive --out prepared`

    Parameters
    ----------
    source
        The folder, or the JSON file.
    out
        Folder to write.
    images
        Folder of the images, if it is not where COCO has it.
    keep_empty
        Keep images without any object.
    skip_missing
        Leave out images whose file is not there, instead of stopping.
    labels
        List of the labels that training sees, as published with Hill and SPLC: `image,class class ...`.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    def read() -> "RawDataset":
        options = {"keep_empty": keep_empty, "skip_missing": skip_missing, "labels": labels}
        return READERS["coco"](source, images=images, **options)

    write(read, out, force, how)


@app.command
def table(
    source: Path,
    /,
    *,
    out: Path,
    images: Path | None = None,
    image: str = "image",
    label: str = "label",
    value: str = "value",
    split: str = "split",
    separator: str | None = None,
    suffix: str = "",
    names: Path | None = None,
    skip_missing: bool = False,
    force: bool = False,
    how: How = DEFAULT,
    given: Given = GIVEN,
) -> None:
    """A CSV, TSV or Parquet table: one row per label (image, label), or one column per class (1, 0, empty).

    Example: `sparselabel prepare table labels.csv --images photos --out prepared`

    Parameters
    ----------
    source
        The table.
    out
        Folder to write.
    images
        Folder of the images; default: the table's own.
    image
        Column with the image's file name.
    label
        Column with the label; a table without it has a column per class.
    value
        Column that says whether the label is there (1) or not (0).
    split
        Column that says train, val or test.
    separator
        What separates several labels in one cell.
    suffix
        What the names of images lack to be files' names (.jpg).
    names
        Table of codes and names, if the labels are codes.
    skip_missing
        Leave out images whose file is not there, instead of stopping.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    columns = {"image": image, "label": label, "value": value, "split": split, "separator": separator}

    def read() -> "RawDataset":
        return READERS["table"](
            source, images=images, suffix=suffix, names=names, skip_missing=skip_missing, **columns
        )

    write(read, out, force, how)


@app.command
def folder(
    source: Path, /, *, out: Path, force: bool = False, how: How = DEFAULT, given: Given = GIVEN
) -> None:
    """Class folders: an image's folder is its one known label.

    Example: `sparselabel prepare folder photos --out prepared`

    Parameters
    ----------
    source
        The folder of class folders (or of train/, val/, test/ with class folders).
    out
        Folder to write.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    write(lambda: READERS["folder"](source), out, force, how)


@app.command
def scenes(
    *,
    out: Path,
    train: int = 3000,
    test: int = 1000,
    size: int = 96,
    seed: int = 0,
    force: bool = False,
    how: How = DEFAULT,
    given: Given = GIVEN,
) -> None:
    """The embedded data: drawn images of small worlds with several things each, fully labeled.

    Example: `sparselabel prepare scenes --train 2000 --test 500 --sparsify single-positive --out scenes`

    Parameters
    ----------
    out
        Folder to write; the images go there too.
    train
        Images to train on (a part becomes the validation split).
    test
        Images to test on.
    size
        Side of an image in pixels.
    seed
        Of the images.
    force
        Replace what is in --out.
    """
    from sparselabel.data.scenes import generate as maker

    def draw() -> "RawDataset":
        with progress(train + test, "drawing scenes") as advance:
            return maker.make(out, train=train, test=test, size=size, seed=seed, progress=advance)

    write(draw, out, force, how)


@app.command
def nuswide(
    source: Path,
    /,
    *,
    out: Path,
    images: Path | None = None,
    force: bool = False,
    how: How = DEFAULT,
    given: Given = GIVEN,
) -> None:
    """NUS-WIDE: formatted_train_images.npy and so on, or ImageList/ and Groundtruth/; images in Flickr/.

    Example: `sparselabel prepare nuswide nuswide --sparsify single-positive --out prepared`

    Parameters
    ----------
    source
        The folder.
    out
        Folder to write.
    images
        Folder of the images, if it is not Flickr or Images inside.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    write(lambda: READERS["nuswide"](source, images=images), out, force, how)


@app.command
def cub(
    source: Path,
    /,
    *,
    out: Path,
    images: Path | None = None,
    force: bool = False,
    how: How = DEFAULT,
    given: Given = GIVEN,
) -> None:
    """CUB-200-2011 with its 312 attributes: the folder CUB_200_2011.

    Example: `sparselabel prepare cub CUB_200_2011 --sparsify single-positive --out prepared`

    Parameters
    ----------
    source
        The folder.
    out
        Folder to write.
    images
        Folder of the images, if it is not images inside.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    write(lambda: READERS["cub"](source, images=images), out, force, how)


@app.command
def imagenet(
    source: Path,
    /,
    *,
    out: Path,
    labels: Path | None = None,
    synsets: Path | None = None,
    real: Path | None = None,
    force: bool = False,
    how: How = DEFAULT,
    given: Given = GIVEN,
) -> None:
    """ImageNet-1K: train/ and val/, or Kaggle's folder; with ReaL's labels if real.json is there.

    Example: `sparselabel prepare imagenet imagenet --out prepared`

    Parameters
    ----------
    source
        The folder.
    out
        Folder to write.
    labels
        Labels of a val/ without class folders, if they are not in the folder: LOC_val_solution.csv, a synset
        id an image, or the devkit's numbers.
    synsets
        Synset ids in the devkit's order, for the devkit's numbers.
    real
        ReaL's real.json, if it is not in the folder.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    write(lambda: READERS["imagenet"](source, labels=labels, synsets=synsets, real=real), out, force, how)


@app.command(name="label-studio")
def label_studio(
    source: Path,
    /,
    *,
    out: Path,
    images: Path | None = None,
    image: str = "image",
    negative: str | None = None,
    complete: bool = False,
    force: bool = False,
    how: How = DEFAULT,
    given: Given = GIVEN,
) -> None:
    """Label Studio: the export "JSON", with choices, boxes, points and other labeled shapes.

    Example: `sparselabel prepare label-studio export.json --images photos --out prepared`

    Parameters
    ----------
    source
        The exported file.
    out
        Folder to write.
    images
        Folder of the images; default: the file's own.
    image
        Name of the tasks' data that holds the image.
    negative
        Control (from_name) whose choices say what is not there.
    complete
        What annotators did not name is not there; else it is unknown.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    options = {"images": images, "image": image, "negative": negative, "complete": complete}
    write(lambda: READERS["label-studio"](source, **options), out, force, how)


@app.command
def cvat(
    source: Path,
    /,
    *,
    out: Path,
    images: Path | None = None,
    negative: str | None = None,
    complete: bool = False,
    force: bool = False,
    how: How = DEFAULT,
    given: Given = GIVEN,
) -> None:
    """CVAT: the export "CVAT for images 1.1", with tags, boxes, points and other shapes.

    Example: `sparselabel prepare cvat annotations.xml --images photos --out prepared`

    Parameters
    ----------
    source
        The file annotations.xml, or its folder.
    out
        Folder to write.
    images
        Folder of the images; default: images/ beside the file, or the file's own.
    negative
        Checkbox attribute that says that a tag or shape is not there.
    complete
        What annotators did not mark is not there; else it is unknown.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    options = {"images": images, "negative": negative, "complete": complete}
    write(lambda: READERS["cvat"](source, **options), out, force, how)


@app.command
def fiftyone(
    source: Path,
    /,
    *,
    out: Path,
    images: Path | None = None,
    negatives: Path | None = None,
    complete: bool = False,
    force: bool = False,
    how: How = DEFAULT,
    given: Given = GIVEN,
) -> None:
    """FiftyOne: the exports FiftyOneImageClassificationDataset and FiftyOneImageDetectionDataset.

    Example: `sparselabel prepare fiftyone labels.json --out prepared`

    Parameters
    ----------
    source
        The file labels.json, or its folder.
    out
        Folder to write.
    images
        Folder of the images; default: data/ beside the file, or the file's own.
    negatives
        A second export, of classes that are not there.
    complete
        What is not named is not there; else it is unknown.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    options = {"images": images, "negatives": negatives, "complete": complete}
    write(lambda: READERS["fiftyone"](source, **options), out, force, how)
