"""``sparselabel prepare``: read a data set, check it and write the prepared form."""

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from sparselabel.cli.help import HELP_FLAGS
from sparselabel.cli.preparing import DEFAULT, GIVEN, Given, How, write
from sparselabel.cli.terminal import progress

if TYPE_CHECKING:
    from sparselabel.data.readers.source import Source

app = App(
    name="prepare",
    help="""Read a data set, check every picture, and write it in the form that training opens at once.

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
    """COCO: the folder with annotations/ and pictures, or one COCO-style JSON file.

    Example: `sparselabel prepare coco coco --sparsify single-positive --out prepared`

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
    skip_missing
        Leave out pictures whose file is not there, instead of stopping.
    labels
        List of the labels that training sees, as published with Hill and SPLC: `picture,class class ...`.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    def read() -> "Source":
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
    """A CSV, TSV or Parquet table: one row a label (image, label), or a column a class (1, 0, empty).

    Example: `sparselabel prepare table labels.csv --images photos --out prepared`

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
    suffix
        What the names of pictures lack to be files' names (.jpg).
    names
        Table of codes and names, if the labels are codes.
    skip_missing
        Leave out pictures whose file is not there, instead of stopping.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    columns = {"image": image, "label": label, "value": value, "split": split, "separator": separator}

    def read() -> "Source":
        return READERS["table"](
            source, images=images, suffix=suffix, names=names, skip_missing=skip_missing, **columns
        )

    write(read, out, force, how)


@app.command
def folder(
    source: Path, /, *, out: Path, force: bool = False, how: How = DEFAULT, given: Given = GIVEN
) -> None:
    """Class folders: a picture's folder is its one known label.

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
    """The embedded data: drawn pictures of small worlds with several things each, fully labelled.

    Example: `sparselabel prepare scenes --train 2000 --test 500 --sparsify single-positive --out scenes`

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
    from sparselabel.data.scenes import generate as maker

    def draw() -> "Source":
        with progress(train + test, "drawing scenes") as advance:
            return maker.make(out, train=train, test=test, size=size, seed=seed, progress=advance)

    write(draw, out, force, how)
