"""One way to read each format: text, JSON, TOML and NumPy's arrays.

Any error in a file becomes one of ours that names the file and, if known, the place. Contents are checked
against types (``schema.py``).
"""

import json
import math
import os
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from sparselabel.errors import ConfigError, DataError, ResourceError, RunError, SparselabelError
from sparselabel.files import BRING_BACK, atomic_write
from sparselabel.schema import checked

if TYPE_CHECKING:
    import numpy.typing as npt

Kind = TypeVar("Kind")
Errors = type[SparselabelError]

DEEPEST = 100  # lists and objects inside each other
LOOKED_AT = 1 << 20  # bytes of texts that are looked at also where they are mapped
DIGITS = 308  # of a whole number: more are beyond any float
_LONG_NUMBER = re.compile(rf"\d{{{DIGITS + 1}}}")
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


@contextmanager
def reading(file: Path, *remedies: str, error: Errors = DataError) -> Iterator[None]:
    """Turn exceptions of code that reads a file into an error that names it."""
    refuse_special(file, *remedies, error=error)
    try:
        yield
    except SparselabelError:
        raise
    except MemoryError as problem:
        raise ResourceError(
            f"{file} does not fit into memory", "use a larger machine", what=file
        ) from problem
    except (FileNotFoundError, IsADirectoryError) as problem:
        raise error(f"{file} is not there, or not a file", *remedies, what=file) from problem
    except Exception as problem:
        reason = str(problem).partition("\n")[0] or type(problem).__name__
        line = getattr(problem, "lineno", None)  # that XML's parsers tell
        where = None if line is None else f"line {line:,}"
        raise unreadable(file, reason, *remedies, error=error, where=where) from problem


def refuse_special(file: Path | str, *remedies: str, error: Errors = DataError) -> None:
    """Raise for a pipe, a socket or a device, also behind a link, where reading may never end."""
    try:
        mode = os.stat(file).st_mode  # noqa: PTH116 - it is called for every image
    except (OSError, ValueError):
        return  # opening it says more
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        problem = f"{file} cannot be read (it is a pipe, a socket or a device)"
        raise error(problem, *(remedies or ("leave it out",)), what=file)


@contextmanager
def naming(file: Path | str) -> Iterator[None]:
    """Add the file's name to errors of code that does not know it."""
    try:
        yield
    except SparselabelError as error:
        if Path(file).name in error.problem:
            raise
        raise type(error)(
            f"{file}: {error.problem}", *error.remedies, what=file, where=error.where, value=error.value
        ) from error


def unreadable(
    file: Path, reason: str, *remedies: str, error: Errors = DataError, where: str | None = None
) -> SparselabelError:
    """The error for an invalid file."""
    return error(f"{file} cannot be read ({reason})", *remedies, what=file, where=where)


def read_text(file: Path, *remedies: str, error: Errors = DataError) -> str:
    """A text in UTF-8, without a byte order mark."""
    with reading(file, *remedies, error=error):
        content = file.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        where = f"line {line:,}"
        reason = f"it is not text in UTF-8: {where}, {problem.reason} {content[problem.start]:#x}"
        raise unreadable(file, reason, *remedies, error=error, where=where) from problem


def read_json(file: Path, kind: type[Kind], *remedies: str, error: Errors = RunError) -> Kind:
    """A JSON file whose content is of a kind; ``remedies`` say what to do if it is damaged."""
    remedies = remedies or (BRING_BACK if error is RunError else ())
    return parse_json(read_text(file, *remedies, error=error), file, kind, *remedies, error=error)


def read_json_lines(file: Path, kind: type[Kind], *remedies: str, error: Errors = RunError) -> list[Kind]:
    """A JSON value per line."""
    lines = read_text(file, *remedies, error=error).split("\n")
    return [
        parse_json(line, file, kind, *remedies, error=error, first=number)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def parse_json(
    text: str, file: Path, kind: type[Kind], *remedies: str, error: Errors = RunError, first: int = 1
) -> Kind:
    """The content of a file's text, which begins with line ``first``."""
    where = None
    try:
        content = json.loads(text, parse_int=_whole_number if _LONG_NUMBER.search(text) else None)
        _refuse_deep(content)
        if _HALF_CHARACTER.search(text):
            json.dumps(content, ensure_ascii=False).encode()
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno + first - 1:,}, column {problem.colno:,}"
        reason = f"{problem.msg}: {where}"
        raise unreadable(file, reason, *remedies, error=error, where=where) from problem
    except UnicodeEncodeError as problem:
        raise unreadable(file, "a text has half of a character", *remedies, error=error) from problem
    except RecursionError as problem:
        raise unreadable(file, TOO_DEEP, *remedies, error=error) from problem
    except ValueError as problem:
        raise unreadable(file, str(problem), *remedies, error=error) from problem
    return of_kind(content, kind, file, *remedies, error=error)


def of_kind(content: Any, kind: type[Kind], file: Path, *remedies: str, error: Errors = RunError) -> Kind:
    """The content of a file, checked against a type (``schema.checked``)."""
    if kind is dict:
        if not isinstance(content, dict):
            problem = f"{file} must hold an object of JSON, not {type(content).__name__}"
            raise error(problem, *remedies, what=file)
        return content  # type: ignore[return-value]
    try:
        value: Kind = checked(kind, content, "", str(file))
    except ConfigError as unfit:
        detail = unfit.what if unfit.where == str(file) else f"{unfit.where}: {unfit.what}"
        named = unfit.problem if str(file) in unfit.problem else f"{file}: {unfit.problem}"
        raise error(
            named, *remedies, what=file, where=detail, value=unfit.value, allowed=unfit.allowed
        ) from unfit
    return value


TOO_DEEP = f"lists or objects inside each other, more than {DEEPEST} deep"


def _refuse_deep(content: Any) -> None:
    """Raise for values nested so deeply that recursive code would overflow the stack."""
    level = [content]
    for _ in range(DEEPEST):
        level = [
            inner
            for value in level
            if isinstance(value, list | dict)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise ValueError(TOO_DEEP)


def _whole_number(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"a whole number of {len(digits):,} digits")
    return int(digits)


def read_toml(file: Path) -> dict[str, Any]:
    """A TOML file's tables."""
    return parse_toml(read_text(file, error=ConfigError), file)


def parse_toml(text: str, file: Path | str) -> dict[str, Any]:
    """The tables of a file's text."""
    import tomllib

    try:
        values = tomllib.loads(text)
        _refuse_deep(values)
    except RecursionError as problem:
        raise unreadable(Path(file), TOO_DEEP, error=ConfigError) from problem
    except ValueError as problem:  # also of a number with thousands of digits
        raise unreadable(Path(file), str(problem), error=ConfigError) from problem
    return values


PLAIN = "biufUS"
"""Kinds of arrays that we write and read: numbers and texts."""


def read_array(
    file: Path, layout: str = "", *remedies: str, error: Errors = DataError, mapped: bool = False
) -> "npt.NDArray[Any]":
    """Read an .npy file with a required ``layout`` (``refuse_other_layout``); ``mapped``: memory-mapped.

    A mapped one is copied on write, as torch wants arrays it could write to: the file stays as it is.
    """
    import numpy as np

    with reading(file, *remedies, error=error):
        with file.open("rb") as stream:
            _refuse_header(stream, os.fstat(stream.fileno()).st_size)
        array: npt.NDArray[Any] = np.load(file, mmap_mode="c" if mapped else None, allow_pickle=False)
        if not mapped or array.nbytes <= LOOKED_AT:
            _refuse_half_characters(array)
    refuse_other_layout(file, {"": array}, {"": layout} if layout else {}, *remedies, error=error)
    return array


def write_array(path: Path, array: "npt.NDArray[Any]") -> None:
    """Write an .npy file atomically, with a checksum behind the array, which readers of NumPy do not see."""
    import numpy as np

    from sparselabel.checksums import file_checksum

    with atomic_write(path) as partial:
        with partial.open("wb") as file:
            np.save(file, array, allow_pickle=False)
        checksum = file_checksum(partial).to_bytes(4, "little")
        with partial.open("ab") as file:
            file.write(checksum)


def read_arrays(
    file: Path, layouts: Mapping[str, str], *remedies: str, error: Errors = RunError
) -> "dict[str, npt.NDArray[Any]]":
    """The arrays of an .npz file, first those that must be there, which fit their layouts."""
    from numpy.lib import format as npy

    arrays: dict[str, npt.NDArray[Any]] = {}
    with reading(file, *remedies, error=error), zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        lacking = [name for name in layouts if name not in members]
        if lacking:
            raise ValueError(f"it lacks {', '.join(lacking)}")
        refuse_packed(sum(info.file_size for info in archive.infolist()))
        for name in [*layouts, *(name for name in members if name not in layouts)]:
            with archive.open(members[name]) as stream:
                _refuse_header(stream, members[name].file_size)
            with archive.open(members[name]) as stream:
                arrays[name] = npy.read_array(stream, allow_pickle=False)
            _refuse_half_characters(arrays[name])
    refuse_other_layout(file, arrays, layouts, *remedies, error=error)
    return arrays


def refuse_packed(size: int, share: float = 0.5) -> None:
    """Raise if what is unpacked at once has more bytes than a share of this machine's memory."""
    if size > share * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise ValueError(f"it unpacks to {size:,} bytes, more than {share:.0%} of this machine's memory")


def refuse_other_layout(
    file: Path,
    arrays: "Mapping[str, npt.NDArray[Any]]",
    layouts: Mapping[str, str],
    *remedies: str,
    error: Errors,
) -> None:
    """Raise unless the arrays of a file are laid out as they must be: ``{"ids": "U N", "scores": "f N L"}``.

    First come the kinds of numpy that will do, then the names of the axes. Axes of one name are of one
    length, and one that is a number is of that length.
    """
    lengths: dict[str, int] = {}
    for name, layout in layouts.items():
        kinds, *axes = layout.split()
        array, of = arrays[name], f"{name} " if name else ""
        shape = tuple(
            int(axis) if axis.isdecimal() else lengths.setdefault(axis, length)
            for axis, length in zip(axes, array.shape, strict=False)
        )
        if array.dtype.kind not in kinds or array.ndim != len(axes) or shape != array.shape:
            known = ", ".join(str(lengths.get(axis, axis)) for axis in axes)
            raise error(
                f"{file}: {of}must be {KINDS[kinds]} of shape ({known}{',' * (len(axes) == 1)}), not "
                f"{array.dtype} of shape {array.shape}",
                *remedies,
                what=file,
                where=name or None,
                value=f"{array.dtype} {array.shape}",
                allowed=layout,
            )


def refuse_outside(
    file: Path,
    arrays: "Mapping[str, npt.NDArray[Any]]",
    counts: Mapping[str, int],
    *remedies: str,
    error: Errors = RunError,
) -> None:
    """Raise unless arrays of a file are indices below these sizes: ``{"rows": 100, "classes": 20}``."""
    for name, count in counts.items():
        array = arrays[name]
        if array.size and (array.min() < 0 or array.max() >= count):
            raise error(
                f"{file}: {name} must be from 0 to {count - 1:,}, not {array.min():,} to {array.max():,}",
                *remedies,
                what=file,
                where=name,
                value=(int(array.min()), int(array.max())),
                allowed=count,
            )


KINDS = {
    "fiu": "numbers", "f": "fractions", "i": "whole numbers", "u": "whole numbers from 0", "U": "texts",
    "b": "booleans",
}  # fmt: skip


def _refuse_header(stream: IO[bytes], size: int) -> None:
    """Raise if an array is of a kind that we do not read, or larger than its file."""
    from numpy.lib import format as npy

    try:
        version = npy.read_magic(stream)
    except ValueError as problem:
        raise ValueError("not a file of arrays") from problem
    try:
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(stream)
        if dtype.kind not in PLAIN or dtype.hasobject:
            raise ValueError(f"it holds {dtype}, neither numbers nor texts")
        if min(shape, default=0) < 0 or math.prod(shape) * max(dtype.itemsize, 1) > size - stream.tell():
            raise ValueError(f"it is too short for {dtype} of shape {shape}")
    except (MemoryError, RecursionError, SyntaxError, TypeError) as problem:  # of a header that is no text
        raise ValueError("its header is damaged") from problem


def _refuse_half_characters(array: "npt.NDArray[Any]") -> None:
    """Raise if texts have code points that are no characters: Python cannot read, or not write them."""
    import numpy as np

    if array.dtype.kind == "U" and array.size:
        native = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1)
        codes = native.view(np.uint32)
        if bool(((codes >= 0x110000) | ((codes >= 0xD800) & (codes < 0xE000))).any()):
            raise ValueError("a text has a number that is no character")
