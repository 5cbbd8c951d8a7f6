"""Prepared data: a folder of memory-mapped arrays that opens at once, whatever its size.

    DIR/dataset.json      name, root of the images, classes, splits (sizes, digests), how it was made
    DIR/<split>/ids.npy   paths.npy  truth.npy  observed.npy  digests.npy
               /truth_starts.npy  truth_columns.npy  truth_known.npy  where few labels are known: compressed
               rows (``SparseLabels``) instead of truth.npy, and the same for observed
               /mark_rows.npy  mark_classes.npy  mark_centers.npy  mark_sizes.npy
               /seen_rows.npy, …  those that training may see, where these are neither all nor none
               /mask_texts.npy  mask_offsets.npy  mask_sizes.npy  masks of the objects, where there are some
               /real.npy      ImageNet's reassessed labels, where the data has them
               /stored_files.npy, …  where images are that are in shards or at an address

``truth`` are all known labels, ``observed`` those that training may see (``split_writer.py`` writes both).
Likewise ``mark_*.npy`` are all known spatial labels, ``seen_*.npy`` those that training may see.
"""

import hashlib
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from sparselabel.checksums import damaged, json_checksum, require_checksum
from sparselabel.data.decode import load
from sparselabel.data.image_shards import LARGEST
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import (
    POSITIVE,
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
from sparselabel.data.stored_images import STORED_COLUMNS, WHOLE, StoredImages
from sparselabel.errors import DataError, RunError, command, counted, listing, param, shown
from sparselabel.file_formats import of_kind, read_array, read_json, refuse_outside
from sparselabel.files import TemporaryFolder
from sparselabel.schema import Count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from PIL import Image

    from sparselabel.data.answers import Answer
    from sparselabel.data.from_objects import Unlisted
    from sparselabel.data.image_source import ImageSource

FORMAT, COMPRESSED, WITHOUT_CHECKSUMS = 2, 3, 1
"""Formats of dataset.json: 3 is 2 with labels in compressed rows; in 1 no checksum is compared."""
PREPARE_AGAIN = "prepare the data again"
SPATIAL_LABEL_COLUMNS = ("rows", "classes", "centers", "sizes")
MASK_COLUMNS = ("texts", "offsets", "sizes")
SPARSE_PARTS = ("starts", "columns", "known")
CHECKED_AT_ONCE = 1 << 20  # bytes of an array that is checked when data is opened; others when they are used

Seen = Literal["all", "none", "own"]
"""Which spatial labels training may see: all, none, or those in files of their own."""


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
            digests = {name: split.digest for name, split in open_prepared(folder).splits.items()}
            if digests != {name: split.digest for name, split in self.splits.items()} and not force:
                raise RunError(
                    f"{folder} has other data already",
                    f"choose another {param('out')}",
                    f"replace it ({param('force', True)})",
                    what=folder,
                )
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("features"), dirs_exist_ok=True)
        opened = open_prepared(folder)
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


class SplitFile(TypedDict):
    """A split in dataset.json."""

    images: Count
    digest: str
    seen: Seen
    real: NotRequired[bool]
    masks: NotRequired[bool]
    sparse: NotRequired[list[str]]
    in_memory: NotRequired[bool]
    stored: NotRequired[bool]
    checksums: dict[str, int]


class DatasetFile(TypedDict):
    """dataset.json."""

    format: Count
    name: str
    root: str
    classes: list[str]
    splits: dict[str, SplitFile]


SPATIAL_LAYOUTS = {"classes": "i", "centers": "f2", "sizes": "f2"}


def open_prepared(folder: Path) -> Dataset:
    """Open what ``sparselabel prepare`` wrote, without reading the arrays."""
    index = folder / "dataset.json"
    if not index.is_file():
        why = "it has no dataset.json" if folder.exists() else "there is no such folder"
        raise DataError(
            f"{folder} is not prepared data ({why})",
            f"make it with {command('prepare', 'READER', 'SOURCE', out='DIR')}",
        )
    content = read_json(index, object, PREPARE_AGAIN, error=DataError)
    if not isinstance(content, dict) or "format" not in content:
        raise DataError(f"{index} does not describe prepared data", PREPARE_AGAIN, what=index)
    if content["format"] not in (
        FORMAT,
        COMPRESSED,
        WITHOUT_CHECKSUMS,
    ):
        problem = f"{index} has format {shown(content['format'])}, this program reads format {COMPRESSED}"
        raise DataError(problem, PREPARE_AGAIN, what=index)
    if content["format"] != WITHOUT_CHECKSUMS and content.get("checksum") != json_checksum(content):
        raise damaged(index, PREPARE_AGAIN, kind=DataError)
    made = of_kind(content, DatasetFile, index, PREPARE_AGAIN, error=DataError)
    classes = tuple(made["classes"])
    root = Path(made["root"])
    root = root if root.is_absolute() else folder / root
    splits = {
        name: _open_split(folder / name, root, classes, about) for name, about in made["splits"].items()
    }
    return Dataset(folder, made["name"], classes, splits, {**made})


def _open_split(folder: Path, root: Path, classes: tuple[str, ...], about: "SplitFile") -> PreparedSplit:
    def array(name: str, layout: str) -> Any:
        file = folder / f"{name}.npy"
        mapped = read_array(file, layout, PREPARE_AGAIN, mapped=True)
        if file.stat().st_size <= CHECKED_AT_ONCE and name in checksums:
            require_checksum(file, checksums[name], PREPARE_AGAIN, kind=DataError)
        return mapped

    def spatial_labels(kind: str) -> SpatialLabels:
        rows = array(f"{kind}_rows", "i M")
        columns = {
            name: array(f"{kind}_{name}", f"{layout[0]} {len(rows)} {layout[1:]}")
            for name, layout in SPATIAL_LAYOUTS.items()
        }
        return SpatialLabels(rows, **columns, check=False)

    def masks(count: int) -> Masks:
        texts, offsets = array("mask_texts", "u T"), array("mask_offsets", f"i {count + 1}")
        return Masks(texts, offsets, array("mask_sizes", f"i {count} 2"))

    def labels(name: str) -> LabelMatrix:
        if name not in about.get("sparse", []):
            mapped: Labels = array(name, full)
            return mapped
        starts = array(f"{name}_starts", f"i {count + 1}")
        columns = array(f"{name}_columns", "i K")
        known = array(f"{name}_known", f"i {len(columns)}")
        if starts[0] != 0 or starts[-1] != len(columns) or (starts[1:] < starts[:-1]).any():
            raise damaged(folder / f"{name}_starts.npy", PREPARE_AGAIN, kind=DataError)
        if columns.nbytes <= CHECKED_AT_ONCE:
            inside(f"{name}_columns", columns, len(classes))
            inside(f"{name}_known", known, POSITIVE + 1)
        return SparseLabels(starts, columns, known, len(classes))

    def inside(name: str, indices: Any, number: int) -> None:
        file = folder / f"{name}.npy"
        refuse_outside(file, {name: indices}, {name: number}, PREPARE_AGAIN, error=DataError)

    def stored() -> StoredImages:
        files = tuple(array("stored_files", "U F").tolist())
        columns = tuple(array("stored_tables", f"U {len(files)}").tolist())
        numbers, offsets, sizes = (array(f"stored_{name}", f"i {count}") for name in STORED_COLUMNS)
        inside("stored_numbers", numbers, len(files))
        inside("stored_offsets", offsets - WHOLE, 2**63 - 1)
        inside("stored_sizes", sizes, LARGEST + 1)
        return StoredImages(root, files, columns, array("paths", f"U {count}"), numbers, offsets, sizes)

    checksums = about["checksums"]
    count, full = about["images"], f"i {about['images']} {len(classes)}"
    ids = array("ids", f"U {count}")
    truth, observed = labels("truth"), labels("observed")
    everything = spatial_labels("mark")
    seen = everything if about["seen"] == "all" else SpatialLabels.none()
    if about["seen"] == "own":
        seen = spatial_labels("seen")
    return PreparedSplit(
        name=folder.name,
        root=root,
        paths=array("paths", f"U {count}"),
        truth=LabelTable(ids, classes, truth, check=False),
        observed=LabelTable(ids, classes, observed, check=False),
        spatial_labels=everything,
        digests=array("digests", f"u {count}"),
        digest=about["digest"],
        real=array("real", full) if about.get("real") else None,
        seen=seen,
        masks=masks(len(everything)) if about.get("masks") else None,
        in_memory=bool(about.get("in_memory")),
        stored=stored() if about.get("stored") else None,
    )


def require_as_written(data: Dataset, *splits: str) -> None:
    """Raise if an array of some splits, or of all, is not what was written; each is read once a process."""
    for name in splits or data.splits:
        for array, checksum in data.made["splits"][name]["checksums"].items():
            file = data.folder / name / f"{array}.npy"
            if not file.exists():  # it was moved since it was opened
                continue
            stat = file.stat()
            if (state := (file, stat.st_mtime_ns, stat.st_size)) not in _as_written:
                require_checksum(file, checksum, PREPARE_AGAIN, kind=DataError)
                _as_written.add(state)


_as_written: set[tuple[Path, int, int]] = set()


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
