"""Pictures as batches, in their order, read ahead by worker processes, in memory that does not grow."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sparselabel.data.transforms import View, draw, load, render
from sparselabel.errors import DataError

Pixels = npt.NDArray[np.uint8]
Read = Callable[[str], Pixels]


class Loaded(NamedTuple):
    """A batch: paths, views (n, 3, S, S) of those that can be read, and by place what was wrong."""

    paths: tuple[str, ...]
    views: Tensor
    errors: dict[int, str]


class Seen:
    """Reads a picture and shows it as evaluation does."""

    def __init__(self, view: View) -> None:
        self.view = view

    def __call__(self, path: str) -> Pixels:
        """(3, S, S) What the model sees of a file."""
        image = load(path, self.view.at_least)
        return render(image, draw(self.view, (0, 0, 0, 0), image.width, image.height), self.view.size)


def stream(paths: Iterable[str], read: Read, batch: int, workers: int) -> Iterator[Loaded]:
    """Batches of pictures in their order; one that cannot be read is an error in its batch."""
    yield from DataLoader(
        _Files(read),
        batch_sampler=_Batches(paths, batch),
        collate_fn=_as_is,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )


class _Batches:
    """Batches of paths as they come; the loader asks for a few more than it has workers."""

    def __init__(self, paths: Iterable[str], batch: int) -> None:
        self.paths, self.batch = paths, batch

    def __iter__(self) -> Iterator[Any]:  # torch says lists of indices; it hands on whatever it gets
        paths = iter(self.paths)
        while batch := tuple(islice(paths, self.batch)):
            yield batch


class _Files(Dataset[Any]):
    def __init__(self, read: Read) -> None:
        self.read = read

    def __getitems__(self, paths: tuple[str, ...]) -> Loaded:
        """A whole batch."""
        errors: dict[int, str] = {}
        views = []
        for place, path in enumerate(paths):
            try:
                views.append(self.read(path))
            except DataError as error:
                errors[place] = str(error)
        stacked = torch.from_numpy(np.stack(views)) if views else torch.empty(0)
        return Loaded(paths, stacked, errors)


def _as_is(batch: Any) -> Any:
    return batch
