"""What every reader gives: pictures, their labels and marks, by split."""

from dataclasses import dataclass, field
from pathlib import Path

from sparselabel.data.labels import Indices, Labels, LabelTable, Texts
from sparselabel.data.marks import Marks


@dataclass(frozen=True, eq=False)
class Split:
    """One split: ``paths`` (N,) of its pictures, below the source's root, in the order of ``labels``.

    ``observed`` (N, L) is what training may see of the labels, where somebody has published that. ``real``
    (N, L) are ImageNet's reassessed labels, beside the original ones; a row without them is UNKNOWN.
    """

    labels: LabelTable
    paths: Texts
    marks: Marks = field(default_factory=Marks.none)
    observed: Labels | None = None
    real: Labels | None = None

    def take(self, rows: Indices) -> "Split":
        """The split of some rows, in the order given."""
        return Split(
            self.labels.take(rows),
            self.paths[rows],
            self.marks.take(rows),
            None if self.observed is None else self.observed[rows],
            None if self.real is None else self.real[rows],
        )


@dataclass(frozen=True, eq=False)
class Source:
    """The data as read: splits by name ("train", and "val" or "test" where the data has them)."""

    name: str
    root: Path
    splits: dict[str, Split]
