"""Changes of a training view after its crop and flip: RandAugment's operations, and a hole (cutout).

RandAugment: Cubuk et al. 2020, with the operations and strengths of torchvision. Cutout: DeVries and Taylor
2017, one square around a random point, filled with a random colour, before the operations (Query2Label's
program, P4). Everything depends on the key of the view and on nothing else.

Operations that move pixels would make a view's frame untrue: who needs to know where things are leaves them
out (``moves`` False). A hole is told, so that nobody takes what lies behind it for seen.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]
STRENGTHS = 30  # the largest magnitude
STREAM = 2  # tells these random numbers from those of the crop, which have the same key

MOVES = ("shear across", "shear down", "shift across", "shift down", "rotate")
SIGNED = (*MOVES, "brightness", "colour", "contrast", "sharpness")
OPERATIONS = ("nothing", *SIGNED, "posterize", "solarize", "autocontrast", "equalize")
COLOURS = tuple(name for name in OPERATIONS if name not in MOVES)


@dataclass(frozen=True)
class Changes:
    """``operations`` a view at a ``magnitude`` of 0 to 30, and a ``hole`` of so much of its side."""

    operations: int = 0
    magnitude: int = 9
    moves: bool = True
    hole: float = 0.0

    def __call__(self, pixels: Pixels, key: tuple[int, ...]) -> tuple[Pixels, npt.NDArray[np.float64]]:
        """The changed view (3, S, S), and what it does not show: left, top, width, height, unit coordinates.

        Without a hole all four are 0.
        """
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence((*key, STREAM))))
        hidden = np.zeros(4)
        if self.hole:
            pixels = pixels.copy()
            hidden = self._cover(pixels, random)
        if self.operations:
            known = OPERATIONS if self.moves else COLOURS
            image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
            for name in random.choice(known, self.operations):
                sign = -1.0 if name in SIGNED and random.random() < 0.5 else 1.0
                image = changed(image, str(name), self.magnitude / STRENGTHS, sign)
            pixels = np.asarray(image).transpose(2, 0, 1)
        return pixels, hidden

    def _cover(self, pixels: Pixels, random: np.random.Generator) -> npt.NDArray[np.float64]:
        """Cover a square around a random point with one colour; what of it lies outside is lost."""
        size = pixels.shape[1]
        side = round(self.hole * size)
        across, down = (int(random.integers(size)) - side // 2 for _ in range(2))
        left, top = max(across, 0), max(down, 0)
        right, bottom = min(across + side, size), min(down + side, size)
        pixels[:, top:bottom, left:right] = random.integers(0, 256, (3, 1, 1), dtype=np.uint8)
        return np.array([left, top, right - left, bottom - top], dtype=np.float64) / float(size)


def changed(image: Image.Image, name: str, share: float, sign: float) -> Image.Image:
    """An operation by its name, at a ``share`` (0 to 1) of its largest strength, up or down."""
    from torchvision.transforms import functional as tv

    shift = int(sign * share * 150 / 331 * image.width)
    turn = math.degrees(math.atan(0.3 * share * sign))
    by = 1 + 0.9 * share * sign
    operations: dict[str, Callable[[], Any]] = {
        "nothing": lambda: image,
        "shear across": lambda: tv.affine(image, 0.0, [0, 0], 1.0, [turn, 0.0], center=[0, 0]),
        "shear down": lambda: tv.affine(image, 0.0, [0, 0], 1.0, [0.0, turn], center=[0, 0]),
        "shift across": lambda: tv.affine(image, 0.0, [shift, 0], 1.0, [0.0, 0.0]),
        "shift down": lambda: tv.affine(image, 0.0, [0, shift], 1.0, [0.0, 0.0]),
        "rotate": lambda: tv.rotate(image, 30 * share * sign),
        "brightness": lambda: tv.adjust_brightness(image, by),
        "colour": lambda: tv.adjust_saturation(image, by),
        "contrast": lambda: tv.adjust_contrast(image, by),
        "sharpness": lambda: tv.adjust_sharpness(image, by),
        "posterize": lambda: tv.posterize(image, 8 - round(4 * share)),
        "solarize": lambda: tv.solarize(image, 255 * (1 - share)),
        "autocontrast": lambda: tv.autocontrast(image),
        "equalize": lambda: tv.equalize(image),
    }
    result: Image.Image = operations[name]()
    return result
