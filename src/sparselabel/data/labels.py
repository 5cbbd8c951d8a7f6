"""What is known about every image: one value per image and class.

A label is POSITIVE (present), NEGATIVE (absent) or UNKNOWN. Other codings (-1/0/+1, NaN) are converted by the
readers, and nowhere else.

The labels of a table are an array (N, L), or ``SparseLabels`` if the array would be large and few labels are
known: 20,000 classes of 9 million images are 180 GB, and 60 million known labels 0.4 GB. Both are read by the
same index expressions, and counted by the functions here.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from sparselabel.errors import DataError, ResourceError, listing

POSITIVE = 1
NEGATIVE = 0
UNKNOWN = -1

Labels = npt.NDArray[np.int8]
Indices = npt.NDArray[np.intp]
Texts = npt.NDArray[np.str_]
KNOWN_BLOCK = 1 << 22
"""Known labels that are processed together."""
SPARSE_FROM = 1 << 26
"""Labels from which on a table may be in compressed rows: smaller arrays are quicker."""
SMALLER = 4
"""How much smaller than the array compressed rows must be."""
LARGEST_ARRAY = 1 << 32
"""Bytes of the largest array that compressed rows may become."""
MANY_NAMES = 1 << 18
"""Number of names from which on duplicates are found by hashes first."""
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)

BLOCK = 1 << 20  # entries of an array (N, L) that are processed together


def row_blocks(images: int, classes: int) -> list[slice]:
    """Slices of images with a bounded number of entries."""
    tall = max(1, BLOCK // max(classes, 1))
    return [slice(start, start + tall) for start in range(0, images, tall)]


class ContradictionError(DataError):
    """A label that is given twice, as present and as absent."""

    @property
    def entries(self) -> tuple[int, int]:
        """The numbers of the two entries, from 0."""
        return cast("tuple[int, int]", self.where)


class SparseLabels:
    """Labels (N, L) of which few are known, in compressed rows: UNKNOWN ones take no memory.

    The known labels of row i are those from ``starts[i]`` to ``starts[i + 1]``: their classes in ``columns``
    (int32, rising within a row), 1 or 0 in ``known`` (int8). Arrays may be memory-mapped. Indexing is that of
    an array: ``labels[rows]`` are dense (B, L) labels of these rows.
    """

    __slots__ = ("columns", "known", "shape", "starts")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        starts: npt.NDArray[np.int64],
        columns: npt.NDArray[np.int32],
        known: Labels,
        classes: int,
    ) -> None:
        self.starts, self.columns, self.known = starts, columns, known
        self.shape = (len(starts) - 1, classes)

    @staticmethod
    def of_entries(
        rows: npt.NDArray[np.integer],
        columns: npt.NDArray[np.integer],
        values: npt.NDArray[np.integer],
        shape: tuple[int, int],
    ) -> "SparseLabels":
        """Labels of which those at ``rows`` and ``columns`` (K,) are given; UNKNOWN ones may be among them.

        The same label may be given twice, but not with two values.
        """
        order = None if bool((rows[1:] >= rows[:-1]).all()) else np.argsort(rows, kind="stable")
        starts = np.zeros(shape[0] + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=shape[0]), out=starts[1:])
        sorted_columns, known = np.empty(len(rows), np.int32), np.empty(len(rows), np.int8)
        counts, end = np.zeros(shape[0], np.int64), 0
        for first, last in _row_spans(starts):
            entries = slice(int(starts[first]), int(starts[last]))
            some = np.arange(entries.start, entries.stop) if order is None else order[entries]
            some = some[values[some] != UNKNOWN]
            own = rows[some].astype(np.int64) - first
            keys = own * shape[1] + columns[some]
            by_key = np.argsort(keys, kind="stable")
            some, keys, own = some[by_key], keys[by_key], own[by_key]
            twice = keys[1:] == keys[:-1]
            differ = np.flatnonzero(twice & (values[some[1:]] != values[some[:-1]]))
            if len(differ):
                pair = int(some[differ[0]]), int(some[differ[0] + 1])
                raise ContradictionError(
                    f"entries {pair[0]:,} and {pair[1]:,} are of one image and class, and differ",
                    "leave one of them out",
                    what="labels",
                    where=pair,
                )
            if twice.any():
                once = np.append(True, ~twice)
                some, own = some[once], own[once]
            counts[first:last] = np.bincount(own, minlength=last - first)
            sorted_columns[end : end + len(some)], known[end : end + len(some)] = columns[some], values[some]
            end += len(some)
        np.cumsum(counts, out=starts[1:])
        if end < len(rows):
            sorted_columns, known = sorted_columns[:end].copy(), known[:end].copy()
        return SparseLabels(starts, sorted_columns, known, shape[1])

    @staticmethod
    def of_array(values: Labels) -> "SparseLabels":
        """The labels of an array (N, L)."""
        starts = np.zeros(len(values) + 1, np.int64)
        columns, known = [np.empty(0, np.int32)], [np.empty(0, np.int8)]
        for span in row_blocks(*values.shape):
            block = np.asarray(values[span])
            rows, classes = np.nonzero(block != UNKNOWN)
            starts[span.start + 1 : span.start + 1 + len(block)] = np.bincount(rows, minlength=len(block))
            columns.append(classes.astype(np.int32))
            known.append(block[rows, classes])
        np.cumsum(starts, out=starts)
        return SparseLabels(starts, np.concatenate(columns), np.concatenate(known), values.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """The number of entries, N × L."""
        return self.shape[0] * self.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.starts.nbytes + self.columns.nbytes + self.known.nbytes

    def __getitem__(self, key: Any) -> Any:
        """The same as indexing a dense array (N, L).

        A row, a slice of rows or some rows become dense; pairs of rows and classes are looked up; a class or
        a slice of classes after ``:`` reads all known labels.
        """
        if not isinstance(key, tuple):
            return self._rows(key)
        rows, columns = key
        if isinstance(rows, slice):
            if rows != slice(None):
                return self._rows(rows)[:, columns]
            return self._columns(columns)
        if isinstance(columns, slice):
            return self._rows(rows)[..., columns]
        return self._entries(rows, columns)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All labels, if they are not too many."""
        written = self._rows(slice(None))
        return written if dtype is None else written.astype(dtype)

    def __eq__(self, other: object) -> bool:
        raise TypeError("sparse labels are not compared as a whole: count them, or look at some rows")

    def take(self, rows: Sequence[int] | Indices | npt.NDArray[np.integer]) -> "SparseLabels":
        """The labels of some rows, in the order given, in compressed rows too."""
        index = np.asarray(rows, dtype=np.intp)
        if len(index) == len(self) and np.array_equal(index, np.arange(len(self))):
            return self
        counts = self.starts[index + 1] - self.starts[index]
        starts = np.zeros(len(index) + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        columns, known = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int8)
        for first, last in _row_spans(starts):  # indices take more memory than the labels
            at = spans(self.starts[index[first:last]], counts[first:last])
            columns[starts[first] : starts[last]] = self.columns[at]
            known[starts[first] : starts[last]] = self.known[at]
        return SparseLabels(starts, columns, known, self.shape[1])

    def with_entries(
        self, rows: Sequence[int], columns: Sequence[int], values: Sequence[int]
    ) -> "SparseLabels":
        """A copy in which some labels (n,), each named once, have other values."""
        at = np.asarray(rows, np.int64), np.asarray(columns, np.int64), np.asarray(values, np.int8)
        keep = np.ones(len(self.known), dtype=np.bool_)
        index, known = self._places(at[0], at[1])
        keep[index[known]] = False
        added = at[2] != UNKNOWN
        order = np.lexsort((at[1][added], at[0][added]))
        new_rows, new_columns, new_values = (part[added][order] for part in at)
        kept_before = np.concatenate([[0], np.cumsum(keep)])  # known labels that stay, before each place
        where = np.empty(len(new_rows), np.int64)
        for number, (row, column) in enumerate(zip(new_rows.tolist(), new_columns.tolist(), strict=True)):
            first, last = int(self.starts[row]), int(self.starts[row + 1])
            where[number] = kept_before[first + int(np.searchsorted(self.columns[first:last], column))]
        starts = kept_before[self.starts]
        starts[1:] += np.cumsum(np.bincount(new_rows, minlength=len(self)))
        return SparseLabels(
            starts,
            np.insert(self.columns[keep], where, new_columns.astype(np.int32)),
            np.insert(self.known[keep], where, new_values),
            self.shape[1],
        )

    def rows_of(self, entries: slice) -> npt.NDArray[np.int64]:
        """The rows of a slice of the known labels."""
        first = int(np.searchsorted(self.starts, entries.start, side="right")) - 1
        last = int(np.searchsorted(self.starts, entries.stop, side="left"))
        ends = np.clip(self.starts[first : last + 1], entries.start, entries.stop)
        return np.repeat(np.arange(first, last), np.diff(ends))

    def _rows(self, key: Any) -> Labels:
        if isinstance(key, int | np.integer):
            if not -len(self) <= key < len(self):
                raise IndexError(f"row {key} is not among {len(self):,}")
            row: Labels = self._written(np.asarray([key % len(self)]))[0]
            return row
        if isinstance(key, slice):
            return self._written(np.arange(*key.indices(len(self))))
        index = np.asarray(key)
        if index.dtype == np.bool_:
            index = np.flatnonzero(index)
        flat = np.where(index < 0, index + len(self), index).reshape(-1).astype(np.intp)
        return self._written(flat).reshape(*index.shape, self.shape[1])

    def _written(self, rows: Indices) -> Labels:
        self._refuse_large(len(rows) * self.shape[1])
        written = np.full((len(rows), self.shape[1]), UNKNOWN, np.int8)
        starts = self.starts[rows]
        counts = self.starts[rows + 1] - starts
        at = spans(starts, counts)
        written[np.repeat(np.arange(len(rows)), counts), self.columns[at]] = self.known[at]
        return written

    def _columns(self, key: Any) -> Labels:
        """(N, l) The labels of a slice of classes, of several classes, or (N,) of one."""
        if isinstance(key, int | np.integer):
            column: Labels = self._columns(np.asarray([int(key) % self.shape[1]]))[:, 0]
            return column
        wanted = np.arange(self.shape[1])[key]
        self._refuse_large(len(self) * len(wanted))
        position = np.full(self.shape[1], -1, np.int32)
        position[wanted] = np.arange(len(wanted))
        written = np.full((len(self), len(wanted)), UNKNOWN, np.int8)
        for entries in entry_spans(self):
            places = position[self.columns[entries]]
            here = np.flatnonzero(places >= 0)
            written[self.rows_of(entries)[here], places[here]] = self.known[entries][here]
        # A class that is asked for twice is written once.
        return written if len(np.unique(wanted)) == len(wanted) else written[:, position[wanted]]

    def _entries(self, rows: Any, columns: Any) -> Any:
        wanted = np.broadcast_arrays(np.asarray(rows), np.asarray(columns))
        at, there = self._places(wanted[0].reshape(-1), wanted[1].reshape(-1))
        labels = np.full(len(at), UNKNOWN, np.int8)
        labels[there] = self.known[at[there]]
        return labels.reshape(wanted[0].shape)[()]

    def _places(
        self, rows: npt.NDArray[np.integer], columns: npt.NDArray[np.integer]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The positions of the labels at ``rows`` and ``columns`` (n,), and which are known, by bisection."""
        rows = np.where(rows < 0, rows + len(self), rows)
        columns = np.where(columns < 0, columns + self.shape[1], columns)
        low, end = self.starts[rows], self.starts[rows + 1]
        high = end.copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            before = np.zeros(len(low), dtype=np.bool_)
            before[open_] = self.columns[middle[open_]] < columns[open_]
            low = np.where(open_ & before, middle + 1, low)
            high = np.where(open_ & ~before, middle, high)
        there = low < end
        there[there] = self.columns[low[there]] == columns[there]
        return low, there

    def _refuse_large(self, size: int) -> None:
        if size > LARGEST_ARRAY:
            raise ResourceError(
                f"{self.shape[0]:,} images and {self.shape[1]:,} classes are kept as the "
                f"{len(self.known):,} labels that are known, and this needs an array of them all "
                f"({size / 1e9:,.0f} GB, at most {LARGEST_ARRAY / 1e9:.0f})",
                "take fewer images or classes",
                what="labels",
                value=size,
                allowed=LARGEST_ARRAY,
            )


LabelMatrix = Labels | SparseLabels
"""Labels (N, L): all of them, or those that are known."""


def compact(labels: LabelMatrix) -> LabelMatrix:
    """The same labels in compressed rows if these take much less memory, else as an array."""
    rows, classes = labels.shape
    if isinstance(labels, SparseLabels):
        return labels if _is_sparse(labels.shape, len(labels.known)) else labels[:]
    if rows * classes < SPARSE_FROM:
        return labels
    return SparseLabels.of_array(labels) if _is_sparse((rows, classes), count_known(labels)) else labels


def _is_sparse(shape: tuple[int, ...], known: int) -> bool:
    size = shape[0] * shape[1]
    return size >= SPARSE_FROM and SMALLER * (5 * known + 8 * shape[0]) <= size


def array_of(labels: LabelMatrix) -> Labels:
    """(N, L) All labels as an array; an error with its size where that is too large."""
    return labels[:] if isinstance(labels, SparseLabels) else np.asarray(labels)


def take_rows(labels: LabelMatrix, rows: Indices) -> LabelMatrix:
    """Some rows, in the same form."""
    return labels.take(rows) if isinstance(labels, SparseLabels) else labels[rows]


def all_unknown(shape: tuple[int, int]) -> LabelMatrix:
    """Labels of which none is known."""
    nothing = np.empty(0, np.int64)
    return compact(SparseLabels.of_entries(nothing, nothing, nothing, shape))


def count_per_class(labels: LabelMatrix, value: int = POSITIVE) -> npt.NDArray[np.int64]:
    """(L,) How many images have this value, per class."""
    if not isinstance(labels, SparseLabels):
        sums = np.zeros(labels.shape[1], np.int64)
        for block in row_blocks(*labels.shape):
            sums += np.count_nonzero(labels[block] == value, axis=0)
        return sums
    counts = np.zeros(labels.shape[1], np.int64)
    for entries in entry_spans(labels):
        columns = labels.columns[entries]
        chosen = columns if value == UNKNOWN else columns[labels.known[entries] == value]
        counts += np.bincount(chosen, minlength=labels.shape[1])
    return len(labels) - counts if value == UNKNOWN else counts


def count_per_image(labels: LabelMatrix, value: int = POSITIVE) -> npt.NDArray[np.int64]:
    """(N,) How many classes have this value, per image."""
    if not isinstance(labels, SparseLabels):
        blocks = [np.count_nonzero(labels[block] == value, axis=1) for block in row_blocks(*labels.shape)]
        return np.concatenate([np.empty(0, np.int64), *blocks])
    known = np.diff(labels.starts)
    if value == UNKNOWN:
        return np.asarray(labels.shape[1] - known)
    here = np.zeros(len(labels), np.int64)
    for entries in entry_spans(labels):
        rows = labels.rows_of(entries)[labels.known[entries] == value]
        if len(rows):
            first = int(rows[0])
            counts = np.bincount(rows - first)
            here[first : first + len(counts)] += counts
    return here


def count_known(labels: LabelMatrix) -> int:
    """How many labels are known."""
    if isinstance(labels, SparseLabels):
        return len(labels.known)
    return sum(int(np.count_nonzero(labels[block] != UNKNOWN)) for block in row_blocks(*labels.shape))


def has_value(labels: LabelMatrix, value: int) -> bool:
    """Whether a label has this value."""
    if not isinstance(labels, SparseLabels):
        return any(bool((labels[block] == value).any()) for block in row_blocks(*labels.shape))
    return count_known(labels) < labels.size if value == UNKNOWN else bool((labels.known == value).any())


def known_entries(
    labels: LabelMatrix,
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.integer], Labels]]:
    """Rows, classes and values of the known labels, by row and class, a bounded number at a time."""
    if isinstance(labels, SparseLabels):
        for entries in entry_spans(labels):
            yield labels.rows_of(entries), labels.columns[entries], labels.known[entries]
    else:
        for span in row_blocks(*labels.shape):
            block = np.asarray(labels[span])
            rows, columns = np.nonzero(block != UNKNOWN)
            yield rows + span.start, columns, block[rows, columns]


def positives_of(labels: LabelMatrix) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows and classes of all positives, by row and class."""
    rows, columns = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for some_rows, some_columns, values in known_entries(labels):
        positive = values == POSITIVE
        rows.append(some_rows[positive])
        columns.append(some_columns[positive].astype(np.int64))
    return np.concatenate(rows), np.concatenate(columns)


def entry_spans(labels: SparseLabels) -> Iterator[slice]:
    """The known labels, a bounded number at a time."""
    for start in range(0, len(labels.known), KNOWN_BLOCK):
        yield slice(start, min(start + KNOWN_BLOCK, len(labels.known)))


def _row_spans(starts: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Beginnings and ends of blocks of rows with a bounded number of known labels, at least one row each."""
    first, count = 0, len(starts) - 1
    while first < count:
        last = int(np.searchsorted(starts, starts[first] + KNOWN_BLOCK, side="right")) - 1
        last = min(max(last, first + 1), count)
        yield first, last
        first = last


def spans(firsts: npt.NDArray[np.integer], counts: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """The ranges that begin at ``firsts`` and have ``counts`` numbers each, concatenated."""
    starts = np.repeat(firsts - (np.cumsum(counts) - counts), counts)
    return np.asarray(starts + np.arange(counts.sum()), np.int64)


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


def _odd_one(array: npt.NDArray[Any]) -> str:
    odd = array.ravel()[~np.isin(array.ravel(), (POSITIVE, NEGATIVE, UNKNOWN))]
    if not len(odd):  # 1, 0 and -1, but as Python objects or complex numbers
        return f"values of type {array.dtype}"
    return repr(odd[0].item() if hasattr(odd[0], "item") else odd[0])


def label_matrix_of(given: object) -> LabelMatrix:
    """(N, L) int8 labels from an array, tensor, DataFrame or sparse matrix, compressed if that is smaller."""
    if isinstance(given, LabelTable):
        return given.matrix
    if isinstance(given, SparseLabels):
        return given
    if hasattr(given, "tocoo"):  # a SciPy sparse matrix, or array
        entries = given.tocoo()
        return _of_stored(entries.row, entries.col, entries.data, entries.shape)
    if hasattr(given, "detach"):  # a tensor
        tensor = cast("Any", given).detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":  # NumPy has none
            tensor = tensor.float()
        if str(tensor.layout) != "torch.strided":  # COO, CSR and the like
            tensor = tensor.to_sparse_coo().coalesce()
            _refuse_shape(tuple(tensor.shape))
            rows, columns = tensor.indices().numpy()
            return _of_stored(rows, columns, tensor.values().numpy(), tuple(tensor.shape))
        values = tensor.numpy()
    else:
        try:
            values = given.to_numpy() if hasattr(given, "to_numpy") else np.asarray(given)
        except ValueError as error:  # lists of different lengths
            raise _not_a_table("lists of different lengths") from error
        if values.dtype == object and hasattr(given, "isna"):  # pandas' NA is no number
            values = np.where(given.isna(), np.nan, values)
    _refuse_shape(values.shape)
    return _as_codes(values, lambda at: (int(at[0]), int(at[1])))


def _of_stored(rows: Any, columns: Any, data: npt.NDArray[Any], shape: tuple[int, int]) -> LabelMatrix:
    """Labels of a sparse matrix: stored entries are known, others unknown."""
    _refuse_shape(shape)
    rows, columns = np.asarray(rows), np.asarray(columns)
    data = data.astype(np.int8) if data.dtype == bool else data
    values = _as_codes(data, lambda at: (int(rows[at[0]]), int(columns[at[0]])))
    return compact(SparseLabels.of_entries(rows, columns, values, shape))


def labels_of(given: object) -> Labels:
    """(N, L) int8 labels as an array, from an array, tensor or DataFrame."""
    return array_of(label_matrix_of(given))


def _refuse_shape(shape: tuple[int, ...]) -> None:
    if len(shape) == 1:
        raise DataError(
            "labels must be (N, L), a column for each class, and these are one for each row",
            "give 1 for the row's class and -1 for others, where those may be there too",
            "0 for others, where they are not",
            what="labels",
            value=shape,
        )
    if not shape:
        raise _not_a_table("one object")
    if len(shape) != 2 or 0 in shape:
        problem = f"labels must be (N, L), with at least one of each, not of shape {shape}"
        raise DataError(problem, what="labels", value=shape)


def _not_a_table(what: str) -> DataError:
    return DataError(
        f"labels must be (N, L), a row for each image and a column for each class, not {what}",
        "start with numpy.full((N, L), -1), and set labels[row, classes] = 1",
        what="labels",
    )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _as_codes(values: npt.NDArray[Any], place: Callable[[tuple[Any, ...]], tuple[int, int]]) -> Labels:
    """Labels as int8 from numbers with NaN for unknown; ``place`` returns the row and class of an entry."""
    if values.dtype == bool:
        raise DataError(
            "labels are booleans, which say nothing of what is unknown",
            "give 1, 0 and -1 (or NaN), as numpy.where(positive, 1, -1)",
            what="labels",
        )
    if not values.size:
        return values.astype(np.int8)
    if values.dtype.kind in "iu" and values.min() >= UNKNOWN and values.max() <= POSITIVE:
        return np.asarray(values.astype(np.int8))  # a million images are not copied as floats
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        first = next(at for at in np.ndindex(values.shape) if not _is_number(values[at]))
        row, column = place(first)
        raise DataError(
            f"labels must be numbers, but row {row}, column {column} has {str(values[first])!r:.40}",
            "leave columns of names out",
            "give 1, 0, and -1 or NaN for unknown",
            what="labels",
            where=(row, column),
            value=values[first],
        ) from error
    numbers[np.isnan(numbers)] = UNKNOWN
    strange = ~np.isin(numbers, (POSITIVE, NEGATIVE, UNKNOWN))
    if strange.any():
        first = tuple(one[0] for one in np.nonzero(strange))
        row, column = place(first)
        raise DataError(
            f"labels must be 1, 0, and -1 or NaN for unknown, but row {row}, column {column} has "
            f"{numbers[first]:g}",
            what="labels",
            where=(row, column),
            value=float(numbers[first]),
        )
    return numbers.astype(np.int8)
