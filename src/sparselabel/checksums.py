"""Checksums of files that the library writes: a flipped byte raises an error instead of changing results.

CRC-32, as these guard against accidents: it finds every burst of up to 32 bits, misses other damage once in
four billion times, and is eight times faster than a cryptographic digest. It does not protect against
deliberate changes. Images, which come from elsewhere, have digests (BLAKE2b).
"""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.errors import RunError, SparselabelError

BLOCK = 1 << 22

Sums = npt.NDArray[np.uint32]


def file_checksum(path: Path) -> int:
    """The checksum of a file's bytes."""
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            checksum = zlib.crc32(block, checksum)
    return checksum


def row_checksums(rows: npt.NDArray[Any]) -> Sums:
    """(N,) A checksum for every row of an array (N, ...)."""
    if not rows.size:
        return np.zeros(len(rows), np.uint32)
    lines = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    return np.fromiter((zlib.crc32(line.data) for line in lines), np.uint32, len(lines))


def json_checksum(content: dict[str, Any]) -> int:
    """The checksum of a JSON object, whatever the order of its keys; its own ``checksum`` does not count."""
    counted = {key: value for key, value in content.items() if key != "checksum"}
    return zlib.crc32(json.dumps(counted, sort_keys=True).encode())


def require_own_checksum(path: Path, *remedies: str) -> None:
    """Raise if a file is not what ``file_formats.write_array`` wrote."""
    checksum, last = 0, b""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            held = last + block
            checksum, last = zlib.crc32(held[:-4], checksum), held[-4:]
    if last != checksum.to_bytes(4, "little"):
        raise damaged(path, *remedies)


def require_checksum(
    path: Path, expected: int, *remedies: str, kind: type[SparselabelError] = RunError
) -> None:
    """Raise if a file is not, byte for byte, what was written."""
    if file_checksum(path) != expected:
        raise damaged(path, *remedies, kind=kind)


def damaged(
    path: Path, *remedies: str, where: object = None, kind: type[SparselabelError] = RunError
) -> SparselabelError:
    """The error for a file that has changed since it was written."""
    location = "" if where is None else f", {where}"
    problem = f"{path}{location} is damaged (its bytes are not those that were written)"
    return kind(problem, *remedies, what=path, where=where)
