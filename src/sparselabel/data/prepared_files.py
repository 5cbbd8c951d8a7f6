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

from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from sparselabel.checksums import damaged, json_checksum, require_checksum
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.image_shards import LARGEST
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import POSITIVE, LabelMatrix, Labels, SparseLabels
from sparselabel.data.masks import Masks
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.stored_images import STORED_COLUMNS, WHOLE, StoredImages
from sparselabel.errors import DataError, command, shown
from sparselabel.file_formats import of_kind, read_array, read_json, refuse_outside
from sparselabel.schema import Count

FORMAT, COMPRESSED, WITHOUT_CHECKSUMS = 2, 3, 1
"""Formats of dataset.json: 3 is 2 with labels in compressed rows; in 1 no checksum is compared."""
PREPARE_AGAIN = "prepare the data again"
SPATIAL_LABEL_COLUMNS = ("rows", "classes", "centers", "sizes")
MASK_COLUMNS = ("texts", "offsets", "sizes")
SPARSE_PARTS = ("starts", "columns", "known")
CHECKED_AT_ONCE = 1 << 20  # bytes of an array that is checked when data is opened; others when they are used

Seen = Literal["all", "none", "own"]
"""Which spatial labels training may see: all, none, or those in files of their own."""


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
