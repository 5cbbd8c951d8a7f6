"""Images that are not files: arrays, tensors, PIL images, or the items of a dataset.

They are taken one at a time, when they are needed, and never copied to files.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from sparselabel.data.decode import as_rgb
from sparselabel.data.labels import Indices
from sparselabel.errors import DataError

CHANNELS = (1, 3, 4)


class ImageSource:
    """Images by index, from anything that has ``__getitem__``.

    Parameters
    ----------
    items
        Gives an image, or something that has one, for an index.
    rows
        Which of the items, in which order.
    image_of
        Takes the image out of an item; default: the item is the image.
    """

    def __init__(self, items: Any, rows: Indices, image_of: Callable[[Any], Any] | None = None) -> None:
        self.items, self.rows, self.image_of = items, rows, image_of

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Image.Image:
        """The image of a row, in RGB."""
        number = int(self.rows[row])
        try:
            item = self.items[number]
            return as_image(item if self.image_of is None else self.image_of(item))
        except MemoryError:
            raise
        except Exception as error:  # a user's dataset may raise anything
            reason = str(error) or type(error).__name__
            raise DataError(
                f"image {number} cannot be read ({reason})",
                "mend it or leave it out",
                what="images",
                where=number,
            ) from error

    def take(self, rows: Indices) -> "ImageSource":
        """The images of some rows, in the order given."""
        return ImageSource(self.items, self.rows[rows], self.image_of)


def as_image(given: Any) -> Image.Image:
    """A PIL image in RGB of a PIL image, an array (H, W, C) or (H, W), or a tensor (C, H, W).

    Numbers are uint8 in 0..255 or floats in 0..1.
    """
    if isinstance(given, Image.Image):
        return as_rgb(given)
    tensor = hasattr(given, "detach")
    pixels = given.detach().cpu().numpy() if tensor else given
    if not isinstance(pixels, np.ndarray):
        raise DataError(
            f"an image is a PIL image, an array or a tensor, not {type(given).__name__}", what="image"
        )
    return Image.fromarray(_as_bytes(_channels_last(pixels, tensor))).convert("RGB")


def _channels_last(pixels: npt.NDArray[Any], tensor: bool) -> npt.NDArray[Any]:
    """(H, W, C) or (H, W); where the first and the last axis could be colors, a tensor has them first."""
    if pixels.ndim == 2:
        return pixels
    if pixels.ndim != 3 or not {pixels.shape[0], pixels.shape[-1]} & {*CHANNELS}:
        raise DataError(
            f"an image has shape (H, W, C) or (C, H, W) with 1, 3 or 4 channels, not {pixels.shape}",
            what="image",
            value=pixels.shape,
        )
    first = pixels.shape[0] in CHANNELS and (tensor or pixels.shape[-1] not in CHANNELS)
    moved = np.moveaxis(pixels, 0, -1) if first else pixels
    return moved[..., 0] if moved.shape[-1] == 1 else moved


def _as_bytes(pixels: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    low, high = (float(value) for value in (pixels.min(initial=0), pixels.max(initial=0)))
    if pixels.dtype.kind != "f" or not (low >= 0 and high <= 1):
        raise DataError(
            f"pixels are uint8 in 0..255 or floats in 0..1, not {pixels.dtype} in {low:g}..{high:g}",
            "undo the normalization",
            "convert them with .astype(numpy.uint8) if they are in 0..255",
            what="image",
            value=(low, high),
        )
    return np.ascontiguousarray(np.rint(pixels * 255).astype(np.uint8))
