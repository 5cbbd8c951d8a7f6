"""Read Python objects as a ``RawDataset``: arrays, torch datasets, Hugging Face datasets."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from sparselabel.data.image_source import ImageSource
from sparselabel.data.label_conversion import label_matrix_of, labels_of
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix, SparseLabels, compact
from sparselabel.data.readers.raw_dataset import SPLITS, RawDataset, RawSplit
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import DataError, counted, listing, nearest

Unlisted = Literal["unknown", "negative"]
"""What a class is that an image's list of labels does not name."""
VALIDATION = ("validation", "valid", "dev")
"""What others call "val"."""
APART = ("give the labels (N, L) apart (labels=)", "let the dataset's target_transform make them")


def read_arrays(
    splits: Mapping[str, tuple[Any, Any]],
    root: Path,
    classes: Sequence[str] | None = None,
    spatial_labels: SpatialLabels | None = None,
) -> RawDataset:
    """Images and labels (N, L) by split; classes are named by the columns of a DataFrame, or numbered."""
    for name, given in splits.items():
        if not isinstance(given, tuple | list) or len(given) != 2:
            problem = f"{name} must be a pair (images, labels), not {type(given).__name__}"
            raise DataError(problem, what=name, value=type(given).__name__, allowed="(images, labels)")
    labels = {name: label_matrix_of(given) for name, (_, given) in splits.items()}
    columns = getattr(splits["train"][1], "columns", range(labels["train"].shape[1]))
    names = tuple(str(name) for name in (columns if classes is None else classes))
    raw = {
        name: _split(ImageSource(images, np.arange(_length(images, name))), names, labels[name], name)
        for name, (images, _) in splits.items()
    }
    if spatial_labels is not None:
        train = raw["train"]
        raw["train"] = RawSplit(train.labels, train.paths, spatial_labels, images=train.images)
    return RawDataset("arrays", root, raw, own=True)


def read_torch(
    splits: Mapping[str, Any],
    root: Path,
    classes: Sequence[str] | None = None,
    labels: Mapping[str, Any] | None = None,
) -> RawDataset:
    """Items (image, label) of map-style datasets.

    A label is an index or a name, a list of these, or a vector of 1, 0 and -1, one for each class. Labels are
    ``labels`` (N, L) by split, or else ``dataset.targets``, or else those of the items.
    """
    train = splits["train"]
    counts = {name: _length(split, name) for name, split in splits.items()}
    names = tuple(str(name) for name in classes or getattr(train, "classes", None) or ())
    values = {name: label_matrix_of(table) for name, table in (labels or {}).items()}
    targets = {name: _targets(split) for name, split in splits.items() if name not in values}
    multi_hot = all(_is_multi_hot(some) and len(some[0]) > 1 for some in targets.values())
    if not names:
        widths = [table.shape[1] for table in values.values()]
        widths += [len(some[0]) for some in targets.values()] if multi_hot else []
        names = tuple(map(str, range(max(widths)))) if widths else _names(targets.values())
    values |= {
        name: labels_of(np.asarray(some)) if multi_hot else _rows(some, names, "unknown")
        for name, some in targets.items()
    }
    raw = {
        name: _split(ImageSource(split, np.arange(counts[name]), _first), names, values[name], name)
        for name, split in splits.items()
    }
    return RawDataset(type(train).__name__, root, raw, own=True)


def read_huggingface(
    dataset: Any,
    root: Path,
    image: str = "image",
    label: str = "label",
    classes: Sequence[str] | None = None,
    unlisted: Unlisted | Mapping[str, Unlisted] = "unknown",
) -> RawDataset:
    """A dataset of the Hugging Face library, or a dictionary of its splits, by the names of two columns.

    A label is an index or a name, a list of these, or, where classes have no names, a vector of 1, 0 and -1.
    A dataset of anybody else whose items are dictionaries will do as well.
    """
    splits = dict(dataset) if isinstance(dataset, Mapping) else {"train": dataset}
    splits = _renamed(splits)
    strangers = splits.keys() - {*SPLITS}
    if strangers or "train" not in splits:
        raise DataError(
            f"splits are called {listing(SPLITS)}, and there must be a 'train', not {listing(splits)}",
            "rename them, or leave some out",
            what="splits",
            value=tuple(splits),
        )
    counts = {name: _length(split, name) for name, split in splits.items()}
    known = _columns_of(splits["train"])
    for column in (image, label):
        if column not in known:
            raise DataError(
                f"the dataset has no column {column!r}",
                f"name it (image=, label=): {nearest(column, known)}",
                what="column",
                value=column,
                allowed=known,
            )
    feature = (getattr(splits["train"], "features", None) or {}).get(label)
    inner = getattr(feature, "feature", feature)  # of a sequence of labels
    values = {name: _column(split, label) for name, split in splits.items()}
    names = tuple(str(name) for name in classes or getattr(inner, "names", None) or ())
    multi_hot = not getattr(inner, "names", None) and all(
        _is_multi_hot(some, len(names)) for some in values.values()
    )
    if not names:
        count = len(values["train"][0]) if multi_hot else 0
        names = tuple(str(number) for number in range(count)) or _names(values.values())
    rule = _renamed(unlisted) if isinstance(unlisted, Mapping) else dict.fromkeys(splits, unlisted)
    for name, meaning in rule.items():
        if name not in splits or meaning not in get_args(Unlisted):
            raise DataError(
                f"unlisted is 'unknown' or 'negative', of splits that there are, not {meaning!r} of {name!r}",
                what="unlisted",
                value=unlisted,
                allowed=get_args(Unlisted),
            )
    raw = {
        name: _split(
            ImageSource(split, np.arange(counts[name]), lambda item: item[image]),
            names,
            labels_of(np.asarray(values[name]))
            if multi_hot
            else _rows(values[name], names, rule.get(name, "unknown")),
            name,
        )
        for name, split in splits.items()
    }
    return RawDataset("huggingface", root, raw, own=True)


def _columns_of(dataset: Any) -> list[str]:
    """The names of the columns: of a dataset of the library, else the keys of the first item."""
    if hasattr(dataset, "column_names"):
        return list(dataset.column_names)
    item = dataset[0]
    if not isinstance(item, Mapping):
        raise DataError(
            f"items must be dictionaries, as those of the Hugging Face library, not {type(item).__name__}",
            "give Dataset.from_torch a dataset of items (image, label)",
            what="dataset",
            value=type(item).__name__,
        )
    return [*item]


def _column(dataset: Any, name: str) -> list[Any]:
    """A column of labels; the library reads it without decoding images."""
    known = hasattr(dataset, "column_names")
    column = dataset[name] if known else (dataset[row][name] for row in range(len(dataset)))
    remedies = (f"make a column of classes, as dataset.map(lambda row: {{'classes': row[{name!r}][...]}})",)
    return [_plain(value, row, remedies) for row, value in enumerate(column)]


def _renamed(by_split: Mapping[str, Any]) -> dict[str, Any]:
    return {"val" if name in VALIDATION else name: value for name, value in by_split.items()}


def _split(images: ImageSource, classes: tuple[str, ...], values: LabelMatrix, name: str) -> RawSplit:
    if len(images) != len(values):
        raise DataError(
            f"split {name!r} has {counted(len(images), 'image')} and {len(values):,} rows of labels",
            "give one row of labels per image",
            what="labels",
            value=len(values),
            allowed=len(images),
        )
    images[0]  # what all of them are, as a rule: normalized ones need not wait for training
    ids = np.array([f"{name}-{number}" for number in range(len(values))])
    return RawSplit(LabelTable(ids, classes, compact(values)), ids, images=images)


def _length(items: Any, name: str) -> int:
    try:
        count = len(items) if hasattr(items, "__getitem__") else None
    except TypeError:  # torch's IterableDataset has __getitem__
        count = None
    if count is None:
        raise DataError(
            f"the images of {name!r} ({type(items).__name__}) have no length, or cannot be taken by index",
            "give a list, an array, or a dataset with __len__ and __getitem__",
            "load a streamed one without streaming=True",
            what="images",
            value=type(items).__name__,
        )
    if not count:
        raise DataError(f"split {name!r} has no images", "leave it out", what="images", value=0)
    return count


def _first(item: Any) -> Any:
    return item[0] if isinstance(item, tuple | list) else item


def _targets(dataset: Any) -> list[Any]:
    """The labels of all items: the dataset's ``targets``, or those of each item."""
    for name in ("targets", "labels"):
        targets = getattr(dataset, name, None)
        if targets is not None and len(targets) == len(dataset):
            break
    else:
        targets = [_second(dataset[number], number) for number in range(len(dataset))]
    return [_plain(target, number) for number, target in enumerate(targets)]


def _second(item: Any, number: int) -> Any:
    if not isinstance(item, tuple | list) or len(item) < 2:
        named = "give Dataset.from_huggingface its names (image=, label=), where it is a dictionary"
        problem = f"an item must be (image, label), and item {number} is of type"
        raise _no_label(problem, item, number, (named, APART[0]) if isinstance(item, Mapping) else APART)
    return item[1]


def _plain(target: Any, number: int, remedies: tuple[str, ...] = APART) -> Any:
    """A label without torch: an index, a name, a list of these, or an array."""
    if isinstance(target, tuple | list):
        return [_plain(one, number, remedies) for one in target]
    if hasattr(target, "detach"):
        target = target.detach().cpu().numpy()
    if not isinstance(target, str | Real | np.ndarray | None):
        problem = f"a label is an index, a name, a list of these or a vector, and item {number} has a"
        raise _no_label(problem, target, number, remedies)
    return target.item() if isinstance(target, np.ndarray) and target.ndim == 0 else target


def _no_label(problem: str, given: Any, number: int, remedies: tuple[str, ...] = APART) -> DataError:
    kind = type(given).__name__
    return DataError(
        f"{problem} {kind}",
        *remedies,
        what="dataset",
        where=number,
        value=kind,
    )


def _names(columns: Iterable[Sequence[Any]]) -> tuple[str, ...]:
    """The names, or numbers, that lists of labels mention."""
    mentioned = {one for column in columns for row in column for one in (row if _is_list(row) else [row])}
    indices = [int(one) for one in mentioned if isinstance(one, Integral)]
    if indices:
        return tuple(str(index) for index in range(max(*indices, 0) + 1))
    return tuple(sorted(map(str, mentioned - {None})))


def _is_list(value: Any) -> bool:
    return not isinstance(value, str) and np.ndim(value) > 0


def _rows(values: Sequence[Any], classes: tuple[str, ...], unlisted: Unlisted) -> LabelMatrix:
    """(N, L) Labels of an index, a name, or a list of these, per image."""
    column_of = _columns(classes)
    rows, columns = array("q"), array("q")
    for number, value in enumerate(values):
        for one in value if _is_list(value) else [value]:
            if one is not None:
                rows.append(number)
                columns.append(column_of(one))
    shape, positive = (len(values), len(classes)), np.full(len(rows), POSITIVE, np.int8)
    if unlisted == "unknown":
        return compact(SparseLabels.of_entries(np.asarray(rows), np.asarray(columns), positive, shape))
    complete = np.full(shape, NEGATIVE, np.int8)
    complete[rows, columns] = POSITIVE
    return complete


def _is_multi_hot(values: Sequence[Any], classes: int = 0) -> bool:
    """Whether every image has a vector of 1, 0 and -1 (or NaN), one for each class where these are known."""
    lengths = {len(value) if _is_list(value) else -1 for value in values}
    vectors = len(lengths) == 1 and lengths != {-1} and (not classes or lengths == {classes})
    if not vectors or any(isinstance(one, str) for one in values[0]):
        return False
    numbers = np.asarray(values, dtype=np.float64)
    return bool((np.isin(numbers, (POSITIVE, NEGATIVE, UNKNOWN)) | np.isnan(numbers)).all())


def _columns(classes: tuple[str, ...]) -> Callable[[Any], int]:
    by_name = {name: column for column, name in enumerate(classes)}

    def column_of(label: Any) -> int:
        column = by_name.get(label) if isinstance(label, str) else int(label)
        if column is None or not 0 <= column < len(classes):
            raise DataError(
                f"label {label!r} is none of the classes",
                nearest(str(label), classes),
                what="labels",
                value=label,
                allowed=classes,
            )
        return column

    return column_of
