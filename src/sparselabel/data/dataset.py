"""Prepared data: a folder of memory-mapped arrays that opens at once, whatever its size.

    DIR/dataset.json      name, root of the pictures, classes, splits with their sizes and digests, how it was made
    DIR/<split>/ids.npy   paths.npy  truth.npy  observed.npy  digests.npy
               /mark_rows.npy  mark_classes.npy  mark_centres.npy  mark_sizes.npy

``truth`` is all that is known, ``observed`` what training may see of it; ``prepare.py`` writes both.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, LabelTable, Texts
from sparselabel.data.marks import Marks
from sparselabel.errors import DataError, nearest

FORMAT = 1
MARK_COLUMNS = ("rows", "classes", "centres", "sizes")


@dataclass(frozen=True, eq=False)
class PreparedSplit:
    """One split: N pictures with all that is known of their labels, and what training may see of it.

    ``digest`` identifies the split's pictures, labels and marks; ``digests`` (N,) its pictures' bytes.
    """

    name: str
    root: Path
    paths: Texts
    truth: LabelTable
    observed: LabelTable
    marks: Marks
    digests: npt.NDArray[np.uint64]
    digest: str

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, row: int) -> Path:
        """Where a row's picture is."""
        return self.root / str(self.paths[row])


@dataclass(frozen=True, eq=False)
class Prepared:
    """Prepared data, opened: its splits by name, always with "train"."""

    folder: Path
    name: str
    classes: tuple[str, ...]
    splits: dict[str, PreparedSplit]
    made: dict[str, Any] = field(default_factory=dict)

    @property
    def train(self) -> PreparedSplit:
        """The split that is trained on."""
        return self.splits["train"]

    def split(self, name: str) -> PreparedSplit:
        """A split by name."""
        if name not in self.splits:
            raise DataError(f"{self.folder} has no split {name!r}: {nearest(name, self.splits)}")
        return self.splits[name]

    def description(self) -> dict[str, Any]:
        """Counts per split and class, as ``sparselabel data --json`` prints them."""
        return {"splits": {name: _described(split) for name, split in self.splits.items()}}


def open_prepared(folder: Path) -> Prepared:
    """Open what ``sparselabel prepare`` wrote, without reading the arrays."""
    index = folder / "dataset.json"
    if not index.is_file():
        raise DataError(
            f"{folder} is not prepared data (it has no dataset.json): "
            "make it with `sparselabel prepare READER SOURCE --out DIR`"
        )
    made = json.loads(index.read_text())
    if made.get("format") != FORMAT:
        raise DataError(
            f"{index} has format {made.get('format')}, this program reads format {FORMAT}: prepare it again"
        )
    classes = tuple(made["classes"])
    root = Path(made["root"])
    root = root if root.is_absolute() else folder / root
    splits = {
        name: _open_split(folder / name, root, classes, about["digest"])
        for name, about in made["splits"].items()
    }
    return Prepared(folder, made["name"], classes, splits, made)


def _open_split(folder: Path, root: Path, classes: tuple[str, ...], digest: str) -> PreparedSplit:
    def array(name: str) -> Any:
        try:
            return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(f"{folder / name}.npy cannot be read ({error}): prepare the data again") from error

    ids = array("ids")
    return PreparedSplit(
        name=folder.name,
        root=root,
        paths=array("paths"),
        truth=LabelTable(ids, classes, array("truth"), check=False),
        observed=LabelTable(ids, classes, array("observed"), check=False),
        marks=Marks(*(array(f"mark_{column}") for column in MARK_COLUMNS), check=False),
        digests=array("digests"),
        digest=digest,
    )


def _described(split: PreparedSplit) -> dict[str, Any]:
    columns = zip(
        split.truth.classes,
        split.truth.counts(POSITIVE).tolist(),
        split.observed.counts(POSITIVE).tolist(),
        split.observed.counts(NEGATIVE).tolist(),
        strict=True,
    )
    names = ("name", "positive", "observed_positive", "observed_negative")
    return {"images": len(split), "classes": [dict(zip(names, column, strict=True)) for column in columns]}
