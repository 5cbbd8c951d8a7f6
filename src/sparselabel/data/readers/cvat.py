"""CVAT's export "CVAT for images 1.1": one XML file.

<annotations><version>1.1</version><meta>…<labels><label><name>dog</name>…</label></labels>…</meta>
  <image id="0" name="a.jpg" width="640" height="480">
    <tag label="indoor" source="manual"></tag>
    <box label="dog" xtl="10.0" ytl="20.0" xbr="110.0" ybr="90.0" rotation="30.0"></box>
    <points label="cat" points="300.0,200.0;310.5,220.0"></points>
  </image></annotations>
"""

import math
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.data.readers.annotation_tools import Collected, tails
from sparselabel.data.readers.raw_dataset import Box, RawDataset, images_folder
from sparselabel.errors import DataError
from sparselabel.file_formats import reading

SHAPES = ("tag", "box", "points", "polygon", "polyline", "ellipse", "mask", "cuboid", "skeleton")
SUBSETS = {
    "": "train", "default": "train", "train": "train", "training": "train",
    "val": "val", "validation": "val", "test": "test",
}  # fmt: skip


def read(
    source: Path, *, images: Path | None = None, negative: str | None = None, complete: bool = False
) -> RawDataset:
    """CVAT: the export "CVAT for images 1.1", with tags, boxes, points and other shapes.

    Example: `Dataset.from_files("cvat", "annotations.xml", images="photos")`

    Parameters
    ----------
    source
        The file annotations.xml, or its folder.
    images
        Folder of the images; default: images/ beside the file, or the folder of the file.
    negative
        Checkbox attribute that marks the class of a tag or shape as absent.
    complete
        Classes that annotators did not mark are absent; by default they are unknown.

    Notes
    -----
    Tags are labels of the image, shapes also say where (a box around each). Classes are the task's labels,
    in their order. In a project's export the subsets are the splits.
    """
    file = source / "annotations.xml" if source.is_dir() else source
    if not file.is_file():
        raise DataError(f"{file} is not there", "give the XML file of an export 'CVAT for images 1.1'")
    collected = Collected(file, images_folder(images, file.parent / "images", file.parent))
    reader = _Reader(collected, negative)
    reader.parse(file)
    collected.refuse_unused(negative, reader.attributes, "no label has an attribute")
    return collected.source(file.stem if file.stem != "annotations" else file.resolve().parent.name, complete)


class _Reader:
    """Goes through the XML as it is parsed: no tree is built.

    A document type is refused, since entities can only be defined there, and a few lines of them can grow to
    gigabytes; expat fetches nothing from elsewhere by itself.
    """

    def __init__(self, collected: Collected, negative: str | None) -> None:
        self.collected = collected
        self.attributes: set[str] = set()  # that labels or shapes have
        self._negative = negative
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._refuse_document_type
        self._path: list[str] = []
        self._text = ""
        self._label: dict[str, str] = {}
        self._row = -1
        self._size = (1.0, 1.0)
        self._shape: tuple[str, list[Box]] | None = None  # its label, and where it is
        self._attribute = ""
        self._is_not = False

    def parse(self, file: Path) -> None:
        """Read the whole file."""
        with reading(file), file.open("rb") as stream:
            self._parser.ParseFile(stream)

    @property
    def _line(self) -> str:
        return f"line {self._parser.CurrentLineNumber:,}"

    def _wrong(self, problem: str, *remedies: str) -> DataError:
        return self.collected.wrong(self._line, problem, *remedies)

    def _refuse_document_type(self, *_: object) -> NoReturn:
        raise self._wrong(
            "a document type (<!DOCTYPE …>) is not part of an export and is not read", "remove it"
        )

    def _characters(self, text: str) -> None:
        self._text += text

    def _start(self, name: str, given: dict[str, str]) -> None:
        if not self._path and name != "annotations":
            outermost = "<annotations> must be the outermost, as 'CVAT for images 1.1' has it"
            raise self._wrong(f"{outermost}, not <{name}>")
        self._path.append(name)
        self._text = ""
        if name == "track":
            raise self._wrong("this is an export 'CVAT for video 1.1'", "export as 'CVAT for images 1.1'")
        if self._path == ["annotations", "image"]:
            self._start_image(given)
        elif self._path[:-1] == ["annotations", "image"]:
            if name in SHAPES:
                self._shape = (self._given(name, given, "label"), self._boxes(name, given))
                self._is_not = False
            else:
                self.collected.pass_over(name)
        elif name == "attribute" and self._shape is not None and len(self._path) == 4:
            self._attribute = given.get("name", "")
            self.attributes.add(self._attribute)

    def _end(self, name: str) -> None:
        inside_label = self._path[-2:-1] == ["label"]
        if inside_label and name in ("name", "parent"):
            self._label[name] = self._text.strip()
        elif name == "name" and self._path[-3:-1] == ["attributes", "attribute"]:
            self.attributes.add(self._text.strip())
        elif name == "label" and self._path[-2:-1] == ["labels"]:
            if self._label.get("name") and not self._label.get("parent"):  # not a point of a skeleton
                self.collected.classes([self._label["name"]])
            self._label = {}
        elif name == "attribute" and self._shape is not None and len(self._path) == 4:
            if self._negative is not None and self._attribute == self._negative:
                state = self._text.strip()
                if state.lower() not in ("true", "false"):
                    rule = "must be true or false, as of a checkbox"
                    raise self._wrong(f"attribute {self._negative!r} {rule}, not {state!r}")
                self._is_not = state.lower() == "true"
        elif self._shape is not None and len(self._path) == 3:
            label, boxes = self._shape
            value = NEGATIVE if self._is_not else POSITIVE
            self.collected.add(self._row, label, value, [] if self._is_not else boxes)
            self._shape = None
        self._path.pop()

    def _start_image(self, given: dict[str, str]) -> None:
        name = self._given("image", given, "name")
        self._size = (self._number("image", given, "width"), self._number("image", given, "height"))
        if min(self._size) <= 0:
            raise self._wrong(f"an image's size must be positive, not {self._size[0]:g} × {self._size[1]:g}")
        subset = given.get("subset", "").strip()
        if subset.lower() not in SUBSETS:
            raise self._wrong(f"subset {subset!r} is none of Train, Validation and Test", "rename it in CVAT")
        candidates = [f"{subset}/{name}", *tails(name)] if subset else tails(name)
        self._row = self.collected.image(self._line, name, candidates, True, SUBSETS[subset.lower()])

    def _given(self, name: str, given: dict[str, str], key: str) -> str:
        if not given.get(key):
            raise self._wrong(f"<{name}> has no {key!r}")
        return given[key]

    def _number(self, name: str, given: dict[str, str], key: str) -> float:
        text = self._given(name, given, key)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self._wrong(f"{key!r} of <{name}> must be a number, not {text!r}")
        return number

    def _boxes(self, name: str, given: dict[str, str]) -> list[Box]:
        """Where a shape is: the box around it, or its points."""

        def numbers(*keys: str) -> list[float]:
            return [self._number(name, given, key) for key in keys]

        if name in ("tag", "skeleton"):
            return []
        degrees = numbers("rotation")[0] if "rotation" in given and name in ("box", "ellipse") else 0.0
        if name in ("points", "polygon", "polyline"):
            corners = self._corners(name, self._given(name, given, "points"))
        elif name == "box":
            corners = _turned(numbers("xtl", "ytl", "xbr", "ybr"), degrees)
        elif name == "ellipse":
            x, y, a, b = numbers("cx", "cy", "rx", "ry")
            corners = _turned([x - a, y - b, x + a, y + b], degrees)
        elif name == "mask":
            x, y, w, h = numbers("left", "top", "width", "height")
            corners = [(x, y), (x + w, y + h)]
        else:
            sides = [key[1:] for key in given if key.startswith("x") and key[1:2] in ("t", "b")]
            corners = [
                *zip(numbers(*(f"x{s}" for s in sides)), numbers(*(f"y{s}" for s in sides)), strict=True)
            ]
        width, height = self._size
        label = given.get("label", "")
        unit = [(x / width, y / height) for x, y in corners]
        if not all(math.isfinite(x + y) for x, y in unit):
            raise self._wrong(f"<{name}> must have its place in pixels, not {given!r:.200}")
        if name == "points":
            return [self.collected.point(self._line, label, x, y) for x, y in unit]
        box = Box.around(unit)
        inside = self.collected.box(self._line, label, box) if name == "box" else box.clipped()
        return [] if inside is None else [inside]

    def _corners(self, name: str, text: str) -> list[tuple[float, float]]:
        try:
            corners = [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split(";"))]
        except ValueError:
            corners = []
        if not corners or not all(math.isfinite(x + y) for x, y in corners):
            raise self._wrong(f"'points' of <{name}> must be x,y;x,y;… in pixels, not {text[:100]!r}")
        return corners


def _turned(edges: list[float], degrees: float) -> list[tuple[float, float]]:
    """The corners of a box, by its left, top, right and bottom, that is turned about its center."""
    left, top, right, bottom = edges
    x, y, a, b = (left + right) / 2, (top + bottom) / 2, (right - left) / 2, (bottom - top) / 2
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return [(x + u * cos - v * sin, y + u * sin + v * cos) for u, v in ((a, b), (a, -b), (-a, b), (-a, -b))]
