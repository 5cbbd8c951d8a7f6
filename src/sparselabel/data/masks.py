"""Segmentation masks of objects, beside their boxes.

A mask is stored as COCO's compressed RLE: the lengths of runs of pixels outside and inside in turn, column by
column, encoded as text. One flat array holds the texts of all masks, so all masks are three arrays.
"""

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.errors import DataError

BLOCK = 1 << 22  # bytes copied at a time
DIGITS = 7  # of five bits: a longer run length is none, and would not fit when many are added

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Masks:
    """The masks of M spatial labels, in their order; a label without a mask has an empty text.

    ``texts`` (T,) uint8 are all RLE texts concatenated, that of mask i from ``offsets[i]`` to
    ``offsets[i + 1]`` (M + 1,) int64; ``sizes`` (M, 2) int32 is the height and width of masks in pixels.
    """

    texts: npt.NDArray[np.uint8]
    offsets: Indices
    sizes: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.sizes)

    @staticmethod
    def none(count: int) -> "Masks":
        """``count`` spatial labels without masks."""
        return Masks(np.empty(0, np.uint8), np.zeros(count + 1, np.int64), np.zeros((count, 2), np.int32))

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        """(M,) Which spatial labels have a mask."""
        return np.asarray(self.offsets[1:] > self.offsets[:-1])

    def rle(self, number: int) -> dict[str, Any]:
        """A mask in the form that pycocotools takes."""
        text = self.texts[self.offsets[number] : self.offsets[number + 1]].tobytes()
        return {"size": self.sizes[number].tolist(), "counts": text}

    def decode(self, number: int) -> npt.NDArray[np.bool_]:
        """(height, width) A mask as pixels."""
        height, width = self.sizes[number].tolist()
        runs = runs_of(self.take(np.array([number])))
        steps = np.zeros(height * width + 1, np.int8)
        steps[runs.starts] = 1
        steps[runs.ends] -= 1  # runs do not touch
        return np.cumsum(steps[:-1], dtype=np.int8).astype(np.bool_).reshape(width, height).T

    def take(self, indices: Indices) -> "Masks":
        """The masks at some indices, in the order given."""
        starts, counts = self.offsets[indices], self.offsets[indices + 1] - self.offsets[indices]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        texts = np.empty(offsets[-1], np.uint8)
        first = 0
        while first < len(indices):  # the index of every byte takes eight: not all at once
            last = max(first + 1, int(np.searchsorted(offsets[:-1], offsets[first] + BLOCK)))
            begin, end = offsets[first], offsets[last]
            shift = np.repeat(starts[first:last] - offsets[first:last], counts[first:last])
            texts[begin:end] = self.texts[shift + np.arange(begin, end)]
            first = last
        return Masks(texts, offsets, np.asarray(self.sizes[indices]))


class MaskColumns:
    """Masks while they are being read, one per spatial label, in three flat columns."""

    def __init__(self) -> None:
        self._texts = bytearray()
        self._offsets = array("q", [0])
        self._sizes = array("i")

    def add(self, rle: dict[str, Any] | None) -> None:
        """Add the mask of the next spatial label, in pycocotools' form; None: it has none."""
        if rle is not None:
            self._texts += rle["counts"]
        self._offsets.append(len(self._texts))
        self._sizes.extend(rle["size"] if rle is not None else (0, 0))

    def build(self) -> Masks | None:
        """The masks that were added; None if there are none."""
        if not self._texts:
            return None
        texts, self._texts = np.frombuffer(self._texts, np.uint8), bytearray()
        sizes = np.asarray(self._sizes, np.int32).reshape(-1, 2)
        return Masks(texts, np.asarray(self._offsets, np.int64), sizes)


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of pixels inside masks: ``owners`` (R,), from ``starts`` up to ``ends`` (R,), column by column."""

    owners: Indices
    starts: Indices
    ends: Indices


def runs_of(masks: Masks) -> Runs:
    """The runs inside all of these masks, decoded together; owners are the masks' indices."""
    counts, owners, ordinals = _counts(masks)
    ends = _sums(counts, owners)
    inside = (ordinals % 2 == 1) & (counts > 0)  # the first run, which may be empty, lies outside
    return Runs(owners[inside], (ends - counts)[inside], ends[inside])


def pixels_of(masks: Masks) -> int:
    """The total length of masks' runs in pixels; −1 if a run has a negative length."""
    counts, _, _ = _counts(masks)
    return int(counts.sum()) if counts.min(initial=0) >= 0 else -1


def _counts(masks: Masks) -> tuple[Indices, Indices, Indices]:
    """The lengths of runs, outside and inside in turn; the mask of each, and its ordinal in the mask."""
    codes = np.asarray(masks.texts[masks.offsets[0] : masks.offsets[-1]]).astype(np.int64) - 48
    last = (codes & 0x20) == 0  # a number is some digits of five bits, the lowest first; another may follow
    if not len(codes):
        return codes, codes, codes
    if not last[-1] or codes.min() < 0 or codes.max() > 63:
        raise DataError("a mask's run lengths are damaged", "prepare the data again")
    firsts = np.concatenate([[0], np.flatnonzero(last)[:-1] + 1])
    lengths = np.diff(np.append(firsts, len(codes)))
    if lengths.max() > DIGITS:
        raise DataError("a mask's run lengths are damaged", "prepare the data again")
    digit = np.arange(len(codes)) - np.repeat(firsts, lengths)
    values = np.add.reduceat((codes & 0x1F) << (5 * digit), firsts)
    values -= np.where(codes[last] & 0x10, np.int64(1) << (5 * lengths), 0)  # the highest bit is the sign
    numbers = np.add.reduceat(np.append(last, False), masks.offsets[:-1] - masks.offsets[0], dtype=np.int64)
    numbers = np.where(masks.there, numbers, 0)
    owners = np.repeat(np.arange(len(masks)), numbers)
    ordinals = np.arange(len(values)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    # From the fourth on a number says how much the run is longer than the last but one.
    for parity in (1, 0):
        chain = np.flatnonzero((ordinals % 2 == parity) & (ordinals > 0))
        values[chain] = _sums(values[chain], owners[chain])
    return values, owners, ordinals


def _sums(values: Indices, owners: Indices) -> Indices:
    """Running sums that restart with every owner."""
    sums = np.cumsum(values)
    begins = np.flatnonzero(np.diff(owners, prepend=-1))
    before = (sums - values)[begins]
    return np.asarray(sums - np.repeat(before, np.diff(np.append(begins, len(owners)))))


def union(runs: Runs, groups: Indices) -> Runs:
    """The union of masks per group: ``groups`` is the group of each mask, which owns the new runs."""
    group = groups[runs.owners]
    edges = np.concatenate([runs.starts, runs.ends])
    owners = np.concatenate([group, group])
    steps = np.repeat(np.array([1, -1], np.int32), len(group))
    # One number to sort by, beginnings before endings (runs that touch become one); most are sorted already.
    key = (owners * (int(edges.max(initial=0)) + 1) + edges) * 2 + (steps < 0)
    order = np.argsort(key, kind="stable")
    steps = steps[order]
    depth = np.cumsum(steps)
    begins, ends = order[(depth == 1) & (steps == 1)], order[depth == 0]
    return Runs(owners[begins], edges[begins], edges[ends])
