"""Images of prepared data that stay in tars, Parquet tables or an object store.

Nothing is unpacked or copied. A scan reads every shard once, for each image's offset and digest. Training
then reads an image by its offset. Images at an address go through a local cache (``image_cache.py``).
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparselabel.data.decode import digest_of, load
from sparselabel.data.image_cache import cached
from sparselabel.data.image_paths import check_image_words, image_paths
from sparselabel.data.image_shards import (
    TEXT,
    is_shard,
    is_table,
    read_members,
    row_group,
    rows_of_group,
    table_images,
)
from sparselabel.data.labels import Indices, Texts
from sparselabel.data.parallel import in_parallel
from sparselabel.data.remote_files import file_name, is_address, read_bytes
from sparselabel.errors import DataError, listing

WHOLE = -1
"""The offset of an image that is a file of its own."""
STORED_COLUMNS = ("numbers", "offsets", "sizes")
"""The arrays of prepared data that say where images are."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StoredImages:
    """The locations of images: each is in one of ``files``, which are shards or the URL of a folder.

    ``numbers`` (N,) are those of the files. ``offsets`` and ``sizes`` (N,) are bytes in a tar; in a table
    they are the row group and the row in it, and ``columns`` has the file's column. Local files are relative
    to ``root``. ``digests`` (N,) are of the images' bytes, where a scan has read them; ``problems``
    are those of images that cannot be read, by name.
    """

    root: Path
    files: tuple[str, ...]
    columns: tuple[str, ...]
    names: Texts
    numbers: Integers
    offsets: Integers
    sizes: Integers
    digests: npt.NDArray[np.uint64] | None = None
    problems: dict[str, str] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self._row_of

    def below(self) -> list[str]:
        """The names of all images, sorted."""
        return sorted(self.names.tolist())

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names.tolist())}

    def of(self, names: Texts) -> "StoredImages":
        """The images of these names, in this order; a missing one is in no file."""
        rows = np.asarray([self._row_of.get(name, -1) for name in names.tolist()], np.int64)
        taken = self.take(np.maximum(rows, 0))
        return replace(taken, names=names, numbers=np.where(rows >= 0, taken.numbers, -1))

    def take(self, rows: Indices) -> "StoredImages":
        """The images of some rows, in the order given."""
        return replace(
            self,
            names=self.names[rows],
            numbers=self.numbers[rows],
            offsets=self.offsets[rows],
            sizes=self.sizes[rows],
            digests=None if self.digests is None else self.digests[rows],
        )

    def file(self, row: int) -> str:
        """The file that an image is in, or is."""
        file = self.files[int(self.numbers[row])]
        if not is_address(file):
            file = os.path.join(self.root, file)  # noqa: PTH118 - it is called for every image
        return f"{file.rstrip('/')}/{self.names[row]}" if self.offsets[row] == WHOLE else file

    def place(self, row: int) -> str:
        """Where an image is: its address, or its name in a shard."""
        file = self.file(row)
        return file if self.offsets[row] == WHOLE else f"{file}/{self.names[row]}"

    def content(self, row: int, digest: int | None = None) -> bytes:
        """The bytes of an image; from the cache only if they have this ``digest``."""
        file, offset, size = self.file(row), int(self.offsets[row]), int(self.sizes[row])
        if not is_address(file):
            return self._read(row, file, offset, size)
        return cached(f"{file} {offset} {size}", digest, lambda: self._read(row, file, offset, size))

    def _read(self, row: int, file: str, offset: int, size: int) -> bytes:
        if offset == WHOLE:
            return read_bytes(file)
        if not is_table(file):
            content = read_bytes(file, offset, size)
            if len(content) == size:
                return content
        else:
            images = _group(file, self.columns[int(self.numbers[row])], offset)
            if size < len(images):
                return images[size]
        raise DataError(
            f"{file} has changed: {self.names[row]} is not in it",
            "bring it back as it was",
            "prepare the data again",
            what=file,
        )


@lru_cache(maxsize=1)
def _group(file: str, column: str, group: int) -> list[bytes]:
    """The images of a row group, read at once and cached while the next ones are in it too."""
    return row_group(file, column, group)


class Scanned(NamedTuple):
    """The images that a scan finds in a shard."""

    names: list[str]
    offsets: list[int]
    sizes: list[int]
    digests: list[int]
    problems: dict[str, str]


def scan_tar(file: str) -> Scanned:
    """Read every image of a tar once."""
    scanned = Scanned([], [], [], [], {})
    for name, offset, content in read_members(file):
        _add(scanned, name, offset, len(content), content)
    return scanned


def scan_group(place: tuple[str, str, str | None, int, int]) -> Scanned:
    """Read every image of a row group once; ``place`` is file, column, names, group and its first row."""
    file, column, names, group, first = place
    scanned = Scanned([], [], [], [], {})
    for row, (name, content) in enumerate(rows_of_group(file, column, names, group)):
        shown = f"{first + row}" if name is None else str(name)
        _add(scanned, shown, group, row, content)
    return scanned


def _add(scanned: Scanned, name: str, offset: int, size: int, content: bytes) -> None:
    try:
        load(name, content=content)
    except DataError as error:
        scanned.problems[name] = str(error)
    scanned.names.append(name)
    scanned.offsets.append(offset)
    scanned.sizes.append(size)
    scanned.digests.append(digest_of(content))


def are_stored(images: object) -> bool:
    """Whether a word names images that are in shards or at an address, and no folder."""
    return isinstance(images, str) and (is_address(images) or is_shard(images))


def scan(
    words: Sequence[str],
    column: str | None = None,
    *,
    cluster: str | None = None,
    report: Callable[[int], None] | None = None,
) -> StoredImages:
    """Scan the images in shards or at a URL; ``report`` gets the number of images read.

    Shards are read whole, by processes or by a cluster. Images with addresses of their own are listed here,
    and read when they are checked.
    """
    check_image_words(words, column)
    if len(words) == 1 and is_address(words[0]) and not is_shard(words[0]) and "*" not in words[0]:
        return _listed(words[0])
    shards = [*image_paths(words)]
    others = [path for path in shards if not is_shard(path)]
    if others:
        raise DataError(
            f"{listing(others, 3)}: images in shards and others cannot be prepared together",
            "name shards only, or one folder",
        )
    local = [str(Path(shard).resolve()) for shard in shards if not is_address(shard)]
    root = Path(os.path.commonpath([os.path.dirname(path) for path in local])) if local else Path.cwd()  # noqa: PTH120
    shards = [shard if is_address(shard) else str(Path(shard).resolve()) for shard in shards]
    works: list[tuple[int, Any]] = []
    columns = []
    for number, shard in enumerate(shards):
        columns.append("")
        if is_table(shard):
            images = table_images(shard, column)
            if images.kind == TEXT:
                raise DataError(
                    f"{shard} has paths of images, and shards to prepare have their bytes",
                    "name the folder of the images",
                    what=shard,
                )
            columns[-1] = images.column
            firsts = np.cumsum([0, *images.rows])
            works += [
                (number, (shard, images.column, images.names, group, int(firsts[group])))
                for group in range(len(images.rows))
            ]
        elif not file_name(shard).lower().endswith(".tar"):
            raise DataError(
                f"{shard} is compressed, and images cannot be read from its middle", "unpack it to a .tar"
            )
        else:
            works.append((number, shard))
    scanned = []
    for (number, _), one in zip(works, in_parallel(_scan, [work for _, work in works], cluster), strict=True):
        scanned.append((number, one))
        if report is not None:
            report(len(one.names))
    return _united(root, shards, columns, scanned)


def _scan(work: Any) -> Scanned:
    return scan_tar(work) if isinstance(work, str) else scan_group(work)


def _united(
    root: Path, shards: Sequence[str], columns: Sequence[str], scanned: Sequence[tuple[int, Scanned]]
) -> StoredImages:
    """The images of all shards, under unique names."""
    plain = [name for _, one in scanned for name in one.names]
    prefixed = len({*plain}) < len(plain)
    names: list[str] = []
    problems: dict[str, str] = {}
    for number, one in scanned:
        prefix = f"{os.path.basename(shards[number])}/" if prefixed else ""  # noqa: PTH119
        names += [prefix + name for name in one.names]
        problems |= {prefix + name: problem for name, problem in one.problems.items()}
    if len({*names}) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DataError(f"two images in the shards are called {twice}", "give them names of their own")
    relative = [shard if is_address(shard) else os.path.relpath(shard, root) for shard in shards]

    def joined(part: Callable[[Scanned], list[int]], kind: Any) -> Any:
        return np.asarray([value for _, one in scanned for value in part(one)], kind)

    return StoredImages(
        root,
        tuple(relative),
        tuple(columns),
        np.asarray(names, np.str_),
        np.repeat([number for number, _ in scanned], [len(one.names) for _, one in scanned]).astype(np.int64),
        joined(lambda one: one.offsets, np.int64),
        joined(lambda one: one.sizes, np.int64),
        joined(lambda one: one.digests, np.uint64),
        problems,
    )


def _listed(address: str) -> StoredImages:
    """The images below an address, not read yet."""
    folder = f"{address.rstrip('/')}/"
    names = [path.removeprefix(folder) for path in image_paths([address])]
    if not names:
        raise DataError(f"there are no images at {address}", "check the address", what=address)
    zeros = np.zeros(len(names), np.int64)
    return StoredImages(
        Path.cwd(), (folder,), ("",), np.asarray(names, np.str_), zeros, np.full(len(names), WHOLE), zeros
    )
