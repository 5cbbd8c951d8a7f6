"""``Dataset`` and its splits: images, their labels, and the spatial labels that training may see."""

import hashlib
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.decode import load
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import (
    UNKNOWN,
    LabelMatrix,
    Labels,
    SparseLabels,
    Texts,
    known_entries,
    row_blocks,
)
from sparselabel.data.masks import Masks
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.stored_images import StoredImages
from sparselabel.errors import DataError, RunError, counted, listing, param
from sparselabel.files import TemporaryFolder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from PIL import Image

    from sparselabel.data.answers import Answer
    from sparselabel.data.from_objects import Unlisted
    from sparselabel.data.image_source import ImageSource


@dataclass(frozen=True, eq=False)
class PreparedSplit:
    """One split: N images with all known labels, and those that training may see.

    ``spatial_labels`` are all points and boxes, for evaluation and simulation; ``seen`` are those that
    training may see. ``masks`` are those of all spatial labels, in their order. ``digest`` identifies the
    split's images, labels and spatial labels, but not masks, which training never sees. ``digests`` (N,) are
    of the images' files. ``real`` (N, L) are ImageNet's reassessed labels; the row of an image without them
    is UNKNOWN. ``images`` are those of data ``in_memory``, without files. ``stored`` are the locations of
    images in shards or at an address.
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
    images: "ImageSource | None" = None
    in_memory: bool = False
    stored: StoredImages | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"PreparedSplit({self.name!r}: {counted(len(self), 'image')})"

    def take(self, rows: npt.NDArray[np.int64]) -> "PreparedSplit":
        """Some images of the split, in the order given."""
        digest = hashlib.blake2b(self.digest.encode(), digest_size=16)
        digest.update(np.asarray(rows, dtype="<i8").tobytes())
        return replace(
            self,
            paths=self.paths[rows],
            truth=self.truth.take(rows),
            observed=self.observed.take(rows),
            spatial_labels=self.spatial_labels.take(rows),
            seen=self.seen.take(rows),
            digests=self.digests[rows],
            digest=digest.hexdigest(),
            real=None if self.real is None else self.real[rows],
            masks=None if self.masks is None else self.masks.take(self.spatial_labels.of_rows(rows)[0]),
            images=None if self.images is None else self.images.take(rows),
        )

    def image(self, row: int, at_least: int | None = None, check: bool = True) -> "Image.Image":
        """A row's image, upright and in RGB; a file may be decoded small, as ``decode.load`` says.

        ``check``: raise if the file has changed since it was prepared.
        """
        if self.images is not None:
            return self.images[row]
        if self.in_memory:
            raise DataError(
                f"the images of split {self.name!r} were in memory and are gone",
                "give the data again: Run.open(folder, data=dataset)",
                what="data",
            )
        digest = int(self.digests[row]) if check else None
        content = None if self.stored is None else self.content(row)
        return load(self.place(row), at_least, digest, content)

    def without_labels(self) -> "PreparedSplit":
        """Its images alone: all that a loader process needs."""
        none = LabelTable(self.truth.ids[:0], (), np.zeros((0, 0), np.int8), check=False)
        no_spatial_labels = SpatialLabels.none()
        return replace(
            self,
            truth=none,
            observed=none,
            spatial_labels=no_spatial_labels,
            seen=no_spatial_labels,
            real=None,
            masks=None,
        )

    def path(self, row: int) -> Path:
        """The path of a row's image; an image in a shard has none."""
        return self.root / str(self.paths[row])

    def place(self, row: int) -> Path | str:
        """Where a row's image is: its file, its address, or its name in a shard."""
        return self.path(row) if self.stored is None else self.stored.place(row)

    def content(self, row: int) -> bytes:
        """The bytes of a row's image."""
        if self.stored is None:
            return self.path(row).read_bytes()
        return self.stored.content(row, int(self.digests[row]))


@dataclass(frozen=True, eq=False)
class Dataset:
    """Prepared data, opened: its splits by name, always with "train".

    ``answers`` are reviewers' answers in the observed labels (``answers.py``); ``unanswered`` are the labels
    without them. ``label_seed`` and ``annotation`` are those of redrawn labels (``redraw_labels.py``). Data
    without a given folder is in a ``temporary`` one, which is deleted with the last object that refers to it.
    """

    folder: Path
    name: str
    classes: tuple[str, ...]
    splits: dict[str, PreparedSplit]
    made: dict[str, Any] = field(default_factory=dict)
    answers: "tuple[Answer, ...]" = ()
    unanswered: LabelTable | None = None
    label_seed: int | None = None
    annotation: str = ""
    temporary: TemporaryFolder | None = None

    def __repr__(self) -> str:
        named = self.name if self.temporary else str(self.folder)
        sizes = ", ".join(f"{counted(len(split), 'image')} in {name}" for name, split in self.splits.items())
        return f"Dataset({named!r}: {counted(len(self.classes), 'class')}; {sizes})"

    @property
    def features_folder(self) -> Path:
        """The folder of stored features of its images."""
        return (self.temporary.path if self.temporary else self.folder) / "features"

    @property
    def annotations(self) -> LabelTable:
        """The observed labels of training, without reviewers' answers to chosen questions."""
        return self.train.observed if self.unanswered is None else self.unanswered

    @property
    def train(self) -> PreparedSplit:
        """The training split."""
        return self.splits["train"]

    @staticmethod
    def open(folder: str | Path) -> "Dataset":
        """Open prepared data in a folder, as ``sparselabel prepare`` writes it."""
        from sparselabel.data.prepared_files import open_prepared

        return open_prepared(Path(folder))

    @staticmethod
    def from_table(labels: str | Path, images: str | Path | None = None, **options: Any) -> "Dataset":
        """Read a CSV, TSV, XLSX or Parquet table of labels, and the folder of its images.

        As all ``from_`` methods of files it takes ``out`` (the folder to keep the prepared form in; default:
        a temporary one), the options of ``sparselabel prepare table``, and those of every reader, such as
        ``validation=0.2`` and ``sparsify="single-positive"``.
        """
        return _prepare_files("table", labels, images=images, **options)

    @staticmethod
    def from_folder(images: str | Path, **options: Any) -> "Dataset":
        """Read a folder with a folder of images for each class; see ``from_table`` for the options."""
        return _prepare_files("folder", images, **options)

    @staticmethod
    def from_coco(source: str | Path, **options: Any) -> "Dataset":
        """Read COCO's folder, or a JSON file in its format."""
        return _prepare_files("coco", source, **options)

    @staticmethod
    def from_voc(source: str | Path, **options: Any) -> "Dataset":
        """Read Pascal VOC's folder."""
        return _prepare_files("voc", source, **options)

    @staticmethod
    def from_files(reader: str, source: str | Path, **options: Any) -> "Dataset":
        """Read files of any format that ``sparselabel prepare`` knows, such as "cvat" or "label-studio"."""
        return _prepare_files(reader, source, **options)

    @staticmethod
    def from_arrays(
        images: Any,
        labels: Any,
        *,
        classes: "Sequence[str] | None" = None,
        val: tuple[Any, Any] | None = None,
        test: tuple[Any, Any] | None = None,
        spatial_labels: SpatialLabels | None = None,
        **options: Any,
    ) -> "Dataset":
        """Images in memory and their labels (N, L).

        Parameters
        ----------
        images
            N arrays, tensors or PIL images: an array (N, H, W, 3), a list, or anything with ``len`` that
            gives an image for an index. They are not copied.
        labels
            1, 0, and -1 or NaN for unknown: an array, a tensor, a DataFrame or a sparse matrix.
        classes
            Their names; default: the columns of a DataFrame, or numbers.
        val, test
            Images and labels of other splits; without ``val`` a share is held out (``validation=0.2``).
        spatial_labels
            Points and boxes of the training images.
        options
            Of the preparation, such as ``sparsify="single-positive"``.
        """
        from sparselabel.data.from_objects import read_arrays
        from sparselabel.data.prepare import prepare_objects

        splits = _given_splits((images, labels), val, test)
        return prepare_objects(lambda root: read_arrays(splits, root, classes, spatial_labels), **options)

    @staticmethod
    def from_torch(
        dataset: Any,
        labels: Any = None,
        *,
        classes: "Sequence[str] | None" = None,
        val: Any = None,
        test: Any = None,
        **options: Any,
    ) -> "Dataset":
        """A map-style torch dataset of items (image, label), with PIL images, arrays or tensors.

        A label is the index or name of a present class, or a list of these, and other labels are unknown; or
        a vector of 1, 0 and -1. ``labels`` (N, L) replace those of the items. Leave transforms out: images
        become views here. ``val`` and ``test`` are datasets too; for other arguments see ``from_arrays``.
        """
        from sparselabel.data.from_objects import read_torch
        from sparselabel.data.prepare import prepare_objects

        splits, given = _given_splits(dataset, val, test), {} if labels is None else {"train": labels}
        return prepare_objects(lambda root: read_torch(splits, root, classes, given), **options)

    @staticmethod
    def from_huggingface(
        dataset: Any,
        *,
        image: str = "image",
        label: str = "label",
        classes: "Sequence[str] | None" = None,
        unlisted: "Unlisted | Mapping[str, Unlisted]" = "unknown",
        **options: Any,
    ) -> "Dataset":
        """A dataset of the Hugging Face library, or any other of dictionaries; or its splits by name.

        Parameters
        ----------
        dataset
            With columns of images and labels; splits are train, validation (or val) and test.
        image, label
            Names of the columns. A label is an index or a name, a list of these, or a vector of 1, 0, -1.
        classes
            Names of the classes; default: those of the label's feature.
        unlisted
            What a class is that a list of labels does not name: "unknown", or "negative" if lists are
            complete; or a dictionary by split, as ``{"test": "negative"}``.
        options
            Of the preparation, such as ``validation=0.2``.
        """
        from sparselabel.data.from_objects import read_huggingface
        from sparselabel.data.prepare import prepare_objects

        return prepare_objects(
            lambda root: read_huggingface(dataset, root, image, label, classes, unlisted), **options
        )

    def keep(self, folder: Path, force: bool = False) -> "Dataset":
        """The same data, saved in a permanent folder; images in memory stay in memory."""
        if folder.resolve() == self.folder.resolve():
            return self
        if (folder / "dataset.json").exists():
            digests = {name: split.digest for name, split in Dataset.open(folder).splits.items()}
            if digests != {name: split.digest for name, split in self.splits.items()} and not force:
                raise RunError(
                    f"{folder} has other data already",
                    f"choose another {param('out')}",
                    f"replace it ({param('force', True)})",
                    what=folder,
                )
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("features"), dirs_exist_ok=True)
        opened = Dataset.open(folder)
        splits = {
            name: replace(split, images=self.splits[name].images) for name, split in opened.splits.items()
        }
        return replace(opened, splits=splits, temporary=self.temporary)

    def split(self, name: str) -> PreparedSplit:
        """A split by name."""
        if name not in self.splits:
            raise DataError(
                f"{self.folder} has no split {name!r}, only {listing(self.splits)}",
                f"name one of them with {param('split')}",
            )
        return self.splits[name]


def _prepare_files(reader: str, source: str | Path, **options: Any) -> Dataset:
    from sparselabel.data.prepare import prepare_files

    return prepare_files(
        reader, source, **{key: value for key, value in options.items() if value is not None}
    )


def _given_splits(train: Any, val: Any, test: Any) -> dict[str, Any]:
    splits = {"train": train, "val": val, "test": test}
    return {name: given for name, given in splits.items() if given is not None}


def hides_labels(truth: LabelMatrix, observed: LabelMatrix) -> bool:
    """Whether training may not see some of the known labels."""
    if isinstance(truth, SparseLabels) or isinstance(observed, SparseLabels):
        return truth is not observed and any(
            bool((observed[rows, classes] == UNKNOWN).any()) for rows, classes, _ in known_entries(truth)
        )
    blocks = row_blocks(*truth.shape)
    return any(bool(((observed[rows] == UNKNOWN) & (truth[rows] != UNKNOWN)).any()) for rows in blocks)


def evaluation_labels(split: PreparedSplit) -> LabelTable:
    """The labels for evaluation: all known ones of training, the observed ones of other splits."""
    return split.truth if split.name == "train" else split.observed
