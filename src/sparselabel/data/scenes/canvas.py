"""Painting: a backdrop, and objects on it one after the other, with light, shadow and exact outlines."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from sparselabel.data.scenes.shapes import Color, Drawing, Random

Pixels = npt.NDArray[np.float32]
Window = tuple[slice, slice]

_FINE = 3  # objects are drawn this many times larger and averaged: smooth edges


@dataclass(frozen=True)
class Placement:
    """Where and how an object is painted; ``x``, ``y`` and ``side`` in units of the image's side."""

    x: float
    y: float
    side: float
    turn: float = 0.0  # radians, clockwise
    mirrored: bool = False
    haze: float = 0.0  # 0: near and clear, 1: lost in the haze


class Painted(NamedTuple):
    """Where an object went: its window on the canvas, its outline there, its pixels in all (also outside)."""

    window: Window
    outline: npt.NDArray[np.bool_]
    pixels: int


@dataclass(frozen=True)
class Light:
    """The light of an image: what it does to the colors of objects, and the color of the far distance."""

    tint: Color = (1.0, 1.0, 1.0)
    haze: Color = (230.0, 235.0, 240.0)
    shadow: float = 0.25
    slope: tuple[float, float] = (-0.10, -0.12)


class Canvas:
    """An image in the making; a pixel belongs to an object that covers at least half of it."""

    def __init__(self, backdrop: Pixels) -> None:
        self.pixels = backdrop
        self.size = len(backdrop)

    def paint(self, drawing: Drawing, placement: Placement, light: Light) -> Painted:
        """Paint an object with its shadow."""
        layer, left, top = self._layer(drawing, placement, light)
        softened = layer.getchannel("A").filter(ImageFilter.BoxBlur(max(1.0, self.size / 64)))
        soft = np.asarray(softened, dtype=np.float32) / np.float32(255)
        away = max(1, round(self.size / 64))
        window, visible = self._window(left + away, top + away, layer)
        self.pixels[window] *= 1 - (light.shadow * (1 - placement.haze)) * soft[visible][..., None]
        colors = np.asarray(layer, dtype=np.float32)
        cover = colors[..., 3] / np.float32(255)
        across = _axis(layer.width) * np.float32(2 * light.slope[0])
        down = _axis(layer.height)[:, None] * np.float32(2 * light.slope[1])
        # Lit from one side, and a little darker along the rim, as watercolors dry.
        lit = (1 + across + down) * (0.84 + 0.16 * soft)
        window, visible = self._window(left, top, layer)
        below = self.pixels[window]
        below += (colors[visible][..., :3] * lit[visible][..., None] - below) * cover[visible][..., None]
        outline = cover >= 0.5
        return Painted(window, outline[visible], int(np.count_nonzero(outline)))

    def _window(self, left: int, top: int, layer: Image.Image) -> tuple[Window, Window]:
        """The part of the canvas under a layer, and the part of the layer over the canvas."""
        first_row, first_column = (min(max(0, start), self.size) for start in (top, left))
        last_row = max(first_row, min(self.size, top + layer.height))
        last_column = max(first_column, min(self.size, left + layer.width))
        here = slice(first_row, last_row), slice(first_column, last_column)
        there = slice(first_row - top, last_row - top), slice(first_column - left, last_column - left)
        return here, there

    def glow(self, placement: Placement, color: Color, strength: float) -> None:
        """A soft halo around a place."""
        grid = (np.arange(self.size, dtype=np.float32) + 0.5) / self.size
        square = ((grid - placement.x) ** 2)[None, :] + ((grid - placement.y) ** 2)[:, None]
        halo = strength * np.exp(-square / (0.8 * placement.side) ** 2)[..., None]
        self.pixels += (np.array(color, dtype=np.float32) - self.pixels) * halo

    def _layer(self, drawing: Drawing, placement: Placement, light: Light) -> tuple[Image.Image, int, int]:
        """The object alone on a transparent layer, and the layer's upper left pixel on the canvas."""
        points = np.concatenate([patch.points for patch in drawing])
        cos, sin = np.cos(placement.turn), np.sin(placement.turn)
        flip = -1 if placement.mirrored else 1
        turned = points @ (np.array([[flip * cos, flip * sin], [-sin, cos]]) * (placement.side * self.size))
        turned += (placement.x * self.size, placement.y * self.size)
        margin = 2 + self.size // 48
        left, top = (np.floor(turned.min(axis=0)).astype(int) - margin).tolist()
        right, bottom = (np.ceil(turned.max(axis=0)).astype(int) + margin).tolist()
        fine = (turned - (left, top)) * _FINE
        layer = Image.new("RGBA", ((right - left) * _FINE, (bottom - top) * _FINE))
        draw = ImageDraw.Draw(layer)
        start = 0
        for patch, color in zip(drawing, _lit(drawing, light, placement.haze), strict=True):
            stop = start + len(patch.points)
            draw.polygon(fine[start:stop].ravel().tolist(), fill=(*color, 255))
            start = stop
        return layer.reduce(_FINE), left, top


def gradient(size: int, top: Color, bottom: Color, until: float) -> Pixels:
    """An image that goes from one color to another, downwards; ``until`` is where the other is reached."""
    part = np.minimum(np.linspace(0, 1 / until, size, dtype=np.float32), 1)[:, None, None]
    column = np.array(top, np.float32) * (1 - part) + np.array(bottom, np.float32) * part
    return np.broadcast_to(column, (size, size, 3)).copy()


def ridge(pixels: Pixels, heights: Pixels, near: Color, far: Color) -> None:
    """Fill everything below a line (its height per column, in units of the side) from color to color."""
    size = len(pixels)
    first = max(0, int(heights.min() * size) - 1)
    below = pixels[first:]
    depth = np.arange(first, size, dtype=np.float32)[:, None] + np.float32(0.5) - heights * np.float32(size)
    cover = np.minimum(np.maximum(depth + 0.5, 0), 1)[..., None]
    part = np.maximum(depth, 0)[..., None] / np.float32(size - first)
    start, end = np.array(far, np.float32), np.array(near, np.float32)
    fill = start + part * (end - start)
    below += (fill - below) * cover


def mottle(rng: Random, size: int, cells: int) -> Pixels:
    """Smooth noise between about -1 and 1, the same at every size."""
    coarse = rng.uniform(-1, 1, (cells, cells)).astype(np.float32)
    return np.asarray(Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC))


def _axis(length: int) -> Pixels:
    return np.arange(length, dtype=np.float32) / np.float32(length - 1) - np.float32(0.5)


def _lit(drawing: Drawing, light: Light, haze: float) -> list[list[int]]:
    """The colors of an object's patches in this light and haze."""
    colors = np.array([patch.color for patch in drawing], dtype=np.float64)
    dull = np.array([not patch.glows for patch in drawing])
    colors[dull] *= light.tint
    colors += (np.array(light.haze) - colors) * haze
    return np.minimum(np.rint(colors), 255).astype(int).tolist()  # type: ignore[no-any-return]
