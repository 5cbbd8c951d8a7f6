"""``sparselabel labels``: the labels of prepared data as a file for other programs."""

from pathlib import Path
from typing import Literal

from sparselabel.cli.terminal import plain_console


def labels(
    folder: Path,
    /,
    *,
    out: Path,
    split: str | None = None,
    which: Literal["observed", "full"] = "observed",
    force: bool = False,
) -> None:
    """Write the labels of prepared data as a table (.csv) or in COCO's form (.json).

    Example: `sparselabel labels prepared --split train --out labels.json`

    `sparselabel prepare table labels.csv --images PHOTOS --out again` reads a table back; PHOTOS is the
    folder of the images.

    Parameters
    ----------
    folder
        Prepared data, as `sparselabel prepare` wrote it.
    out
        File to write. CSV: 1, 0, or empty if unknown. JSON: with boxes.
    split
        Which split; default: all (CSV).
    which
        observed: the labels that training sees; full: all known labels.
    force
        Replace the file.
    """
    from sparselabel.data.prepared_files import open_prepared
    from sparselabel.data.write_labels import write_labels

    prepared = open_prepared(folder)
    write_labels(prepared, split, which, out, force)
    images = sum(
        len(prepared_split) for name, prepared_split in prepared.splits.items() if split in (None, name)
    )
    plain_console().print(
        f"{which} labels of {images:,} images and {len(prepared.classes):,} classes in {out}"
    )
