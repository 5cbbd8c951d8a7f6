"""``sparselabel prepare``: read a data set, check it and write the prepared form."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from sparselabel.cli.given import FROM_FILE, FromFile
from sparselabel.cli.terminal import progress
from sparselabel.config import Preparation
from sparselabel.errors import counted

if TYPE_CHECKING:
    from sparselabel.data.source import Source

app = App(
    name="prepare",
    help="""Read a data set, check every picture, and write it in the form that training opens at once.

    Example: `sparselabel prepare table labels.csv --images photos --out prepared`
    """,
)

How = Annotated[Preparation, Parameter(name="*")]
Given = Annotated[FromFile, Parameter(name="*")]
DEFAULT = Preparation()


@app.command
def voc(
    source: Path, /, *, out: Path, force: bool = False, how: How = DEFAULT, given: Given = FROM_FILE
) -> None:
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
    from sparselabel.data.prepare import refuse_taken
    from sparselabel.data.readers import READERS

    refuse_taken(out, force)
    write(READERS["voc"](source), out, force, how)


@app.command
def coco(
    source: Path,
    /,
    *,
    out: Path,
    images: Path | None = None,
    keep_empty: bool = False,
    force: bool = False,
    how: How = DEFAULT,
    given: Given = FROM_FILE,
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
    force
        Replace what is in --out.
    """
    from sparselabel.data.prepare import refuse_taken
    from sparselabel.data.readers import READERS

    refuse_taken(out, force)
    write(READERS["coco"](source, images=images, keep_empty=keep_empty), out, force, how)


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
    given: Given = FROM_FILE,
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
    force
        Replace what is in --out.
    """
    from sparselabel.data.prepare import refuse_taken
    from sparselabel.data.readers import READERS

    refuse_taken(out, force)
    found = READERS["table"](
        source, images=images, image=image, label=label, value=value, split=split, separator=separator
    )
    write(found, out, force, how)


@app.command
def folder(
    source: Path, /, *, out: Path, force: bool = False, how: How = DEFAULT, given: Given = FROM_FILE
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
    from sparselabel.data.prepare import refuse_taken
    from sparselabel.data.readers import READERS

    refuse_taken(out, force)
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
    given: Given = FROM_FILE,
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
    from sparselabel.data import scenes as maker
    from sparselabel.data.prepare import refuse_taken

    refuse_taken(out, force)
    with progress(train + test, "drawing scenes") as advance:
        source = maker.make(out, train=train, test=test, size=size, seed=seed, progress=advance)
    write(source, out, force, how)


def write(source: "Source", out: Path, force: bool, how: Preparation) -> Any:
    """Check and write what a reader found, and say what it was."""
    from sparselabel.cli.data import describe
    from sparselabel.data.prepare import prepare

    everything = sum(len(split.labels) for split in source.splits.values())
    with progress(everything, f"checking {counted(everything, 'picture')}") as advance:
        prepared = prepare(source, out, how, force=force, report=advance)
    describe(prepared)
    return prepared
