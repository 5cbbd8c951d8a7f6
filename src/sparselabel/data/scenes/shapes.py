"""Building blocks of the drawn objects: colored polygons and a few ways to make them.

An object is a list of patches, painted one over the other, in a box from -0.5 to 0.5 with y pointing down.
"""

import colorsys
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
Color = tuple[float, float, float]
Random = np.random.Generator

INK: Color = (52.0, 46.0, 58.0)


class Patch(NamedTuple):
    """A polygon of one color (0..255); one that ``glows`` keeps its color in the dark."""

    points: Points
    color: Color
    glows: bool = False


Drawing = list[Patch]

_TURNS = np.linspace(0, 2 * np.pi, 26, endpoint=False)
_CIRCLE = np.stack([np.cos(_TURNS), np.sin(_TURNS)], axis=1)
# Catmull-Rom: five points on the curve between every two control points.
_STEPS = np.linspace(0, 1, 5, endpoint=False)
_SPLINE = 0.5 * np.stack(
    [
        -_STEPS + 2 * _STEPS**2 - _STEPS**3,
        2 - 5 * _STEPS**2 + 3 * _STEPS**3,
        _STEPS + 4 * _STEPS**2 - 3 * _STEPS**3,
        -(_STEPS**2) + _STEPS**3,
    ],
    axis=1,
)
_NEIGHBORS = np.array([-1, 0, 1, 2])


def oval(x: float, y: float, rx: float, ry: float, turn: float = 0.0) -> Points:
    """An ellipse around (x, y), turned clockwise by ``turn`` radians."""
    points = _CIRCLE * (rx, ry)
    if turn:
        cos, sin = np.cos(turn), np.sin(turn)
        points = points @ np.array([[cos, sin], [-sin, cos]])
    return np.asarray(points + np.array((x, y)))


def corners(*points: tuple[float, float]) -> Points:
    """A polygon with straight sides."""
    return np.array(points, dtype=np.float64)


def block(left: float, top: float, right: float, bottom: float) -> Points:
    """An upright rectangle."""
    return corners((left, top), (right, top), (right, bottom), (left, bottom))


def smooth(*points: tuple[float, float]) -> Points:
    """A closed curve through the points."""
    control = np.array(points, dtype=np.float64)
    around = control[(np.arange(len(control))[:, None] + _NEIGHBORS) % len(control)]
    return np.asarray((_SPLINE @ around).reshape(-1, 2))


def shade(color: Color, factor: float) -> Color:
    """Darker below 1; above 1 the color moves towards white."""
    red, green, blue = color
    if factor <= 1:
        return red * factor, green * factor, blue * factor
    part = factor - 1
    return red + (255 - red) * part, green + (255 - green) * part, blue + (255 - blue) * part


def mixed(color: Color, other: Color, part: float) -> Color:
    """A color on the way to another one: ``part`` 0 is the first, 1 the other."""
    red, green, blue = (one + (two - one) * part for one, two in zip(color, other, strict=True))
    return red, green, blue


def pick(rng: Random, palette: str) -> Color:
    """One of a palette's colors (hexadecimal, separated by spaces), a little changed."""
    names = palette.split()
    name = names[int(rng.integers(len(names)))]
    rgb = [int(name[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    hue, saturation, value = colorsys.rgb_to_hsv(*rgb)
    shift = rng.uniform(-1, 1, 3)
    hue = (hue + 0.025 * shift[0]) % 1
    saturation = min(1.0, max(0.0, saturation * (1 + 0.18 * shift[1])))
    value = min(1.0, max(0.0, value * (1 + 0.08 * shift[2])))
    red, green, blue = colorsys.hsv_to_rgb(hue, saturation, value)
    return 255 * red, 255 * green, 255 * blue


def eye(x: float, y: float, radius: float) -> Drawing:
    """A white eye that looks ahead (to the right)."""
    white = Patch(oval(x, y, radius, radius), (250.0, 248.0, 244.0))
    return [white, Patch(oval(x + radius * 0.2, y, radius * 0.6, radius * 0.6), INK)]
