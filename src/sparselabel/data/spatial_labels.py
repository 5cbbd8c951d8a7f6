"""Spatial labels: points and boxes on images, as columns.

Coordinates are unit coordinates: (0, 0) is the image's upper left corner, (1, 1) the lower right one,
whatever its size in pixels. Spatial labels exist for positive classes only.
"""

from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import spans
from sparselabel.errors import DataError

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SpatialLabels:
    """M points and boxes, sorted by row: a box is given by its center and size, a point has size 0 × 0.

    ``rows`` (M,) int64 are the images' rows, ``classes`` (M,) int32 class indices, ``centers`` (M, 2) float32
    (x, y) and ``sizes`` (M, 2) float32 (width, height).
    """

    rows: npt.NDArray[np.int64]
    classes: npt.NDArray[np.int32]
    centers: Floats
    sizes: Floats
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        if not check:  # sorted and checked already: prepared data, or a selection of others
            return
        columns: dict[str, npt.NDArray[Any]] = {
            "rows": np.asarray(self.rows, dtype=np.int64).reshape(-1),
            "classes": np.asarray(self.classes, dtype=np.int32).reshape(-1),
            "centers": np.asarray(self.centers, dtype=np.float32).reshape(-1, 2),
            "sizes": np.asarray(self.sizes, dtype=np.float32).reshape(-1, 2),
        }
        lengths = {name: len(column) for name, column in columns.items()}
        if len({*lengths.values()}) > 1:
            raise DataError(f"the columns of spatial labels must have one length, not {lengths}")
        order = np.argsort(columns["rows"], kind="stable")
        for name, column in columns.items():
            object.__setattr__(self, name, column[order])
        self._refuse((self.rows < 0) | (self.classes < 0), "row and class must not be negative")
        self._refuse(np.any(self.sizes < 0, axis=1), "a size must not be negative")
        line = np.any(self.sizes == 0, axis=1) & np.any(self.sizes > 0, axis=1)
        self._refuse(line, "a box must have an area, and a point a size of 0 × 0")
        half = self.sizes / 2
        low, high = self.centers - half, self.centers + half
        # Boxes may touch the edge; float32 may carry them over it by a rounding error. NaN is never inside.
        inside = np.all((low >= -1e-5) & (high <= 1 + 1e-5), axis=1)
        self._refuse(~inside, "a point or box must lie inside its image")

    def _refuse(self, wrong: npt.NDArray[np.bool_], rule: str) -> None:
        if wrong.any():
            first = int(np.argmax(wrong))
            raise DataError(
                f"{rule} (unit coordinates 0..1): row {self.rows[first]}, class {self.classes[first]}, "
                f"center {self.centers[first].tolist()}, size {self.sizes[first].tolist()}"
            )

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_point(self) -> npt.NDArray[np.bool_]:
        """(M,) Which are points."""
        return np.asarray(np.all(self.sizes == 0, axis=1))

    @staticmethod
    def none() -> "SpatialLabels":
        """No spatial labels at all."""
        return SpatialLabels(
            np.empty(0, np.int64),
            np.empty(0, np.int32),
            np.empty((0, 2), np.float32),
            np.empty((0, 2), np.float32),
        )

    def only(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.integer]) -> "SpatialLabels":
        """Those chosen by a mask (M,) or by sorted indices, with the same rows as before."""
        rows, classes = self.rows[chosen], self.classes[chosen]
        return SpatialLabels(rows, classes, self.centers[chosen], self.sizes[chosen], check=False)

    def take(self, rows: Sequence[int] | npt.NDArray[np.integer]) -> "SpatialLabels":
        """Those of some rows; their new row is the position in ``rows``, as in ``LabelTable.take``."""
        index, position = self.of_rows(rows)
        return SpatialLabels(
            position, self.classes[index], self.centers[index], self.sizes[index], check=False
        )

    def of_rows(
        self, rows: Sequence[int] | npt.NDArray[np.integer]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The indices of the spatial labels of some rows, and the position in ``rows`` of each one's row."""
        wanted = np.asarray(rows, dtype=np.int64)
        first = np.searchsorted(self.rows, wanted, side="left")
        counts = np.searchsorted(self.rows, wanted, side="right") - first
        return spans(first, counts), np.repeat(np.arange(len(wanted)), counts)
