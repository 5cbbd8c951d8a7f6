"""The image files that words name: files, folders, patterns and lists of paths."""

import glob
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sparselabel.data.decode import SUFFIXES
from sparselabel.errors import ConfigError, DataError

LISTS = (".txt", ".lst")
STANDARD_INPUT = "-"


def check_image_words(words: Sequence[str]) -> None:
    """Raise if a word names nothing that is there, before anything slow begins."""
    if not words:
        raise ConfigError(
            "there is nothing to predict",
            "name images, folders or patterns ('photos/*.jpg')",
            "a list of paths (a .txt file)",
            "- to read paths from standard input",
        )
    for word in words:
        if word != STANDARD_INPUT and not Path(word).exists() and not _matches(word):
            what = "no file matches" if glob.has_magic(word) else "there is no image, folder or list"
            raise DataError(f"{what} {word!r}: check the name; a list of paths ends in .txt, or is - (stdin)")


def _matching(word: str) -> Iterator[str]:
    return glob.iglob(word, recursive=True)  # noqa: PTH207 - Path has no pattern with a root


def _matches(word: str) -> bool:
    return glob.has_magic(word) and next(_matching(word), None) is not None


def image_paths(words: Sequence[str]) -> Iterator[str]:
    """Paths of all that is meant, in a fixed order: folders are walked with what is in them, sorted by name.

    Paths in a list are relative to the current folder; whether they can be read shows later.
    """
    for word in words:
        if word == STANDARD_INPUT:
            yield from _lines(sys.stdin)
        elif Path(word).is_dir():
            yield from _walk(word)
        elif Path(word).suffix.lower() in LISTS and Path(word).is_file():
            with Path(word).open(encoding="utf-8-sig", errors="surrogateescape") as lines:
                yield from _lines(lines)
        elif Path(word).exists() or not glob.has_magic(word):
            yield word
        else:
            for match in sorted(_matching(word)):
                if not Path(match).is_dir() and _is_image(match):
                    yield match


def count_images(words: Sequence[str]) -> int | None:
    """How many there are; None if that shows only when they come."""
    return None if STANDARD_INPUT in words else sum(1 for _ in image_paths(words))


def other_files(words: Sequence[str]) -> "Counter[str]":
    """How many files in folders are no images, by suffix; hidden ones and sidecars (.xmp) do not count."""
    others: Counter[str] = Counter()
    for word in words:
        for _, folders, files in os.walk(word) if Path(word).is_dir() else ():
            folders[:] = (name for name in folders if not name.startswith("."))
            names = (name for name in files if not _is_image(name) and not name.startswith("."))
            others.update(suffix for name in names if (suffix := Path(name).suffix.lower() or name) != ".xmp")
    return others


def _walk(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if _is_image(name) and not name.startswith("."):
                yield os.path.join(place, name)  # noqa: PTH118 - a million Paths take a minute


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        path = line.strip("\r\n")
        if path.strip():
            yield path
