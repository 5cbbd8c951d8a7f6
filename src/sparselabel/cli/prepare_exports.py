"""``sparselabel prepare`` of what annotation tools export."""

from pathlib import Path

from sparselabel.cli.prepare import DEFAULT, How, app, write

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
) -> None:
    """Label Studio: the export "JSON", with choices, boxes, points and other labelled shapes.

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

    found = READERS["label-studio"](source, images=images, image=image, negative=negative, complete=complete)
    write(found, out, force, how)


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
) -> None:
    """CVAT: the export "CVAT for images 1.1", with tags, boxes, points and other shapes.

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

    write(READERS["cvat"](source, images=images, negative=negative, complete=complete), out, force, how)


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
) -> None:
    """FiftyOne: the exports FiftyOneImageClassificationDataset and FiftyOneImageDetectionDataset.

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

    write(READERS["fiftyone"](source, images=images, negatives=negatives, complete=complete), out, force, how)
