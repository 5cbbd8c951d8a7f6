"""Strong views: random changes of colour, which leave everything where it is.

The operations are those of RandAugment (Cubuk et al. 2020) that do not move pixels, each at a strength drawn
within its range there. Crop and flip are drawn as for any view and are in its frame.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance, ImageOps

Pixels = npt.NDArray[np.uint8]
CHANGES = 2  # of a view, one after the other
STRONGEST = 0.9  # RandAugment changes brightness, colour, contrast and sharpness by up to this share
STREAM = 1  # tells the random numbers of colours from those of the crop, which have the same key


def _enhanced(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Callable[..., Image.Image]:
    def change(image: Image.Image, strength: float, up: bool) -> Image.Image:
        return kind(image).enhance(1 + STRONGEST * strength * (1 if up else -1))

    return change


OPERATIONS: dict[str, Callable[[Image.Image, float, bool], Image.Image]] = {
    "nothing": lambda image, strength, up: image,
    "brightness": _enhanced(ImageEnhance.Brightness),
    "colour": _enhanced(ImageEnhance.Color),
    "contrast": _enhanced(ImageEnhance.Contrast),
    "sharpness": _enhanced(ImageEnhance.Sharpness),
    "posterize": lambda image, strength, up: ImageOps.posterize(image, 8 - round(4 * strength)),
    "solarize": lambda image, strength, up: ImageOps.solarize(image, round(255 * (1 - strength))),
    "autocontrast": lambda image, strength, up: ImageOps.autocontrast(image),
    "equalize": lambda image, strength, up: ImageOps.equalize(image),
}


def recoloured(pixels: Pixels, key: tuple[int, ...]) -> Pixels:
    """A view (3, S, S) with two random changes of colour, which depend on nothing but the key."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence((*key, STREAM))))
    image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    for name in random.choice([*OPERATIONS], CHANGES):
        image = OPERATIONS[str(name)](image, float(random.random()), bool(random.random() < 0.5))
    return np.asarray(image).transpose(2, 0, 1)
