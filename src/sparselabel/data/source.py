"""What every reader gives: pictures, their labels and marks, by split."""

from dataclasses import dataclass, field
from pathlib import Path

from sparselabel.data.labels import LabelTable, Texts
from sparselabel.data.marks import Marks


@dataclass(frozen=True, eq=False)
class Split:
    """One split: ``paths`` (N,) of its pictures, below the source's root, in the order of ``labels``."""

    labels: LabelTable
    paths: Texts
    marks: Marks = field(default_factory=Marks.none)


@dataclass(frozen=True, eq=False)
class Source:
    """The data as read: splits by name ("train", and "val" or "test" where the data has them)."""

    name: str
    root: Path
    splits: dict[str, Split]
