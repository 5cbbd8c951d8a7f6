"""Batches for training and evaluation: views of images, or features computed before.

Both kinds of loader give ``Batch``es, so that the training loop need not know which one it has. Images are
known by their row in the split, their index in the field's words.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.transforms import RandAugment, View, change_colors, draw, render
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError, DataError

PADDING = -1
"""The row of an entry that only fills up a batch and counts for nothing."""

Rows = npt.NDArray[np.int64]


def rows_of(count: int, shard: int, shards: int) -> Rows:
    """The rows of one process, sorted: every ``shards``-th of ``count``, the same in every epoch."""
    return np.arange(shard, count, shards, dtype=np.int64)


def epoch_batches(
    count: int, batch_size: int, seed: int, epoch: int, shard: int = 0, shards: int = 1
) -> list[Rows]:
    """The shuffled batches of an epoch for one process; each row once, the last batch may be smaller.

    ``batch_size`` is the number of rows over all processes. Every process gets as many batches of the same
    sizes: where its rows run out, they are padded with row -1.
    """
    if batch_size % shards:
        raise ConfigError(f"a batch of {batch_size} cannot be shared evenly by {shards} processes")
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, epoch, shard))))
    order = random.permutation(rows_of(count, shard, shards))
    longest = -(-count // shards)
    padded = np.concatenate([order, np.full(longest - len(order), PADDING, dtype=np.int64)])
    return in_order(padded, batch_size // shards)


def in_order(rows: Rows, batch_size: int) -> list[Rows]:
    """Batches of these rows in their order, as evaluation takes them; the last may be smaller."""
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]


class Batch(NamedTuple):
    """Rows (B,), with -1 for padding, and for each view the model's inputs (B, ...) and their geometry."""

    rows: Tensor
    inputs: tuple[Tensor, ...]
    geometries: tuple[ViewGeometry, ...]


class Loader(Protocol):
    """Anything that turns lists of rows into batches, in order."""

    def __call__(self, batches: Sequence[Rows], epoch: int) -> Iterator[Batch]:
        """The batches of these rows, as seen in this epoch."""


RowCheck = Callable[[Rows, npt.NDArray[np.floating]], None]
"""Raises unless rows that were read from a file are those that were written."""


class FeatureLoader:
    """Features of whole images: pooled (N, D), or feature maps (N, D, h, w) in half precision."""

    def __init__(self, features: Tensor, check: RowCheck | None = None) -> None:
        self.features = features
        self.check = check
        self.half = features.dtype == torch.float16

    def __call__(self, batches: Sequence[Rows], epoch: int) -> Iterator[Batch]:
        """The features of these rows; the same in every epoch."""
        geometries: dict[int, tuple[ViewGeometry, ...]] = {}
        for array in batches:
            rows = torch.from_numpy(array)
            if len(rows) not in geometries:
                geometries[len(rows)] = (ViewGeometry.whole(len(rows)),)
            wanted = rows if array.min(initial=0) >= 0 else rows.clamp(min=0)
            inputs = self.features.index_select(0, wanted)
            if self.check is not None:
                self.check(wanted.numpy(), inputs.numpy())
            yield Batch(rows, (inputs.float() if self.half else inputs,), geometries[len(rows)])


class ImageLoader:
    """Views (B, 3, S, S) uint8 of images, rendered by worker processes ahead of the training step.

    Parameters
    ----------
    split
        The images.
    view
        The distribution of crops and flips.
    seed
        A view depends on (seed, epoch, row, number of the view) and on nothing else.
    views
        Views per image.
    workers
        Worker processes; 0 renders in this one.
    strong_views
        How many of the views, the last ones, have their colors changed as well (FixMatch).
    augment
        RandAugment and cutout of the strong views; of all views if none is strong.
    """

    def __init__(
        self,
        split: PreparedSplit,
        view: View,
        seed: int = 0,
        views: int = 1,
        workers: int = 0,
        strong_views: int = 0,
        augment: RandAugment | None = None,
    ) -> None:
        self._sampler = _EpochRows()
        self._loader: DataLoader[Any] = DataLoader(
            _Views(split, view, seed, views, strong_views, augment),
            batch_sampler=self._sampler,
            collate_fn=_as_is,
            num_workers=workers,
            persistent_workers=workers > 0,
            # Forking is fast, and safe: nothing in the dataset has touched a GPU's memory.
            multiprocessing_context="fork" if workers else None,
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

    def __iter__(self) -> Iterator[Any]:  # torch declares lists of indices; it passes on whatever this gives
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
        self.split = split
        self.view = view
        self.seed = seed
        self.views = views
        self.first_strong = views - strong_views
        self.augment = augment
        self._unseen = np.ones(len(split), np.bool_)  # by this process

    def __getitems__(self, key: tuple[int, Rows]) -> tuple[Tensor, Tensor, Tensor] | DataError:
        """Rows, pixels and geometry of a batch, or a ``DataError`` for the loader to raise.

        Torch would wrap an error that a worker raises in the worker's traceback.
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
        for position, row in enumerate(np.maximum(rows, 0).tolist()):  # padding shows the first image
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
        return torch.from_numpy(rows), torch.from_numpy(pixels), torch.from_numpy(geometries)


def _as_is(batch: Any) -> Any:
    return batch
