"""How large the papers' data sets are: what is nearly of that size, but not quite, is worth a warning."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sparselabel.data.readers.source import Split
from sparselabel.errors import DataWarning

NEARLY = 0.05
"""Within this share of the published number of images, it was meant to be the published set."""


class Size(NamedTuple):
    """Images of a split, and their positive labels."""

    images: int
    positives: int


# Verelst 2023 supplement table K.1, train and val together, as before validation is held out. Its counts of
# VOC's val and test labels are misprints; those here are of its table K.3.
PUBLISHED: dict[str, dict[str, Size]] = {
    "voc": {"train": Size(5_717, 8_331), "test": Size(5_823, 8_351)},
    "coco": {"train": Size(82_081, 241_035), "test": Size(40_137, 116_592)},
    "nuswide": {"train": Size(150_000, 284_611), "test": Size(60_260, 113_418)},
    "cub": {"train": Size(5_994, 188_343), "test": Size(5_794, 182_704)},
    "imagenet": {"train": Size(1_281_167, 1_281_167), "test": Size(50_000, 50_000)},
}


# The lists of Hill and SPLC with 75 %, 40 % and one of COCO's labels: coco_train_0.75left.txt and so on.
LISTS = (Size(82_081, 181_422), Size(82_081, 96_251), Size(82_081, 82_081))


def warn_of_another_list(file: Path, found: Size) -> None:
    """Warn of a list of labels that is nearly a published one; another list is no reason."""
    for expected in LISTS:
        near = all(abs(here / there - 1) <= NEARLY for here, there in zip(found, expected, strict=True))
        if near and found != expected:
            warnings.warn(
                f"{file} names {found.positives:,} labels of {found.images:,} images; the published list "
                f"that is most like it has {expected.positives:,} of {expected.images:,}: is it complete? "
                "Numbers may not compare with the papers'",
                DataWarning,
                stacklevel=3,
            )


def warn_of_another_size(reader: str, splits: Mapping[str, Split]) -> None:
    """Warn of splits that are nearly those of the papers; a part of a set, or another set, is no reason."""
    for name, expected in PUBLISHED[reader].items():
        if name not in splits:
            continue
        labels = splits[name].labels
        if abs(len(labels) / expected.images - 1) > NEARLY:
            continue
        found = Size(len(labels), int(labels.counts().sum()))
        if found != expected:
            warnings.warn(
                f"{name} has {found.images:,} images and {found.positives:,} positive labels; in the "
                f"papers {reader} has {expected.images:,} and {expected.positives:,}. Observed labels and "
                "splits are drawn by row, so yours will be others, and numbers may not compare",
                DataWarning,
                stacklevel=3,
            )
