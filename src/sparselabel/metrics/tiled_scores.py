"""Scores (N, L) that do not fit into memory: a file, read by blocks of images or of classes.

The file is an array of NumPy's own format in tiles, (row tiles, class tiles, TILE, TILE), so that both a
block of images and a block of classes are a few long reads. It is read, not mapped, so pages do not count as
memory.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.errors import DataError, ResourceError, RunError, param
from sparselabel.file_formats import read_array
from sparselabel.resources import Refusal, mapped_array

Scores = npt.NDArray[np.floating[Any]]

TILE = 512
LARGEST_SCORES = 1 << 30
"""Bytes of the largest scores that are kept in memory."""
IMAGES_BLOCK, CLASSES_BLOCK = 1 << 24, 1 << 26
"""Scores that are processed together: of some images, or of some classes."""


class TiledScores:
    """Scores (N, L) float32 in a file; ``scores[a:b]`` and ``scores[:, a:b]`` are arrays.

    They are written by ``append`` from the first image to the last, into a new file if ``refusal`` is given,
    which makes the error of a full disk.
    """

    ndim, dtype = 2, np.dtype(np.float32)

    def __init__(self, path: Path, shape: tuple[int, int], *, refusal: Refusal | None = None) -> None:
        self._descriptor: int | None = None
        self._new, self.path, self.shape = refusal is not None, path, shape
        rows, classes = (-(-side // TILE) for side in shape)
        tiled = (rows, classes, TILE, TILE)
        if refusal is not None:
            mapped_array(path, np.float32, tiled, refusal)
        else:
            layout = f"f {rows} {classes} {TILE} {TILE}"
            again = "evaluate the run again"
            if read_array(path, layout, again, error=RunError, mapped=True).dtype != np.float32:
                raise RunError(f"{path} has scores of another precision", again, what=path)
        self._start = path.stat().st_size - rows * classes * TILE * TILE * 4
        self._rows = 0
        self._waiting = np.zeros((TILE, classes * TILE), np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """The number of scores."""
        return self.shape[0] * self.shape[1]

    @property
    def _file(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDWR if self._new else os.O_RDONLY)
        return self._descriptor

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_descriptor": None}

    def append(self, scores: Scores) -> None:
        """Write the scores (B, L) of the next images."""
        if scores.size and not np.isfinite([scores.min(), scores.max()]).all():
            row, index = np.argwhere(~np.isfinite(scores))[0]
            raise DataError(
                f"scores must be finite, but row {self._rows + row} of class {index} has "
                f"{scores[row, index]}",
                "look for a model that diverged",
                what="scores",
            )
        taken = 0
        while taken < len(scores):
            tile_row = self._rows % TILE
            count = min(TILE - tile_row, len(scores) - taken)
            self._waiting[tile_row : tile_row + count, : self.shape[1]] = scores[taken : taken + count]
            taken += count
            self._rows += count
            if self._rows % TILE == 0 or self._rows == self.shape[0]:
                tiles = self._waiting.reshape(TILE, -1, TILE).transpose(1, 0, 2)
                data = np.ascontiguousarray(tiles).reshape(-1).view(np.uint8).data
                offset = self._offset((self._rows - 1) // TILE, 0)
                while len(data):
                    written = os.pwrite(self._file, data, offset)
                    data, offset = data[written:], offset + written
                self._waiting[:] = 0

    def __getitem__(self, key: Any) -> Scores:
        """Scores of a slice of rows, of a slice of classes (behind ``:``), or of a few rows."""
        if isinstance(key, tuple):
            rows, classes = key
            if rows != slice(None):
                return np.asarray(self[rows][:, classes])
            return self._read(0, self.shape[0], *classes.indices(self.shape[1])[:2])
        if isinstance(key, slice):
            start, stop, _ = key.indices(self.shape[0])
            return self._read(start, stop, 0, self.shape[1])
        index = np.asarray(key)
        if index.ndim == 0:
            one: Scores = self._read(int(index), int(index) + 1, 0, self.shape[1])[0]
            return one
        some = np.empty((len(index), self.shape[1]), np.float32)
        for tile in np.unique(index // TILE).tolist():
            block: Scores = self[tile * TILE : (tile + 1) * TILE]
            here = np.flatnonzero(index // TILE == tile)
            some[here] = block[index[here] - tile * TILE]
        return some

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All scores, if they are not too many."""
        refuse_large(self.shape)
        whole = self[:]
        return whole if dtype is None else whole.astype(dtype)

    def _read(self, first_row: int, last_row: int, first: int, last: int) -> Scores:
        read = np.empty((max(last_row - first_row, 0), max(last - first, 0)), np.float32)
        tile = np.empty((TILE, TILE), np.float32)
        for row_tile in range(first_row // TILE, -(-last_row // TILE)):
            rows, of_tile = _common(first_row, last_row, row_tile)
            for class_tile in range(first // TILE, -(-last // TILE)):
                columns, in_tile = _common(first, last, class_tile)
                offset = self._offset(row_tile, class_tile)
                if os.preadv(self._file, [tile.reshape(-1).view(np.uint8).data], offset) != tile.nbytes:
                    raise RunError(f"{self.path} is cut short", "evaluate the run again", what=self.path)
                read[rows, columns] = tile[of_tile, in_tile]
        return read

    def _offset(self, row_tile: int, class_tile: int) -> int:
        classes = -(-self.shape[1] // TILE)
        return self._start + (row_tile * classes + class_tile) * TILE * TILE * 4


def _common(first: int, last: int, tile: int) -> tuple[slice, slice]:
    """What a tile has of the range from ``first`` to ``last``: the place in the range, and in the tile."""
    low, high = max(first, tile * TILE), min(last, (tile + 1) * TILE)
    return slice(low - first, high - first), slice(low - tile * TILE, high - tile * TILE)


ScoreMatrix = Scores | TiledScores
"""Scores (N, L) in memory, or in a file."""


def refuse_large(shape: tuple[int, int]) -> None:
    """Raise if scores that are in a file are too many for memory."""
    size = shape[0] * shape[1] * 4
    if size > LARGEST_SCORES:
        raise ResourceError(
            f"the scores of {shape[0]:,} images and {shape[1]:,} classes take {size / 1e9:,.1f} GB, and this "
            f"needs them in memory (at most {LARGEST_SCORES / 1e9:.1f} GB)",
            f"prepare fewer images of the split ({param('keep_test')}, {param('keep_validation')})",
            what="scores",
            value=size,
            allowed=LARGEST_SCORES,
        )


def in_memory(scores: ScoreMatrix) -> Scores:
    """(N, L) Scores as an array; an error with their size if they are too many."""
    return np.asarray(scores)


def image_blocks(images: int, classes: int) -> Iterator[slice]:
    """Images in parts of a bounded number of entries."""
    tall = max(1, IMAGES_BLOCK // max(classes, 1))
    for start in range(0, images, tall):
        yield slice(start, min(start + tall, images))


def class_blocks(images: int, classes: int, most: int | None = None) -> Iterator[slice]:
    """Classes in parts of a bounded number of entries."""
    wide = max(1, (most or CLASSES_BLOCK) // max(images, 1))
    for start in range(0, classes, wide):
        yield slice(start, min(start + wide, classes))
