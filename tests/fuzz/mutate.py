"""Damage for files: bytes, words and the structure of their format, all drawn from a seeded generator."""

import ast
import gzip
import io
import json
import re
import struct
import tomllib
import zipfile
import zlib
from collections.abc import Callable
from pathlib import PurePath
from random import Random
from typing import Any

import numpy as np

DEEP = 3_000
NUMBERS = (
    "0", "-1", "1e400", "-1e308", "1e9", "NaN", "Infinity", "-Infinity", "inf", "nan", "1_0", "0x10", "٣",
    "9" * 5_000, "1" + "0" * 400, str(2**31), str(2**63), str(-(2**63) - 1), "0.1", "1e-320", "65536",
)  # fmt: skip
TEXTS = (
    "", " ", "\0", "a\0b.jpg", "\\u0000", "\\ud800", "../../etc/passwd", "/", "x" * 300, "ü", "\u2028",
    "\r\n", "\t", '"', "'", ",", ";", "{", "}", "[", "]", "null", "true", "=", "%00", "<", "&amp;",
    "\x1b[31m", "\ufeff", "//", ".", "[" * DEEP, '{"a":' * DEEP, "(" * DEEP, "<a>" * DEEP, "x" * 140_000,
)  # fmt: skip
NO_TEXT = (b"\xff", b"\xfe\xff", b"\xed\xa0\x80", b"\xc3")
WORDS = (*(text.encode() for text in NUMBERS + TEXTS), *NO_TEXT)
ENCODINGS = (
    b"klingon",
    b"utf-16",
    b"utf-7",
    b"idna",
    b"shift_jis",
    b"latin-1",
    b"undefined",
    b"rot13",
    b"utf-32",
)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 10**400, -(10**400), 0.5, 1e308, -1e308, float("nan"),
    float("inf"), "", "a", "\0", "a\0b", "\ud800", "ü", "x" * 300, "../a", [], {}, [[]], [None], {"": 0},
    [1, 2, 3], "1", "NaN",
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_XML_WORD = re.compile(rb'"[^"]*"|>[^<]+<')

Mutator = Callable[[Random, bytes], bytes]


def mutate(random: Random, name: str, content: bytes) -> bytes:
    """The content of a file with one to three kinds of damage, some of which know its format."""
    structure = STRUCTURES.get(PurePath(name).suffix)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if structure is not None and random.random() < 0.6:
            try:
                content = structure(random, content)
                continue
            except Exception:
                pass
        content = random.choice(BYTES)(random, content)
    return content


def _span(random: Random, content: bytes) -> tuple[int, int]:
    start = random.randint(0, len(content))
    return start, min(len(content), start + random.choice((0, 1, 2, 4, 16, 256)))


def _flip(random: Random, content: bytes) -> bytes:
    changed = bytearray(content or b"\0")
    for _ in range(random.choice((1, 1, 4))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwrite(random: Random, content: bytes) -> bytes:
    start, end = _span(random, content)
    return content[:start] + random.randbytes(end - start) + content[end:]


def _cut(random: Random, content: bytes) -> bytes:
    start, end = _span(random, content)
    return content[:start] + content[end:]


def _truncate(random: Random, content: bytes) -> bytes:
    return content[: random.randint(0, len(content))]


def _repeat(random: Random, content: bytes) -> bytes:
    start, end = _span(random, content)
    return content[:end] + content[start:end] * random.choice((1, 2, 50)) + content[end:]


def _insert(random: Random, content: bytes) -> bytes:
    start, end = _span(random, content)
    end = random.choice((start, end))
    return content[:start] + random.choice(WORDS) + content[end:]


def _number(random: Random, content: bytes) -> bytes:
    numbers = [*_NUMBER.finditer(content[:100_000])]
    if not numbers:
        return _insert(random, content)
    chosen = random.choice(numbers)
    return content[: chosen.start()] + random.choice(NUMBERS).encode() + content[chosen.end() :]


BYTES: tuple[Mutator, ...] = (_flip, _overwrite, _cut, _truncate, _repeat, _insert, _number)


def _lines(random: Random, content: bytes) -> bytes:
    """Of a table: a cell, a line or a column more or less."""
    lines = content.split(b"\n")
    at = random.randrange(len(lines))
    match random.randrange(5):
        case 0:
            cells = re.split(rb"([,\t; ])", lines[at])
            cells[random.randrange(len(cells))] = random.choice(WORDS)
            lines[at] = b"".join(cells)
        case 1:
            del lines[at]
        case 2:
            lines.insert(at, lines[random.randrange(len(lines))])
        case 3:
            lines[at] = b""
        case _:
            lines = [line + b"," for line in lines]
    return b"\n".join(lines)


def _xml(random: Random, content: bytes) -> bytes:
    if random.random() < 0.1:
        head = b'<?xml version="1.0" encoding="%b"?>' % random.choice(ENCODINGS)
        return head + re.sub(rb"^<\?xml[^>]*\?>", b"", content)
    if random.random() < 0.05:
        return b'<!DOCTYPE a [<!ENTITY b "c">]>' + re.sub(rb"^<\?xml[^>]*\?>", b"", content)
    chosen = random.choice([*_XML_WORD.finditer(content)])
    return content[: chosen.start() + 1] + random.choice(WORDS) + content[chosen.end() - 1 :]


def _nodes(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a tree."""
    waiting, nodes = [value], []
    while waiting:
        inner = waiting.pop()
        keys = [*inner] if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ()
        nodes += [(inner, key) for key in keys]
        waiting += [inner[key] for key in keys]
    return nodes


def _tree(random: Random, tree: Any) -> Any:
    """A tree of JSON or TOML with one of its nodes changed."""
    nodes = _nodes(tree)
    if not nodes or random.random() < 0.02:
        return random.choice(VALUES)
    inner, key = random.choice(nodes)
    match random.randrange(5):
        case 0:
            del inner[key]
        case 1:
            inner[key] = [inner[key]]
        case 2 if isinstance(inner, dict):
            inner[random.choice(("x", "", "\0", "\ud800", "name", "id"))] = inner.pop(key)
        case 3:
            other, place = random.choice(nodes)
            inner[key] = json.loads(json.dumps(other[place])) if place in [*_keys(other)] else None
        case _:
            inner[key] = random.choice(VALUES)
    return tree


def _keys(inner: Any) -> Any:
    return inner if isinstance(inner, dict) else range(len(inner))


def _json(random: Random, content: bytes) -> bytes:
    text = json.dumps(_tree(random, json.loads(content)))
    if random.random() < 0.1:  # a value that is very deep, or a number that is very long
        word = random.choice(("[" * DEEP + "]" * DEEP, "9" * 5_000, "1e400", "-" + "9" * 400))
        values = [*re.finditer(r'(?<=: )(\d+|"[^"]*"|true|null)', text)]
        if values:
            chosen = random.choice(values)
            text = text[: chosen.start()] + word + text[chosen.end() :]
    return text.encode()


def _json_lines(random: Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    at = random.randrange(len(lines))
    lines[at] = _json(random, lines[at])
    return b"\n".join(lines)


def _toml(random: Random, content: bytes) -> bytes:
    from sparselabel.config.toml import _lines as toml_lines

    tree = _tree(random, tomllib.loads(content.decode()))
    return "\n".join(toml_lines(tree)).encode(errors="surrogatepass")


DTYPES = ("|O", "<f8", "<f2", "<i8", "|b1", "<U3", "<c16", "|V8", "<M8[s]", "|S3", ">f4", "|i1", "<U0", "|u1")
SHAPES = (
    "()", "(0,)", "(-1,)", "(1, 2, 3)", "(10**12,)", "(1000000000000,)", "(4294967296, 4294967296)", "5",
    "(3, 0)", "(2.0,)", "(True,)", "(" * 300 + ")" * 300, "(9223372036854775807,)", "(1000, 1000000)",
)  # fmt: skip


def _npy(random: Random, content: bytes) -> bytes:
    """Of an array: its values, or its header as text, with a length that fits."""
    length = struct.unpack("<H", content[8:10])[0]
    header, data = content[10 : 10 + length], content[10 + length :]
    if random.random() < 0.3:
        return content[: 10 + length] + random.choice(BYTES)(random, data)
    fields = ast.literal_eval(header.decode())
    shape = repr(fields["shape"])
    match random.randrange(4):
        case 0:
            fields["descr"] = random.choice(DTYPES)
        case 1:
            shape = random.choice(SHAPES)
        case 2:
            array = np.load(io.BytesIO(content))
            return _bytes_of(_array(random, array))
        case _:
            return content[:8] + _sized(random.choice(BYTES)(random, header)) + data
    text = (
        f"{{'descr': {fields['descr']!r}, 'fortran_order': {fields['fortran_order']}, 'shape': {shape}, }}\n"
    )
    return content[:8] + _sized(text.encode()) + data


def _sized(header: bytes) -> bytes:
    return struct.pack("<H", min(len(header), 65_535)) + header


def _array(random: Random, array: Any) -> Any:
    """An array of another shape, type or content."""
    match random.randrange(6):
        case 0:
            return array.astype(random.choice(("f8", "i1", "S5", "U7", "c16", "?")))
        case 1:
            return array[..., None] if random.random() < 0.5 else array.ravel()[:-1]
        case 2:
            return array.reshape(-1)[:0]
        case 3 if array.dtype.kind == "f" and array.size:
            array.reshape(-1)[random.randrange(max(array.size, 1))] = random.choice(
                (np.nan, np.inf, -1e30, 2)
            )
            return array
        case 4 if array.dtype.kind == "U":
            codes = array.view(np.uint32)
            codes.reshape(-1)[random.randrange(codes.size)] = random.choice(
                (0, 0xD800, 0x110000, 2**32 - 1, 65)
            )
        case _:
            return array[::-1].repeat(2, axis=0) if array.ndim else array
    return array


def _bytes_of(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def _zip(random: Random, content: bytes) -> bytes:
    """Of an archive: its members, packed again with the right checksums."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = random.choice([*members])
    kind = zipfile.ZIP_STORED
    match random.randrange(6):
        case 0:
            del members[name]
        case 1:
            members[random.choice(("x.npy", "", "scores", "../a.npy"))] = members.pop(name)
        case 2:
            kind = random.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
            members[name] += bytes(random.choice((0, 20_000_000)) if random.random() < 0.02 else 0)
        case _:
            change = STRUCTURES.get(PurePath(name).suffix, random.choice(BYTES))
            members[name] = change(random, members[name])
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", kind) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return stream.getvalue()


def _safetensors(random: Random, content: bytes) -> bytes:
    (length,) = struct.unpack("<Q", content[:8])
    header = _json(random, content[8 : 8 + length])
    size = random.choice((0, 2**63, 2**64 - 1, 10**9)) if random.random() < 0.05 else len(header)
    return struct.pack("<Q", size) + header + content[8 + length :]


def _parquet(random: Random, content: bytes) -> bytes:
    """Of a Parquet file: columns of other types and names."""
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(io.BytesIO(content))
    at = random.randrange(table.num_columns)
    count = table.num_rows
    column: list[Any] = random.choice(
        (
            [random.choice(("", "a\0b", "1", "NaN", "x" * 300, "ü"))] * count,
            [random.choice((1e400, float("nan"), -1.0, 1e308))] * count,
            [random.choice((-1, 2**62, 0, 1))] * count,
            [None] * count,
            [b"\xff"] * count,
            [[1]] * count,
            [True] * count,
            [{"bytes": random.choice(VALUES[15:22]), "path": random.choice(VALUES[15:22])}] * count,
            [{"bytes": random.choice((b"", b"\xff", None, 5)), "path": random.choice(("a.jpg", 7, None))}]
            * count,
            [{"a": 1}] * count,
        )
    )
    name = random.choice((table.column_names[at], "x", "", "a\0b", "image"))
    table = table.set_column(at, name, pa.array(column))
    stream = io.BytesIO()
    parquet.write_table(table, stream)
    return stream.getvalue()


TAR_FIELDS = ((0, 100), (124, 136), (124, 136), (156, 157), (156, 157), (157, 257), (257, 265), (345, 500))
TAR_VALUES = (
    *(
        b"L",
        b"K",
        b"x",
        b"g",
        b"S",
        b"1",
        b"2",
        b"5",
        b"\x80",
        b"\xff" * 12,
        b"7" * 11,
        b"0",
        b"-1",
        b"-7777777",
    ),
    *(b"\x80" + bytes(10) + b"\x10", b"\x80" + b"\xff" * 11, b"\x00\xff", b"a.jpg"),
)


def _tar(random: Random, content: bytes) -> bytes:
    """Of a tar: a field of a header, with a checksum that fits; or what a long header says."""
    starts = [at for at in range(0, len(content) - 511, 512) if content[at + 257 : at + 262] == b"ustar"]
    at = random.choice(starts)
    header, rest = bytearray(content[at : at + 512]), content[at + 512 :]
    if bytes(header[156:157]) in (b"x", b"g") and random.random() < 0.7:
        return content[: at + 512] + random.choice(BYTES)(random, rest[:512])[:512].ljust(512) + rest[512:]
    first, last = random.choice(TAR_FIELDS)
    value = random.choice((*WORDS, *TAR_VALUES, *TAR_VALUES, random.randbytes(8)))
    header[first:last] = value[: last - first].ljust(last - first, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return content[:at] + bytes(header) + rest


def _tgz(random: Random, content: bytes) -> bytes:
    return gzip.compress(_tar(random, gzip.decompress(content)), 1)


def _png(random: Random, content: bytes) -> bytes:
    """Of a PNG: a chunk more, less or changed, with a checksum that fits."""
    chunks, at = [], 8
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + length]))
        at += 12 + length
    number = random.randrange(len(chunks))
    match random.randrange(4):
        case 0:
            del chunks[number]
        case 1:
            kind = random.choice((b"iCCP", b"eXIf", b"tRNS", b"zTXt", b"PLTE", b"acTL", b"fdAT", b"sBIT"))
            chunks.insert(number, (kind, random.choice((*WORDS, random.randbytes(30)))))
        case _:
            kind, data = chunks[number]
            chunks[number] = kind, random.choice(BYTES)(random, data)
    return content[:8] + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


STRUCTURES: dict[str, Mutator] = {
    ".csv": _lines, ".tsv": _lines, ".txt": _lines, ".xml": _xml, ".json": _json, ".jsonl": _json_lines,
    ".toml": _toml, ".npy": _npy, ".npz": _zip, ".pt": _zip, ".safetensors": _safetensors,
    ".parquet": _parquet, ".tar": _tar, ".tgz": _tgz, ".png": _png, ".xlsx": _zip,
}  # fmt: skip
