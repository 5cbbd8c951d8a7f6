"""Pictures and heat maps as a review shows them."""

import io
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.transforms import View, draw, load
from sparselabel.report.thumbnails import palette, stretched

SIDE, MAP_SIDE = 1400, 480  # pixels of the long side
STRONG = 150  # opacity, of 255, of the highest logit of a map; the picture is seen through lower ones


class Pictures:
    """A split's pictures as JPEG, and their heat maps as PNG to be laid over them; by row, never by path."""

    def __init__(
        self, part: PreparedSplit, view: View, maps: Callable[[int], npt.NDArray[np.floating]]
    ) -> None:
        self._part, self._view, self._maps = part, view, maps
        self.picture = lru_cache(64)(self._picture)

    def _picture(self, row: int) -> tuple[bytes, tuple[int, int]]:
        """The picture, and its width and height."""
        image = load(self._part.path(row), SIDE)
        image.thumbnail((SIDE, SIDE))
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=88)
        return stream.getvalue(), image.size

    def heat_map(self, row: int, column: int) -> bytes:
        """Where the model sees a class: clear where it does not, over all of the picture."""
        _, (width, height) = self.picture(row)
        scale = min(1.0, MAP_SIDE / max(width, height))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        left, top, wide, high = draw(self._view, (0, 0, 0, 0), width, height)[:4].tolist()
        seen = max(1, round(wide * size[0])), max(1, round(high * size[1]))
        cells = stretched(self._maps(row)[column].astype(np.float32))
        smooth = np.asarray(Image.fromarray(cells).resize(seen, Image.Resampling.BILINEAR)).clip(0, 1)
        opacity = (STRONG * smooth**2).round().astype(np.uint8)
        coloured = np.dstack([palette()[(255 * smooth).round().astype(np.uint8)], opacity])
        whole = Image.new("RGBA", size)
        whole.paste(Image.fromarray(coloured), (round(left * size[0]), round(top * size[1])))
        stream = io.BytesIO()
        whole.save(stream, "PNG", compress_level=3)
        return stream.getvalue()
