"""The splits of prepared data on their way to the disk."""

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.config import Preparation
from sparselabel.data.dataset import FORMAT, MASK_COLUMNS, SPATIAL_LABEL_COLUMNS, Seen, hides_labels
from sparselabel.data.labels import NEGATIVE, POSITIVE, Indices, Labels, LabelTable
from sparselabel.data.readers.raw_dataset import RawDataset, RawSplit
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import DataError, RunError, counted, listing, param
from sparselabel.files import named, require_folder_to_write

PARTIAL = ".partial"
"""Folder inside the one to write where data is written before it is moved to its place."""


OTHER_OR_REPLACE = (f"choose another {param('out')}", f"replace it with {param('force', True)}")


def refuse_taken(out: Path, force: bool) -> None:
    """Raise if a folder cannot be written, or holds something that nobody asked to replace."""
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
            what=out,
        )


def _entries(out: Path) -> set[str]:
    return {entry.name for entry in out.iterdir()} - {PARTIAL} if out.exists() else set()


def old_splits(out: Path) -> list[str]:
    """The splits of data prepared before, also when its index is lost or damaged."""
    return sorted(file.parent.name for file in out.glob("*/observed.npy"))


@dataclass(frozen=True, eq=False)
class Part:
    """A split, with what training may see of its labels and of its marks."""

    split: RawSplit
    observed: Labels
    digests: npt.NDArray[np.uint64]
    seen: SpatialLabels

    def take(self, rows: Indices) -> "Part":
        """The part of some rows, in the order given."""
        split = self.split.take(rows)
        seen = split.spatial_labels if self.seen is self.split.spatial_labels else self.seen.take(rows)
        return Part(split, self.observed[rows], self.digests[rows], seen)


def seen_spatial_labels(truth: Labels, observed: Labels, spatial_labels: SpatialLabels) -> SpatialLabels:
    """All marks of observed positives where no label is hidden; else none: only whole labels were given."""
    if hides_labels(truth, observed):
        return SpatialLabels.none()
    there = observed[spatial_labels.rows, spatial_labels.classes] == POSITIVE
    if there.all():
        return spatial_labels
    return SpatialLabels(
        **{column: getattr(spatial_labels, column)[there] for column in SPATIAL_LABEL_COLUMNS}, check=False
    )


def refuse_absent(source: RawDataset) -> None:
    """Raise if a mark is of a class that is marked absent in its image."""
    for name, split in source.splits.items():
        spatial_labels, labels = split.spatial_labels, split.labels
        wrong = labels.values[spatial_labels.rows, spatial_labels.classes] == NEGATIVE
        if wrong.any():
            first = int(np.argmax(wrong))
            row, index = int(spatial_labels.rows[first]), int(spatial_labels.classes[first])
            kind = "point" if spatial_labels.is_point[first] else "box"
            place = ", ".join(f"{number:.4g}" for number in spatial_labels.centers[first])
            raise DataError(
                f"{source.name}, split {name!r}: a {kind} at {place} of {labels.classes[index]!r} on image "
                f"{labels.ids[row]} (row {row}), where that class is marked absent, and "
                f"{counted(int(wrong.sum()) - 1, 'more such')}",
                "remove it",
                "mark the class present",
            )


def write_parts(
    source: RawDataset, parts: dict[str, Part], out: Path, how: Preparation, more: dict[str, Any]
) -> None:
    """Write to a folder aside and rename at the end, the index last: data that can be opened is complete.

    ``more`` is what else the index says of how the data was made.
    """
    work = out / PARTIAL
    new, old = work / "new", work / "old"
    shutil.rmtree(work, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        _write_data(source, parts, new, out, how, more)
    except BaseException:  # half of the data is of no use, and may be what filled the disk
        shutil.rmtree(work, ignore_errors=True)
        raise
    old.mkdir()
    index = ["dataset.json"] if (out / "dataset.json").exists() else []
    for name in [*index, *old_splits(out)]:
        (out / name).rename(old / name)
    for name in [*parts, "dataset.json"]:
        (new / name).rename(out / name)
    shutil.rmtree(work)


def _write_data(
    source: RawDataset,
    parts: dict[str, Part],
    new: Path,
    out: Path,
    how: Preparation,
    more: dict[str, Any],
) -> None:
    about: dict[str, dict[str, object]] = {
        name: {"images": len(part.split.labels), "digest": _write_split(new / name, part)}
        for name, part in parts.items()
    }
    for name, part in parts.items():
        if part.split.real is not None:
            about[name]["real"] = True
        if part.split.masks is not None:
            about[name]["masks"] = True
        about[name]["seen"] = _which(part)
    inside = source.root.resolve().is_relative_to(out.resolve())
    index = {
        "format": FORMAT,
        "name": source.name,
        # Images that were made inside the folder move with it.
        "root": str(source.root.resolve().relative_to(out.resolve()) if inside else source.root.resolve()),
        "classes": list(parts["train"].split.labels.classes),
        "splits": about,
        "preparation": asdict(how),
    }
    with named(new / "dataset.json"):
        (new / "dataset.json").write_text(json.dumps(index | more, indent=1))


def _write_split(folder: Path, part: Part) -> str:
    folder.mkdir()
    table = LabelTable(part.split.labels.ids, part.split.labels.classes, part.observed)
    arrays: dict[str, npt.NDArray[Any]] = {
        "ids": table.ids,
        "paths": part.split.paths,
        "truth": part.split.labels.values,
        "observed": table.values,
        "digests": part.digests,
    }
    arrays |= {
        f"mark_{column}": getattr(part.split.spatial_labels, column) for column in SPATIAL_LABEL_COLUMNS
    }
    if part.split.real is not None:
        arrays["real"] = part.split.real
    which = _which(part)
    if which == "own":
        arrays |= {f"seen_{column}": getattr(part.seen, column) for column in SPATIAL_LABEL_COLUMNS}
    digest = hashlib.blake2b(json.dumps(table.classes).encode(), digest_size=16)
    if which not in ("own", _expected(part)):  # data of older versions says nothing of it
        digest.update(f"seen {which}".encode())
    for name, array in arrays.items():
        _save(folder / f"{name}.npy", array)
        if name != "paths":  # where the images lie does not change what they are
            digest.update(name.encode() + str(array.dtype).encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)  # not a copy of it
    if part.split.masks is not None:
        for column in MASK_COLUMNS:
            _save(folder / f"mask_{column}.npy", getattr(part.split.masks, column))
    return digest.hexdigest()


def _save(file: Path, array: npt.NDArray[Any]) -> None:
    with named(file):
        np.save(file, array, allow_pickle=False)


def _which(part: Part) -> Seen:
    """Which marks training may see; marks of its own are written beside the others."""
    if part.seen is part.split.spatial_labels:
        return "all"
    return "own" if len(part.seen) else "none"


def _expected(part: Part) -> Seen:
    """What the labels alone would say of it; of no marks at all, all is the same as none."""
    if not len(part.split.spatial_labels):
        return _which(part)
    return "none" if hides_labels(part.split.labels.values, part.observed) else "all"
