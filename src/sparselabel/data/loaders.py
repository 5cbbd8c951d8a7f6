"""Batches for training and evaluation: views of images, or features computed before.

Both kinds give ``Batch``es, so the training loop does not care which one it has.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.transforms import Changes, View, draw, load, recolored, render
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError, DataError

PADDING = -1

Rows = npt.NDArray[np.int64]


def rows_of(count: int, shard: int, shards: int) -> Rows:
    """The rows of one process, sorted: every ``shards``-th row of ``count``."""
    return np.arange(shard, count, shards, dtype=np.int64)


def epoch_batches(
    count: int, batch: int, seed: int, epoch: int, shard: int = 0, shards: int = 1
) -> list[Rows]:
    """The batches of an epoch for one process; each row once, the last batch may be smaller.

    ``batch`` is the number of rows over all processes. Every process gets as many batches of the same sizes:
    where its rows run out it is padded with row -1, which counts for nothing.
    """
    if batch % shards:
        raise ConfigError(f"a batch of {batch} cannot be shared evenly by {shards} processes")
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, epoch, shard))))
    order = random.permutation(rows_of(count, shard, shards))
    longest = -(-count // shards)
    padded = np.concatenate([order, np.full(longest - len(order), PADDING, dtype=np.int64)])
    size = batch // shards
    return [padded[start : start + size] for start in range(0, longest, size)]


class Batch(NamedTuple):
    """Rows (B,) with -1 for padding, and for each view the model's inputs and their frames."""

    rows: Tensor
    inputs: tuple[Tensor, ...]
    geometries: tuple[ViewGeometry, ...]


class Loader(Protocol):
    """Anything that turns lists of rows into batches, in order."""

    def __call__(self, batches: Sequence[Rows], epoch: int) -> Iterator[Batch]:
        """The batches of these rows, as seen in this epoch."""


class FeatureLoader:
    """Features of images seen whole: pooled (N, D), or of cells (N, D, h, w) in half precision."""

    def __init__(self, features: Tensor) -> None:
        self.features = features
        self.half = features.dtype == torch.float16

    def __call__(self, batches: Sequence[Rows], epoch: int) -> Iterator[Batch]:
        """The features of these rows; the same in every epoch."""
        geometries: dict[int, tuple[ViewGeometry, ...]] = {}
        for array in batches:
            rows = torch.from_numpy(array)
            if len(rows) not in geometries:
                geometries[len(rows)] = (ViewGeometry.whole(len(rows)),)
            inputs = self.features.index_select(0, rows if array.min(initial=0) >= 0 else rows.clamp(min=0))
            yield Batch(rows, (inputs.float() if self.half else inputs,), geometries[len(rows)])


class ImageLoader:
    """Views (B, 3, S, S) uint8 of images, rendered by worker processes ahead of the training step.

    A view depends on (seed, epoch, row, number of the view) and on nothing else. The last ``strong_views`` of
    the ``views`` have their colors changed as well. ``changes``, if there are any, are those of the strong
    views; of all, where none is strong.
    """

    def __init__(
        self,
        split: PreparedSplit,
        view: View,
        seed: int = 0,
        views: int = 1,
        workers: int = 0,
        strong_views: int = 0,
        changes: Changes | None = None,
    ) -> None:
        self._keys = _Keys()
        self._loader: DataLoader[Any] = DataLoader(
            _Images(split, view, seed, views, strong_views, changes),
            batch_sampler=self._keys,
            collate_fn=_as_is,
            num_workers=workers,
            persistent_workers=workers > 0,
            # Forking is fast, and safe: nothing has touched a GPU's memory in the data set.
            multiprocessing_context="fork" if workers else None,
        )

    def __call__(self, batches: Sequence[Rows], epoch: int) -> Iterator[Batch]:
        """Freshly drawn views of these rows."""
        self._keys.batches = [(epoch, rows) for rows in batches]
        for loaded in self._loader:
            if isinstance(loaded, str):
                raise DataError(loaded)
            rows, pixels, geometries = loaded
            views = range(pixels.shape[1])
            yield Batch(
                rows,
                tuple(pixels[:, view] for view in views),
                tuple(ViewGeometry.of(geometries[:, view]) for view in views),
            )


class _Keys:
    """What the loader hands to its workers, batch by batch: (epoch, rows)."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, Rows]] = []

    def __iter__(self) -> Iterator[Any]:  # torch says lists; whatever it is goes to __getitems__
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Images(Dataset[Any]):
    """Loads and renders a whole batch at a time."""

    def __init__(
        self,
        split: PreparedSplit,
        view: View,
        seed: int,
        views: int,
        strong_views: int,
        changes: Changes | None,
    ) -> None:
        self.split = split
        self.view = view
        self.seed = seed
        self.views = views
        self.first_strong = views - strong_views
        self.changes = changes

    def __getitems__(self, key: tuple[int, Rows]) -> tuple[Tensor, Tensor, Tensor] | str:
        """Rows, pixels and frames of a batch, or the message of a ``DataError``, which the feed raises.

        Torch would wrap an error of a worker in its whole traceback.
        """
        try:
            return self._load(*key)
        except DataError as error:
            return str(error)

    def _load(self, epoch: int, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        size = self.view.size
        pixels: npt.NDArray[np.uint8] = np.empty((len(rows), self.views, 3, size, size), np.uint8)
        known = 5 if self.changes is None or not self.changes.hole else 9  # of a frame, with what is hidden
        geometries: npt.NDArray[np.float32] = np.zeros((len(rows), self.views, known), np.float32)
        for position, row in enumerate(rows.tolist()):
            shown = 0 if row == PADDING else row  # padding shows some image, and counts for nothing
            image = load(self.split.path(shown), self.view.at_least)
            for number in range(self.views):
                key_of_view = (self.seed, epoch, shown, number)
                geometry = draw(self.view, key_of_view, image.width, image.height)
                pixels[position, number] = render(image, geometry, size)
                strong = number >= self.first_strong
                if strong:
                    pixels[position, number] = recolored(pixels[position, number], key_of_view)
                # A weak view says what the strong one should say: it stays as it is.
                if self.changes is not None and (strong or self.first_strong == self.views):
                    pixels[position, number], hidden = self.changes(pixels[position, number], key_of_view)
                    geometries[position, number, 5:] = hidden[: known - 5]
                geometries[position, number, :5] = geometry
        return torch.from_numpy(rows), torch.from_numpy(pixels), torch.from_numpy(geometries)


def _as_is(batch: Any) -> Any:
    return batch


def in_order(rows: Rows, batch: int) -> list[Rows]:
    """Batches for evaluation: each row exactly once, in order."""
    return [rows[start : start + batch] for start in range(0, len(rows), batch)]
