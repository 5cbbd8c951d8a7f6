"""What every reader gives: pictures, their labels and marks, by split."""

from dataclasses import dataclass, field
from pathlib import Path

from sparselabel.data.labels import Indices, Labels, LabelTable, Texts
from sparselabel.data.masks import Masks
from sparselabel.data.spatial_labels import Marks


@dataclass(frozen=True, eq=False)
class Split:
    """One split: ``paths`` (N,) of its pictures, below the source's root, in the order of ``labels``.

    ``observed`` (N, L) is what training may see of the labels, where somebody has published that. ``real``
    (N, L) are ImageNet's reassessed labels, beside the original ones; a row without them is UNKNOWN.
    ``masks`` are those of the marks, in their order, where things have masks.
    """

    labels: LabelTable
    paths: Texts
    marks: Marks = field(default_factory=Marks.none)
    observed: Labels | None = None
    real: Labels | None = None
    masks: Masks | None = None

    def take(self, rows: Indices) -> "Split":
        """The split of some rows, in the order given."""
        return Split(
            self.labels.take(rows),
            self.paths[rows],
            self.marks.take(rows),
            None if self.observed is None else self.observed[rows],
            None if self.real is None else self.real[rows],
            None if self.masks is None else self.masks.take(self.marks.of_rows(rows)[0]),
        )


@dataclass(frozen=True, eq=False)
class Source:
    """The data as read: splits by name ("train", and "val" or "test" where the data has them)."""

    name: str
    root: Path
    splits: dict[str, Split]
