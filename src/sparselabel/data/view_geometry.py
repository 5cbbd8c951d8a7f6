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

Coordinates are unit coordinates: every image and every view goes from 0 to 1 along both axes, whatever its
size in pixels. A map of n cells along an axis divides it evenly: cell i is the interval from i/n to (i+1)/n,
and its value sits at its center, (i + ½)/n (``align_corners=False``). Pixels, cells of a feature map and
cells of a stored heat map all follow this one rule.

Points and boxes are transformed as above. Maps are resampled, one axis after the other:

- ``crop_maps`` crops a map of the image to the view. A view cell is the mean of image cells around its
center, with weights that fall off linearly (a tent filter). - ``uncrop_maps`` puts a map of the view back
into the image. An image cell with its center in the crop is the plain mean of the view over an interval
around that center (a box filter).

The tent falls to zero at a distance of one cell from its center, and the box is one cell wide. The cell is an
output cell, for antialiasing, or an input cell if that is larger. If input cells are at least as large as
output cells, both filters are bilinear interpolation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparselabel.data.resample_grids import Axis, Taps, resample
from sparselabel.errors import DataError, param


@dataclass(frozen=True, eq=False)
class ViewGeometry:
    """The crop and flip of one view of each of B images.

    Parameters
    ----------
    box
        (B, 4) float32 or float64: left, top, width and height of the crop, in unit coordinates of the image.
    flip
        (B,) bool: whether the view was mirrored horizontally after the crop.
    cutout
        (B, 4) left, top, width and height of the rectangle that cutout covered, in unit coordinates of the
        view; None without cutout.
    """

    box: Tensor
    flip: Tensor
    cutout: Tensor | None = None

    def __post_init__(self) -> None:
        if self.box.ndim != 2 or self.box.shape[1] != 4 or self.flip.shape != self.box.shape[:1]:
            raise DataError(
                f"box must be (B, 4) and flip (B,), not {tuple(self.box.shape)} and {tuple(self.flip.shape)}"
            )
        if self.box.dtype not in (torch.float32, torch.float64) or self.flip.dtype != torch.bool:
            raise DataError(
                f"box must be float32 or float64 and flip bool, not {self.box.dtype} and {self.flip.dtype}"
            )
        if self.cutout is not None and self.cutout.shape != self.box.shape:
            raise DataError(
                f"cutout must be {tuple(self.box.shape)} as box is, not {tuple(self.cutout.shape)}"
            )
        if self.box.device.type == "cpu":  # reading values on a GPU would synchronize with it
            corner, size = self.box[:, :2], self.box[:, 2:]
            # A crop may touch the edge of the image, and exceed it by a rounding error of float32.
            good = ((size > 0) & (corner >= -1e-5) & (corner + size <= 1 + 1e-5)).all(dim=1)
            if not good.all():
                first = int(good.logical_not().nonzero()[0, 0])
                inside = "a crop must lie inside its image and have width and height (unit coordinates 0..1)"
                numbers = ", ".join(f"{number:.4g}" for number in self.box[first].tolist())
                raise DataError(
                    f"{inside}: image {first} has left, top, width, height {numbers}",
                    f"where boxes are in pixels, give {param('sizes')}: widths and heights of the images",
                    "mind the order: torchvision's crops are top, left, height, width",
                    what="box",
                    where=first,
                    value=self.box[first].tolist(),
                )

    @staticmethod
    def whole(batch: int, *, dtype: torch.dtype | None = None) -> "ViewGeometry":
        """The whole image: the geometry of ``batch`` images that are neither cropped nor flipped."""
        box = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=dtype).repeat(batch, 1)
        return ViewGeometry(box, torch.zeros(batch, dtype=torch.bool))

    @staticmethod
    def from_boxes(
        boxes: Tensor | npt.ArrayLike,
        flipped: Tensor | npt.ArrayLike | None = None,
        sizes: Tensor | npt.ArrayLike | None = None,
    ) -> "ViewGeometry":
        """From your own crops: ``boxes`` (B, 4) of left, top, width, height, and which are ``flipped`` (B,).

        Boxes are in pixels if ``sizes`` (B, 2), widths and heights of the images in pixels, are given; else
        they are shares of the image, 0..1. Note that torchvision's crops are top, left, height, width.
        """
        box = _numbers("boxes", boxes, ("B", 4))
        box = box if box.dtype == torch.float64 else box.float()
        if sizes is not None:
            size = _numbers("sizes", sizes, (len(box), 2)).to(box)
            box = box / torch.cat([size, size], dim=1)
        flips = torch.zeros(len(box)) if flipped is None else _numbers("flipped", flipped, (len(box),))
        if flips.device.type == "cpu" and not ((flips == 0) | (flips == 1)).all():
            raise DataError("flipped must be true or false (1 or 0) of every image", what="flipped")
        return ViewGeometry(box, flips.to(box.device) != 0)

    @staticmethod
    def from_params(rows: Tensor | npt.NDArray[np.floating]) -> "ViewGeometry":
        """From the parameters of ``RandomView``, (B, 5): left, top, width, height, flip (0 or 1).

        Boxes are shares of the image, 0..1. Rows of nine numbers end with the left, top, width and height of
        the cutout.
        """
        rows = torch.as_tensor(rows)
        if rows.ndim != 2 or rows.shape[1] not in (5, 9):
            raise DataError(
                "view geometry needs rows (B, 5) of left, top, width, height, flip, or (B, 9) with the "
                f"cutout, not {tuple(rows.shape)}"
            )
        return ViewGeometry(rows[:, :4], rows[:, 4] != 0, rows[:, 5:] if rows.shape[1] == 9 else None)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> "ViewGeometry":
        """The same geometry on another device, or with boxes of another dtype."""
        cutout = None if self.cutout is None else self.cutout.to(device=device, dtype=dtype)
        return ViewGeometry(self.box.to(device=device, dtype=dtype), self.flip.to(device=device), cutout)

    def __len__(self) -> int:
        return len(self.box)

    def __getitem__(self, images: Tensor | slice) -> "ViewGeometry":
        """The geometry of some images, chosen by a slice, a mask or indices (which may repeat)."""
        cutout = None if self.cutout is None else self.cutout[images]
        return ViewGeometry(self.box[images], self.flip[images], cutout)

    def to_view(self, points: Tensor) -> Tensor:
        """Points (B, ..., 2) from the images to the views; outside 0..1 where the crop does not show them."""
        return self._transform(points).to_view(points)

    def to_image(self, points: Tensor) -> Tensor:
        """Points (B, ..., 2) from the views to the images."""
        return self._transform(points).to_image(points)

    def boxes_to_view(self, centers: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes, as centers and sizes (B, ..., 2), from the images to the views; nothing is clipped."""
        return self.to_view(centers), sizes / self._transform(sizes).length

    def crop_maps(self, maps: Tensor, size: tuple[int, int], unit: float = 1) -> Tensor:
        """Maps (B, L, H, W) of the images, cropped to the views: (B, L, h, w) for ``size`` (h, w).

        Bilinear, with antialiasing along an axis that shrinks. At the crop's edge, image cells beyond it
        count too. Values are divided by ``unit``.
        """
        self._check_maps(maps)
        vertical, horizontal = self._taps(Axis.image_to_view, size, (maps.shape[2], maps.shape[3]))
        return resample(maps, vertical, horizontal.times(1 / unit))

    def uncrop_maps(self, maps: Tensor, size: tuple[int, int], unit: float = 1) -> tuple[Tensor, Tensor]:
        """Maps (B, L, h, w) of the views put back into the images, and which cells were visible.

        For ``size`` (H, W) returns (B, L, H, W), with 0 outside the crop, and (B, H, W) bool: the cells whose
        centers lie in the crop and not in the cutout. Bilinear, or area-averaged along an axis that shrinks.
        Values are multiplied by ``unit``.
        """
        self._check_maps(maps)
        vertical, horizontal = self._taps(Axis.view_to_image, size, (maps.shape[2], maps.shape[3]))
        visible = torch.from_numpy(vertical.filled[:, :, None] & horizontal.filled[:, None, :])
        if self.cutout is not None:
            centers = cell_centers(size).expand(len(self), -1, -1, -1).to(self.box)
            visible &= ~self.hides(self.to_view(centers))
        return resample(maps, vertical, horizontal.times(unit)), visible.to(maps.device)

    def hides(self, points: Tensor) -> Tensor:
        """(B, ...) Which points (B, ..., 2) of the views are in the cutout."""
        if self.cutout is None:
            return torch.zeros(points.shape[:-1], dtype=torch.bool, device=points.device)
        rectangle = self.cutout.reshape(len(self), *[1] * (points.ndim - 2), 4)
        low, high = rectangle[..., :2], rectangle[..., :2] + rectangle[..., 2:]
        return ((points >= low) & (points < high)).all(dim=-1)

    def hides_cells(self, grid: tuple[int, int]) -> Tensor:
        """(B, h, w) Which cells of maps of the views have their center in the cutout."""
        return self.hides(cell_centers(grid).to(self.box).expand(len(self), -1, -1, -1))

    def _transform(self, points: Tensor) -> "_Transform":
        """The transform of both coordinates, shaped to broadcast with points (B, ..., 2)."""
        if points.ndim < 2 or len(points) != len(self) or points.shape[-1] != 2:
            raise DataError(
                f"points of {len(self)} images must be ({len(self)}, ..., 2), not {tuple(points.shape)}"
            )
        shape = (len(self), *[1] * (points.ndim - 2), 2)
        mirrored = torch.stack([self.flip, torch.zeros_like(self.flip)], dim=1).reshape(shape)
        return _Transform(self.box[:, :2].reshape(shape), self.box[:, 2:].reshape(shape), mirrored)

    @cached_property
    def _axes(self) -> Axis:
        """The vertical axis of all images, then the horizontal one of all."""
        box = self.box.cpu().double().numpy()
        flip = self.flip.cpu().numpy()
        return Axis.of_crops(
            start=np.concatenate((box[:, 1], box[:, 0])),
            length=np.concatenate((box[:, 3], box[:, 2])),
            mirrored=np.concatenate((np.zeros_like(flip), flip)),
        )

    def _taps(
        self,
        taps_along: Callable[[Axis, int, int], Taps],
        out_size: tuple[int, int],
        in_size: tuple[int, int],
    ) -> tuple[Taps, Taps]:
        """The taps along the vertical and along the horizontal axis."""
        if out_size[0] == out_size[1] and in_size[0] == in_size[1]:
            # Square maps: both axes in one call, to save overhead.
            return taps_along(self._axes, out_size[0], in_size[0]).halves()
        vertical, horizontal = self._axes.halves()
        return (
            taps_along(vertical, out_size[0], in_size[0]),
            taps_along(horizontal, out_size[1], in_size[1]),
        )

    def _check_maps(self, maps: Tensor) -> None:
        if maps.ndim != 4 or len(maps) != len(self) or not maps.is_floating_point():
            raise DataError(
                f"maps of {len(self)} images must be floating-point ({len(self)}, L, height, width), "
                f"not {maps.dtype} {tuple(maps.shape)}"
            )


def _numbers(name: str, given: object, shape: tuple[int | str, ...]) -> Tensor:
    """An argument as a tensor of a shape; a letter in it stands for any number."""
    try:
        numbers = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        numbers = None
    kind = type(given).__name__ if numbers is None else tuple(numbers.shape)
    if (
        numbers is None
        or len(numbers.shape) != len(shape)
        or any(wanted not in ("B", has) for wanted, has in zip(shape, numbers.shape, strict=True))
    ):
        wanted = str(shape).replace("'", "")
        stack = ("stack columns, as a loader makes of tuples, with torch.stack(columns, dim=1)",)
        problem = f"{name} must be numbers of shape {wanted}, not {kind}"
        raise DataError(
            problem, *(stack if isinstance(kind, str) else ()), what=name, value=kind, allowed=shape
        )
    return numbers


def cell_centers(size: tuple[int, int]) -> Tensor:
    """(H, W, 2) The centers (x, y) of a map's cells, in unit coordinates."""
    y, x = ((torch.arange(cells, dtype=torch.float64) + 0.5) / cells for cells in size)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)


class _Transform(NamedTuple):
    """Between image and view: the crop's start and length, and whether mirrored, per coordinate."""

    start: Tensor
    length: Tensor
    mirrored: Tensor

    def to_view(self, points: Tensor) -> Tensor:
        inside = (points - self.start) / self.length
        return torch.where(self.mirrored, 1 - inside, inside)

    def to_image(self, points: Tensor) -> Tensor:
        return self.start + self.length * torch.where(self.mirrored, 1 - points, points)
