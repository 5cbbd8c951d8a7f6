"""From a ``RawDataset`` to prepared data: check the images, hide labels, split off validation, write.

Every image is decoded once, so that a broken one is found before hours of training.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.config import Preparation
from sparselabel.data.annotation_budget import annotate, buys_nothing, refuse_budget, refuse_more_than_all
from sparselabel.data.dataset import Dataset
from sparselabel.data.decode import digest_of, load, read_whole
from sparselabel.data.external_scores import ScoreReport, apply_scores
from sparselabel.data.label_table import LabelTable, refuse_odd_names
from sparselabel.data.labels import POSITIVE, LabelMatrix, Texts, compact, count_per_class
from sparselabel.data.parallel import in_parallel
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.readers import READERS, options_of
from sparselabel.data.readers import reader as reader_of
from sparselabel.data.readers.raw_dataset import SPLITS, RawDataset, RawSplit
from sparselabel.data.sparsify import refuse_incomplete, sparsify, split_rows, stratified_rows, subset_rows
from sparselabel.data.split_writer import (
    ObservedSplit,
    refuse_absent,
    refuse_in_the_way,
    refuse_taken,
    seen_spatial_labels,
    write_splits,
)
from sparselabel.data.stored_images import StoredImages
from sparselabel.errors import ConfigError, DataError, DataWarning, counted, listing, nearest, param
from sparselabel.files import TemporaryFolder
from sparselabel.locks import locked
from sparselabel.progress import progress_bar, status_console

FEWEST_TO_JUDGE = 20
"""Number of training images from which on a class that all of them show is suspicious."""
BLOCK = 256  # images that a process reads at a time
Report = Callable[[int], None]
"""Called with the number of images checked since the last call."""


def prepare(
    source: RawDataset,
    out: Path,
    how: Preparation,
    *,
    force: bool = False,
    report: Report | None = None,
    cluster: str | None = None,
) -> Dataset:
    """Check, sparsify, split and write; returns the opened data.

    Images are read by processes of this machine, or by the nodes of the Ray cluster at the address
    ``cluster``.
    """
    with locked(out):
        return _prepare_locked(source, out, how, force, report, cluster)


def _prepare_locked(
    source: RawDataset, out: Path, how: Preparation, force: bool, report: Report | None, cluster: str | None
) -> Dataset:
    refuse_taken(out, force)
    refuse_in_the_way(source, out, how)
    if "train" not in source.splits:
        raise DataError(
            f"{source.name} has no split 'train', only {listing(source.splits)}",
            "call the one to train on 'train'",
        )
    _refuse_names_of_no_text(source, out)
    refuse_absent(source)
    _refuse_to_hide(source, how)
    if how.scores is not None:  # their errors are raised before all images are decoded
        _with_scores(source.splits["train"], source.splits["train"].labels.matrix, how)
    decoded = leave_out_broken(source, how.skip_broken, report, cluster)
    splits: dict[str, ObservedSplit] = {}
    frequency = decoded["train"][0].labels.counts()
    for name, (split, digests) in decoded.items():
        # A test split keeps all known labels: labels are hidden from training and validation only.
        observed = split.labels.matrix if name == "test" else compact(_observed(split, how, frequency))
        splits[name] = ObservedSplit(
            split, observed, digests, seen_spatial_labels(split.labels.matrix, observed, split.spatial_labels)
        )
    _refuse_empty(splits)
    if "val" not in splits and how.validation > 0:
        count = len(splits["train"].split.labels)
        if source.own and how.sparsify == "none":
            train_rows, val_rows = stratified_rows(splits["train"].observed, how.validation)
        else:  # the published validation split, row by row
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
        splits["val"] = replace(splits["val"], observed=held_out.labels.matrix, seen=held_out.spatial_labels)
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
        splits["train"] = replace(train, observed=compact(labels))
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

    ``options`` are those of the reader and the fields of ``Preparation``; and ``cluster``, the address of a
    Ray cluster that reads the images.
    """
    if reader not in READERS:
        problem = f"there is no reader {reader!r}"
        raise ConfigError(problem, nearest(reader, READERS), what="reader", value=reader)
    own = {name: one.annotation for name, one in options_of(reader).items()}
    given = {name: _typed(value, own[name]) for name, value in options.items() if name in own}
    cluster = options.pop("cluster", None)
    how = preparation_of({name: value for name, value in options.items() if name not in own}, own)
    return _prepared(lambda _: reader_of(reader)(Path(source), **given), how, out, force, cluster)


def prepare_objects(read: Callable[[Path], RawDataset], **options: Any) -> Dataset:
    """Prepare data that is in memory; ``options`` are the fields of ``Preparation``."""
    return _prepared(read, preparation_of(options), None, force=False)


def preparation_of(options: dict[str, Any], also: Iterable[str] = ()) -> Preparation:
    """The preparation from keywords; an unknown one is an error that names the nearest."""
    known = [one.name for one in fields(Preparation)]
    for name, value in options.items():
        if name not in known:
            problem = f"there is no parameter {name!r}"
            raise ConfigError(problem, nearest(name, [*known, *also]), what=name, value=value)
    return Preparation(**options)


def _typed(value: Any, hint: Any) -> Any:
    """A path if the reader takes only paths; other values stay as they are."""
    return Path(value) if isinstance(value, str | os.PathLike) and hint in (Path, Path | None) else value


def _prepared(
    read: Callable[[Path], RawDataset],
    how: Preparation,
    out: str | Path | None,
    force: bool,
    cluster: str | None = None,
) -> Dataset:
    temporary = TemporaryFolder() if out is None else None
    folder = temporary.path if temporary is not None else Path(out or "")
    refuse_taken(folder, force)
    source = read(folder)
    everything = sum(len(split.labels) for split in source.splits.values())
    in_memory = source.splits["train"].images is not None if "train" in source.splits else False
    with progress_bar(status_console(quiet=in_memory), everything, "checking images") as bar:
        data = prepare(source, folder, how, force=force, report=bar.advance, cluster=cluster)
    return replace(data, temporary=temporary)


def _with_scores(split: RawSplit, observed: LabelMatrix, how: Preparation) -> tuple[LabelMatrix, ScoreReport]:
    table = LabelTable(split.labels.ids, split.labels.classes, observed, check=False)
    file = Path(how.scores or "")
    return apply_scores(file, table, split.paths, how.score_positive, how.score_negative)


def _observed(split: RawSplit, how: Preparation, frequency: npt.NDArray[np.int64]) -> LabelMatrix:
    """The observed labels of training and validation: published ones, or those that ``sparsify`` keeps."""
    if split.observed is not None:
        return split.observed
    if how.sparsify in ("none", "budget"):  # that is spent later, on the images that are trained on
        return split.labels.matrix
    # Complete labels, as these must be, are no fewer than those of an array.
    refuse_incomplete(split.labels.matrix)
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
        refuse_incomplete(split.labels.matrix)
        if how.sparsify == "budget" and (name == "train" or how.validation_labels == "observed"):
            refuse_budget(name, split, how)
    if how.sparsify == "budget":
        refuse_more_than_all(source.splits["train"], how)


def leave_out_broken(
    source: RawDataset, skip: bool, report: Report | None = None, cluster: str | None = None
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
        for row, result in enumerate(_checked(source.root, name, split, cluster)):
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


def _checked(root: Path, name: str, split: RawSplit, cluster: str | None) -> Iterator[int | DataError]:
    """For each image in turn a digest of its bytes, or the error that decoding it gave.

    Images in memory are read when they are used, as reading a user's dataset may be slow; their digests only
    distinguish them within the data. Those in shards were read already.
    """
    if split.images is not None:
        yield from ((SPLITS.index(name) << 60) + split.images.rows.astype(np.uint64)).tolist()
        return
    if split.stored is not None and split.stored.digests is not None:
        for path, digest in zip(split.paths.tolist(), split.stored.digests.tolist(), strict=True):
            problem = split.stored.problems.get(path)
            yield digest if problem is None else DataError(problem, what=path)
        return
    blocks = (
        (root, split.paths[start : start + BLOCK], _of_block(split, start))
        for start in range(0, len(split.paths), BLOCK)
    )
    first = [] if split.stored is not None else [root / str(path) for path in split.paths[:1]]
    for results in in_parallel(_check_block, blocks, cluster, first):
        yield from results


def _of_block(split: RawSplit, start: int) -> StoredImages | None:
    if split.stored is None:
        return None
    return split.stored.take(np.arange(start, min(start + BLOCK, len(split.paths))))


def _check_block(block: tuple[Path, Texts, StoredImages | None]) -> list[int | DataError]:
    """Read and decode some images; returns their digests or errors."""
    root, paths, stored = block

    def check(row: int, path: str) -> int | DataError:
        file = root / path
        try:
            if stored is not None:
                content = stored.content(row)
                load(stored.file(row), content=content)
                return digest_of(content)
            load(file)
            return digest_of(read_whole(file))
        except DataError as error:
            return error
        except OSError as error:
            return DataError(f"{file}: {error}")

    return [check(row, path) for row, path in enumerate(paths.tolist())]


def _subsets(splits: dict[str, ObservedSplit], how: Preparation) -> dict[str, ObservedSplit]:
    """The rows to keep of training, validation and test, if only a share is asked for."""
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


def _refuse_names_of_no_text(source: RawDataset, out: Path) -> None:
    """Raise where the prepared data would have names in it that cannot be read again."""
    refuse_odd_names("folder", [str(source.root.absolute()), str(out.absolute())])
    for split in source.splits.values():
        for names in (split.labels.ids, split.paths):
            refuse_odd_names("image", names.tolist())


def _refuse_empty(splits: dict[str, ObservedSplit]) -> None:
    for name, observed in splits.items():
        if len(observed.split.labels) == 0:
            raise DataError(f"split {name!r} has no images", "check the source", "leave the split out")
    if not len(splits["train"].split.labels.classes):
        raise DataError("the data has no classes: every label is empty")


def _warn_of_useless_classes(train: ObservedSplit) -> None:
    seen = count_per_class(train.observed, POSITIVE)
    classes = np.asarray(train.split.labels.classes)
    always = seen == len(train.split.labels)
    if always.any() and len(train.split.labels) >= FEWEST_TO_JUDGE:
        warnings.warn(
            f"every training image is labeled {listing(classes[always])}: without images that do not show it "
            "nothing can be learned, and a mAP of 100 says nothing",
            DataWarning,
            stacklevel=3,
        )
    never = seen == 0
    if never.any():
        names = classes[never]
        warnings.warn(
            f"{never.sum()} of {len(never)} classes have no positive label in training and cannot be "
            f"learned: {listing(names)}",
            DataWarning,
            stacklevel=3,
        )
