"""Predictions as files beside them: XMP, FiftyOne, Label Studio, images sorted by label, heat maps as PNG.

Each takes predictions one by one (``write``); ``finish`` says what was written. Images are never changed.
"""

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, Protocol
from urllib.parse import quote
from xml.sax.saxutils import escape

from sparselabel.data.decode import load
from sparselabel.data.thumbnails import with_map
from sparselabel.data.transforms import View
from sparselabel.errors import ResourceError, RunError, counted, param
from sparselabel.files import atomic_write
from sparselabel.inference.predictor import Prediction

TOOLKIT = "sparselabel"
"""Marks a sidecar as ours."""
MAP_SIDE = 640  # pixels of the long side
LONGEST_NAME = 80  # letters of a class in the name of a file
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
SIDECAR = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="{toolkit}">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/">
   <dc:subject>
    <rdf:Bag>{keywords}
    </rdf:Bag>
   </dc:subject>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
"""


class PredictionFile(Protocol):
    """A file, or files, that predictions are written to."""

    def write(self, prediction: Prediction) -> None:
        """One image."""

    def finish(self) -> str:
        """Finish the file; returns a sentence on what was written."""


def xmp_text(keywords: Sequence[str]) -> str:
    """A sidecar's text with keywords (dc:subject)."""
    clean = (escape(_NOT_IN_XML.sub("", keyword)) for keyword in keywords)
    return SIDECAR.format(
        toolkit=TOOLKIT, keywords="".join(f"\n     <rdf:li>{word}</rdf:li>" for word in clean)
    )


class XmpSidecars:
    """Writes IMAGE.xmp beside every image, with its labels as keywords; a sidecar of others stays."""

    def __init__(self) -> None:
        self.written = 0
        self.others: list[str] = []

    def write(self, prediction: Prediction) -> None:
        """The sidecar of one image; none where there is nothing to say."""
        file = Path(f"{prediction.image}.xmp")
        if prediction.error is not None:
            return
        if os.path.lexists(file):
            if not _is_ours(file):
                self.others.append(str(file))
                return
        elif not prediction.labels:
            return
        with atomic_write(file) as partial:
            partial.write_text(xmp_text([name for name, _ in prediction.labels]), encoding="utf-8")
        self.written += 1

    def finish(self) -> str:
        """A sentence on how many were written, and which were left alone."""
        left = f"; {counted(len(self.others), 'sidecar')} of other programs left as they are, the first "
        return counted(self.written, "XMP sidecar") + (left + self.others[0] if self.others else "")


def _is_ours(sidecar: Path) -> bool:
    """Whether a sidecar is a file that we wrote; links, pipes and folders are not."""
    if sidecar.is_symlink() or not sidecar.is_file():
        return False
    with sidecar.open("rb") as file:
        return f'x:xmptk="{TOOLKIT}"' in file.read(1000).decode(errors="replace")


class SortedImages:
    """Copies or links images into DIR/CLASS/ for each of their labels, by their paths below ``base``."""

    def __init__(
        self, folder: Path, classes: Sequence[str], *, links: bool, force: bool, base: str = ""
    ) -> None:
        if folder.exists() and any(folder.iterdir()) and not force:
            raise RunError(
                f"{folder} has something in it",
                f"choose another {param('sort_into')}",
                f"put images beside it ({param('force', True)})",
                what=folder,
            )
        self.folder, self.base, self.links, self.written, self.without = folder, base, links, 0, 0
        self.names = safe_names(classes)

    def write(self, prediction: Prediction) -> None:
        """One image, once per label."""
        self.without += not prediction.labels and prediction.error is None
        for name, _ in prediction.labels:
            file = self.folder / self.names[name] / inside(prediction.image, self.base)
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.unlink(missing_ok=True)
                if self.links:
                    file.symlink_to(Path(prediction.image).resolve())
                else:
                    shutil.copy2(prediction.image, file)
            except OSError as error:
                raise ResourceError(f"{file} cannot be written: {error}") from error
            self.written += 1

    def finish(self) -> str:
        """A sentence on how many were written."""
        what = counted(self.written, "link" if self.links else "copy").replace("copys", "copies")
        rest = f"; {counted(self.without, 'image')} without a label in no folder" if self.without else ""
        return f"{self.folder}: {what}{rest}"


class _Collected:
    """Predictions that are written together at the end; images are named relative to their common folder."""

    def __init__(self, out: Path, classes: Sequence[str]) -> None:
        self.out, self.classes = out, classes
        self.predictions: list[tuple[str, tuple[tuple[str, float], ...]]] = []

    def write(self, prediction: Prediction) -> None:
        """One image."""
        if prediction.error is None:
            self.predictions.append((prediction.image, prediction.labels))

    def save(self, content: Any) -> None:
        """Write it at once."""
        with atomic_write(self.out) as partial:
            partial.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    def relative(self) -> tuple[str, dict[str, str]]:
        """The folder that all images are in, and by image its path there."""
        full = {image: os.path.abspath(image) for image, _ in self.predictions}  # noqa: PTH100 - links stay
        root = os.path.commonpath([os.path.dirname(path) for path in full.values()] or [os.curdir])  # noqa: PTH120
        inner = {image: Path(os.path.relpath(path, root)).as_posix() for image, path in full.items()}
        return os.path.relpath(root), inner


class FiftyOneFile(_Collected):
    """labels.json of a FiftyOneImageClassificationDataset, several labels each, with confidence."""

    def finish(self) -> str:
        """Write it."""
        index = {name: number for number, name in enumerate(self.classes)}
        root, inner = self.relative()
        labels = {
            inner[image].rpartition(".")[0]: [
                {"label": index[name], "confidence": round(score, 4)} for name, score in names
            ]
            for image, names in self.predictions
        }
        self.save({"classes": list(self.classes), "labels": labels})
        lost = len(self.predictions) - len(labels)
        rest = f"; {counted(lost, 'image')} not in it: others have the same name before the suffix"
        return f"{self.out}: labels for FiftyOne (data_path {root!r}){rest if lost else ''}"


class LabelStudioFile(_Collected):
    """Tasks of Label Studio with predictions: choices of a control "labels"."""

    def finish(self) -> str:
        """Write it."""
        root, inner = self.relative()
        self.save([self._task(inner[image], labels) for image, labels in self.predictions])
        return f"{self.out}: tasks for Label Studio (local files below {root!r})"

    def _task(self, path: str, labels: Sequence[tuple[str, float]]) -> dict[str, Any]:
        choices = {
            "from_name": "labels",
            "to_name": "image",
            "type": "choices",
            "value": {"choices": [name for name, _ in labels]},
        }
        score = min((score for _, score in labels), default=0.0)
        made = {"model_version": TOOLKIT, "score": round(score, 4), "result": [choices] if labels else []}
        return {"data": {"image": f"/data/local-files/?d={quote(path)}"}, "predictions": [made]}


class MapFolder:
    """Writes DIR/<path of the image below ``base``>.<class>.png for every predicted class."""

    def __init__(self, folder: Path, classes: Sequence[str], view: View, base: str = "") -> None:
        self.folder, self.view, self.base = folder, view, base
        self.places = {name: place for place, name in enumerate(classes)}
        self.names = safe_names(classes)

    def write(self, prediction: Prediction) -> dict[str, str]:
        """By class, the file of its map."""
        if prediction.maps is None or not prediction.labels:
            return {}
        image = load(prediction.image, MAP_SIDE)
        image.thumbnail((MAP_SIDE, MAP_SIDE))
        written = {}
        for name, _ in prediction.labels:
            file = self.folder / f"{inside(prediction.image, self.base)}.{self.names[name]}.png"
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with_map(image, prediction.maps[self.places[name]], self.view, MAP_SIDE).save(file)
            except OSError as error:
                raise ResourceError(f"the heat map {file} cannot be written: {error}") from error
            written[name] = str(file)
        return written


def safe_names(classes: Sequence[str]) -> dict[str, str]:
    """By class, a name that can be that of a file or folder, not hidden, and no two the same."""
    safe = [re.sub(r"^\.+|^$|[^\w .,+()-]", "_", name)[:LONGEST_NAME] for name in classes]
    if len({name.lower() for name in safe}) < len(safe):  # two would share a file
        safe = [f"{place}-{name}" for place, name in enumerate(safe)]
    return dict(zip(classes, safe, strict=True))


def inside(path: str, base: str = "") -> PurePath:
    """A path below ``base`` that stays in whatever folder it is put: no root, no way up."""
    pure = PurePath(path)
    pure = pure.relative_to(base) if pure.is_relative_to(base) else pure
    return PurePath(*(part for part in pure.parts if part not in (pure.anchor, "..", ".")))
