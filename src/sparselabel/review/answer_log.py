"""The answer file of a review: every answer is on disk before it is acknowledged."""

import csv
import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from sparselabel.data.answers import (
    HEADER,
    TAKEN_BACK,
    WORDS,
    Answer,
    as_line,
    finished_length,
    has_our_columns,
    last_words,
    read_answers,
)
from sparselabel.errors import ConfigError, RunError, param
from sparselabel.files import named
from sparselabel.locks import locked


class AnswerFile:
    """Adds answers to a file that only grows; one writer at a time.

    ``mended`` says what was done about a last line that a crash had left unfinished.
    """

    def __init__(self, path: Path, reviewer: str = "") -> None:
        self.path = path
        self.reviewer = reviewer
        self.mended = ""
        try:
            reviewer.encode()
        except UnicodeEncodeError as error:  # bytes of another encoding than the terminal's
            problem = f"{param('reviewer')} must be text in UTF-8, not {reviewer!r}"
            raise ConfigError(problem, what="reviewer", value=reviewer) from error
        path.parent.mkdir(parents=True, exist_ok=True)
        # In a run from elsewhere it may be a link: answers have its classes in them, and go nowhere else.
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            raise RunError(
                f"{path} cannot be written (it is a link, or no file)",
                f"name the file that is meant ({param('answers')})",
                what=path,
            )
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise RunError(
                f"{path} cannot be written ({error.strerror})", f"choose another file ({param('answers')})"
            ) from error
        self._lock = ExitStack()
        try:
            self._lock.enter_context(
                locked(path.parent, f"give this one a file of its own ({param('answers')})", file=path.name)
            )
            self._mend()
            self.answers = read_answers(path)
            if not os.fstat(self._file).st_size:
                self._write(HEADER)
                _sync_folder(path.parent)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others write to it."""
        os.close(self._file)
        self._lock.close()

    def add(
        self, entries: Sequence[tuple[str, str, int | None]], reviewer: str | None = None
    ) -> list[Answer]:
        """Add answers (image, label, value), None taking the last one back; now they are on the disk.

        ``reviewer`` is whose they are, if not those of the file's own.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        name = self.reviewer if reviewer is None else reviewer
        new = [Answer(image, label, value, now, name) for image, label, value in entries]
        self._write(b"".join(answer.line() for answer in new))
        self.answers += new
        return new

    def last_words(self) -> dict[tuple[str, str], int]:
        """The valid answers."""
        return last_words(self.answers)

    def _mend(self) -> None:
        """Finish the line that a crash left unfinished if it has an answer, else cut it off.

        Nobody was told that an answer on an unfinished line was saved; but what is there counts.
        """
        content = self.path.read_bytes()
        if not has_our_columns(content):
            return  # not ours: it will be refused as it is
        end = finished_length(self.path, content)
        torn = content[end:]
        if not torn:
            return
        finished = _finished(torn)
        os.ftruncate(self._file, end)
        if finished:
            self._write(finished)
        text = torn.decode(errors="replace")
        done = "was finished" if finished else "had no answer yet and was taken off"
        self.mended = f"the last line of {self.path} was torn ({text!r}): it {done}"

    def _write(self, content: bytes) -> None:
        """Append all of it and wait for the disk; what cannot be written whole is not there at all."""
        before = os.fstat(self._file).st_size
        with named(self.path):
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(self._file, rest) :]
                os.fsync(self._file)
            except OSError:
                os.ftruncate(self._file, before)
                raise


def _finished(torn: bytes) -> bytes:
    """A torn line as a whole one, if image, class and value (with the comma behind it) are there."""
    try:
        (cells,) = csv.reader([torn.decode()], strict=True)
    except (UnicodeDecodeError, csv.Error, ValueError):
        return b""
    words = (TAKEN_BACK, *WORDS)
    if not 4 <= len(cells) <= 5 or not cells[0] or not cells[1] or cells[2] not in words:
        return b""
    return as_line([*cells, *[""] * (5 - len(cells))])


def _sync_folder(folder: Path) -> None:
    """A new file is safe only when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
