"""``sparselabel prepare`` of published data sets beyond VOC and COCO."""

from pathlib import Path

from sparselabel.cli.prepare import app
from sparselabel.cli.preparing import DEFAULT, GIVEN, Given, How, write

__all__ = ["app", "cub", "imagenet", "nuswide"]


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
    """NUS-WIDE: formatted_train_images.npy and so on, or ImageList/ and Groundtruth/; pictures in Flickr/.

    Example: `sparselabel prepare nuswide nuswide --sparsify single-positive --out prepared`

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
        Folder of the pictures, if it is not images inside.
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
        id a picture, or the devkit's numbers.
    synsets
        Synset ids in the devkit's order, for the devkit's numbers.
    real
        ReaL's real.json, if it is not in the folder.
    force
        Replace what is in --out.
    """
    from sparselabel.data.readers import READERS

    write(lambda: READERS["imagenet"](source, labels=labels, synsets=synsets, real=real), out, force, how)
