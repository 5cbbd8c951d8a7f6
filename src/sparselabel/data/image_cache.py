"""A size-limited cache of remote images for later epochs.

SPARSELABEL_IMAGE_CACHE_GB limits its size (0: no cache). Several processes share it; the least recently read
images are deleted.
"""

import hashlib
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sparselabel.data.decode import digest_of
from sparselabel.errors import ConfigError
from sparselabel.files import cache_folder

GIGABYTES = "SPARSELABEL_IMAGE_CACHE_GB"
DEFAULT_GIGABYTES = 10.0
KEPT_SHARE = 0.9  # of its limit that is left after deleting images
CHECK_SHARE = 0.02  # of its limit that a process writes before it measures the folder


def cache_room() -> int:
    """The bytes that the cache may take."""
    text = os.environ.get(GIGABYTES, str(DEFAULT_GIGABYTES))
    try:
        room = float(text)
    except ValueError:
        room = math.nan
    if not 0 <= room < math.inf:
        problem = f"{GIGABYTES} must be a number of gigabytes from 0 on, not {text!r}"
        raise ConfigError(
            problem,
            f"set it to one, as {GIGABYTES}={DEFAULT_GIGABYTES:g}",
            "unset it",
            what=GIGABYTES,
            value=text,
        )
    return int(room * 1e9)


_written: dict[int, int] = {}
"""Bytes that this process has written since it last measured the folder."""


def cached(key: str, digest: int | None, fetch: Callable[[], bytes]) -> bytes:
    """The result of ``fetch``, from the cache if content with this ``digest`` is there (None: never)."""
    room = cache_room()
    if not room:
        return fetch()
    name = hashlib.blake2b(key.encode(errors="surrogateescape"), digest_size=16).hexdigest()
    file = cache_folder("images") / name[:2] / name
    if digest is not None:
        with suppress(OSError):
            content = file.read_bytes()
            if digest_of(content) == digest:
                os.utime(file)
                return content
    content = fetch()
    with suppress(OSError):  # work without a cache that cannot be written
        _keep(file, content, room)
    return content


def _keep(file: Path, content: bytes, room: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(file)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    written = _written.get(os.getpid(), room) + len(content)  # the first one measures
    if written < CHECK_SHARE * room:
        _written[os.getpid()] = written
        return
    _written[os.getpid()] = 0
    make_room(room)


def make_room(room: int) -> None:
    """Delete the least recently read images until there is room."""
    cached = []
    for folder in cache_folder("images").iterdir():
        for entry in os.scandir(folder):
            with suppress(OSError):  # another process was first
                stat = entry.stat()
                cached.append((stat.st_mtime_ns, stat.st_size, entry.path))
    taken = sum(size for _, size, _ in cached)
    if taken <= room:
        return
    for _, size, path in sorted(cached):
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - there may be millions
        taken -= size
        if taken <= KEPT_SHARE * room:
            return
