"""From a ``RawDataset`` to prepared data: check the images, hide labels, split off validation, write.

Every image is decoded once here, so that a broken one is noticed now and not after hours of training.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.config import Preparation
from sparselabel.data.annotation_budget import annotate, buys_nothing, refuse_budget, refuse_more_than_all
from sparselabel.data.dataset import Dataset, open_prepared
from sparselabel.data.decode import digest_of, load
from sparselabel.data.external_scores import ScoreReport, apply_scores
from sparselabel.data.labels import POSITIVE, Labels, LabelTable
from sparselabel.data.readers import READERS
from sparselabel.data.readers import reader as reader_of
from sparselabel.data.readers.raw_dataset import SPLITS, RawDataset, RawSplit
from sparselabel.data.sparsify import refuse_incomplete, sparsify, split_rows, subset_rows
from sparselabel.data.split_writer import (
    ObservedSplit,
    refuse_absent,
    refuse_in_the_way,
    refuse_taken,
    seen_spatial_labels,
    write_splits,
)
from sparselabel.errors import ConfigError, DataError, DataWarning, counted, listing, nearest, param
from sparselabel.files import TemporaryFolder
from sparselabel.locks import locked
from sparselabel.progress import progress_bar, status_console

Report = Callable[[int], None]
"""Called with the number of images that were checked since the last call."""


def prepare(
    source: RawDataset, out: Path, how: Preparation, *, force: bool = False, report: Report | None = None
) -> Dataset:
    """Check, sparsify, split and write; returns the data opened."""
    with locked(out):
        return _prepare_locked(source, out, how, force, report)


def _prepare_locked(
    source: RawDataset, out: Path, how: Preparation, force: bool, report: Report | None
) -> Dataset:
    refuse_taken(out, force)
    refuse_in_the_way(source, out, how)
    if "train" not in source.splits:
        raise DataError(
            f"{source.name} has no split 'train', only {listing(source.splits)}",
            "call the one to train on 'train'",
        )
    refuse_absent(source)
    _refuse_to_hide(source, how)
    if how.scores is not None:  # their errors are raised before all images are decoded
        _with_scores(source.splits["train"], source.splits["train"].labels.values, how)
    decoded = leave_out_broken(source, how.skip_broken, report)
    splits: dict[str, ObservedSplit] = {}
    frequency = decoded["train"][0].labels.counts()
    for name, (split, digests) in decoded.items():
        # A test split always sees all that is known: labels are hidden from training and validation.
        observed = split.labels.values if name == "test" else _observed(split, how, frequency)
        splits[name] = ObservedSplit(
            split, observed, digests, seen_spatial_labels(split.labels.values, observed, split.spatial_labels)
        )
    _refuse_empty(splits)
    if "val" not in splits and how.validation > 0:
        count = len(splits["train"].split.labels)
        train_rows, val_rows = split_rows(count, how.validation)
        if not len(train_rows) or not len(val_rows):
            raise DataError(
                f"a validation share of {how.validation} of {counted(count, 'image')} leaves none for "
                f"{'training' if len(val_rows) else 'validation'}",
                f"change {param('validation')} (0: no validation split)",
                "add images",
            )
        splits = {"train": splits["train"].take(train_rows), "val": splits["train"].take(val_rows)} | {
            name: other for name, other in splits.items() if name != "train"
        }
    splits |= _subsets(splits, how)
    if "val" in splits and how.validation_labels == "full":
        held_out = splits["val"].split
        splits["val"] = replace(splits["val"], observed=held_out.labels.values, seen=held_out.spatial_labels)
    bought: dict[str, dict[str, Any]] = {}
    if how.sparsify == "budget":  # it is spent on the images that are trained on, once these are known
        of_observed = how.validation_labels == "observed" and "val" in splits
        for draw, name in enumerate(("train", "val") if of_observed else ("train",)):
            annotated = annotate(splits[name].split, how, draw)
            if not annotated.bought["answers"]:
                raise buys_nothing(name, splits[name].split, how)
            splits[name] = replace(splits[name], observed=annotated.observed, seen=annotated.seen)
            bought[name] = annotated.bought
    scored = None
    if how.scores is not None:
        train = splits["train"]
        labels, scored = _with_scores(train.split, train.observed, how)
        splits["train"] = replace(train, observed=labels)
    _warn_of_useless_classes(splits["train"])
    more: dict[str, Any] = {} if scored is None else {"scored": scored.description()}
    write_splits(source, splits, out, how, more | ({"bought": bought} if bought else {}))
    opened = open_prepared(out)
    sources = {name: observed.split.images for name, observed in splits.items()}
    with_images = {name: replace(split, images=sources[name]) for name, split in opened.splits.items()}
    return replace(opened, splits=with_images)


def prepare_files(
    reader: str, source: str | Path, *, out: str | Path | None = None, force: bool = False, **options: Any
) -> Dataset:
    """Read files with one of the readers and prepare them, in ``out`` or in a temporary folder.

    ``options`` are those of the reader and the fields of ``Preparation``.
    """
    if reader not in READERS:
        problem = f"there is no reader {reader!r}"
        raise ConfigError(problem, nearest(reader, READERS), what="reader", value=reader)
    read = reader_of(reader)
    own = [name for name, one in signature(read).parameters.items() if one.kind is one.KEYWORD_ONLY]
    how = {name: value for name, value in options.items() if name not in own}
    given = {name: _as_path(value) for name, value in options.items() if name in own}
    preparation = preparation_of(how, own)
    return _prepared(lambda _: read(Path(source), **given), preparation, out, force)


def prepare_objects(read: Callable[[Path], RawDataset], **options: Any) -> Dataset:
    """Prepare data that is in memory; ``options`` are the fields of ``Preparation``."""
    return _prepared(read, preparation_of(options), None, force=False)


def preparation_of(options: dict[str, Any], also: Iterable[str] = ()) -> Preparation:
    """The preparation that keywords ask for; one that is none is an error that names the nearest."""
    known = [one.name for one in fields(Preparation)]
    for name, value in options.items():
        if name not in known:
            problem = f"there is no parameter {name!r}"
            raise ConfigError(problem, nearest(name, [*known, *also]), what=name, value=value)
    return Preparation(**options)


def _as_path(value: Any) -> Any:
    return Path(value) if isinstance(value, str | os.PathLike) else value


def _prepared(
    read: Callable[[Path], RawDataset], how: Preparation, out: str | Path | None, force: bool
) -> Dataset:
    temporary = TemporaryFolder() if out is None else None
    folder = temporary.path if temporary is not None else Path(out or "")
    refuse_taken(folder, force)
    source = read(folder)
    everything = sum(len(split.labels) for split in source.splits.values())
    in_memory = source.splits["train"].images is not None if "train" in source.splits else False
    with progress_bar(status_console(quiet=in_memory), everything, "checking images") as bar:
        data = prepare(source, folder, how, force=force, report=bar.advance)
    return replace(data, temporary=temporary)


def _with_scores(split: RawSplit, observed: Labels, how: Preparation) -> tuple[Labels, ScoreReport]:
    table = LabelTable(split.labels.ids, split.labels.classes, observed, check=False)
    file = Path(how.scores or "")
    return apply_scores(file, table, split.paths, how.score_positive, how.score_negative)


def _observed(split: RawSplit, how: Preparation, frequency: npt.NDArray[np.int64]) -> Labels:
    """What training and validation may see: published observed labels, or what ``sparsify`` leaves."""
    if split.observed is not None:
        return split.observed
    if how.sparsify == "budget":  # spent later, when it is known which images are trained on
        return split.labels.values
    return sparsify(split.labels.values, how, split.spatial_labels, frequency)


def _refuse_to_hide(source: RawDataset, how: Preparation) -> None:
    """Raise at once if labels cannot be hidden: decoding the images may take hours."""
    if how.sparsify == "none":
        return
    for name, split in source.splits.items():
        if name == "test":
            continue
        if split.observed is not None:
            raise ConfigError(
                "the observed labels are those of a list, so there is nothing to choose for "
                f"{param('sparsify', how.sparsify)}",
                f"leave {param('sparsify')} out",
                f"leave the list ({param('labels')}) out",
            )
        refuse_incomplete(split.labels.values)
        if how.sparsify == "budget" and (name == "train" or how.validation_labels == "observed"):
            refuse_budget(name, split, how)
    if how.sparsify == "budget":
        refuse_more_than_all(source.splits["train"], how)


def leave_out_broken(
    source: RawDataset, skip: bool, report: Report | None = None
) -> dict[str, tuple[RawSplit, npt.NDArray[np.uint64]]]:
    """The splits without images that cannot be decoded, and digests of the files of the others.

    Unless they are to be skipped, they are an error.
    """
    everything = sum(len(split.labels) for split in source.splits.values())
    decoded: dict[str, tuple[RawSplit, npt.NDArray[np.uint64]]] = {}
    broken: list[str] = []
    for name, split in source.splits.items():
        digests = np.zeros(len(split.labels), dtype=np.uint64)
        good = np.ones(len(split.labels), dtype=bool)
        for row, result in enumerate(_checked(source.root, name, split)):
            if isinstance(result, DataError):
                good[row] = False
                broken.append(str(result))
            else:
                digests[row] = result
            if report is not None:
                report(1)
        rows = np.nonzero(good)[0]
        decoded[name] = (split.take(rows) if len(rows) < len(good) else split, digests[rows])
    if broken:
        problem = "\n  ".join(
            [f"{len(broken):,} of {counted(everything, 'image')} cannot be decoded:", *broken]
        )
        if not skip:
            remedies = "mend or remove them", f"leave them out with {param('skip_broken', True)}"
            raise DataError(f"{problem}\nWhat to do", *remedies, what="images", value=len(broken))
        warnings.warn(f"{problem}\nThey were left out.", DataWarning, stacklevel=3)
    return decoded


def _checked(root: Path, name: str, split: RawSplit) -> Iterator[int | DataError]:
    """For each image in turn a digest of its bytes, or the error that decoding it gave.

    Images in memory are looked at when they are used, as going through somebody's dataset may be slow. Their
    digests tell them apart within the data and say nothing of other data.
    """

    def check(path: str) -> int | DataError:
        file = root / path
        try:
            load(file)
            return digest_of(file.read_bytes())
        except DataError as error:
            return error
        except OSError as error:
            return DataError(f"{file}: {error}")

    if split.images is not None:
        yield from ((SPLITS.index(name) << 60) + split.images.rows.astype(np.uint64)).tolist()
        return
    # Decoding releases the interpreter lock, so threads are enough. Blocks keep the queue of results short.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(split.paths), 1024):
            yield from pool.map(check, split.paths[start : start + 1024].tolist())


def _subsets(splits: dict[str, ObservedSplit], how: Preparation) -> dict[str, ObservedSplit]:
    """What is kept of training, validation and test, where a share of them is asked for."""
    # In this order: test draws last, so that the published subsets of training stay as they are.
    shares = {"train": how.keep_train, "val": how.keep_validation, "test": how.keep_test}
    for name, keyword in (("val", "keep_validation"), ("test", "keep_test")):
        if shares[name] < 1 and name not in splits:
            kind = "validation" if name == "val" else name
            raise DataError(f"there is no {kind} split to keep a share of", f"leave {param(keyword)} out")
    if min(shares.values()) == 1:
        return {}
    counts = {name: len(splits[name].split.labels) for name in shares if name in splits}
    rows_of = dict(
        zip(counts, subset_rows([*counts.values()], [shares[name] for name in counts]), strict=True)
    )
    for name, rows in rows_of.items():
        if not len(rows):
            raise DataError(
                f"a share of {shares[name]} of {counted(counts[name], 'image')} leaves none of {name!r}",
                "keep more",
            )
    return {name: splits[name].take(rows) for name, rows in rows_of.items()}


def _refuse_empty(splits: dict[str, ObservedSplit]) -> None:
    for name, observed in splits.items():
        if len(observed.split.labels) == 0:
            raise DataError(f"split {name!r} has no images", "check the source", "leave the split out")
    if not len(splits["train"].split.labels.classes):
        raise DataError("the data has no classes: every label is empty")


def _warn_of_useless_classes(train: ObservedSplit) -> None:
    never = ~(train.observed == POSITIVE).any(axis=0)
    if never.any():
        names = np.asarray(train.split.labels.classes)[never]
        warnings.warn(
            f"{never.sum()} of {len(never)} classes have no positive label in training and cannot be "
            f"learned: {listing(names)}",
            DataWarning,
            stacklevel=3,
        )
