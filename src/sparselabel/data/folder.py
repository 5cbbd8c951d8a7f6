"""The folder that data is prepared into: what may be replaced there, and what is never touched."""

from pathlib import Path

from sparselabel.config import Preparation
from sparselabel.data.readers.source import Source
from sparselabel.errors import RunError, listing
from sparselabel.place import require_folder_to_write

PARTIAL = ".partial"
"""Folder inside --out where data is written before it is moved to its place."""


def refuse_taken(out: Path, force: bool) -> None:
    """Raise if --out cannot be written, or holds something that nobody asked to replace."""
    require_folder_to_write(out)
    if (out / "dataset.json").exists() and not force:
        raise RunError(f"{out} holds prepared data already: choose another --out, or replace it with --force")
    # A source may have made its pictures there itself (scenes).
    if _entries(out) and not force and not (out / "scenes.json").exists():
        raise RunError(f"{out} exists and is not empty: choose another --out, or replace it with --force")


def refuse_in_the_way(source: Source, out: Path, how: Preparation) -> None:
    """Raise if something that is not prepared data has the name of a split."""
    needed = {*source.splits} | ({"val"} if how.validation > 0 else set())
    in_the_way = sorted((needed & _entries(out)).difference(old_splits(out)))
    if in_the_way:
        raise RunError(
            f"{out} has {listing(in_the_way)}, which is not prepared data and is never overwritten: "
            "choose another --out"
        )


def _entries(out: Path) -> set[str]:
    return {entry.name for entry in out.iterdir()} - {PARTIAL} if out.exists() else set()


def old_splits(out: Path) -> list[str]:
    """The splits of data prepared before, also when its index is lost or damaged."""
    return sorted(file.parent.name for file in out.glob("*/observed.npy"))
