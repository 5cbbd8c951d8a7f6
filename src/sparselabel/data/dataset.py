"""Prepared data: a folder of memory-mapped arrays that opens at once, whatever its size.

    DIR/dataset.json      name, root of the images, classes, splits (sizes, digests), how it was made
    DIR/<split>/ids.npy   paths.npy  truth.npy  observed.npy  digests.npy
               /mark_rows.npy  mark_classes.npy  mark_centers.npy  mark_sizes.npy
               /seen_rows.npy, …  those that training may see, where these are neither all nor none
               /mask_texts.npy  mask_offsets.npy  mask_sizes.npy  masks of the objects, where there are some
               /real.npy      ImageNet's reassessed labels, where the data has them

``truth`` is all that is known, ``observed`` what training may see of it (``split_writer.py`` writes both).
Likewise ``mark_*.npy`` are all spatial labels that are known, ``seen_*.npy`` those that training may see.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import UNKNOWN, Labels, LabelTable, Texts
from sparselabel.data.masks import Masks
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import DataError, command, listing, numpy_said, param

if TYPE_CHECKING:
    from sparselabel.data.answers import Answer

FORMAT = 1
PREPARE_AGAIN = "prepare the data again"
SPATIAL_LABEL_COLUMNS = ("rows", "classes", "centers", "sizes")
MASK_COLUMNS = ("texts", "offsets", "sizes")
BLOCK = 1 << 22  # labels compared at a time

Seen = Literal["all", "none", "own"]
"""Which spatial labels training may see: all, none, or those in files of their own."""


@dataclass(frozen=True, eq=False)
class PreparedSplit:
    """One split: N images with all that is known of their labels, and what training may see of it.

    ``spatial_labels`` are all points and boxes, for evaluation and simulation; ``seen`` are those that
    training may see. ``masks`` are those of all spatial labels, in their order. ``digest`` identifies the
    split's images, labels and spatial labels, but not masks: no training sees them, and a run on data that
    was prepared before there were masks may be evaluated by them. ``digests`` (N,) are of the images' files.
    ``real`` (N, L) are ImageNet's reassessed labels; the row of an image without them is UNKNOWN.
    """

    name: str
    root: Path
    paths: Texts
    truth: LabelTable
    observed: LabelTable
    spatial_labels: SpatialLabels
    digests: npt.NDArray[np.uint64]
    digest: str
    real: Labels | None = None
    seen: SpatialLabels = field(default_factory=SpatialLabels.none)
    masks: Masks | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, row: int) -> Path:
        """Where a row's image is."""
        return self.root / str(self.paths[row])


@dataclass(frozen=True, eq=False)
class Prepared:
    """Prepared data, opened: its splits by name, always with "train".

    ``answers`` are those of reviewers that were laid over what training observes (``answers.py``);
    ``unanswered`` is what it observed before. ``label_seed`` is that of observed labels that were drawn anew
    (``redraw_labels.py``).
    """

    folder: Path
    name: str
    classes: tuple[str, ...]
    splits: dict[str, PreparedSplit]
    made: dict[str, Any] = field(default_factory=dict)
    answers: "tuple[Answer, ...]" = ()
    unanswered: LabelTable | None = None
    label_seed: int | None = None

    @property
    def annotations(self) -> LabelTable:
        """The observed labels of training, without reviewers' answers to chosen questions."""
        return self.train.observed if self.unanswered is None else self.unanswered

    @property
    def train(self) -> PreparedSplit:
        """The split that is trained on."""
        return self.splits["train"]

    def split(self, name: str) -> PreparedSplit:
        """A split by name."""
        if name not in self.splits:
            raise DataError(
                f"{self.folder} has no split {name!r}, only {listing(self.splits)}",
                f"name one of them with {param('split')}",
            )
        return self.splits[name]


def open_prepared(folder: Path) -> Prepared:
    """Open what ``sparselabel prepare`` wrote, without reading the arrays."""
    index = folder / "dataset.json"
    if not index.is_file():
        why = "it has no dataset.json" if folder.exists() else "there is no such folder"
        raise DataError(
            f"{folder} is not prepared data ({why})",
            f"make it with {command('prepare', 'READER', 'SOURCE', out='DIR')}",
        )
    try:
        made = json.loads(index.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{index} cannot be read ({error})", PREPARE_AGAIN, what=index) from error
    if not isinstance(made, dict) or "format" not in made:
        raise DataError(f"{index} does not describe prepared data", PREPARE_AGAIN, what=index)
    if made["format"] != FORMAT:
        raise DataError(
            f"{index} has format {made['format']}, this program reads format {FORMAT}", PREPARE_AGAIN
        )
    classes = tuple(made["classes"])
    root = Path(made["root"])
    root = root if root.is_absolute() else folder / root
    splits = {
        name: _open_split(folder / name, root, classes, about) for name, about in made["splits"].items()
    }
    return Prepared(folder, made["name"], classes, splits, made)


def _open_split(folder: Path, root: Path, classes: tuple[str, ...], about: dict[str, Any]) -> PreparedSplit:
    def array(name: str, *shape: int) -> Any:
        file = folder / f"{name}.npy"
        try:  # copy on write: torch wants arrays it could write to, and the file stays as it is
            loaded = np.load(file, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{file} cannot be read ({numpy_said(error)})", PREPARE_AGAIN) from error
        if shape and loaded.shape != shape:  # a file of other data; its values are not checked here
            raise DataError(f"{file} has shape {loaded.shape}, not {shape}", PREPARE_AGAIN)
        return loaded

    def spatial_labels(kind: str) -> SpatialLabels:
        return SpatialLabels(
            **{column: array(f"{kind}_{column}") for column in SPATIAL_LABEL_COLUMNS}, check=False
        )

    count = about["images"]
    ids = array("ids", count)
    truth, observed = array("truth", count, len(classes)), array("observed", count, len(classes))
    everything = spatial_labels("mark")
    which: Seen | None = about.get("seen")
    if which is None:  # data of an older version
        which = "none" if len(everything) and hides_labels(truth, observed) else "all"
    seen = everything if which == "all" else SpatialLabels.none()
    if which == "own":
        seen = spatial_labels("seen")
    return PreparedSplit(
        name=folder.name,
        root=root,
        paths=array("paths", count),
        truth=LabelTable(ids, classes, truth, check=False),
        observed=LabelTable(ids, classes, observed, check=False),
        spatial_labels=everything,
        digests=array("digests", count),
        digest=about["digest"],
        real=array("real", count, len(classes)) if about.get("real") else None,
        seen=seen,
        masks=Masks(**{column: array(f"mask_{column}") for column in MASK_COLUMNS})
        if about.get("masks")
        else None,
    )


def hides_labels(truth: Labels, observed: Labels) -> bool:
    """Whether a label is known that training may not see."""
    step = max(1, BLOCK // max(truth.shape[1], 1))
    blocks = (slice(start, start + step) for start in range(0, len(truth), step))
    return any(bool(((observed[rows] == UNKNOWN) & (truth[rows] != UNKNOWN)).any()) for rows in blocks)


def evaluation_labels(split: PreparedSplit) -> LabelTable:
    """The labels that scores are compared with: all that is known of training, what other splits may see."""
    return split.truth if split.name == "train" else split.observed
