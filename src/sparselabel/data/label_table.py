"""``LabelTable``: the labels of named images for named classes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import (
    POSITIVE,
    UNKNOWN,
    Indices,
    LabelMatrix,
    Labels,
    SparseLabels,
    Texts,
    array_of,
    as_labels,
    count_known,
    count_per_class,
    count_per_image,
    has_value,
    take_rows,
)
from sparselabel.errors import DataError, listing

MANY_NAMES = 1 << 18
"""Number of names from which on duplicates are found by hashes first."""
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False, init=False)
class LabelTable:
    """Labels of N images for L classes; an image's row number is its key everywhere else.

    ``ids`` are the images' names (unique), ``classes`` the class names (unique), ``values`` is (N, L) int8
    with POSITIVE, NEGATIVE and UNKNOWN and nothing else. Arrays may be memory-mapped. ``matrix`` are the
    labels as stored, which may be compressed rows; ``values`` is always an array.
    """

    ids: Texts
    classes: tuple[str, ...]
    matrix: LabelMatrix

    def __init__(self, ids: Texts, classes: tuple[str, ...], values: LabelMatrix, check: bool = True) -> None:
        if check:  # prepared data was checked when it was written, and may be too large to read now
            ids, classes = np.asarray(ids, dtype=np.str_), tuple(classes)
            values = values if isinstance(values, SparseLabels) else as_labels(values)
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "matrix", values)
        if check:
            self._check()

    def _check(self) -> None:
        shape = (len(self.ids), len(self.classes))
        if self.matrix.shape != shape:
            raise DataError(
                f"labels of {shape[0]:,} images and {shape[1]:,} classes must have shape {shape}, "
                f"not {self.matrix.shape}"
            )
        refuse_odd_names("class", self.classes)
        refuse_duplicates("image", self.ids)
        refuse_duplicates("class", np.asarray(self.classes, dtype=np.str_))

    def with_values(self, values: LabelMatrix, check: bool = True) -> "LabelTable":
        """A table of the same images and classes with other labels."""
        return LabelTable(self.ids, self.classes, values, check)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def sparse(self) -> bool:
        """Whether the labels are in compressed rows."""
        return isinstance(self.matrix, SparseLabels)

    @property
    def values(self) -> Labels:
        """(N, L) All labels; an error with its size where that is too large an array."""
        return array_of(self.matrix)

    def counts(self, value: int = POSITIVE) -> npt.NDArray[np.int64]:
        """(L,) How many images have this value, per class."""
        return count_per_class(self.matrix, value)

    def per_image(self, value: int = POSITIVE) -> npt.NDArray[np.int64]:
        """(N,) How many classes have this value, per image."""
        return count_per_image(self.matrix, value)

    def has(self, value: int) -> bool:
        """Whether a label has this value."""
        return has_value(self.matrix, value)

    @property
    def known(self) -> int:
        """How many labels are known."""
        return count_known(self.matrix)

    @property
    def complete(self) -> bool:
        """Whether every label of every image is known."""
        return not has_value(self.matrix, UNKNOWN)

    def take(self, rows: Sequence[int] | Indices) -> "LabelTable":
        """The table of some rows, in the order given."""
        index = np.asarray(rows, dtype=np.intp)
        return LabelTable(self.ids[index], self.classes, take_rows(self.matrix, index))


def refuse_odd_names(kind: str, names: Iterable[str]) -> None:
    """Raise if a name is no valid text: a lone surrogate from JSON, or a file's in an old encoding."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            problem = f"the name of the {kind} {name!r} is no text in UTF-8"
            raise DataError(problem, "rename it", what=kind, value=name) from error


def refuse_duplicates(kind: str, names: Texts) -> None:
    """Raise if a name occurs twice, naming those that do."""
    unique, counts = np.unique(_alike(names), return_counts=True)
    twice = unique[counts > 1]
    if len(twice):
        raise DataError(f"every {kind} must be named once; these occur more often: {listing(twice)}")


def _alike(names: Texts) -> Texts:
    """The names with duplicate hashes, if there are many names: sorting names takes much memory."""
    if len(names) < MANY_NAMES or not names.itemsize:
        return names
    hashes = np.empty(len(names), np.uint64)
    for start in range(0, len(names), MANY_NAMES):
        letters = np.ascontiguousarray(names[start : start + MANY_NAMES]).view(np.uint32)
        some = np.zeros(len(letters) // (names.itemsize // 4), np.uint64)
        for column in letters.reshape(len(some), -1).T:
            some = (some ^ column) * HASH_FACTOR
            some ^= some >> np.uint64(29)
        hashes[start : start + MANY_NAMES] = some
    ordered = np.sort(hashes)
    return names[np.isin(hashes, ordered[1:][ordered[1:] == ordered[:-1]])]
