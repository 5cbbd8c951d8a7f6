"""Views of images: load an image, draw a crop and a flip, render what they show.

    load(path) ─▶ image ─┐
    draw(view, key, …) ─▶ frame numbers ─▶ render ─▶ (3, size, size) uint8
                               └─▶ collated: ``ViewGeometry.of``

The papers resize to a square (Verelst 2023: 672²), then crop and resize again (448²). Here a crop is taken
straight from the decoded image, not rounded to pixels, in one resampling: on 50 VOC images (short side 160)
it differs from two by 0.45 gray levels in the mean at 672 and 448, by 1.3 at 288 and 192 (the papers'
proportion to the image; bicubic differs from bilinear as much), and takes less than a third of the time (1.9,
not 6.9 ms).
"""

import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from sparselabel.config import Views
from sparselabel.errors import ConfigError, DataError

TRIES = 10  # torchvision's number of crops that may fail to fit before the central one is taken
_FILTERS = threading.Lock()  # Python's warning filters belong to all threads


@dataclass(frozen=True)
class View:
    """How an image becomes what the model sees: a crop, resized to a square, perhaps mirrored.

    A crop is drawn unless ``area`` is (1, 1); then it is central: a square whose side is ``center`` times the
    image's short side, or, squashed, all of the image.
    """

    size: int
    """Side of the view in pixels."""
    area: tuple[float, float] = (1.0, 1.0)
    """Smallest and largest share of the image's area in the crop, drawn uniformly; (1, 1): no drawing."""
    ratio: tuple[float, float] = (1.0, 1.0)
    """Smallest and largest width divided by height of the crop, drawn uniformly on a log scale."""
    flip: float = 0.0
    """Probability of mirroring horizontally."""
    squash: bool = True
    """Whether the image counts as a square, whatever its sides; if not, ``ratio`` is in its pixels."""
    center: float = 1.0
    """Side of the central crop as a share of the short side, where no crop is drawn."""

    def __post_init__(self) -> None:
        for wrong, rule, value in (
            (self.size < 1, "size must be at least 1 pixel", self.size),
            (not 0 < self.area[0] <= self.area[1] <= 1, "area must be a range within 0..1", self.area),
            (not 0 < self.ratio[0] <= self.ratio[1], "ratio must be a range above 0", self.ratio),
            (not 0 <= self.flip <= 1, "flip must be a probability", self.flip),
            (not 0 < self.center <= 1, "center must be above 0 and at most 1", self.center),
            (self.random and self.center != 1, "center must be 1 where area is below 1", self.center),
            (
                not self.random and self.ratio != (1, 1),
                "ratio must be (1, 1) where area is",
                self.ratio,
            ),
        ):
            if wrong:
                raise ConfigError(f"a view's {rule}, not {value}")

    @property
    def random(self) -> bool:
        """Whether the crop is drawn."""
        return self.area != (1, 1)

    @property
    def at_least(self) -> int:
        """Short side of an image with enough detail: twice the view's, and no crop is ever enlarged."""
        narrowest = min(self.ratio[0], 1 / self.ratio[1])
        smallest = math.sqrt(self.area[0] * narrowest) if self.random else self.center
        return math.ceil(self.size * max(2, 1 / smallest))


def p1_train(size: int = 448) -> View:
    """Verelst 2023 (supplement A), training: a square crop of 1/4 to all of the squashed image; half are
    flipped.
    """
    return View(size, area=(0.25, 1.0), flip=0.5)


def p3_train(size: int = 448) -> View:
    """Cole 2021, training: the whole image squashed; half are flipped."""
    return View(size, flip=0.5)


def squashed(size: int = 448) -> View:
    """Verelst 2023 and Cole 2021, test: the whole image squashed."""
    return View(size)


def imagenet_train(size: int = 224) -> View:
    """Verelst 2023 on ImageNet, training: torchvision's RandomResizedCrop with its defaults; half are
    flipped.
    """
    return View(size, area=(0.08, 1.0), ratio=(3 / 4, 4 / 3), flip=0.5, squash=False)


def imagenet_test(size: int = 224) -> View:
    """Verelst 2023 on ImageNet, test: the central square of 224/256 of the short side."""
    return View(size, squash=False, center=224 / 256)


def views_of(views: Views) -> tuple[View, View]:
    """How images are seen in training and in evaluation."""
    if views.geometry == "imagenet":
        train, test = imagenet_train(views.size), imagenet_test(views.size)
    else:
        train, test = p1_train(views.size), squashed(views.size)
    if views.smallest_crop == 1:  # no crop but that of the test
        return replace(test, flip=views.flip), test
    return replace(train, area=(views.smallest_crop, 1.0), flip=views.flip), test


def draw(view: View, key: tuple[int, ...], width: int, height: int) -> npt.NDArray[np.float64]:
    """(5,) A frame for an image of these sides: left, top, width, height in unit coordinates, flip (0 or 1).

    Depends on nothing but the arguments; ``key`` is (seed, epoch, row, number of the view), none negative.
    """
    across, down = (1.0, 1.0) if view.squash else (float(width), float(height))
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
    flip = random.random() < view.flip
    if view.random:
        left, top, wide, high = _random_crop(view, random, across, down)
    else:
        wide = high = view.center * min(across, down)
        left, top = (across - wide) / 2, (down - high) / 2
    return np.array([left / across, top / down, wide / across, high / down, flip])


def _random_crop(
    view: View, random: np.random.Generator, width: float, height: float
) -> tuple[float, float, float, float]:
    """Left, top, width, height as torchvision's RandomResizedCrop draws them, but not rounded to pixels."""
    for _ in range(TRIES):
        area = width * height * random.uniform(*view.area)
        ratio = math.exp(random.uniform(math.log(view.ratio[0]), math.log(view.ratio[1])))
        wide, high = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if wide <= width and high <= height:
            return random.uniform(0, width - wide), random.uniform(0, height - high), wide, high
    ratio = min(max(width / height, view.ratio[0]), view.ratio[1])
    wide, high = min(width, height * ratio), min(height, width / ratio)
    return (width - wide) / 2, (height - high) / 2, wide, high


def render(image: Image.Image, geometry: npt.NDArray[np.floating], size: int) -> npt.NDArray[np.uint8]:
    """(3, size, size) What the frame (5,) shows of an RGB image; antialiased bilinear, resampled once."""
    left, top, wide, high, flip = geometry.tolist()
    # Pillow refuses a box that leaves the image, be it by a rounding error.
    box = (
        max(left, 0.0) * image.width,
        max(top, 0.0) * image.height,
        min(left + wide, 1.0) * image.width,
        min(top + high, 1.0) * image.height,
    )
    view = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    if flip:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.stack([np.asarray(band) for band in view.split()])  # thrice as fast as turning the axes


def load(path: str | Path, at_least: int | None = None) -> Image.Image:
    """The image in a file, upright and in RGB; transparent parts are white, 16-bit gray becomes 8-bit.

    With ``at_least`` a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, as long as both sides keep that
    many pixels (``View.at_least`` is a good choice): seen whole at 448², a JPEG of 12 megapixels takes 75
    instead of 162 ms, and the view changes by 0.3 gray levels in the mean (by 1.2 for the sharpest images).
    """
    try:
        with _no_remarks():
            image = Image.open(path)
        with image:
            if at_least is not None:
                image.draft(None, (at_least, at_least))
            image.load()  # the long part; threads do it at the same time
            with _no_remarks():
                ImageOps.exif_transpose(image, in_place=True)
            return _as_rgb(image)
    except MemoryError:
        raise
    except FileNotFoundError as error:
        raise DataError(
            f"{path} is gone (No such file): bring it back, or prepare data without it"
        ) from error
    except Exception as error:  # decoders raise whatever they like on a broken file
        reason = str(error) or type(error).__name__
        raise DataError(f"{path} cannot be read as an image: {reason}; mend it or leave it out") from error


def size_of(path: str | Path) -> tuple[int, int]:
    """Width and height of an image as stored, without decoding it; ``load`` says whether it can be."""
    with _no_remarks(), Image.open(path) as image:
        return image.size


@contextmanager
def _no_remarks() -> Iterator[None]:
    """Pillow's warnings on odd metadata are dropped, the one on a giant image becomes an error."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise DataError("floating-point pixels (mode F) have no agreed white; save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        deep = np.asarray(image).astype(np.int64)
        if deep.min() < 0 or deep.max() > 65535:
            raise DataError(f"its gray values go from {deep.min()} to {deep.max()}, beyond 16 bits")
        image = Image.fromarray(((deep + 128) // 257).astype(np.uint8))
    if image.has_transparency_data:
        see_through = image.convert("RGBA")
        opaque = Image.new("RGB", image.size, "white")
        opaque.paste(see_through, mask=see_through.getchannel("A"))
        return opaque
    return image.convert("RGB")


Pixels = npt.NDArray[np.uint8]
STRENGTHS = 30  # the largest magnitude
AUGMENT_STREAM = 2  # tells these random numbers from those of the crop, which have the same key

MOVES = ("shear across", "shear down", "shift across", "shift down", "rotate")
SIGNED = (*MOVES, "brightness", "color", "contrast", "sharpness")
OPERATIONS = ("nothing", *SIGNED, "posterize", "solarize", "autocontrast", "equalize")
COLORS = tuple(name for name in OPERATIONS if name not in MOVES)


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
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence((*key, AUGMENT_STREAM))))
        hidden = np.zeros(4)
        if self.hole:
            pixels = pixels.copy()
            hidden = self._cover(pixels, random)
        if self.operations:
            known = OPERATIONS if self.moves else COLORS
            image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
            for name in random.choice(known, self.operations):
                sign = -1.0 if name in SIGNED and random.random() < 0.5 else 1.0
                image = changed(image, str(name), self.magnitude / STRENGTHS, sign)
            pixels = np.asarray(image).transpose(2, 0, 1)
        return pixels, hidden

    def _cover(self, pixels: Pixels, random: np.random.Generator) -> npt.NDArray[np.float64]:
        """Cover a square around a random point with one color; what of it lies outside is lost."""
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
        "color": lambda: tv.adjust_saturation(image, by),
        "contrast": lambda: tv.adjust_contrast(image, by),
        "sharpness": lambda: tv.adjust_sharpness(image, by),
        "posterize": lambda: tv.posterize(image, 8 - round(4 * share)),
        "solarize": lambda: tv.solarize(image, 255 * (1 - share)),
        "autocontrast": lambda: tv.autocontrast(image),
        "equalize": lambda: tv.equalize(image),
    }
    result: Image.Image = operations[name]()
    return result


CHANGES = 2  # of a view, one after the other
COLOR_STREAM = 1  # tells the random numbers of colors from those of the crop, which have the same key


def recolored(pixels: Pixels, key: tuple[int, ...]) -> Pixels:
    """A view (3, S, S) with two random changes of color, which depend on nothing but the key."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence((*key, COLOR_STREAM))))
    image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    for name in random.choice(COLORS, CHANGES):
        strength, sign = float(random.random()), 1.0 if random.random() < 0.5 else -1.0
        image = changed(image, str(name), strength, sign)
    return np.asarray(image).transpose(2, 0, 1)
