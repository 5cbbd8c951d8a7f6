"""Find images by files, folders, patterns, lists, URLs, and shards that contain images.

``images`` yields them one by one; ``parts`` splits the same into independent parts. Both give batches of the
same images.
"""

import glob
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

from sparselabel.data.decode import SUFFIXES
from sparselabel.data.image_shards import (
    SHARDS,
    ShardImage,
    check_shard,
    is_shard,
    is_table,
    read_image,
    shard_images,
    table_images,
)
from sparselabel.data.remote_files import (
    THREADS,
    file_name,
    files_below,
    files_matching,
    is_address,
    is_pattern,
    is_there,
    look_ahead,
    read_lines,
)
from sparselabel.errors import ConfigError, DataError, listing

LISTS = (".txt", ".lst")
STANDARD_INPUT = "-"
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def check_image_words(words: Sequence[str], column: str | None = None) -> None:
    """Raise if a word names nothing, or a shard is incomplete, before anything slow begins."""
    if not words:
        raise ConfigError(
            "there is nothing to predict",
            "name images, folders, shards or patterns ('photos/*.jpg')",
            "a list of paths (a .txt file)",
            "- to read paths from standard input",
        )
    for word in words:
        for part in _expanded(word):
            if part != STANDARD_INPUT and not is_there(part) and not _matches(part):
                what = "no file matches" if is_pattern(part) else "there is no image, folder or list"
                raise DataError(
                    f"{what} {part!r}",
                    "check the name",
                    "give a list of paths as a .txt file, or by - (stdin)",
                    what=part,
                )
    folderless = (word for word in words if word != STANDARD_INPUT and not Path(word).is_dir())
    shards = {path for path in image_paths(folderless) if is_shard(path)}
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(lambda shard: check_shard(shard, column), sorted(shards)):
            pass


class Part(NamedTuple):
    """Images that one process reads: files, or a shard, or row groups of a table."""

    files: tuple[str, ...] = ()
    shard: str = ""
    groups: tuple[int, int] | None = None

    def images(self, column: str | None = None) -> Iterator[str | ShardImage]:
        """Its images, in their order."""
        if not self.shard:
            yield from with_remote(self.files)
        else:
            yield from shard_images(self.shard, column, self.groups)


def parts(words: Iterable[str], size: int, column: str | None = None) -> Iterator[Part]:
    """All named images in parts of ``size``; a tar is one part, and no row group is split."""
    for shard, paths in groupby(image_paths(words), is_shard):
        if shard:
            for path in paths:
                yield from _parts_of_shard(path, size, column)
        else:
            while files := tuple(islice(paths, size)):
                yield Part(files)


def _parts_of_shard(shard: str, size: int, column: str | None) -> Iterator[Part]:
    if not is_table(shard):
        yield Part(shard=shard)
        return
    first, held = 0, 0
    rows = table_images(shard, column).rows
    for group, count in enumerate(rows):
        if held and held + count > size:
            yield Part(shard=shard, groups=(first, group))
            first, held = group, 0
        held += count
    if held:
        yield Part(shard=shard, groups=(first, len(rows)))


def images(paths: Iterable[str], column: str | None = None) -> Iterator[str | ShardImage]:
    """All images at these paths: paths of files, and others with their bytes."""
    for shard, run in groupby(paths, is_shard):
        if not shard:
            yield from with_remote(run)
        else:
            for path in run:
                yield from shard_images(path, column)


def with_remote(paths: Iterable[str]) -> Iterator[str | ShardImage]:
    """The same paths, with the content of remote images, some of which are read ahead."""
    for remote, run in groupby(paths, is_address):
        if remote:
            yield from look_ahead(run, read_image)
        else:
            yield from run


def image_paths(words: Iterable[str]) -> Iterator[str]:
    """Paths of all named images in a fixed order: folders are walked recursively, sorted by name.

    Paths in a list are relative to the current folder, and are not checked.
    """
    for word in words:
        if word == STANDARD_INPUT:
            yield from _lines(sys.stdin)
            continue
        for path in _expanded(word):
            yield from _addresses(path) if is_address(path) else _local_paths(path)


def _local_paths(word: str) -> Iterator[str]:
    if Path(word).is_dir():
        yield from _walk(word)
    elif _is_list(word) and Path(word).is_file():
        yield from _lines(read_lines(word))
    elif Path(word).exists() or not is_pattern(word):
        yield word
    else:
        for match in sorted(_matching(word)):
            if not Path(match).is_dir() and (_is_image(match) or is_shard(match)):
                yield match


def _addresses(word: str) -> Iterator[str]:
    if _is_list(word):
        yield from _lines(read_lines(word))
    elif _is_image(word) or is_shard(word):
        yield from files_matching(word) if is_pattern(word) else [word]
    else:
        addresses = files_matching(word) if is_pattern(word) else files_below(word)
        yield from (file for file in addresses if _is_image(file) and "/." not in file)


def _expanded(word: str) -> Iterator[str]:
    """The words that WebDataset's ranges mean: ``shard-{000..099}.tar``."""
    match = _RANGE.search(word)
    if match is None or Path(word).exists():
        yield word
        return
    first, last = match.groups()
    for number in range(int(first), int(last) + 1):
        yield from _expanded(f"{word[: match.start()]}{number:0{len(first)}}{word[match.end() :]}")


def _matching(word: str) -> Iterator[str]:
    return glob.iglob(word, recursive=True)  # noqa: PTH207 - Path has no pattern with a root


def _matches(word: str) -> bool:
    if not is_pattern(word):
        return False
    return bool(files_matching(word)) if is_address(word) else next(_matching(word), None) is not None


def count_images(words: Sequence[str]) -> int | None:
    """The number of images; None if it cannot be known in advance."""
    if STANDARD_INPUT in words:
        return None
    count = 0
    for path in image_paths(words):
        if is_shard(path):
            return None
        count += 1
    return count


def no_images(words: Sequence[str]) -> DataError:
    """There are none in what is named. Shards in a folder are not read unless they are named."""
    shards = next(filter(None, map(shards_below, words)), None)
    name_shards = () if shards is None else (f"name the shards there ({shards!r})",)
    return DataError(
        f"no images in {listing(words)}", *name_shards, "name files", "folders that have some", what=words
    )


def shards_below(folder: str | Path) -> str | None:
    """A pattern for the shards that are in a folder, if there are any."""
    for path, _, names in os.walk(folder):
        for name in sorted(names):
            if is_shard(name):
                suffix = next(suffix for suffix in SHARDS if name.lower().endswith(suffix))
                return os.path.join(path, f"*{suffix}")  # noqa: PTH118 - as it was given
    return None


def common_folder(words: Sequence[str]) -> str:
    """The common folder of the named files and folders; empty if there is none."""
    if not all(Path(word).is_dir() or (Path(word).is_file() and _is_image(word)) for word in words):
        return ""
    try:
        return os.path.commonpath([word if Path(word).is_dir() else str(Path(word).parent) for word in words])
    except ValueError:  # from the root, and from here
        return ""


def first_file(words: Sequence[str]) -> str | None:
    """The first named image that is a local file, if there is one."""
    local = (path for path in image_paths(words) if not is_address(path) and not is_shard(path))
    return next(local, None)


def other_files(words: Sequence[str]) -> "Counter[str]":
    """How many files in folders are no images, by suffix; without hidden files and sidecars (.xmp)."""
    others: Counter[str] = Counter()
    for word in words:
        for _, folders, files in os.walk(word) if Path(word).is_dir() else ():
            folders[:] = (name for name in folders if not name.startswith("."))
            names = (name for name in files if not _is_image(name) and not name.startswith("."))
            others.update(suffix for name in names if (suffix := Path(name).suffix.lower() or name) != ".xmp")
    return others


def _walk(folder: str) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise DataError(
            f"the folder {error.filename} cannot be read: {error.strerror}",
            "allow it",
            "name the other folders instead",
            what=error.filename,
        ) from error

    for folder_path, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if _is_image(name) and not name.startswith("."):
                yield os.path.join(folder_path, name)  # noqa: PTH118 - a million Paths take a minute


def _is_image(name: str) -> bool:
    return file_name(name).lower().endswith(SUFFIXES)


def _is_list(name: str) -> bool:
    return file_name(name).lower().endswith(LISTS)


def _lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        path = line.strip("\r\n")
        if path.strip():
            yield path
