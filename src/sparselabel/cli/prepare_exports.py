"""``sparselabel prepare`` of what annotation tools export."""

from pathlib import Path

from sparselabel.cli.prepare_published import app
from sparselabel.cli.preparing import DEFAULT, GIVEN, Given, How, write

__all__ = ["app", "cvat", "fiftyone", "label_studio"]


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
    """Label Studio: the export "JSON", with choices, boxes, points and other labelled shapes.

    Example: `sparselabel prepare label-studio export.json --images photos --out prepared`

    Parameters
    ----------
    source
        The exported file.
    out
        Folder to write.
    images
        Folder of the pictures; default: the file's own.
    image
        Name of the tasks' data that holds the picture.
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
        Folder of the pictures; default: images/ beside the file, or the file's own.
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
        Folder of the pictures; default: data/ beside the file, or the file's own.
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
