"""What every picture looks like, in a few bytes: its size and a tiny copy, to find others like it."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from sparselabel.data.dataset import Prepared
from sparselabel.data.transforms import load, size_of
from sparselabel.errors import DataError

WIDTH, HEIGHT = 9, 8  # of the tiny copy: eight differences between neighbours in each of eight lines
GREY = np.array([299, 587, 114])
ENOUGH = 64  # pixels that suffice for the tiny copy; a large JPEG is decoded at a part of its size


@dataclass(frozen=True, eq=False)
class Looks:
    """What N pictures look like, in the order of the splits and their rows.

    ``tiny`` (N, 8 · 9 · 3) uint8 copies, ``hashes`` (N,) difference hashes, ``sizes`` (N, 2) width and height
    in pixels, as stored in the file. All are 0 for a broken picture; ``broken`` says why.
    """

    tiny: npt.NDArray[np.uint8]
    hashes: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.int32]
    broken: dict[int, str]


def look_at(prepared: Prepared, report: Callable[[int], None] | None = None) -> Looks:
    """Decode every picture once; a broken one is noted, not raised."""
    count = sum(len(split) for split in prepared.splits.values())
    looks = Looks(
        np.zeros((count, HEIGHT * WIDTH * 3), np.uint8),
        np.zeros(count, np.uint64),
        np.zeros((count, 2), np.int32),
        {},
    )
    place = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoding releases the interpreter lock
        for split in prepared.splits.values():
            for start in range(0, len(split), 1024):  # blocks keep the queue of results short
                paths = [split.root / path for path in split.paths[start : start + 1024].tolist()]
                for found in pool.map(_look, paths):
                    if isinstance(found, str):
                        looks.broken[place] = found
                    else:
                        tiny, looks.sizes[place] = found
                        looks.tiny[place], looks.hashes[place] = tiny.reshape(-1), difference_hash(tiny)
                    place += 1
                    if report is not None:
                        report(1)
    return looks


def _look(path: Path) -> tuple[npt.NDArray[np.uint8], tuple[int, int]] | str:
    try:
        picture = load(path, ENOUGH)
        size = size_of(path)
    except DataError as error:
        return str(error)
    return np.asarray(picture.resize((WIDTH, HEIGHT), Image.Resampling.BOX)), size


def difference_hash(tiny: npt.NDArray[np.uint8]) -> np.uint64:
    """A bit for each two neighbours of a tiny copy (8, 9, 3), set where the right one is lighter."""
    grey = tiny @ GREY
    bits: npt.NDArray[np.uint8] = np.packbits(grey[:, 1:] > grey[:, :-1])
    return np.uint64(int.from_bytes(bits.tobytes(), "big"))
