"""What may be wrong with the pictures: the same one twice, labels that differ between copies, odd sizes."""

from collections.abc import Callable, Iterator

import numpy as np

from sparselabel.data.checks import NAMED, Problem
from sparselabel.data.dataset import Prepared
from sparselabel.data.image_hashes import Places, same_files, same_looks
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.data.looks import Looks
from sparselabel.errors import listing

TINY = 32  # pixels: below, little is left to see
LONG = 5  # times as long as wide: squashed to a square, nothing looks like itself

Picture = tuple[str, int]
"""A picture by split and row."""


def file_problems(prepared: Prepared) -> list[Problem]:
    """What the files' names and digests tell, without opening one."""
    found = [*_copies(prepared, same_files(prepared), "")]
    root = prepared.train.root
    if not root.is_dir():
        found.insert(
            0,
            Problem(
                "no-pictures",
                f"the folder of the pictures, {root}, is not there",
                "move it back, or prepare the data again",
            ),
        )
        return found
    gone = [
        (name, row)
        for name, split in prepared.splits.items()
        for row in range(len(split))
        if not split.path(row).is_file()
    ]
    wayout = "put them back, or prepare the data again"
    return [*_of_pictures(prepared, gone, "missing-pictures", "whose file is not there", wayout), *found]


def look_problems(prepared: Prepared, looks: Looks) -> list[Problem]:
    """What decoding every picture tells."""
    at = _places(prepared)
    short, long = looks.sizes.min(1), looks.sizes.max(1)
    whole = short > 0
    return [
        *_of_pictures(
            prepared,
            [at(place) for place in looks.broken],
            "broken-pictures",
            "that cannot be decoded (any more)",
            "put them back, or prepare the data again with --skip-broken",
        ),
        *_of_pictures(
            prepared,
            [at(place) for place in np.flatnonzero(whole & (short < TINY)).tolist()],
            "tiny-pictures",
            f"with a side of less than {TINY} pixels",
            "are they thumbnails or icons? replace them, or leave them out",
        ),
        *_of_pictures(
            prepared,
            [at(place) for place in np.flatnonzero(whole & (long > LONG * short)).tolist()],
            "long-pictures",
            f"more than {LONG} times as long as wide",
            "training squashes them to a square: cut them, or leave them out",
        ),
        *_copies(prepared, same_looks(prepared, looks), "near-"),
    ]


def sizes_of(looks: Looks) -> dict[str, list[int]]:
    """The smallest, middle and largest of the widths and of the heights."""
    known = looks.sizes[looks.sizes[:, 0] > 0]
    if not len(known):
        return {}
    return {
        "min": known.min(0).tolist(),
        "median": np.median(known, axis=0).astype(int).tolist(),
        "max": known.max(0).tolist(),
    }


def _copies(prepared: Prepared, groups: list[Places], near: str) -> Iterator[Problem]:
    at = _places(prepared)
    copies = [[at(place) for place in group.tolist()] for group in groups]
    alike = "nearly the same picture" if near else "the same picture"
    names = list(prepared.splits)
    for number, first in enumerate(names):
        for second in names[number + 1 :]:
            across = [group for group in copies if {first, second} <= {split for split, _ in group}]
            leaked = sum(split == second for group in across for split, _ in group)
            yield from _of_copies(
                prepared,
                across,
                f"{near}leak",
                f"{leaked:,} of {len(prepared.splits[second]):,} pictures of {second} that {first} has too"
                + (", or nearly" if near else ""),
                f"scores on {second} are too good: take them out of {first}",
            )
    for name in names:
        within = [[picture for picture in group if picture[0] == name] for group in copies]
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


def _contradict(prepared: Prepared, group: list[Picture]) -> bool:
    """Whether a class is said to be there on one copy and not on another."""
    labels = np.stack([prepared.splits[split].truth.values[row] for split, row in group])
    return bool(((labels == POSITIVE).any(0) & (labels == NEGATIVE).any(0)).any())


def _of_copies(
    prepared: Prepared, groups: list[list[Picture]], name: str, what: str, remedy: str
) -> Iterator[Problem]:
    if groups:
        items = tuple([_named(prepared, picture) for picture in group] for group in groups)
        shown = [" = ".join(f"{one['split']} {one['image']}" for one in group) for group in items]
        yield Problem(name, f"{what}: {listing(shown, NAMED)}", remedy, items)


def _of_pictures(
    prepared: Prepared, pictures: list[Picture], name: str, what: str, remedy: str
) -> Iterator[Problem]:
    if pictures:
        items = tuple(_named(prepared, picture) for picture in pictures)
        shown = listing((f"{one['split']} {one['image']}" for one in items), NAMED)
        everything = sum(map(len, prepared.splits.values()))
        yield Problem(name, f"{len(items):,} of {everything:,} pictures {what}: {shown}", remedy, items)


def _named(prepared: Prepared, picture: Picture) -> dict[str, str]:
    split, row = picture
    return {"split": split, "image": str(prepared.splits[split].paths[row])}


def _places(prepared: Prepared) -> Callable[[int], Picture]:
    """From a picture's number over all splits to its split and row."""
    names = list(prepared.splits)
    ends = np.cumsum([len(split) for split in prepared.splits.values()])

    def at(place: int) -> Picture:
        split = int(np.searchsorted(ends, place, side="right"))
        return names[split], place - (int(ends[split - 1]) if split else 0)

    return at
