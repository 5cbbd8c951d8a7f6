"""Transforms from an image file to the view that the model is given.

    load(path) ──────────▶ image ────┐
    draw(view, key, w, h) ─▶ crop, flip ─▶ render ─▶ (3, size, size) uint8 ─▶ RandAugment, change_colors
                               └─▶ ViewGeometry.of, one row per image

Random numbers are derived from a key (seed, epoch, row, number of the view) alone, so a view does not depend
on workers or other images.

The papers resize to a square (Verelst 2023: 672²), then crop and resize again (448²). Here a crop is
resampled once from the decoded image, not rounded to pixels: on 50 VOC images (short side 160) it differs
from two by 0.45 gray levels in the mean at 672 and 448, by 1.3 at 288 and 192 (the papers' proportion to the
image; bicubic differs from bilinear as much), and takes less than a third of the time (1.9, not 6.9 ms).
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from sparselabel.config import Views
from sparselabel.errors import ConfigError, param

if TYPE_CHECKING:
    from torch import Tensor


TRIES = 10  # torchvision's number of tries before the central crop is taken


@dataclass(frozen=True)
class View:
    """A distribution of views of an image: a crop, resized to a square, perhaps mirrored.

    The crop is random (as torchvision's RandomResizedCrop) unless ``area`` is (1, 1). Then it is the central
    square whose side is ``center`` times the image's short side or, with ``squash``, the whole image.
    """

    size: int
    """Side of the view in pixels."""
    area: tuple[float, float] = (1.0, 1.0)
    """Smallest and largest share of the image's area in the crop, drawn uniformly; (1, 1): not random."""
    ratio: tuple[float, float] = (1.0, 1.0)
    """Smallest and largest width divided by height of the crop, drawn uniformly on a log scale."""
    flip: float = 0.0
    """Probability of mirroring horizontally."""
    squash: bool = True
    """Whether the image is treated as a square whatever its sides; if not, ``ratio`` is in its pixels."""
    center: float = 1.0
    """Side of the central crop as a share of the short side, where the crop is not random."""

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
        """Whether the crop is random."""
        return self.area != (1, 1)

    @property
    def at_least(self) -> int:
        """Short side to decode an image at: twice the view's, and enough that no crop is upsampled."""
        narrowest = min(self.ratio[0], 1 / self.ratio[1])
        smallest = math.sqrt(self.area[0] * narrowest) if self.random else self.center
        return math.ceil(self.size * max(2, 1 / smallest))


def verelst_train(size: int = 448) -> View:
    """Training views of Verelst 2023 (supplement A): a square crop of 1/4 to all of the squashed image."""
    return View(size, area=(0.25, 1.0), flip=0.5)


def squashed(size: int = 448) -> View:
    """Test views of Verelst 2023 and Cole 2021: the whole image resized to a square."""
    return View(size)


def imagenet_train(size: int = 224) -> View:
    """Training views of Verelst 2023 on ImageNet: torchvision's RandomResizedCrop with its defaults."""
    return View(size, area=(0.08, 1.0), ratio=(3 / 4, 4 / 3), flip=0.5, squash=False)


def imagenet_test(size: int = 224) -> View:
    """Test views of Verelst 2023 on ImageNet: the central square of 224/256 of the short side."""
    return View(size, squash=False, center=224 / 256)


def views_of(views: Views) -> tuple[View, View]:
    """The views of training and those of evaluation."""
    if views.geometry == "imagenet":
        train, test = imagenet_train(views.size), imagenet_test(views.size)
    else:
        train, test = verelst_train(views.size), squashed(views.size)
    if views.smallest_crop == 1:  # no random crop
        return replace(test, flip=views.flip), test
    return replace(train, area=(views.smallest_crop, 1.0), flip=views.flip), test


def draw(view: View, key: tuple[int, ...], width: int, height: int) -> npt.NDArray[np.float64]:
    """(5,) The crop and flip of a view: left, top, width, height in unit coordinates, flip (0 or 1).

    ``key`` is (seed, epoch, row, number of the view), none negative, and the only source of randomness.
    """
    image_width, image_height = (1.0, 1.0) if view.squash else (float(width), float(height))
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
    flip = random.random() < view.flip
    if view.random:
        left, top, w, h = _random_crop(view, random, image_width, image_height)
    else:
        w = h = view.center * min(image_width, image_height)
        left, top = (image_width - w) / 2, (image_height - h) / 2
    return np.array([left / image_width, top / image_height, w / image_width, h / image_height, flip])


def _random_crop(
    view: View, random: np.random.Generator, width: float, height: float
) -> tuple[float, float, float, float]:
    """Left, top, width, height as torchvision's RandomResizedCrop draws them, but not rounded to pixels."""
    for _ in range(TRIES):
        area = width * height * random.uniform(*view.area)
        ratio = math.exp(random.uniform(math.log(view.ratio[0]), math.log(view.ratio[1])))
        w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if w <= width and h <= height:
            return random.uniform(0, width - w), random.uniform(0, height - h), w, h
    ratio = min(max(width / height, view.ratio[0]), view.ratio[1])
    w, h = min(width, height * ratio), min(height, width / ratio)
    return (width - w) / 2, (height - h) / 2, w, h


def render(image: Image.Image, geometry: npt.NDArray[np.floating], size: int) -> npt.NDArray[np.uint8]:
    """(3, size, size) The view of an RGB image with this crop and flip (5,), as ``draw`` gives them.

    Antialiased bilinear, resampled once.
    """
    left, top, width, height, flip = geometry.tolist()
    # Pillow refuses a box that leaves the image, be it by a rounding error.
    box = (
        max(left, 0.0) * image.width,
        max(top, 0.0) * image.height,
        min(left + width, 1.0) * image.width,
        min(top + height, 1.0) * image.height,
    )
    view = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    if flip:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.stack([np.asarray(band) for band in view.split()])  # three times as fast as a transpose


Pixels = npt.NDArray[np.uint8]
MAGNITUDES = 30  # RandAugment's largest magnitude
# Crops, RandAugment and color changes of a view have the same key: these tell their random numbers apart.
COLOR_STREAM, AUGMENT_STREAM = 1, 2
COLOR_OPERATIONS = 2  # of a strong view, one after the other

# RandAugment's operations (Cubuk 2020), by their names in torchvision.
GEOMETRIC = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
SIGNED = (*GEOMETRIC, "Brightness", "Color", "Contrast", "Sharpness")
OPERATIONS = ("Identity", *SIGNED, "Posterize", "Solarize", "AutoContrast", "Equalize")
COLORS = tuple(name for name in OPERATIONS if name not in GEOMETRIC)


@dataclass(frozen=True)
class RandAugment:
    """RandAugment (Cubuk 2020) and cutout (DeVries 2017) of a rendered view.

    ``operations`` per view at a ``magnitude`` of 0 to 30; ``geometric`` ones move pixels, which
    ``ViewGeometry`` does not track. ``cutout`` is the side of the covered square as a share of the view's.
    """

    operations: int = 0
    magnitude: int = 9
    geometric: bool = True
    cutout: float = 0.0

    def __call__(self, pixels: Pixels, key: tuple[int, ...]) -> tuple[Pixels, npt.NDArray[np.float64]]:
        """The augmented view (3, S, S), and (4,) left, top, width, height of the covered rectangle.

        The rectangle is in unit coordinates of the view; all 0 without cutout. ``key`` is that of ``draw``.
        """
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence((*key, AUGMENT_STREAM))))
        cutout = np.zeros(4)
        if self.cutout:
            pixels = pixels.copy()
            cutout = self._cover(pixels, random)
        if self.operations:
            choices = OPERATIONS if self.geometric else COLORS
            image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
            for name in random.choice(choices, self.operations):
                sign = -1.0 if name in SIGNED and random.random() < 0.5 else 1.0
                image = apply_operation(image, str(name), self.magnitude / MAGNITUDES, sign)
            pixels = np.asarray(image).transpose(2, 0, 1)
        return pixels, cutout

    def _cover(self, pixels: Pixels, random: np.random.Generator) -> npt.NDArray[np.float64]:
        """Cover a square around a random point with one color, in place; it is clipped at the edges."""
        size = pixels.shape[1]
        side = round(self.cutout * size)
        x, y = (int(random.integers(size)) - side // 2 for _ in range(2))
        left, top = max(x, 0), max(y, 0)
        right, bottom = min(x + side, size), min(y + side, size)
        pixels[:, top:bottom, left:right] = random.integers(0, 256, (3, 1, 1), dtype=np.uint8)
        return np.array([left, top, right - left, bottom - top], dtype=np.float64) / float(size)


def apply_operation(image: Image.Image, name: str, strength: float, sign: float) -> Image.Image:
    """One of ``OPERATIONS``, at a ``strength`` of 0 to 1; ``sign`` -1 for the other direction."""
    from torchvision.transforms import functional as tv

    shift = int(sign * strength * 150 / 331 * image.width)
    angle = math.degrees(math.atan(0.3 * strength * sign))
    factor = 1 + 0.9 * strength * sign
    operations: dict[str, Callable[[], Any]] = {
        "Identity": lambda: image,
        "ShearX": lambda: tv.affine(image, 0.0, [0, 0], 1.0, [angle, 0.0], center=[0, 0]),
        "ShearY": lambda: tv.affine(image, 0.0, [0, 0], 1.0, [0.0, angle], center=[0, 0]),
        "TranslateX": lambda: tv.affine(image, 0.0, [shift, 0], 1.0, [0.0, 0.0]),
        "TranslateY": lambda: tv.affine(image, 0.0, [0, shift], 1.0, [0.0, 0.0]),
        "Rotate": lambda: tv.rotate(image, 30 * strength * sign),
        "Brightness": lambda: tv.adjust_brightness(image, factor),
        "Color": lambda: tv.adjust_saturation(image, factor),
        "Contrast": lambda: tv.adjust_contrast(image, factor),
        "Sharpness": lambda: tv.adjust_sharpness(image, factor),
        "Posterize": lambda: tv.posterize(image, 8 - round(4 * strength)),
        "Solarize": lambda: tv.solarize(image, 255 * (1 - strength)),
        "AutoContrast": lambda: tv.autocontrast(image),
        "Equalize": lambda: tv.equalize(image),
    }
    result: Image.Image = operations[name]()
    return result


def change_colors(pixels: Pixels, key: tuple[int, ...]) -> Pixels:
    """A view (3, S, S) after two random color operations of random strength, for a strong view (FixMatch)."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence((*key, COLOR_STREAM))))
    image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    for name in random.choice(COLORS, COLOR_OPERATIONS):
        strength, sign = float(random.random()), 1.0 if random.random() < 0.5 else -1.0
        image = apply_operation(image, str(name), strength, sign)
    return np.asarray(image).transpose(2, 0, 1)


class RandomView:
    """Random crops and flips for any dataset: returns a view of an image and its geometry's parameters.

    The view is a tensor (3, size, size) in uint8. The parameters (5,) are left, top, width, height and flip;
    of a batch they make ``ViewGeometry.from_params(parameters)``, which methods with heat maps need.

    Parameters
    ----------
    size
        Side of a view in pixels.
    smallest_crop
        Smallest share of the image area that a crop keeps.
    flip
        Probability of a horizontal flip.
    """

    def __init__(self, size: int = 224, smallest_crop: float = 0.25, flip: float = 0.5) -> None:
        if not isinstance(size, int):
            problem = f"{param('size')} is the side of a view in pixels, not {size!r}"
            raise ConfigError(problem, what="size", value=size, allowed="a whole number")
        self.view = views_of(Views(size=size, smallest_crop=smallest_crop, flip=flip))[0]

    def __call__(self, image: Any) -> "tuple[Tensor, Tensor]":
        """A new view of a PIL image, an array or a tensor; random numbers are those of torch."""
        import torch

        from sparselabel.data.image_source import as_image

        pil, seed = as_image(image), int(torch.randint(2**31, ()))
        geometry = draw(self.view, (seed, 0, 0, 0), pil.width, pil.height)
        return torch.from_numpy(render(pil, geometry, self.view.size)), torch.from_numpy(geometry).float()


class TrackedTransform:
    """A pipeline of torchvision's v2 transforms that also returns where its view lies in the image.

        transform = TrackedTransform(v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), ...]))
        view, parameters = transform(image)

    The parameters (5,) are as ``RandomView`` has them: left, top, width, height and flip, to within a pixel.
    Crops, resizing and horizontal flips are tracked, and colors may change; a view that is rotated, mirrored
    vertically, warped or padded is an error.

    Parameters
    ----------
    transform
        Takes an image and the masks that belong to it, as every transform of ``torchvision.transforms.v2``.
    """

    def __init__(self, transform: "Callable[..., Any]") -> None:
        self.transform = transform

    def __call__(self, image: Any) -> "tuple[Any, Tensor]":
        """The pipeline's view of a PIL image, an array (H, W, 3) or a tensor (3, H, W); its parameters."""
        import torch
        from torchvision.tv_tensors import Mask

        from sparselabel.data.image_source import as_image

        image = image if isinstance(image, torch.Tensor | Image.Image) else as_image(image)
        width, height = image.size if isinstance(image, Image.Image) else (image.shape[-1], image.shape[-2])
        # Masks move with the image and do not change otherwise: these contain pixel numbers.
        columns = torch.arange(width, dtype=torch.float32).expand(1, height, width)
        rows = torch.arange(height, dtype=torch.float32)[:, None].expand(1, height, width)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "RandomErasing")  # it says that masks are not erased
                view, *moved = self.transform(image, Mask(columns), Mask(rows))
        except TypeError as error:
            raise ConfigError(
                f"the transform does not take an image with masks ({error})",
                "take those of torchvision.transforms.v2, without RandAugment and its like, which rotate",
                "give the boxes of your crops to ViewGeometry.from_boxes",
                what="transform",
                value=type(self.transform).__name__,
            ) from error
        left, right, flip = _span(moved[0][0], width)
        top, bottom, upside_down = _span(moved[1][0].T, height)
        if upside_down:
            raise _no_crop()
        box = (left / width, top / height, (right - left) / width, (bottom - top) / height)
        return view, torch.tensor([*box, flip], dtype=torch.float32)


def _span(pixels: "Tensor", count: int) -> tuple[float, float, bool]:
    """Where a view begins and ends along an axis, in pixels of the image, and whether it is mirrored.

    ``pixels`` (rows, cells) are the numbers of the image's pixels along each row of the view, from 0.
    """
    row = pixels[0].double()
    first, last = float(row[0]), float(row[-1])
    step = (last - first) / max(len(row) - 1, 1)
    straight = first + step * np.arange(len(row))
    if not (pixels == pixels[0]).all() or np.abs(row.numpy() - straight).max() > 1:
        raise _no_crop()
    # A pixel of the view is taken from the first of the image's pixels that it covers; in which of the two
    # directions, a mirrored view does not tell.
    wide = max(abs(step), 1.0)
    low = min(first, last) - ((wide - 1) / 2 if step < 0 else 0)
    return max(low, 0.0), min(low + abs(last - first) + wide, count), step < 0


def _no_crop() -> ConfigError:
    return ConfigError(
        "the view is not a crop of the image: it is rotated, mirrored vertically, warped or padded",
        "leave such transforms out: methods with heat maps know crops and horizontal flips",
        what="transform",
    )
