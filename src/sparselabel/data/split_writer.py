"""Write the splits of prepared data; existing files are not overwritten."""

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.checksums import file_checksum, json_checksum
from sparselabel.config import Preparation
from sparselabel.data.dataset import hides_labels
from sparselabel.data.labels import NEGATIVE, POSITIVE, Indices, LabelMatrix, SparseLabels, take_rows
from sparselabel.data.prepared_files import (
    COMPRESSED,
    FORMAT,
    MASK_COLUMNS,
    SPARSE_PARTS,
    SPATIAL_LABEL_COLUMNS,
    Seen,
)
from sparselabel.data.readers.raw_dataset import RawDataset, RawSplit
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.stored_images import STORED_COLUMNS
from sparselabel.errors import DataError, RunError, counted, listing, param
from sparselabel.files import named, require_folder_to_write
from sparselabel.locks import LOCK

PARTIAL = ".partial"
"""Subfolder in which data is written before it is moved to its place."""


OTHER_OR_REPLACE = (f"choose another {param('out')}", f"replace it with {param('force', True)}")


def refuse_taken(out: Path, force: bool) -> None:
    """Raise if a folder cannot be written, or holds something and ``force`` is not given."""
    require_folder_to_write(out)
    if (out / "dataset.json").exists() and not force:
        raise RunError(f"{out} holds prepared data already", *OTHER_OR_REPLACE, what=out)
    # A source may have made its images there itself (scenes).
    if _entries(out) and not force and not (out / "scenes.json").exists():
        raise RunError(f"{out} exists and is not empty", *OTHER_OR_REPLACE, what=out)


def refuse_in_the_way(source: RawDataset, out: Path, how: Preparation) -> None:
    """Raise if something that is not prepared data has the name of a split."""
    needed = {*source.splits} | ({"val"} if how.validation > 0 else set())
    in_the_way = sorted((needed & _entries(out)).difference(old_splits(out)))
    if in_the_way:
        raise RunError(
            f"{out} has {listing(in_the_way)}, which is not prepared data and is never overwritten",
            f"choose another {param('out')}",
        )


def _entries(out: Path) -> set[str]:
    return {entry.name for entry in out.iterdir()} - {PARTIAL, LOCK} if out.exists() else set()


def old_splits(out: Path) -> list[str]:
    """The splits of data prepared before, also when its index is lost or damaged."""
    return sorted({file.parent.name for file in out.glob("*/observed*.npy")})


@dataclass(frozen=True, eq=False)
class ObservedSplit:
    """A split as read, with the labels and spatial labels that training may see."""

    split: RawSplit
    observed: LabelMatrix
    digests: npt.NDArray[np.uint64]
    seen: SpatialLabels

    def take(self, rows: Indices) -> "ObservedSplit":
        """The split of some rows, in the order given."""
        split = self.split.take(rows)
        seen = split.spatial_labels if self.seen is self.split.spatial_labels else self.seen.take(rows)
        same = self.observed is self.split.labels.matrix
        observed = split.labels.matrix if same else take_rows(self.observed, rows)
        return ObservedSplit(split, observed, self.digests[rows], seen)


def seen_spatial_labels(
    truth: LabelMatrix, observed: LabelMatrix, spatial_labels: SpatialLabels
) -> SpatialLabels:
    """The spatial labels of observed positives; none where labels are hidden, which hides these too."""
    if hides_labels(truth, observed):
        return SpatialLabels.none()
    positive = observed[spatial_labels.rows, spatial_labels.classes] == POSITIVE
    return spatial_labels if positive.all() else spatial_labels.only(positive)


def refuse_absent(source: RawDataset) -> None:
    """Raise if a point or box is of a class that its image's labels say is absent."""
    for name, split in source.splits.items():
        spatial_labels, labels = split.spatial_labels, split.labels
        wrong = labels.matrix[spatial_labels.rows, spatial_labels.classes] == NEGATIVE
        if wrong.any():
            first = int(np.argmax(wrong))
            row, index = int(spatial_labels.rows[first]), int(spatial_labels.classes[first])
            kind = "point" if spatial_labels.is_point[first] else "box"
            center = ", ".join(f"{number:.4g}" for number in spatial_labels.centers[first])
            raise DataError(
                f"{source.name}, split {name!r}: a {kind} at {center} of {labels.classes[index]!r} on image "
                f"{labels.ids[row]} (row {row}), where that class is marked absent, and "
                f"{counted(int(wrong.sum()) - 1, 'more such')}",
                "remove it",
                "mark the class present",
            )


def write_splits(
    source: RawDataset, splits: dict[str, ObservedSplit], out: Path, how: Preparation, more: dict[str, Any]
) -> None:
    """Write to a subfolder and rename at the end, the index last: data that can be opened is complete.

    ``more`` are further entries of the index.
    """
    work = out / PARTIAL
    new, old = work / "new", work / "old"
    shutil.rmtree(work, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        _write_data(source, splits, new, out, how, more)
    except BaseException:  # half of the data is of no use, and may be what filled the disk
        shutil.rmtree(work, ignore_errors=True)
        raise
    old.mkdir()
    index = ["dataset.json"] if (out / "dataset.json").exists() else []
    for name in [*index, *old_splits(out)]:
        (out / name).rename(old / name)
    for name in [*splits, "dataset.json"]:
        (new / name).rename(out / name)
    shutil.rmtree(work)


def _write_data(
    source: RawDataset,
    splits: dict[str, ObservedSplit],
    new: Path,
    out: Path,
    how: Preparation,
    more: dict[str, Any],
) -> None:
    about: dict[str, dict[str, object]] = {}
    for name, observed in splits.items():
        digest, checksums = _write_split(new / name, observed)
        about[name] = {"images": len(observed.split.labels), "digest": digest, "checksums": checksums}
        about[name] |= {key: True for key in ("real", "masks") if getattr(observed.split, key) is not None}
        about[name]["seen"] = _which_seen(observed)
        if sparse := [key for key, labels in _labels(observed).items() if isinstance(labels, SparseLabels)]:
            about[name]["sparse"] = sparse
        if observed.split.images is not None:
            about[name]["in_memory"] = True
        if observed.split.stored is not None:
            about[name]["stored"] = True
    inside = source.root.resolve().is_relative_to(out.resolve())
    index = {
        "format": COMPRESSED if any("sparse" in split for split in about.values()) else FORMAT,
        "name": source.name,
        # Images that were made inside the folder move with it.
        "root": str(source.root.resolve().relative_to(out.resolve()) if inside else source.root.resolve()),
        "classes": list(splits["train"].split.labels.classes),
        "splits": about,
        "preparation": asdict(how),
    }
    index |= more
    with named(new / "dataset.json"):
        text = json.dumps(index | {"checksum": json_checksum(index)}, indent=1)
        (new / "dataset.json").write_text(text)


def _write_split(folder: Path, observed: ObservedSplit) -> tuple[str, dict[str, int]]:
    """Write a split's arrays; returns its digest, and the checksum of each file."""
    folder.mkdir()
    table = observed.split.labels
    if observed.observed is not table.matrix:
        table = table.with_values(observed.observed)  # and checked
    arrays: dict[str, npt.NDArray[Any]] = {"ids": table.ids, "paths": observed.split.paths}
    for name, labels in _labels(observed).items():
        arrays |= _arrays_of(name, labels)
    arrays["digests"] = observed.digests
    arrays |= {
        f"mark_{column}": getattr(observed.split.spatial_labels, column) for column in SPATIAL_LABEL_COLUMNS
    }
    if observed.split.real is not None:
        arrays["real"] = observed.split.real
    which = _which_seen(observed)
    if which == "own":
        arrays |= {f"seen_{column}": getattr(observed.seen, column) for column in SPATIAL_LABEL_COLUMNS}
    digest = hashlib.blake2b(json.dumps(table.classes).encode(), digest_size=16)
    if which not in ("own", _seen_by_labels(observed)):
        digest.update(f"seen {which}".encode())
    for name, array in arrays.items():
        _save(folder / f"{name}.npy", array)
        if name != "paths":  # moving the images does not change the data
            digest.update(name.encode() + str(array.dtype).encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)  # without a copy
    if observed.split.masks is not None:
        for column in MASK_COLUMNS:
            _save(folder / f"mask_{column}.npy", getattr(observed.split.masks, column))
    if (stored := observed.split.stored) is not None:  # as paths, it is no part of what identifies a split
        _save(folder / "stored_files.npy", np.asarray(stored.files, np.str_))
        _save(folder / "stored_tables.npy", np.asarray(stored.columns, np.str_))
        for column in STORED_COLUMNS:
            _save(folder / f"stored_{column}.npy", getattr(stored, column))
    return digest.hexdigest(), {file.stem: file_checksum(file) for file in sorted(folder.iterdir())}


def _arrays_of(name: str, labels: LabelMatrix) -> dict[str, npt.NDArray[Any]]:
    """The files of a table's labels."""
    if isinstance(labels, SparseLabels):
        return {f"{name}_{part}": getattr(labels, part) for part in SPARSE_PARTS}
    return {name: labels}


def _labels(observed: ObservedSplit) -> dict[str, LabelMatrix]:
    return {"truth": observed.split.labels.matrix, "observed": observed.observed}


def _save(file: Path, array: npt.NDArray[Any]) -> None:
    with named(file):
        np.save(file, array, allow_pickle=False)


def _which_seen(observed: ObservedSplit) -> Seen:
    """Which spatial labels training may see; "own" ones are written to files of their own."""
    if observed.seen is observed.split.spatial_labels:
        return "all"
    return "own" if len(observed.seen) else "none"


def _seen_by_labels(observed: ObservedSplit) -> Seen:
    """Which ones training may see by default: a digest names nothing else."""
    if not len(observed.split.spatial_labels):
        return _which_seen(observed)
    return "none" if hides_labels(observed.split.labels.matrix, observed.observed) else "all"
