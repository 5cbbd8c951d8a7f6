"""Stored features of a frozen backbone, computed once and saved with the data (Cole 2021's linear protocol).

Pooled ones (N, D) in float32, or those of cells (N, D, h, w) in float16, for methods and heads that look at
cells. A file's name is a hash of all that decides its content: the images, the backbone and its weights, the
view, and the engine. Features of the same images are also taken from another split, or from prepared data in
the same folder: labels do not change them. Features of images in memory belong to their data alone. Where
those of cells are there, pooled ones are their means.
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sparselabel.checksums import Sums, damaged, row_checksums
from sparselabel.config import TrainConfig
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.loaders import ImageLoader, Rows, in_order, rows_of
from sparselabel.data.transforms import View
from sparselabel.errors import DataError, ModelError, ResourceError, param
from sparselabel.file_formats import read_array
from sparselabel.files import atomic_write, named
from sparselabel.inference.engine import TORCH, CompiledNetwork
from sparselabel.inference.scorer import BATCH
from sparselabel.models.backbone import NONE, PRETRAINED
from sparselabel.resources import available_memory, format_bytes, mapped_array

if TYPE_CHECKING:
    from lightning_fabric import Fabric

CHECKED_AT_ONCE = 4096  # rows of a file that is checked whole
SHARE_OF_RAM = 0.25  # of what is available; gathering rows of an array in RAM is a third faster


def features_file(
    split: PreparedSplit,
    folder: Path,
    config: TrainConfig,
    view: View,
    cells: bool = False,
    engine: str = TORCH,
) -> Path:
    """The file of a split's features; its name identifies the images, the backbone and the view."""
    # Labels do not change features: images count by their bytes, not by the split's whole digest.
    images = hashlib.blake2b(np.ascontiguousarray(split.digests).tobytes(), digest_size=8).hexdigest()
    decides: dict[str, object] = {
        "backbone": config.backbone,
        "weights": weights_identity(config),
        "output_stride": config.output_stride,
        "view": vars(view),
        "double": config.precision == "64-true",
    }
    decides["checksums"] = True
    if cells:
        decides["cells"] = "float16"
    if engine != TORCH:
        decides["engine"] = engine
    key = hashlib.blake2b(json.dumps(decides, sort_keys=True).encode(), digest_size=10).hexdigest()
    made_by = "" if engine == TORCH else f"{engine}-"
    return folder / f"{split.name}-{made_by}{images}-{key}.npy"


def _digests_file(file: Path) -> Path:
    """Which images the rows of a file of features are."""
    return file.with_suffix(".images")


def features_elsewhere(file: Path, split: PreparedSplit) -> list[Path]:
    """Files that together have the features of all images of a split; empty if an image is missing."""
    key, beside = file.stem.rpartition("-")[2], file.parent.parent.parent
    others = [*file.parent.glob(f"*-{key}.npy")]
    if split.images is None:  # digests of images in memory are no digests of bytes
        others += beside.glob(f"*/{file.parent.name}/*-{key}.npy")
    left, needed = np.unique(split.digests), []
    for other in dict.fromkeys(sorted(others)):
        try:
            has = np.isin(left, read_array(_digests_file(other), "u N"))
        except DataError:  # without it the file's rows are unknown
            continue
        if has.any():
            needed.append(other)
            left = left[~has]
        if not len(left):
            return needed
    return []


def gather_features(file: Path, split: PreparedSplit) -> None:
    """Write the features of a split from other files, if these have them."""
    others = features_elsewhere(file, split)
    if not others:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial(file, f"{platform.node()}-{os.getpid()}")
    cells = read_array(others[0], mapped=True).ndim > 2
    stored, sums = None, np.zeros(len(split), np.uint32)
    for other in others:
        features, digests = read_features(other, cells), read_array(_digests_file(other), "u N")
        check = CheckedRows(other)
        if stored is None:
            shape = (len(split), *features.shape[1:])
            stored = mapped_array(partial, features.dtype, shape, no_room)
        order = np.argsort(digests)
        position = np.searchsorted(digests, split.digests, sorter=order).clip(max=len(digests) - 1)
        rows = np.flatnonzero(digests[order[position]] == split.digests)
        for start in range(0, len(rows), BATCH):
            some = rows[start : start + BATCH]
            values = features[order[position[some]]]
            check(order[position[some]], values)
            stored[some], sums[some] = values, row_checksums(values)
        stored.flush()
    with named(sums_file(file)), sums_file(partial).open("wb") as stream:
        np.save(stream, sums, allow_pickle=False)
    _finish(partial, file, split)


def pool_features(file: Path, of_cells: Path, split: PreparedSplit) -> None:
    """Write the pooled features of a split: the means of those of its cells, which another method stored."""
    features, check = read_features(of_cells, cells=True), CheckedRows(of_cells)
    partial = _partial(file, f"{platform.node()}-{os.getpid()}")
    stored = mapped_array(partial, np.float32, features.shape[:2], no_room)
    for rows in in_order(np.arange(len(features)), BATCH):
        values = features[rows]
        check(rows, values)
        stored[rows] = values.mean(axis=(2, 3), dtype=np.float32)
    stored.flush()
    with named(sums_file(file)), sums_file(partial).open("wb") as stream:
        np.save(stream, row_checksums(stored), allow_pickle=False)
    _finish(partial, file, split)


def _partial(file: Path, process: str) -> Path:
    """The name of a file until it is complete.

    Another run, also on another machine, may be computing the same: each has a file of its own until then.
    """
    return file.with_suffix(f".{process}.partial.npy")


def _finish(partial: Path, file: Path, split: PreparedSplit) -> None:
    if file.exists():  # another run was first; its last bits, and so its checksums, may differ
        partial.unlink()
        sums_file(partial).unlink()
        return
    with atomic_write(_digests_file(file)) as digests, digests.open("wb") as stream:
        np.save(stream, np.asarray(split.digests), allow_pickle=False)
    sums_file(partial).rename(sums_file(file))
    partial.rename(file)


def compute_features(
    file: Path,
    split: PreparedSplit,
    view: View,
    network: CompiledNetwork,
    shape: tuple[int, ...],
    fabric: "Fabric",
    workers: int | None,
    report: Callable[[int], None],
    cells: bool = False,
) -> None:
    """Write pooled features, or those of ``cells``, of this shape for an image: every process its rows.

    The file gets its name when all are done. ``report`` gets the number of images after each batch.
    """
    partial = _partial(file, fabric.broadcast(f"{platform.node()}-{os.getpid()}"))
    partial_sums = sums_file(partial)
    if fabric.is_global_zero:
        file.parent.mkdir(parents=True, exist_ok=True)
        kind = np.float16 if cells else np.float32
        mapped_array(partial_sums, np.uint32, (len(split),), no_room)
        mapped_array(partial, kind, (len(split), *shape), no_room)
    fabric.barrier()
    stored, sums = (np.lib.format.open_memmap(one, "r+") for one in (partial, partial_sums))
    rows = rows_of(len(split), fabric.global_rank, fabric.world_size)
    loader = ImageLoader(split, view, workers=workers, device=fabric.device)
    for numbers, inputs, _ in loader(in_order(rows, BATCH), epoch=0):
        of_cells = network.run(inputs[0].to(fabric.device, non_blocking=True))[0].float()
        features = of_cells.half() if cells else of_cells.mean(dim=(2, 3))
        if not bool(features.isfinite().all()):
            raise ModelError(
                f"features of {split.place(int(numbers[0]))} or one of the next images are beyond what "
                f"{'half precision' if cells else 'float32'} holds",
                f"leave {param('frozen')} out",
                f"take another {param('backbone')}",
            )
        values = features.cpu().numpy()
        stored[numbers.numpy()], sums[numbers.numpy()] = values, row_checksums(values)
        report(len(numbers))
    stored.flush()
    sums.flush()
    fabric.barrier()
    if fabric.is_global_zero:
        _finish(partial, file, split)
    fabric.barrier()


def sums_file(file: Path) -> Path:
    """The file with the checksums of the rows of a file of features."""
    return file.with_suffix(".checksums")


def read_features(file: Path, cells: bool) -> npt.NDArray[np.floating]:
    """Features from ``compute_features``, in RAM or mapped: processes of a machine share mapped pages.

    Features of cells are mapped and checked when read; pooled ones are mapped where they take much RAM.
    """
    again = "remove it, and it is computed again"
    mapped = cells or (file.is_file() and file.stat().st_size > SHARE_OF_RAM * available_memory())
    features: npt.NDArray[np.floating] = read_array(
        file, "f N D h w" if cells else "f N D", again, mapped=mapped
    )
    checked = CheckedRows(file)
    if checked.count != len(features):
        raise damaged(file, again, where=f"{len(features):,} rows of {checked.count:,}", kind=DataError)
    if not cells:
        for rows in in_order(np.arange(len(features)), CHECKED_AT_ONCE):
            checked(rows, features[rows[0] : rows[-1] + 1])
    return features


class CheckedRows:
    """Checks rows of features that are read from a file, each when it is first read."""

    def __init__(self, file: Path) -> None:
        self.file, self._again = file, "remove it, and it is computed again"
        self._sums: Sums = read_array(sums_file(file), "u N", f"remove {file}, and it is computed again")
        self.count = len(self._sums)
        self._unseen = np.ones(self.count, np.bool_)

    def __call__(self, rows: Rows, values: npt.NDArray[np.floating]) -> None:
        """Raise unless these are the rows that were written."""
        new = self._unseen[rows]
        wrong = row_checksums(values[new]) != self._sums[rows[new]]
        if wrong.any():
            row = int(rows[new][np.argmax(wrong)])
            raise damaged(self.file, self._again, where=f"row {row:,}", kind=DataError)
        self._unseen[rows] = False


def no_room(folder: Path, size: int, free: int) -> ResourceError:
    """The error for features that the disk cannot hold."""
    return ResourceError(
        f"features take {format_bytes(size)} and {folder} has {format_bytes(free)} free",
        "make room",
        "copy the prepared data to a larger disk",
        f"train on images (leave {param('frozen')} out)",
        f"make features of cells smaller: a smaller {param('views.size')}, a larger "
        f"{param('output_stride')}, or a narrower backbone",
    )


def content_digest(path: Path) -> str:
    """A digest of a file's content; a file that has not changed is read once."""
    about = path.stat()
    return _digest(path.absolute(), about.st_mtime_ns, about.st_size, about.st_ino)


@lru_cache
def _digest(path: Path, *_about: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weights_identity(config: TrainConfig) -> str:
    """The identity of the backbone's weights: a file's content, the published ones, or a random seed."""
    if config.weights == PRETRAINED:
        return PRETRAINED
    if config.weights == NONE:
        return f"{NONE}-{config.seed}"
    content = content_digest(Path(config.weights))
    return f"{content}-{config.seed}" if config.partial_weights else content
