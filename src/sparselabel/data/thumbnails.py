"""Thumbnails of images for HTML pages, and heat maps drawn over them."""

import base64
import io
from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from sparselabel.data.transforms import View, draw

COLOR_MAP = "inferno"  # light means a high score: readable in gray and with color blindness
OPACITY = 0.62
SIDE, MAP_SIDE = 560, 400  # pixels of the long side of an image, and of one under a map
QUALITY, MAP_QUALITY = 72, 62
EVEN = 2.0  # range of logits that is the smallest to take all colors


def small(image: Image.Image) -> Image.Image:
    """An image, small enough for the page, in its own aspect."""
    image.thumbnail((SIDE, SIDE))
    return image


def as_uri(image: Image.Image, quality: int = QUALITY) -> str:
    """The image as a data: address."""
    stream = io.BytesIO()
    image.save(stream, "WEBP", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def with_map(
    image: Image.Image,
    logits: npt.NDArray[np.floating],
    view: View,
    side: int = MAP_SIDE,
    scale: tuple[float, float] | None = None,
) -> Image.Image:
    """The image in pale gray, with a map of cells (h, w) over the part that the model saw.

    Colors go from the lowest to the highest logit of ``scale``, or of the map; scores would not do, as they
    may be 1.00 everywhere.
    """
    width, height = image.size
    left, top, wide, high = draw(view, (0, 0, 0, 0), width, height)[:4].tolist()
    base = image.convert("L").point([round(90 + 0.6 * level) for level in range(256)]).convert("RGB")
    box = (
        round(left * width),
        round(top * height),
        max(1, round(wide * width)),
        max(1, round(high * height)),
    )
    smooth = Image.fromarray(stretched(logits, scale)).resize(box[2:], Image.Resampling.BILINEAR)
    levels = np.clip(np.asarray(smooth) * 255, 0, 255).round().astype(np.uint8)
    colored = Image.fromarray(palette()[levels])
    seen = base.crop((box[0], box[1], box[0] + box[2], box[1] + box[3]))
    base.paste(Image.blend(seen, colored, OPACITY), box[:2])
    base.thumbnail((side, side))
    return base


def stretched(
    logits: npt.NDArray[np.floating], scale: tuple[float, float] | None = None
) -> npt.NDArray[np.float32]:
    """The logits of a map from 0 to 1, by a scale or their own; without one a nearly even map stays so."""
    if scale is not None:
        low, high = scale
        return np.asarray(np.clip((logits - low) / max(high - low, EVEN), 0, 1), np.float32)
    low, high = float(logits.min()), float(logits.max())
    missing = max(0.0, EVEN - (high - low)) / 2
    return np.asarray((logits - (low - missing)) / (high - low + 2 * missing), np.float32)


@cache
def palette() -> npt.NDArray[np.uint8]:
    """(256, 3) The colors of a map, from 0 to 1."""
    from matplotlib import colormaps

    return np.asarray(colormaps[COLOR_MAP](np.arange(256), bytes=True))[:, :3]


def scale() -> str:
    """The colors of maps as they look over medium gray."""
    gray = np.full((1, 256, 3), 166, np.uint8)
    bar = Image.blend(Image.fromarray(gray), Image.fromarray(palette()[None]), OPACITY)
    return as_uri(bar.resize((256, 12)), 90)
