"""What is known about every image: one value per image and class.

A label is POSITIVE (the class is there), NEGATIVE (it is not) or UNKNOWN (nobody looked). The field
has other codings (-1/0/+1, NaN); readers convert on the way in, and nothing after them does.
"""

from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.errors import DataError, listing

POSITIVE = 1
NEGATIVE = 0
UNKNOWN = -1

Labels = npt.NDArray[np.int8]
Indices = npt.NDArray[np.intp]
Texts = npt.NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Labels of N images for L classes; an image's row number is its key everywhere else.

    ``ids`` are the images' names (unique), ``classes`` the class names (unique), ``values`` is
    (N, L) int8 with POSITIVE, NEGATIVE and UNKNOWN and nothing else. Arrays may be memory-mapped.
    """

    ids: Texts
    classes: tuple[str, ...]
    values: Labels
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        if not check:  # prepared data was checked when it was written, and may be too large to read now
            return
        object.__setattr__(self, "ids", np.asarray(self.ids, dtype=np.str_))
        object.__setattr__(self, "classes", tuple(self.classes))
        object.__setattr__(self, "values", as_labels(self.values))
        shape = (len(self.ids), len(self.classes))
        if self.values.shape != shape:
            raise DataError(
                f"labels of {shape[0]:,} images and {shape[1]:,} classes must have shape {shape}, "
                f"not {self.values.shape}"
            )
        refuse_half_characters(self.classes)
        refuse_duplicates("image", self.ids)
        refuse_duplicates("class", np.asarray(self.classes, dtype=np.str_))

    def __len__(self) -> int:
        return len(self.ids)

    def counts(self, value: int = POSITIVE) -> npt.NDArray[np.int64]:
        """(L,) How many images have this value, per class."""
        return np.asarray(np.sum(self.values == value, axis=0, dtype=np.int64))

    def per_image(self, value: int = POSITIVE) -> npt.NDArray[np.int64]:
        """(N,) How many classes have this value, per image."""
        return np.asarray(np.sum(self.values == value, axis=1, dtype=np.int64))

    @property
    def complete(self) -> bool:
        """Whether every label of every image is known."""
        return not bool((self.values == UNKNOWN).any())

    def take(self, rows: Sequence[int] | Indices) -> "LabelTable":
        """The table of some rows, in the order given."""
        index = np.asarray(rows, dtype=np.intp)
        return LabelTable(self.ids[index], self.classes, self.values[index])


def as_labels(values: Any) -> Labels:
    """Check that all values are labels and return them as int8 (no copy if they are already)."""
    array = np.asarray(values)
    if array.dtype != np.int8:
        with np.errstate(invalid="ignore"):  # NaN has no int8; it is refused below
            converted = array.astype(np.int8) if array.dtype.kind in "biuf" else None
        if converted is None or not np.array_equal(converted, array):
            raise DataError(f"labels must be 1, 0 or -1 (unknown), not {_odd_one(array)}")
        array = converted
    if array.size and (array.min() < UNKNOWN or array.max() > POSITIVE):
        raise DataError(f"labels must be 1, 0 or -1 (unknown), not {_odd_one(array)}")
    return array


def refuse_half_characters(classes: Sequence[str]) -> None:
    """Raise if a class's name cannot be written, as half of a character, which JSON can name."""
    for name in classes:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            problem = f"the class {name!r} has half of a character in its name"
            raise DataError(problem, "rename it", what="classes", value=name) from error


def refuse_duplicates(kind: str, names: Texts) -> None:
    """Raise if a name occurs twice, naming those that do."""
    unique, counts = np.unique(names, return_counts=True)
    if len(unique) != len(names):
        twice = unique[counts > 1]
        raise DataError(f"every {kind} must be named once; these occur more often: {listing(twice)}")


def _odd_one(array: npt.NDArray[Any]) -> str:
    odd = array.ravel()[~np.isin(array.ravel(), (POSITIVE, NEGATIVE, UNKNOWN))]
    if not len(odd):  # 1, 0 and -1, but as Python objects or complex numbers
        return f"values of type {array.dtype}"
    return repr(odd[0].item() if hasattr(odd[0], "item") else odd[0])


def labels_of(given: object) -> Labels:
    """(N, L) int8 labels from whatever holds them."""
    if isinstance(given, LabelTable):
        return np.asarray(given.values)
    if hasattr(given, "tocoo"):  # a SciPy sparse matrix, or array
        entries = given.tocoo()
        values = np.full(entries.shape, UNKNOWN, dtype=np.float64)
        values[entries.row, entries.col] = entries.data
    elif hasattr(given, "detach"):  # a tensor
        values = given.detach().cpu().numpy()
    else:
        values = given.to_numpy() if hasattr(given, "to_numpy") else np.asarray(given)
        if values.dtype == object and hasattr(given, "isna"):  # pandas' NA is no number
            values = np.where(given.isna(), np.nan, values)
    if values.ndim != 2 or 0 in values.shape:
        raise DataError(f"labels must be (N, L), with at least one of each, not of shape {values.shape}")
    if values.dtype == bool:
        raise DataError(
            "labels are booleans, which say nothing of what is unknown",
            "give 1, 0 and -1 (or NaN), as numpy.where(positive, 1, -1)",
            what="labels",
        )
    if values.dtype.kind in "iu" and values.min() >= UNKNOWN and values.max() <= POSITIVE:
        return np.asarray(values.astype(np.int8))  # a million images are not copied as floats
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"labels must be numbers: {error}", what="labels", value=str(values.dtype)) from error
    numbers[np.isnan(numbers)] = UNKNOWN
    strange = ~np.isin(numbers, (POSITIVE, NEGATIVE, UNKNOWN))
    if strange.any():
        row, column = (int(one[0]) for one in np.nonzero(strange))
        raise DataError(
            f"labels must be 1, 0, and -1 or NaN for unknown, but row {row}, column {column} has "
            f"{numbers[row, column]:g}",
            what="labels",
            where=(row, column),
            value=float(numbers[row, column]),
        )
    return numbers.astype(np.int8)
