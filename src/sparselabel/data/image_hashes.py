"""Duplicate images: exact ones by the digests of their files, near ones by perceptual hashes.

Two images are nearly the same if their difference hashes differ in at most 7 of 64 bits and their tiny copies
by at most 10 of 255 levels in the mean. The hash alone has false pairs among plain images (313 in the 11,540
of VOC 2012, mostly birds and planes in an empty sky); with the copies one pair is left, a photograph in color
and in gray. Of 150 of them, saved again at JPEG quality 40 or half the size, 99 % or more were within 7 bits
and all within 2 levels.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise, repeat

import numpy as np
import numpy.typing as npt
from PIL import Image

from sparselabel.config import CORES
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.decode import load, size_of
from sparselabel.errors import DataError

WIDTH, HEIGHT = 9, 8  # of the tiny copy: eight differences between neighbors in each of eight lines
GRAY = np.array([299, 587, 114])
ENOUGH = 64  # pixels that suffice for the tiny copy; a large JPEG is decoded at a part of its size


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """Small summaries of N images, in the order of the splits and their rows, to compare them by.

    ``tiny`` (N, 8 · 9 · 3) uint8 copies, ``hashes`` (N,) difference hashes, ``sizes`` (N, 2) width and height
    in pixels, as stored in the file. All are 0 for a broken image; ``broken`` says why.
    """

    tiny: npt.NDArray[np.uint8]
    hashes: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.int32]
    broken: dict[int, str]


def compute_fingerprints(prepared: Dataset, report: Callable[[int], None] | None = None) -> Fingerprints:
    """Decode every image once; a broken one is noted, not raised."""
    count = sum(len(split) for split in prepared.splits.values())
    fingerprints = Fingerprints(
        np.zeros((count, HEIGHT * WIDTH * 3), np.uint8),
        np.zeros(count, np.uint64),
        np.zeros((count, 2), np.int32),
        {},
    )
    number = 0
    with ThreadPoolExecutor(CORES) as pool:  # decoding releases the interpreter lock
        for split in prepared.splits.values():
            for start in range(0, len(split), 1024):  # blocks keep the queue of results short
                rows = range(start, min(start + 1024, len(split)))
                for result in pool.map(_fingerprint, repeat(split), rows):
                    if isinstance(result, str):
                        fingerprints.broken[number] = result
                    else:
                        tiny, fingerprints.sizes[number] = result
                        fingerprints.tiny[number], fingerprints.hashes[number] = (
                            tiny.reshape(-1),
                            difference_hash(tiny),
                        )
                    number += 1
                    if report is not None:
                        report(1)
    return fingerprints


def _fingerprint(split: PreparedSplit, row: int) -> tuple[npt.NDArray[np.uint8], tuple[int, int]] | str:
    path = split.place(row)
    try:
        content = None if split.stored is None else split.content(row)
        image = load(path, ENOUGH, content=content)
        size = size_of(path, content)
    except DataError as error:
        return str(error)
    return np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.BOX)), size


def difference_hash(tiny: npt.NDArray[np.uint8]) -> np.uint64:
    """A bit for each two neighbors of a tiny copy (8, 9, 3), set where the right one is lighter."""
    gray = tiny @ GRAY
    bits: npt.NDArray[np.uint8] = np.packbits(gray[:, 1:] > gray[:, :-1])
    return np.uint64(int.from_bytes(bits.tobytes(), "big"))


BITS = 7  # with so many wrong bits, at least one of a hash's eight bytes is the same
LEVELS = 10.0
PAIRS = 1 << 20  # hashes compared together
CLOSE = 1 << 15  # tiny copies compared together

ImageNumbers = npt.NDArray[np.intp]
"""Images by number, counted over all splits in their order."""


def exact_duplicates(prepared: Dataset) -> list[ImageNumbers]:
    """Groups of images whose files have the same bytes."""
    return _groups(np.concatenate([np.asarray(split.digests) for split in prepared.splits.values()]))


def near_duplicates(prepared: Dataset, fingerprints: Fingerprints) -> list[ImageNumbers]:
    """Groups of images that are nearly the same but different files."""
    root = np.arange(len(fingerprints.tiny))
    whole = np.ones(len(root), dtype=bool)
    whole[[*fingerprints.broken]] = False
    for first, second in _candidates(fingerprints.hashes, np.flatnonzero(whole)):
        apart = root[first] != root[second]
        first, second = first[apart], second[apart]  # noqa: PLW2901
        levels = np.abs(fingerprints.tiny[first].astype(np.int16) - fingerprints.tiny[second]).mean(1)
        root = _united(root, first[levels <= LEVELS], second[levels <= LEVELS])
    digests = np.concatenate([np.asarray(split.digests) for split in prepared.splits.values()])
    return [group for group in _groups(root) if len(np.unique(digests[group])) > 1]


def _groups(keys: npt.NDArray[np.generic]) -> list[ImageNumbers]:
    """The positions of keys that occur more than once, in the order of first occurrence."""
    order = np.argsort(keys, kind="stable")
    changes = np.flatnonzero(keys[order][1:] != keys[order][:-1]) + 1
    starts, ends = np.concatenate([[0], changes]), np.concatenate([changes, [len(keys)]])
    several = ends - starts > 1
    groups = [order[start:end] for start, end in zip(starts[several], ends[several], strict=True)]
    return sorted(groups, key=lambda group: int(group[0]))


def _candidates(
    hashes: npt.NDArray[np.uint64], numbers: ImageNumbers
) -> Iterator[tuple[ImageNumbers, ImageNumbers]]:
    """Pairs whose hashes are near, some at a time; only those that share a byte need to be compared."""
    shown = hashes.view(np.uint8).reshape(-1, 8)
    for byte in range(8):
        order = numbers[np.argsort(shown[numbers, byte], kind="stable")]
        bounds = np.searchsorted(shown[order, byte], np.arange(257))
        for low, high in pairwise(bounds.tolist()):
            yield from _near_among(hashes, order[low:high])


def _near_among(
    hashes: npt.NDArray[np.uint64], numbers: ImageNumbers
) -> Iterator[tuple[ImageNumbers, ImageNumbers]]:
    mine = hashes[numbers]
    step = max(1, PAIRS // max(len(numbers), 1))
    for start in range(0, len(numbers), step):
        differ = np.bitwise_count(mine[start : start + step, None] ^ mine[None, start:])
        first, second = np.nonzero(differ <= BITS)
        ahead = second > first
        first, second = numbers[first[ahead] + start], numbers[second[ahead] + start]
        for some in range(0, len(first), CLOSE):
            yield first[some : some + CLOSE], second[some : some + CLOSE]


def _united(root: ImageNumbers, first: ImageNumbers, second: ImageNumbers) -> ImageNumbers:
    """The groups, each named by its first member, after merging the members of some pairs."""
    while True:
        one, other = root[first], root[second]
        apart = one != other
        if not apart.any():
            return root
        first, second = first[apart], second[apart]
        root = root.copy()
        # Several pairs may move the same group: the lowest wins, and the others are repeated.
        np.minimum.at(root, np.maximum(one, other)[apart], np.minimum(one, other)[apart])
        while (root[root] != root).any():
            root = root[root]
