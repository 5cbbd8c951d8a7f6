"""Label Studio's export "JSON": a list of tasks with their annotations.

[{"id": 1, "data": {"image": "/data/upload/1/8f3c2d1e-a.jpg"},
  "annotations": [{"was_cancelled": false, "result": [
    {"from_name": "choice", "type": "choices", "value": {"choices": ["cat"]}},
    {"from_name": "box", "type": "rectanglelabels",
     "value": {"x": 50.8, "y": 5.9, "width": 12.4, "height": 10.5, "rectanglelabels": ["dog"]}}]}]}]
"""

import math
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.data.readers.annotation_tools import Collected, tails
from sparselabel.data.readers.raw_dataset import Box, RawDataset, images_folder
from sparselabel.errors import DataError, nearest, param
from sparselabel.file_formats import read_json

SHAPES = ("rectanglelabels", "ellipselabels", "polygonlabels", "keypointlabels", "brushlabels")
EXPORT_JSON = "export as 'JSON' from Label Studio"
_PREFIX = re.compile(r"^[0-9a-f]{5,8}-")


def read(
    source: Path,
    *,
    images: Path | None = None,
    image: str = "image",
    negative: str | None = None,
    complete: bool = False,
) -> RawDataset:
    """Label Studio: the export "JSON", with choices, boxes, points and other labeled shapes.

    Example: `Dataset.from_files("label-studio", "export.json", images="photos")`

    Parameters
    ----------
    source
        The exported file (JSON, not JSON-MIN).
    images
        Folder of the images; default: the folder of the file.
    image
        Key of the tasks' data that holds the image.
    negative
        Control (from_name) whose choices name absent classes.
    complete
        Classes that annotators did not name are absent; by default they are unknown.

    Notes
    -----
    Choices are labels of the image, labeled shapes also say where. Predictions, skipped annotations
    (``was_cancelled``) and rejected ones are ignored. All annotations of a task count. Choices made for a
    shape are not the image's.

    Tasks name images by paths or addresses: their end is looked for in the folder, also without the eight
    characters that an upload puts in front of a name.
    """
    collected = Collected(source, images_folder(images, source.parent))
    tasks = read_json(source, object, "give the JSON file that Label Studio exported", error=DataError)
    if tasks == []:
        raise DataError(f"{source} has no tasks", "export a project that has some")
    if not isinstance(tasks, list):
        raise DataError(f"{source}: must be a list of tasks", EXPORT_JSON)
    controls: set[str] = set()
    for number, task in enumerate(tasks):
        where = f"task at position {number} (counted from 0)"
        if not isinstance(task, dict) or not isinstance(data := task.get("data"), dict):
            other = "it has no 'data', as in the export JSON-MIN or of another program"
            raise collected.wrong(where, f"{other}, but is {task!r:.200}", EXPORT_JSON)
        where = f"task {task['id']}" if "id" in task else where
        named = data.get(image)
        if not isinstance(named, str) or not named:
            problem = f"its data has no image {image!r} ({nearest(image, data)})"
            raise collected.wrong(where, problem, f"say which it is with {param('image')}")
        results = [*_results(collected, where, task)]
        row = collected.image(where, named, _candidates(named), bool(results))
        for result in chain.from_iterable(results):
            _add(collected, where, row, result, negative)
            controls |= {str(result["from_name"])} if "from_name" in result else set()
    collected.refuse_unused(negative, controls, "no annotation is of a control")
    return collected.source(source.stem, complete)


def _candidates(named: str) -> list[str]:
    """Where an image may be: /data/local-files/?d=…, /data/upload/1/8f3c2d1e-…, an address or a path."""
    address = urlsplit(named)
    local = parse_qs(address.query).get("d", [""])[0]
    path = local or (unquote(address.path) if address.scheme or "%" in named else named)
    paths = tails(path)
    return [*paths, *(_PREFIX.sub("", name) for name in paths[-1:])]


def _results(collected: Collected, where: str, task: dict[str, Any]) -> Iterator[list[Any]]:
    """The results of every annotation that counts; an empty list is one that found nothing."""
    annotations = task.get("annotations", task.get("completions", []))  # the older name
    if not isinstance(annotations, list):
        raise collected.wrong(where, f"'annotations' must be a list, not {annotations!r:.100}")
    for annotation in annotations:
        if not isinstance(annotation, dict) or not isinstance(annotation.get("result"), list):
            raise collected.wrong(where, f"an annotation must have a list 'result': {annotation!r:.200}")
        reviews = [review for review in annotation.get("reviews") or [] if isinstance(review, dict)]
        rejected = bool(reviews) and reviews[-1].get("accepted") is False
        if not annotation.get("was_cancelled") and not rejected:
            yield annotation["result"]


def _add(collected: Collected, where: str, row: int, result: Any, negative: str | None) -> None:
    kind = result.get("type") if isinstance(result, dict) else None
    value = result.get("value") if isinstance(result, dict) else None
    if not isinstance(kind, str) or not isinstance(value, dict):
        if kind == "relation":  # between two shapes; it has no value
            return collected.pass_over(kind)
        raise collected.wrong(where, f"a result must have a 'type' and a 'value': {result!r:.200}")
    shape = kind in SHAPES
    if not shape and (kind != "choices" or "x" in value or "points" in value):
        return collected.pass_over(kind if kind != "choices" else "choices of a shape")
    names = value.get(kind)
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise collected.wrong(where, f"the value of {kind!r} must be a list of names, not {names!r:.200}")
    is_not = negative is not None and result.get("from_name") == negative
    box = _box(collected, where, kind, value, result) if shape and not is_not else None
    for name in names:
        collected.add(row, name, NEGATIVE if is_not else POSITIVE, [] if box is None else [box])
    return None


def _box(
    collected: Collected, where: str, kind: str, value: dict[str, Any], result: dict[str, Any]
) -> Box | None:
    """The box around a shape, or a point; all is in percent of the image's width and height."""
    if kind == "brushlabels":
        return None
    try:
        if kind == "polygonlabels":
            corners = [(float(x), float(y)) for x, y in value["points"]]
        elif kind == "keypointlabels":
            corners = [(float(value["x"]), float(value["y"]))]
        elif kind == "ellipselabels":
            x, y, a, b = (float(value[key]) for key in ("x", "y", "radiusX", "radiusY"))
            corners = [(x - a, y - b), (x + a, y + b)]
        else:
            x, y, w, h = (float(value[key]) for key in ("x", "y", "width", "height"))
            # It turns clockwise about its upper left corner, in pixels.
            angle = math.radians(float(value.get("rotation") or 0))
            aspect = float(result.get("original_width") or 1) / float(result.get("original_height") or 1)
            cos, sin = math.cos(angle), math.sin(angle)
            sides = [(0.0, 0.0), (w, 0.0), (0.0, h), (w, h)]
            corners = [(x + u * cos - v * sin / aspect, y + u * sin * aspect + v * cos) for u, v in sides]
        box = Box(*(edge / 100 for edge in Box.around(corners)))
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        problem = f"a shape of {kind!r} is not as it must be ({error}): {value!r:.200}"
        raise collected.wrong(where, problem) from None
    if not all(math.isfinite(edge) for edge in box):
        raise collected.wrong(where, f"a shape of {kind!r} has a place that is no number: {value!r:.200}")
    name = ", ".join(value[kind])
    if kind == "keypointlabels":
        return collected.point(where, name, box.left, box.top)
    return collected.box(where, name, box) if kind == "rectanglelabels" else box.clipped()
