"""A JSON object whose lists may be larger than memory, read block by block.

The parser is Python's own. Two things make it fast and bound its memory: long lists are cut between two of
their objects, and unneeded values (COCO's outlines: four fifths of its bytes) are blanked out before parsing.
A cut is guessed at the last ``}, {`` of a block and proved by parsing: JSON reads in one way from the left,
so a piece that parses as a list ends where one of its elements ends. Where the guess is wrong (an element has
a list of objects itself), strings and brackets are counted instead.
"""

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparselabel.errors import DataError

BLOCK = 4 << 20
_BETWEEN = re.compile(rb"\s*,\s*\{")
_SPACE = re.compile(rb"[ \t\n\r]*")
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("|\\?\Z)|[{}\[\]]', re.DOTALL)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonBlocks:
    """Goes through the outermost object of a file: ``for key in blocks``, then for each key one of

    ``elements()``, the blocks of a list's elements, or ``value()``, the whole value. Values that are not read
    are skipped. ``position`` and ``go_to`` return to a value after all keys.
    """

    def __init__(self, file: Path, expected: str = "an object", block: int = BLOCK) -> None:
        self.file = file
        self._expected = expected
        self._block = block
        self._stream = file.open("rb")
        self._data = b""
        self.go_to(0)
        if self._data.startswith(_BYTE_ORDER_MARK):
            self._at = len(_BYTE_ORDER_MARK)

    def __enter__(self) -> "JsonBlocks":
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        self._stream.close()
        if isinstance(error, RecursionError | OverflowError):  # of what came whole, but is not to be used
            raise DataError(f"{self.file}: {_reason(error)}", what=self.file) from error

    def __iter__(self) -> Iterator[str]:
        """The keys of the object; the value of each is next."""
        if self._next() != b"{":
            raise DataError(f"{self.file}: must be {self._expected}; found a {type(self.value()).__name__}")
        self._at += 1
        if self._next() == b"}":
            self._at += 1
        else:
            yield from self._keys()
        if self._next():
            raise self._wrong(self.position, "Extra data")

    @property
    def position(self) -> int:
        """The position of the next value in the file."""
        return self._start + self._at

    @property
    def is_list(self) -> bool:
        """Whether the next value is a list."""
        return self._next() == b"["

    def go_to(self, position: int) -> None:
        """Continue with the value at a position."""
        self._stream.seek(position)
        self._start, self._at = position, 0  # of the data: where it begins in the file, how far it is read
        self._data = self._stream.read(self._block)
        self._ended = len(self._data) < self._block
        self._taken = False  # whether the value of the last key was asked for

    def value(self) -> Any:
        """The whole value of the key."""
        self._taken = True
        decoder, size = json.JSONDecoder(), min(self._block, 1 << 12)
        self._next()
        while True:
            while len(self._data) - self._at < size and self._more():
                pass
            piece = self._data[self._at : self._at + size]
            whole = self._ended and self._at + size >= len(self._data)
            text = self._text(piece, whole)
            try:
                content, end = decoder.raw_decode(text)
            except json.JSONDecodeError as error:
                if whole:
                    raise self._wrong(self.position + _bytes(text, error.pos), error.msg) from None
            except (RecursionError, ValueError) as error:
                raise self._wrong(self.position, _reason(error)) from None
            else:
                # What follows tells that a number is whole: cut off at "1e", it was read as 1.
                if whole or text[end : end + 1] in {*",:]} \t\r\n"}:
                    self._at += _bytes(text, end)
                    return content
            size *= 8

    def elements(self, skip: str | None = None) -> Iterator[list[Any]]:
        """The elements of the key's list, some at a time.

        ``skip`` names a member of the elements that is not wanted: where it holds numbers in a list, or in
        lists in a list, the elements come with 0 instead.
        """
        self._taken = True
        name = re.escape(skip or "").encode()
        # No key can follow in the same run, nor the end of the element: the last bracket is the value's own.
        unwanted = re.compile(rb'"%b"\s*:\s*\[[^"{}]*\]' % name)
        self._next()
        self._at += 1
        first, closed = True, False
        while not closed:
            while len(self._data) - self._at < self._block and self._more():
                pass
            end = self._guess()
            piece = self._data[self._at : end]
            try:  # the guess is right if the piece is whole elements and nothing else
                if not end:
                    raise ValueError
                content = json.loads(b"[%b]" % (unwanted.sub(b'"%b":0' % name, piece) if skip else piece))
            except (ValueError, RecursionError):
                end, closed = self._counted()
                content = self._checked(self._data[self._at : end])
            self._at = end
            closed = closed or self._next() == b"]"
            if not content and not (closed and first):
                raise self._wrong(self.position, "Expecting value")  # nothing after a comma
            self._expect(b"]" if closed else b",", "Expecting ',' delimiter")
            if content:
                yield content
            first = False

    def _keys(self) -> Iterator[str]:
        while True:
            if self._next() != b'"':
                raise self._wrong(self.position, "Expecting property name enclosed in double quotes")
            key = str(self.value())
            self._expect(b":", "Expecting ':' delimiter")
            self._next()
            self._taken = False
            yield key
            if not self._taken:
                for _ in self.elements() if self.is_list else [self.value()]:
                    pass
            if self._next() == b"}":
                self._at += 1
                return
            self._expect(b",", "Expecting ',' delimiter")

    def _guess(self) -> int:
        """Behind the last object in the data that another follows; 0 if there is none."""
        at = len(self._data)
        while (at := self._data.rfind(b"}", self._at, at)) >= 0:
            if _BETWEEN.match(self._data, at + 1):
                return at + 1
        return 0

    def _counted(self) -> tuple[int, bool]:
        """Where the list ends, and True; or where its last whole element in the data ends, and False."""
        while True:
            depth, last = 0, 0
            for token in _TOKEN.finditer(self._data, self._at):
                first = token[0][:1]
                if first == b'"':
                    if token[1] != b'"':
                        break  # the rest of the data is inside a text
                elif first in b"{[":
                    depth += 1
                elif depth == 0:
                    return token.start(), True
                else:
                    depth -= 1
                    last = last if depth else token.end()
            if last:
                return last, False
            if not self._more():  # it breaks off, as parsing it will say
                return len(self._data), True

    def _checked(self, piece: bytes) -> list[Any]:
        text = self._text(piece, True)
        try:
            content: list[Any] = json.loads(f"[{text}]")
        except json.JSONDecodeError as error:
            raise self._wrong(self.position + _bytes(text, error.pos - 1), error.msg) from None
        except (RecursionError, ValueError) as error:
            raise self._wrong(self.position, _reason(error)) from None
        return content

    def _next(self) -> bytes:
        """The next byte that is not a space, which is not taken; nothing at the end of the file."""
        while True:
            match = _SPACE.match(self._data, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._data) or not self._more():
                return self._data[self._at : self._at + 1]

    def _expect(self, first: bytes, otherwise: str) -> None:
        if self._next() != first:
            raise self._wrong(self.position, otherwise)
        self._at += 1

    def _more(self) -> bool:
        """Read on, dropping what was read before; False at the end of the file."""
        block = b"" if self._ended else self._stream.read(max(self._block, len(self._data) - self._at))
        self._data = self._data[self._at :] + block
        self._start += self._at
        self._at = 0
        self._ended = not block
        return bool(block)

    def _text(self, piece: bytes, whole: bool) -> str:
        try:
            return codecs.getincrementaldecoder("utf-8")().decode(piece, final=whole)
        except UnicodeDecodeError as error:
            position = self.position + error.start
            raise DataError(
                f"{self.file} is not JSON in UTF-8: {error.reason} at byte {position:,}"
            ) from None

    def _wrong(self, position: int, why: str) -> DataError:
        line, column = 1, position + 1
        with self.file.open("rb") as stream:
            while position > 0 and (block := stream.read(min(position, self._block))):
                line += block.count(b"\n")
                position -= len(block)
                if b"\n" in block:
                    column = position + len(block) - block.rindex(b"\n")
            cut_off = not stream.read(self._block).strip()
        hint = " (the file ends here: was it written or downloaded whole?)" if cut_off else ""
        return DataError(f"{self.file}, line {line:,}, column {column:,} is not JSON: {why}{hint}")


def _reason(error: BaseException) -> str:
    """The problem with JSON that Python cannot parse."""
    deep = isinstance(error, RecursionError)
    return "lists or objects inside each other a thousand deep" if deep else "a number of thousands of digits"


def _bytes(text: str, characters: int) -> int:
    return len(text[:characters].encode())
