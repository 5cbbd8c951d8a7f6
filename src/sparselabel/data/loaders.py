"""Batches for training and evaluation: views of images, or stored features.

Both kinds of loader yield ``Batch``es. An image is identified by its row in the split: its index, as PyTorch
calls it.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sparselabel.config import CORES
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.transforms import RandAugment, View, change_colors, draw, render
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError, DataError

PADDING = -1
"""The row of padding, which is ignored."""

Rows = npt.NDArray[np.int64]


def rows_of(count: int, shard: int, shards: int) -> Rows:
    """The rows of one process, sorted: every ``shards``-th of ``count``, the same in every epoch."""
    return np.arange(shard, count, shards, dtype=np.int64)


def epoch_batches(
    count: int, batch_size: int, seed: int, epoch: int, shard: int = 0, shards: int = 1
) -> list[Rows]:
    """The shuffled batches of an epoch for one process; each row once, the last batch may be smaller.

    ``batch_size`` is the number of rows over all processes. Every process gets as many batches of the same
    sizes: missing rows are padded with row -1.
    """
    if batch_size % shards:
        raise ConfigError(f"a batch of {batch_size} cannot be shared evenly by {shards} processes")
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, epoch, shard))))
    order = random.permutation(rows_of(count, shard, shards))
    longest = -(-count // shards)
    padded = np.concatenate([order, np.full(longest - len(order), PADDING, dtype=np.int64)])
    return in_order(padded, batch_size // shards)


def in_order(rows: Rows, batch_size: int) -> list[Rows]:
    """Batches of these rows in order, for evaluation; the last may be smaller."""
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]


class Batch(NamedTuple):
    """Rows (B,), with -1 for padding, and for each view the model's inputs (B, ...) and their geometry."""

    rows: Tensor
    inputs: tuple[Tensor, ...]
    geometries: tuple[ViewGeometry, ...]


class Loader(Protocol):
    """Anything that turns lists of rows into batches, in order."""

    def __call__(self, batches: Sequence[Rows], epoch: int) -> Iterator[Batch]:
        """The batches of these rows, with the views of this epoch."""


CPU = torch.device("cpu")
MOST_WORKERS = 8
PIECES = 4  # of a batch for each thread, as images take different times


def worker_processes(asked: int | None, device: torch.device) -> int:
    """The number of processes that load images: the given one, or the default for the device.

    On a CPU, processes would compete with the network's threads for cores, so threads of this process load a
    batch (``in_threads``) before the network runs. With a GPU the cores are free. If processes are not
    forked, they take seconds to start, so threads load there too.
    """
    if asked is not None:
        return asked
    return min(MOST_WORKERS, CORES) if device.type != "cpu" and sys.platform == "linux" else 0


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Call ``work`` with 0 to ``count`` - 1, on as many threads as torch has in this process.

    Images are decoded and resized without Python's lock. Of several errors the first one's is raised.
    """
    threads = torch.get_num_threads()
    if threads == 1 or count == 1:
        for number in range(count):
            work(number)
        return
    size = max(1, count // (threads * PIECES))

    def piece(first: int) -> None:
        for number in range(first, min(first + size, count)):
            work(number)

    for _ in _threads(os.getpid(), threads).map(piece, range(0, count, size)):
        pass  # an error is raised here


@cache
def _threads(process: int, count: int) -> ThreadPoolExecutor:
    """The thread pool of a process; a forked process has none of its parent's threads."""
    return ThreadPoolExecutor(count, thread_name_prefix=f"decode-{process}")


RowCheck = Callable[[Rows, npt.NDArray[np.floating]], None]
"""Raises if rows that were read from a file are not those that were written."""


class FeatureLoader:
    """Features of whole images: pooled (N, D), or feature maps (N, D, h, w) in half precision."""

    def __init__(self, features: Tensor, check: RowCheck | None = None) -> None:
        self.features = features
        self.check = check
        self.half = features.dtype == torch.float16

    def __call__(self, batches: Sequence[Rows], epoch: int) -> Iterator[Batch]:
        """The features of these rows; the same in every epoch."""
        geometries: dict[int, tuple[ViewGeometry, ...]] = {}
        padded = bool(batches) and np.concatenate(batches).min(initial=0) < 0
        for array in batches:
            rows = torch.from_numpy(array)
            if (size := len(array)) not in geometries:  # len of a tensor takes longer
                geometries[size] = (ViewGeometry.whole(size),)
            wanted = rows.clamp(min=0) if padded else rows
            inputs = self.features.index_select(0, wanted)
            if self.check is not None:
                self.check(wanted.numpy(), inputs.numpy())
            yield Batch(rows, (inputs.float() if self.half else inputs,), geometries[size])


class ImageLoader:
    """Views (B, 3, S, S) uint8 of images, rendered by worker processes ahead of the training step.

    Parameters
    ----------
    split
        The images.
    view
        The distribution of crops and flips.
    seed
        A view depends on (seed, epoch, row, number of the view) alone.
    views
        Views per image.
    workers
        Worker processes; 0 renders in this one, None chooses for the device (``worker_processes``).
    strong_views
        How many of the views, the last ones, have their colors changed as well (FixMatch).
    augment
        RandAugment and cutout of the strong views; of all views if none is strong.
    device
        The device that batches go to.
    """

    def __init__(
        self,
        split: PreparedSplit,
        view: View,
        seed: int = 0,
        views: int = 1,
        workers: int | None = 0,
        strong_views: int = 0,
        augment: RandAugment | None = None,
        device: torch.device = CPU,
    ) -> None:
        processes = worker_processes(workers, device)
        self._sampler = _EpochRows()
        self._loader: DataLoader[Any] = DataLoader(
            _Views(split, view, seed, views, strong_views, augment),
            batch_sampler=self._sampler,
            collate_fn=_as_is,
            num_workers=processes,
            persistent_workers=processes > 0,
            pin_memory=device.type == "cuda",
        )

    def __call__(self, batches: Sequence[Rows], epoch: int) -> Iterator[Batch]:
        """Freshly drawn views of these rows."""
        self._sampler.batches = [(epoch, rows) for rows in batches]
        for loaded in self._loader:
            if isinstance(loaded, DataError):
                raise loaded
            rows, pixels, geometries = loaded
            views = range(pixels.shape[1])
            yield Batch(
                rows,
                tuple(pixels[:, view] for view in views),
                tuple(ViewGeometry.from_params(geometries[:, view]) for view in views),
            )


class _EpochRows:
    """The batch sampler: what the DataLoader hands to its workers, (epoch, rows) for each batch."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, Rows]] = []

    def __iter__(self) -> Iterator[Any]:  # torch declares lists of indices, but passes on anything
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Views(Dataset[Any]):
    """Loads and renders a whole batch at a time."""

    def __init__(
        self,
        split: PreparedSplit,
        view: View,
        seed: int,
        views: int,
        strong_views: int,
        augment: RandAugment | None,
    ) -> None:
        self.split = split.without_labels()
        self.view = view
        self.seed = seed
        self.views = views
        self.first_strong = views - strong_views
        self.augment = augment
        self._unseen = np.ones(len(split), np.bool_)  # by this process

    def __getitems__(self, key: tuple[int, Rows]) -> tuple[Tensor, Tensor, Tensor] | DataError:
        """Rows, pixels and geometry of a batch, or a ``DataError`` for the loader to raise.

        Torch would wrap a raised error in the worker's traceback.
        """
        try:
            return self._load(*key)
        except DataError as error:
            return error

    def _load(self, epoch: int, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        size = self.view.size
        pixels: npt.NDArray[np.uint8] = np.empty((len(rows), self.views, 3, size, size), np.uint8)
        # Left, top, width, height and flip, and with cutout also the covered rectangle.
        columns = 9 if self.augment is not None and self.augment.cutout else 5
        geometries: npt.NDArray[np.float32] = np.zeros((len(rows), self.views, columns), np.float32)
        shown = np.maximum(rows, 0).tolist()  # padding shows the first image

        def load(position: int) -> None:
            row = shown[position]
            image = self.split.image(row, self.view.at_least, check=bool(self._unseen[row]))
            self._unseen[row] = False
            for number in range(self.views):
                key = (self.seed, epoch, row, number)
                geometry = draw(self.view, key, image.width, image.height)
                rendered = render(image, geometry, size)
                strong = number >= self.first_strong
                if strong:
                    rendered = change_colors(rendered, key)
                # A weak view gives the target of the strong ones: it is not augmented.
                if self.augment is not None and (strong or self.first_strong == self.views):
                    rendered, cutout = self.augment(rendered, key)
                    geometries[position, number, 5:] = cutout[: columns - 5]
                geometries[position, number, :5] = geometry
                pixels[position, number] = rendered

        if self.split.images is None:
            in_threads(load, len(shown))
        else:  # a user's dataset may not be thread-safe
            for position in range(len(shown)):
                load(position)
        return torch.from_numpy(rows), torch.from_numpy(pixels), torch.from_numpy(geometries)


def _as_is(batch: Any) -> Any:
    return batch
