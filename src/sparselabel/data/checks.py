"""Checks of prepared data: each problem has a name, a description and a remedy."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.checksums import file_checksum
from sparselabel.config import CORES
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.decode import digest_of
from sparselabel.data.describe import Counts
from sparselabel.data.image_hashes import Fingerprints, ImageNumbers, exact_duplicates, near_duplicates
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.errors import DataError, command, counted, listing, spell

HANDFUL = 5  # observed positives below which a class can hardly be learned
BLOCK = 1024  # images read before progress is reported
NAMED = 5  # items that a line names; JSON has all
SURPRISE = 5.0  # standard deviations from a random choice: never by chance, even with 1,000 classes
NOTABLE = 0.05  # and by so much of the class's positives


@dataclass(frozen=True)
class Problem:
    """A possible problem: its name, description and remedy, and the affected images or classes."""

    name: str
    what: str
    remedy: str
    items: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return spell(f"{self.name}: {self.what} → {self.remedy}")

    def as_json(self) -> dict[str, Any]:
        """The problem as the command ``data`` prints it in JSON."""
        return {"name": self.name, "what": self.what, "remedy": self.remedy, "items": list(self.items)}


def label_problems(prepared: Dataset, counted: dict[str, Counts]) -> list[Problem]:
    """Problems of the labels."""
    return [
        *_wrong_labels(prepared, counted),
        *_stray_spatial_labels(prepared),
        *_rare_classes(prepared, counted),
        *_alike_classes(prepared, counted),
        *_unlabeled_images(prepared, counted),
        *_preference(prepared, counted),
    ]


def _wrong_labels(prepared: Dataset, counted: dict[str, Counts]) -> Iterator[Problem]:
    for name, counts in counted.items():
        if not counts.wrong:
            continue
        split = prepared.splits[name]
        items = tuple(
            {
                "split": name,
                "image": str(split.paths[row]),
                "class": prepared.classes[column],
                "observed": int(split.observed.matrix[row, column]),
                "truth": int(split.truth.matrix[row, column]),
            }
            for row, column in counts.first_wrong
        )
        first = items[0]
        yield Problem(
            "wrong-labels",
            f"{counts.wrong:,} observed labels of {name} are not the true ones, as {first['class']} of "
            f"{first['image']} (observed {first['observed']}, truth {first['truth']})",
            "prepare the data again with thresholds further apart, if scores of another model set them"
            if name == "train" and "scored" in prepared.made
            else "find out which is right, and prepare the data again",
            items,
        )


def _stray_spatial_labels(prepared: Dataset) -> Iterator[Problem]:
    for name, split in prepared.splits.items():
        rows, classes = np.asarray(split.spatial_labels.rows), np.asarray(split.spatial_labels.classes)
        inside = (rows >= 0) & (rows < len(split)) & (classes >= 0) & (classes < len(prepared.classes))
        known = np.zeros(len(rows), dtype=bool)
        known[inside] = split.truth.matrix[rows[inside], classes[inside]] == POSITIVE
        if known.all():
            continue
        items = tuple(sorted({str(split.paths[row]) for row in rows[~known & inside].tolist()}))
        yield Problem(
            "stray-marks",
            f"{(~known).sum():,} points or boxes of {name} are of classes that are not labeled present on "
            f"their images: {listing(items, NAMED)}",
            "set the label or remove the point or box, and prepare the data again",
            items,
        )


def _rare_classes(prepared: Dataset, counted: dict[str, Counts]) -> Iterator[Problem]:
    names = np.asarray(prepared.classes)
    seen = counted["train"].per_class["observed_positive"]
    anywhere = np.sum([counts.per_class["positive"] for counts in counted.values()], axis=0)
    yield from _of_classes(
        "empty-classes",
        names[anywhere == 0],
        "without any positive in any split",
        "leave them out, or look for a mistake in the names",
    )
    yield from _of_classes(
        "never-observed",
        names[(seen == 0) & (anywhere > 0)],
        "never observed as positive in training, though there are positives",
        "training cannot learn them: annotate some, or leave them out",
    )
    few = (seen > 0) & (seen < HANDFUL)
    yield from _of_classes(
        "few-positives",
        [f"{name} ({number})" for name, number in zip(names[few], seen[few].tolist(), strict=True)],
        f"with fewer than {HANDFUL} observed positives in training",
        "annotate more, or expect little of them",
    )
    train = counted["train"]
    always = train.per_class["positive"] == len(prepared.train)
    if len(prepared.train) >= HANDFUL:
        yield from _of_classes(
            "always-positive",
            names[always],
            "positive on every training image",
            "there is nothing to learn: leave them out",
        )
    for split, counts in counted.items():
        missing = (counts.per_class["positive"] == 0) & (anywhere > 0)
        if split != "train" and missing.any():
            yield from _of_classes(
                "not-evaluated",
                names[missing],
                f"without a positive in {split}",
                "their average precision counts as 0 there: hold out images that show them",
            )


def _alike_classes(prepared: Dataset, counted: dict[str, Counts]) -> Iterator[Problem]:
    spelled: dict[str, list[str]] = {}
    for name in prepared.classes:
        spelled.setdefault(_letters(name), []).append(name)
    yield from _of_groups(
        "similar-names",
        spelled.values(),
        "class names that differ only in case, spaces, hyphens or underscores",
        "if they mean one class, unite them",
    )
    total = np.sum([counts.per_class["positive"] for counts in counted.values()], axis=0)
    together: dict[tuple[bytes, ...], list[str]] = {}
    for index in np.flatnonzero(total >= HANDFUL).tolist():  # a few positives may coincide by chance
        key = tuple(counts.columns[index] for counts in counted.values())
        together.setdefault(key, []).append(prepared.classes[index])
    yield from _of_groups(
        "same-positives",
        together.values(),
        "classes that are positive on exactly the same images",
        "nothing can tell them apart: unite them, or look for a copied column",
    )


def _unlabeled_images(prepared: Dataset, counted: dict[str, Counts]) -> Iterator[Problem]:
    per_image = counted["train"].per_image
    bare = np.flatnonzero((per_image["observed_positive"] == 0) & (per_image["observed_negative"] == 0))
    if len(bare):
        items = tuple(np.asarray(prepared.train.paths)[bare].tolist())
        yield Problem(
            "unlabeled",
            f"{len(bare):,} of {len(prepared.train):,} training images have no observed label at all: "
            f"{listing(items, NAMED)}",
            "methods that take unknown for absent learn that they show nothing: label or remove them",
            items,
        )


def _preference(prepared: Dataset, counted: dict[str, Counts]) -> Iterator[Problem]:
    """Classes whose observed positives are no random choice of each image's positives."""
    counts = counted["train"]
    positive = counts.per_class["positive"]
    more = counts.per_class["observed_positive"] - counts.uniform
    with np.errstate(divide="ignore", invalid="ignore"):
        notable = (np.abs(more) > SURPRISE * counts.spread) & (np.abs(more) > NOTABLE * positive)
    chosen = np.flatnonzero(notable & counts.hidden)
    if not len(chosen):
        return
    chosen = chosen[np.argsort(-np.abs(more[chosen] / positive[chosen]), kind="stable")]
    items = tuple(
        {
            "class": prepared.classes[index],
            "kept": float(counts.per_class["observed_positive"][index] / positive[index]),
            "kept_if_uniform": float(counts.uniform[index] / positive[index]),
        }
        for index in chosen.tolist()
    )
    shown = [f"{item['class']} {item['kept']:.0%} instead of {item['kept_if_uniform']:.0%}" for item in items]
    yield Problem(
        "preference",
        f"which positives are observed is no random choice of each image's: of {len(items):,} classes far "
        f"more or far fewer are, as {listing(shown, NAMED)}",
        "methods and estimates that count on a random choice are off: annotate a few images completely and "
        f"use {command('expect', 'DATA', how='counted')}",
        items,
    )


def _of_classes(
    name: str, classes: Iterable[str] | npt.NDArray[np.str_], what: str, remedy: str
) -> Iterator[Problem]:
    items = tuple(map(str, classes))
    if items:
        many = counted(len(items), "class")
        yield Problem(name, f"{many} {what}: {listing(items, NAMED)}", remedy, items)


def _of_groups(name: str, groups: Iterable[list[str]], what: str, remedy: str) -> Iterator[Problem]:
    items = tuple(group for group in groups if len(group) > 1)
    if items:
        yield Problem(name, f"{what}: {listing(map(' = '.join, items), NAMED)}", remedy, items)


def _letters(name: str) -> str:
    """A name without case, spaces, hyphens and underscores."""
    return re.sub(r"[\s_-]+", "", unicodedata.normalize("NFKC", name).casefold())


TINY = 32  # pixels: below, little is left to see
LONG = 5  # times as long as wide: squashed to a square, nothing fingerprints like itself

Image = tuple[str, int]
"""An image by split and row."""


def same_images(prepared: Dataset) -> list[Problem]:
    """Images that are there more than once, by their digests: in two splits, in one, with other labels."""
    return [*_copies(prepared, exact_duplicates(prepared), "")]


def file_problems(prepared: Dataset) -> list[Problem]:
    """Problems of the image files that are found without opening one, by names and digests."""
    problems = same_images(prepared)
    root = prepared.train.root
    if not root.is_dir():
        problems.insert(
            0,
            Problem(
                "no-images",
                f"the folder of the images, {root}, is not there",
                "move it back, or prepare the data again",
            ),
        )
        return problems
    missing = [
        (name, row)
        for name, split in prepared.splits.items()
        if not split.in_memory
        for row in range(len(split))
        if split.stored is None and not split.path(row).is_file()
    ]
    remedy = "put them back, or prepare the data again"
    return [*_of_images(prepared, missing, "missing-images", "whose file is not there", remedy), *problems]


def image_problems(prepared: Dataset, fingerprints: Fingerprints) -> list[Problem]:
    """Problems of the images that are found by decoding them."""
    at = _locations(prepared)
    short, long = fingerprints.sizes.min(1), fingerprints.sizes.max(1)
    whole = short > 0
    return [
        *_of_images(
            prepared,
            [at(number) for number in fingerprints.broken],
            "broken-images",
            "that cannot be decoded (any more)",
            "put them back, or prepare the data again without them (`skip_broken`)",
        ),
        *_of_images(
            prepared,
            [at(number) for number in np.flatnonzero(whole & (short < TINY)).tolist()],
            "tiny-images",
            f"with a side of less than {TINY} pixels",
            "are they thumbnails or icons? replace them, or leave them out",
        ),
        *_of_images(
            prepared,
            [at(number) for number in np.flatnonzero(whole & (long > LONG * short)).tolist()],
            "long-images",
            f"more than {LONG} times as long as wide",
            "training squashes them to a square: cut them, or leave them out",
        ),
        *_copies(prepared, near_duplicates(prepared, fingerprints), "near-"),
    ]


def sizes_of(fingerprints: Fingerprints) -> dict[str, list[int]]:
    """The smallest, middle and largest of the widths and of the heights."""
    known = fingerprints.sizes[fingerprints.sizes[:, 0] > 0]
    if not len(known):
        return {}
    return {
        "min": known.min(0).tolist(),
        "median": np.median(known, axis=0).astype(int).tolist(),
        "max": known.max(0).tolist(),
    }


def _copies(prepared: Dataset, groups: list[ImageNumbers], near: str) -> Iterator[Problem]:
    at = _locations(prepared)
    copies = [[at(position) for position in group.tolist()] for group in groups]
    alike = "nearly the same image" if near else "the same image"
    names = list(prepared.splits)
    for number, first in enumerate(names):
        for second in names[number + 1 :]:
            across = [group for group in copies if {first, second} <= {split for split, _ in group}]
            leaked = sum(split == second for group in across for split, _ in group)
            yield from _of_copies(
                prepared,
                across,
                f"{near}leak",
                f"{leaked:,} of {len(prepared.splits[second]):,} images of {second} that {first} has too"
                + (", or nearly" if near else ""),
                f"scores on {second} are too good: take them out of {first}",
            )
    for name in names:
        within = [[image for image in group if image[0] == name] for group in copies]
        within = [group for group in within if len(group) > 1]
        spare = sum(len(group) - 1 for group in within)
        yield from _of_copies(
            prepared,
            within,
            f"{near}duplicates",
            f"{alike} more than once in {name} ({spare:,} to spare)",
            "keep one of each, with the labels of all",
        )
    yield from _of_copies(
        prepared,
        [group for group in copies if _contradict(prepared, group)],
        f"{near}contradiction",
        f"{alike} with contradicting labels",
        "look at them and set the labels right",
    )


def _contradict(prepared: Dataset, group: list[Image]) -> bool:
    """Whether a class is positive on one copy and negative on another."""
    labels = np.stack([prepared.splits[split].truth.matrix[row] for split, row in group])
    return bool(((labels == POSITIVE).any(0) & (labels == NEGATIVE).any(0)).any())


def _of_copies(
    prepared: Dataset, groups: list[list[Image]], name: str, what: str, remedy: str
) -> Iterator[Problem]:
    if groups:
        items = tuple([_named(prepared, image) for image in group] for group in groups)
        shown = [" = ".join(f"{one['split']} {one['image']}" for one in group) for group in items]
        yield Problem(name, f"{what}: {listing(shown, NAMED)}", remedy, items)


def _of_images(
    prepared: Dataset, images: list[Image], name: str, what: str, remedy: str
) -> Iterator[Problem]:
    if images:
        items = tuple(_named(prepared, image) for image in images)
        shown = listing((f"{one['split']} {one['image']}" for one in items), NAMED)
        everything = sum(map(len, prepared.splits.values()))
        yield Problem(name, f"{len(items):,} of {everything:,} images {what}: {shown}", remedy, items)


def _named(prepared: Dataset, image: Image) -> dict[str, str]:
    split, row = image
    return {"split": split, "image": str(prepared.splits[split].paths[row])}


def _locations(prepared: Dataset) -> Callable[[int], Image]:
    """A function from an image's number over all splits to its split and row."""
    names = list(prepared.splits)
    ends = np.cumsum([len(split) for split in prepared.splits.values()])

    def at(number: int) -> Image:
        split = int(np.searchsorted(ends, number, side="right"))
        return names[split], number - (int(ends[split - 1]) if split else 0)

    return at


def changed_files(prepared: Dataset, report: Callable[[int], None]) -> Iterator[str]:
    """Arrays and images that have changed or are missing; ``report`` gets image counts."""
    for name, split in prepared.splits.items():
        for array, checksum in prepared.made["splits"][name]["checksums"].items():
            file = prepared.folder / name / f"{array}.npy"
            if file_checksum(file) != checksum:
                yield str(file)
        if split.in_memory:
            continue

        def changed(row: int, split: PreparedSplit = split) -> bool:
            try:
                # Not from the cache, which has the content of before.
                content = split.content(row) if split.stored is None else split.stored.content(row)
                return digest_of(content) != int(split.digests[row])
            except (OSError, DataError):
                return True

        with ThreadPoolExecutor(CORES) as pool:  # hashing releases the interpreter lock
            for start in range(0, len(split), BLOCK):
                rows = range(start, min(start + BLOCK, len(split)))
                others = zip(rows, pool.map(changed, rows), strict=True)
                yield from (str(split.place(row)) for row, other in others if other)
                report(len(rows))
