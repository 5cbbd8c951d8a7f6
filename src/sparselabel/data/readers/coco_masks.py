"""The member "segmentation" of COCO's annotations: polygons, or run lengths, as masks."""

from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as run_lengths

from sparselabel.data.masks import MaskColumns, Masks, pixels_of
from sparselabel.data.readers.coco_images import name_of
from sparselabel.errors import DataError

CORNERS = 3  # of a polygon, at least


def mask_of(file: Path, place: int, annotation: Any, width: int, height: int) -> dict[str, Any] | None:
    """The mask of an annotation in pycocotools' form; None if it has none, or one without a pixel."""
    given = annotation.get("segmentation")
    if not given:
        return None
    try:
        found = _runs(given, height, width) if isinstance(given, dict) else _filled(given, height, width)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise DataError(
            f"{file}: {name_of('annotation', place, annotation)}: segmentation must be polygons "
            f"[[x, y, x, y, ...], ...] or run lengths of the picture's {height} × {width} pixels ({error}): "
            f"{given!r:.100}"
        ) from error
    return found if found is not None and run_lengths.area(found) else None


def _filled(polygons: Any, height: int, width: int) -> dict[str, Any] | None:
    """The pixels inside any of the polygons; those of less than three corners have none."""
    if not isinstance(polygons, list) or not all(isinstance(polygon, list) for polygon in polygons):
        raise TypeError("not a list of lists")
    kept = [polygon for polygon in polygons if len(polygon) >= 2 * CORNERS]
    for polygon in kept:
        numbers = np.asarray(polygon)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iuf" or len(polygon) % 2:
            raise ValueError("a polygon is an even number of numbers")
        if not np.isfinite(numbers).all():
            raise ValueError("a polygon's numbers must be finite")
    if not kept:
        return None
    found: dict[str, Any] = run_lengths.merge(run_lengths.frPyObjects(kept, height, width))
    return found


def _runs(given: dict[str, Any], height: int, width: int) -> dict[str, Any]:
    if [*given["size"]] != [height, width]:
        raise ValueError(f"its size is {given['size']}")
    counts = given["counts"]
    if isinstance(counts, str):
        found: dict[str, Any] = {"size": [height, width], "counts": counts.encode("ascii")}
        columns = MaskColumns()
        columns.add(found)
        try:
            pixels = pixels_of(columns.build() or Masks.none(0))
        except DataError:
            raise ValueError("they are damaged") from None
        if pixels != height * width:
            raise ValueError(f"its runs are of {pixels:,} pixels")
    else:
        lengths = np.asarray(counts)
        if lengths.dtype.kind not in "iu" or lengths.ndim != 1 or lengths.min(initial=0) < 0:
            raise ValueError("run lengths are counts of pixels")
        if int(lengths.sum()) != height * width:
            raise ValueError(f"its runs are of {int(lengths.sum()):,} pixels")
        found = run_lengths.frPyObjects({"size": [height, width], "counts": lengths.tolist()}, height, width)
    return found
