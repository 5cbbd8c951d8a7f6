"""``sparselabel prepare``: read a data set, check it and write the prepared form."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from sparselabel.cli.terminal import progress
from sparselabel.config import Preparation
from sparselabel.errors import RunError

if TYPE_CHECKING:
    from sparselabel.data.source import Source

app = App(
    name="prepare",
    help="Read a data set, check every picture, and write it in the form that training opens at once.",
    help_epilogue="Example: `sparselabel prepare table labels.csv --images photos --out prepared`",
)

How = Annotated[Preparation, Parameter(name="*")]
DEFAULT = Preparation()


@app.command
def voc(source: Path, /, *, out: Path, force: bool = False, how: How = DEFAULT) -> None:
    """Pascal VOC: the VOCdevkit folder, or VOC2012 inside it. The official val set becomes the test split.

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

    write(READERS["voc"](source), out, force, how)


@app.command
def coco(
    source: Path,
    /,
    *,
    out: Path,
    images: Path | None = None,
    keep_empty: bool = False,
    labels: Path | None = None,
    force: bool = False,
    how: How = DEFAULT,
) -> None:
    """COCO: the folder with annotations/ and pictures, or one COCO-style JSON file.

    Parameters
    ----------
    source
        The folder, or the JSON file.
    out
        Folder to write.
    images
        Folder of the pictures, if it is not where COCO has it.
    keep_empty
        Keep pictures without any object.
    labels
        List of the labels that training sees, as published with Hill and SPLC: `picture,class class ...`.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    write(READERS["coco"](source, images=images, keep_empty=keep_empty, labels=labels), out, force, how)


@app.command
def nuswide(
    source: Path, /, *, out: Path, images: Path | None = None, force: bool = False, how: How = DEFAULT
) -> None:
    """NUS-WIDE: formatted_train_images.npy and so on, or ImageList/ and Groundtruth/; pictures in Flickr/.

    Parameters
    ----------
    source
        The folder.
    out
        Folder to write.
    images
        Folder of the pictures, if it is not Flickr or Images inside.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    write(READERS["nuswide"](source, images=images), out, force, how)


@app.command
def cub(
    source: Path, /, *, out: Path, images: Path | None = None, force: bool = False, how: How = DEFAULT
) -> None:
    """CUB-200-2011 with its 312 attributes: the folder CUB_200_2011.

    Parameters
    ----------
    source
        The folder.
    out
        Folder to write.
    images
        Folder of the pictures, if it is not images inside.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    write(READERS["cub"](source, images=images), out, force, how)


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
) -> None:
    """ImageNet-1K: train/ and val/, or Kaggle's folder; with ReaL's labels if real.json is there.

    Parameters
    ----------
    source
        The folder.
    out
        Folder to write.
    labels
        Labels of a val/ without class folders, if they are not in the folder: LOC_val_solution.csv, a synset
        id a picture, or the devkit's numbers.
    synsets
        Synset ids in the devkit's order, for the devkit's numbers.
    real
        ReaL's real.json, if it is not in the folder.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    write(READERS["imagenet"](source, labels=labels, synsets=synsets, real=real), out, force, how)


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
    force: bool = False,
    how: How = DEFAULT,
) -> None:
    """A CSV, TSV or Parquet table: one row a label (image, label), or a column a class (1, 0, empty).

    Parameters
    ----------
    source
        The table.
    out
        Folder to write.
    images
        Folder of the pictures; default: the table's own.
    image
        Column with the picture's file name.
    label
        Column with the label; a table without it has a column per class.
    value
        Column that says whether the label is there (1) or not (0).
    split
        Column that says train, val or test.
    separator
        What separates several labels in one cell.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    found = READERS["table"](
        source, images=images, image=image, label=label, value=value, split=split, separator=separator
    )
    write(found, out, force, how)


@app.command
def folder(source: Path, /, *, out: Path, force: bool = False, how: How = DEFAULT) -> None:
    """Class folders: a picture's folder is its one known label.

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

    write(READERS["folder"](source), out, force, how)


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
) -> None:
    """The embedded data: drawn pictures of small worlds with several things each, fully labelled.

    Parameters
    ----------
    out
        Folder to write; the pictures go there too.
    train
        Pictures to train on (a part becomes the validation split).
    test
        Pictures to test on.
    size
        Side of a picture in pixels.
    seed
        Of the pictures.
    force
        Replace what is in --out.
    """
    from sparselabel.data import scenes as maker

    if (out / "dataset.json").exists() and not force:
        raise RunError(f"{out} holds prepared data already: choose another --out, or replace it with --force")
    with progress(train + test, "drawing scenes") as advance:
        source = maker.make(out, train=train, test=test, size=size, seed=seed, progress=advance)
    write(source, out, force, how)


def write(source: "Source", out: Path, force: bool, how: Preparation) -> Any:
    """Check and write what a reader found, and say what it was."""
    from sparselabel.cli.data import describe
    from sparselabel.data.prepare import prepare

    everything = sum(len(split.labels) for split in source.splits.values())
    with progress(everything, f"checking {everything:,} pictures") as advance:
        prepared = prepare(source, out, how, force=force, report=advance)
    describe(prepared)
    return prepared
