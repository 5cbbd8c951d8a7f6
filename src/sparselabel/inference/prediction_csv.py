"""Write predictions as CSV or JSON lines; the file is called .partial until it is complete."""

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import IO, Any, TypedDict

from sparselabel.data.image_shards import ShardImage
from sparselabel.errors import ConfigError, RunError, param
from sparselabel.file_formats import parse_json, read_json, reading
from sparselabel.files import named, require_file_to_write, write_json
from sparselabel.inference.predictor import Prediction
from sparselabel.locks import locked

STANDARD_OUTPUT = "-"
SEPARATOR = ";"
KINDS = (".csv", ".jsonl")
BEGIN_ANEW = f"begin anew ({param('force', True)})"
ANOTHER_OUT = f"choose another {param('out')}"
NAMED = 20  # images that cannot be read and are named; the output names all
FIELDS = ["image", "labels", "scores", "error"]


class _Line(TypedDict):
    image: str


class PredictionWriter:
    """The output file of predictions; ``done`` is the number of images from an interrupted run."""

    def __init__(
        self, out: str, classes: Sequence[str], about: dict[str, Any], *, all_scores: bool, resume: bool
    ) -> None:
        self.classes, self.all_scores = classes, all_scores
        self.out = None if out == STANDARD_OUTPUT else Path(out)
        self.json = self.out is not None and self.out.suffix.lower() == ".jsonl"
        self.done = 0
        self._lock = ExitStack()
        if not self.json:
            refuse_separators(classes)
        self._about = about | {"all_scores": all_scores}
        self._file: IO[str] = sys.stdout if self.out is None else self._opened(self.out, resume)
        if not self.json and (self.out is None or not self._file.tell()):
            self._file.write(csv_header(classes, all_scores))

    def skip(self, images: Iterator[str | ShardImage]) -> Iterator[str | ShardImage]:
        """The remaining images; raises if the file was begun with other images."""
        for number, written in enumerate(self._written() if self.done else (), 1):
            image = next(images, None)
            path = image.name if isinstance(image, ShardImage) else image
            if path is None or written != text_of(path):
                self.stop()
                now = "missing now" if path is None else f"{path!r} now"
                raise RunError(
                    f"{self.out}.partial was begun with other images (number {number:,} was {written!r}, "
                    f"{now})",
                    "name the same ones",
                    BEGIN_ANEW,
                )
        return images

    def write(self, prediction: Prediction, maps: dict[str, str] | None = None) -> None:
        """One image."""
        line = self._line(prediction, maps)  # no object is kept
        with self._named():
            self._file.write(line)

    def _line(self, prediction: Prediction, maps: dict[str, str] | None) -> str:
        if self.json:
            return json_line(prediction, self.classes, self.all_scores, maps)
        return csv_line(prediction, self.classes, self.all_scores)

    def finish(self) -> None:
        """Complete the file: it gets its name."""
        self._close()
        if self.out is not None:
            _partial(self.out).replace(self.out)
            _about(self.out).unlink(missing_ok=True)
        self._lock.close()

    def stop(self) -> None:
        """Close the incomplete file, which can be resumed."""
        self._close()
        self._lock.close()

    def _close(self) -> None:
        if not self._file.closed:
            with self._named():
                self._file.flush() if self.out is None else self._file.close()

    def discard(self) -> None:
        """Remove the file: there was nothing to write."""
        self._close()
        if self.out is not None:
            _partial(self.out).unlink()
            _about(self.out).unlink(missing_ok=True)
        self._lock.close()

    def _named(self) -> AbstractContextManager[None]:
        return nullcontext() if self.out is None else named(self.out)

    def _opened(self, out: Path, resume: bool) -> IO[str]:
        partial = _partial(out)
        self._lock.enter_context(locked(out.parent, ANOTHER_OUT, file=out.name))
        if resume and partial.is_file() and not partial.is_symlink() and _about(out).is_file():
            before = read_json(_about(out), dict, f"remove {_partial(out)} and begin anew")
            if before != self._about:
                other = [key for key in self._about if before.get(key) != self._about[key]]
                raise RunError(
                    f"{partial} was begun with different {', '.join(other) or 'settings'}",
                    "give the same",
                    BEGIN_ANEW,
                )
            self.done = _whole_lines(partial, header=not self.json)
            return partial.open("a", encoding="utf-8", newline="")
        write_json(_about(out), self._about)
        partial.unlink(missing_ok=True)  # a link or a pipe among photos from elsewhere is not written to
        return partial.open("x", encoding="utf-8", newline="")

    def _written(self) -> Iterator[str]:
        """The images in the file, as far as it was written."""
        if self.out is None:
            return
        partial = _partial(self.out)
        with reading(partial, BEGIN_ANEW, error=RunError), partial.open(encoding="utf-8", newline="") as file:
            if self.json:
                yield from (parse_json(line, partial, _Line, BEGIN_ANEW)["image"] for line in file)
            else:
                yield from (row["image"] for row in csv.DictReader(file))


def csv_header(classes: Sequence[str], all_scores: bool) -> str:
    """The first line of CSV."""
    return _csv_line(FIELDS + (list(classes) if all_scores else []))


def csv_line(prediction: Prediction, classes: Sequence[str], all_scores: bool) -> str:
    """A prediction as a line of CSV."""
    labels = SEPARATOR.join(name for name, _ in prediction.labels)
    scores = SEPARATOR.join(f"{score:.4f}" for _, score in prediction.labels)
    row = [text_of(prediction.image), labels, scores, text_of(prediction.error or "")]
    if all_scores:
        row += [f"{score:.4f}" for score in prediction.scores] or [""] * len(classes)
    return _csv_line(row)


def json_line(
    prediction: Prediction, classes: Sequence[str], all_scores: bool, maps: dict[str, str] | None = None
) -> str:
    """A prediction as a line of JSON."""
    line: dict[str, Any] = {"image": text_of(prediction.image)}
    if prediction.error is not None:
        line["error"] = text_of(prediction.error)
    else:
        line["labels"] = [{"name": name, "score": round(score, 4)} for name, score in prediction.labels]
        if all_scores:
            rounded = (round(score, 4) for score in prediction.scores.tolist())
            line["scores"] = dict(zip(classes, rounded, strict=True))
        if maps is not None:
            line["maps"] = maps
    return json.dumps(line, ensure_ascii=False) + "\n"


def check_out(out: str, *, force: bool, resume: bool) -> None:
    """Raise if predictions cannot be written there, before any work."""
    if out == STANDARD_OUTPUT:
        if resume:
            raise ConfigError(
                f"{param('resume')} goes on with a file, and {param('out', out)} is standard output",
                "name a file",
            )
        return
    if Path(out).suffix.lower() not in KINDS:
        raise ConfigError(
            f"{param('out')} must end in .csv or .jsonl (or be -, standard output), but is {out}", what="out"
        )
    require_file_to_write(Path(out))
    if Path(out).exists() and not force:
        raise RunError(f"{out} exists already", ANOTHER_OUT, f"replace it ({param('force', True)})", what=out)
    if _partial(Path(out)).exists() and not (force or resume):
        raise RunError(
            f"{_partial(Path(out))} has what an interrupted prediction wrote",
            f"go on with it ({param('resume', True)})",
            BEGIN_ANEW,
            ANOTHER_OUT,
        )


def refuse_separators(classes: Sequence[str]) -> None:
    """Raise if a class cannot stand in a list of CSV."""
    for name in classes:
        if SEPARATOR in name:
            raise ConfigError(
                f"CSV puts {SEPARATOR!r} between labels, and the class {name!r} has one in its name",
                f"write JSON lines ({param('out', 'NAME.jsonl')})",
            )


def _whole_lines(file: Path, header: bool) -> int:
    """The number of images in a file; an incomplete last line is cut off.

    A line is a record: names with a line break in them are quoted in CSV, so lines are not counted there.
    """
    whole, read, records, inside = 0, 0, 0, False
    with file.open("rb+") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                break
            read += len(line)
            inside ^= header and line.count(b'"') % 2 == 1
            if not inside:
                records += 1
                whole = read
        stream.truncate(whole)
    return max(0, records - header)


def _csv_line(row: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue()


def text_of(text: str) -> str:
    """A name that is no text (bytes of an old encoding) with its odd bytes shown as such."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _partial(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


def _about(out: Path) -> Path:
    return out.with_name(out.name + ".partial.json")
