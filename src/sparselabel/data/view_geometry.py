"""The geometry of views: which part of an image the model saw, and whether it was mirrored.

    image                                    view
    (0,0)──────────────────────────┐           (0,0)────────────────┐
    │    (left, top)               │  to_view  │                    │   and, if flipped,
    │         ┌──────────┐         │ ────────▶ │                    │   mirrored:
    │         │          │ height  │           │        •           │
    │         │   •      │         │ ◀──────── │                    │   x becomes 1 - x
    │         └──────────┘         │  to_image │                    │
    │            width             │           └────────────────(1,1)
    └──────────────────────────(1,1)

Every image and every view is the unit square, whatever its pixels: 0 and 1 are its edges. A grid of n
cells along an axis divides it evenly: cell i is the interval from i/n to (i+1)/n, and its value sits at its
center, (i + ½)/n. Pixels, cells of a feature map and cells of a stored heat map all follow this one rule.

Points and boxes go through the map above. Grids go through it cell by cell, one axis after the other:

- ``cut`` looks at a grid of the image through the view. A view cell's center has a place in the image;
  the cell becomes the mean of the grid around that place, with weights that fall off linearly (a tent).
- ``paste`` puts a grid of the view back. An image cell whose center the crop shows has a place in the
  view; it becomes the plain mean of the grid over an interval (a box) around that place.

Both reach as far as the cell that is filled, so that nothing is skipped when many cells become few, and at
least as far as one cell that is read: then tent and box are the same thing, bilinear interpolation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparselabel.data.resample_grids import Axis, Bags, resampled
from sparselabel.errors import DataError


@dataclass(frozen=True, eq=False)
class ViewGeometry:
    """The crop and flip of one view of each of B images.

    ``box`` (B, 4) float32 or float64: left, top, width and height of the crop in unit image coordinates;
    ``flip`` (B,) bool: whether the view was mirrored horizontally after the crop; ``hidden`` (B, 4), if there
    are any: left, top, width and height of what was covered in each view, in the view's unit coordinates.
    """

    box: Tensor
    flip: Tensor
    hidden: Tensor | None = None

    def __post_init__(self) -> None:
        if self.box.ndim != 2 or self.box.shape[1] != 4 or self.flip.shape != self.box.shape[:1]:
            raise DataError(
                "a frame's box must be (B, 4) and its flip (B,), "
                f"not {tuple(self.box.shape)} and {tuple(self.flip.shape)}"
            )
        if self.box.dtype not in (torch.float32, torch.float64) or self.flip.dtype != torch.bool:
            raise DataError(
                "a frame's box must be float32 or float64 and its flip bool, "
                f"not {self.box.dtype} and {self.flip.dtype}"
            )
        if self.hidden is not None and self.hidden.shape != self.box.shape:
            raise DataError(
                f"a frame's hidden must be {tuple(self.box.shape)}, not {tuple(self.hidden.shape)}"
            )
        if self.box.device.type == "cpu":  # elsewhere looking at values would wait for the device
            corner, size = self.box[:, :2], self.box[:, 2:]
            # A crop may touch the edge; float32 may carry it over it by a rounding error.
            good = ((size > 0) & (corner >= -1e-5) & (corner + size <= 1 + 1e-5)).all(dim=1)
            if not good.all():
                first = int(good.logical_not().nonzero()[0, 0])
                raise DataError(
                    "a crop must lie inside its image and have width and height (unit coordinates 0..1): "
                    f"image {first} has left, top, width, height {self.box[first].tolist()}"
                )

    @staticmethod
    def whole(
        batch: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> "ViewGeometry":
        """The frames of ``batch`` images seen whole and unmirrored."""
        box = torch.tensor([0.0, 0.0, 1.0, 1.0], device=device, dtype=dtype).repeat(batch, 1)
        return ViewGeometry(box, torch.zeros(batch, dtype=torch.bool, device=device))

    @staticmethod
    def of(rows: Tensor | npt.NDArray[np.floating]) -> "ViewGeometry":
        """Frames from (B, 5) numbers, rows of ``augment.draw``: left, top, width, height, flip (0 or 1).

        Of (B, 9) numbers the last four are what is hidden in the view.
        """
        rows = torch.as_tensor(rows)
        if rows.ndim != 2 or rows.shape[1] not in (5, 9):
            raise DataError(
                "frames are made of (B, 5) numbers (left, top, width, height, flip) or (B, 9), with what is "
                f"hidden, not of shape {tuple(rows.shape)}"
            )
        return ViewGeometry(rows[:, :4], rows[:, 4] != 0, rows[:, 5:] if rows.shape[1] == 9 else None)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> "ViewGeometry":
        """The same frames on another device, or with boxes of another precision."""
        hidden = None if self.hidden is None else self.hidden.to(device=device, dtype=dtype)
        return ViewGeometry(self.box.to(device=device, dtype=dtype), self.flip.to(device=device), hidden)

    def __len__(self) -> int:
        return len(self.box)

    def __getitem__(self, images: Tensor | slice) -> "ViewGeometry":
        """The frames of some images, chosen by a slice, a mask or indices (which may repeat)."""
        hidden = None if self.hidden is None else self.hidden[images]
        return ViewGeometry(self.box[images], self.flip[images], hidden)

    def to_view(self, points: Tensor) -> Tensor:
        """Where points (B, ..., 2) of the images lie in the views: within 0..1 if the view shows them."""
        return self._map(points).to_view(points)

    def to_image(self, points: Tensor) -> Tensor:
        """Where points (B, ..., 2) of the views lie in the images."""
        return self._map(points).to_image(points)

    def boxes_to_view(self, centers: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes, as centers and sizes (B, ..., 2), from the images to the views; nothing is clipped."""
        return self.to_view(centers), sizes / self._map(sizes).length

    def boxes_to_image(self, centers: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes, as centers and sizes (B, ..., 2), from the views to the images."""
        return self.to_image(centers), sizes * self._map(sizes).length

    def cut(self, grids: Tensor, size: tuple[int, int], unit: float = 1) -> Tensor:
        """Grids (B, L, H, W) of the images as the views see them: (B, L, h, w) for ``size`` (h, w).

        Antialiased bilinear. Cells beyond the crop are read too; only the image's own edges end the grid.
        A value of ``unit`` becomes 1.
        """
        self._refuse_other_grids(grids)
        down, across = self._bags(Axis.reading, size, (grids.shape[2], grids.shape[3]))
        return resampled(down, grids, across.times(1 / unit))

    def paste(self, maps: Tensor, size: tuple[int, int], unit: float = 1) -> tuple[Tensor, Tensor]:
        """Grids (B, L, h, w) of the views put back into the images, and where the images were visible.

        For ``size`` (H, W) returns (B, L, H, W) and (B, H, W) bool: the cells whose centers lie in the crop
        and are not hidden. Cells outside the crop are 0. Bilinear, or area-averaged along an axis where a
        cell receives more than one. 1 becomes ``unit``.
        """
        self._refuse_other_grids(maps)
        down, across = self._bags(Axis.writing, size, (maps.shape[2], maps.shape[3]))
        visible = down.filled[:, :, None] & across.filled[:, None, :]
        shown = torch.from_numpy(visible)
        if self.hidden is not None:
            places = cell_centers(size).expand(len(self), -1, -1, -1).to(self.box)
            shown &= ~self.hides(self.to_view(places))
        return resampled(down, maps, across.times(unit)), shown.to(maps.device)

    def hides(self, points: Tensor) -> Tensor:
        """(B, ...) Which points (B, ..., 2) of the views are hidden."""
        if self.hidden is None:
            return torch.zeros(points.shape[:-1], dtype=torch.bool, device=points.device)
        rectangle = self.hidden.reshape(len(self), *[1] * (points.ndim - 2), 4)
        low, high = rectangle[..., :2], rectangle[..., :2] + rectangle[..., 2:]
        return ((points >= low) & (points < high)).all(dim=-1)

    def hides_cells(self, grid: tuple[int, int]) -> Tensor:
        """(B, h, w) Which cells of a grid of the views are hidden: those whose centers are."""
        places = cell_centers(grid).to(self.box).expand(len(self), -1, -1, -1)
        return self.hides(places)

    def _map(self, points: Tensor) -> "_Map":
        """The map of both coordinates, shaped to meet points (B, ..., 2)."""
        if points.ndim < 2 or len(points) != len(self) or points.shape[-1] != 2:
            raise DataError(
                f"points of {len(self)} frames must be ({len(self)}, ..., 2), not {tuple(points.shape)}"
            )
        return self._spread(points.ndim)

    def _spread(self, dimensions: int) -> "_Map":
        shape = (len(self), *[1] * (dimensions - 2), 2)
        mirrored = torch.stack([self.flip, torch.zeros_like(self.flip)], dim=1)
        return _Map(self.box[:, :2].reshape(shape), self.box[:, 2:].reshape(shape), mirrored.reshape(shape))

    @cached_property
    def _axes(self) -> Axis:
        """The vertical axis of all frames, then the horizontal one of all."""
        box = self.box.cpu().double().numpy()
        flip = self.flip.cpu().numpy()
        mirrored = np.concatenate((np.zeros_like(flip), flip))
        return Axis.of(
            np.concatenate((box[:, 1], box[:, 0])), np.concatenate((box[:, 3], box[:, 2])), mirrored
        )

    def _bags(
        self, made: Callable[[Axis, int, int], Bags], to: tuple[int, int], of: tuple[int, int]
    ) -> tuple[Bags, Bags]:
        """What cells are made of along the vertical and along the horizontal axis."""
        if to[0] == to[1] and of[0] == of[1]:
            # Squares: both axes at once. There are few numbers, and the time is that of the calls.
            return made(self._axes, to[0], of[0]).halves()
        down, across = self._axes.halves()
        return made(down, to[0], of[0]), made(across, to[1], of[1])

    def _refuse_other_grids(self, grids: Tensor) -> None:
        if grids.ndim != 4 or len(grids) != len(self) or not grids.is_floating_point():
            raise DataError(
                f"grids of {len(self)} frames must be floating-point ({len(self)}, L, height, width), "
                f"not {grids.dtype} {tuple(grids.shape)}"
            )


def cell_centers(size: tuple[int, int]) -> Tensor:
    """(H, W, 2) The centers of a grid's cells, across and down."""
    down, across = ((torch.arange(cells, dtype=torch.float64) + 0.5) / cells for cells in size)
    return torch.stack(torch.meshgrid(across, down, indexing="xy"), dim=-1)


class _Map(NamedTuple):
    """Between image and view, along one axis or both: the crop's start and length, and whether mirrored."""

    start: Tensor
    length: Tensor
    mirrored: Tensor

    def to_view(self, places: Tensor) -> Tensor:
        seen = (places - self.start) / self.length
        return torch.where(self.mirrored, 1 - seen, seen)

    def to_image(self, places: Tensor) -> Tensor:
        return self.start + self.length * torch.where(self.mirrored, 1 - places, places)
