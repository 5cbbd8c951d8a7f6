"""The worlds of the scenes: themes, their backdrops, and where objects stand in them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sparselabel.data.scenes import objects
from sparselabel.data.scenes.canvas import Light, Pixels, Placement, gradient, mottle, ridge
from sparselabel.data.scenes.shapes import Color, Drawing, Patch, Random, corners, mixed, oval, pick, shade


class Kind(NamedTuple):
    """A class: its drawing, its zone, its smallest and largest side, how far it turns, how many at most."""

    draw: Callable[[Random], Drawing]
    zone: str
    small: float
    large: float
    turn: float
    most: int


KINDS: dict[str, Kind] = {
    "tree": Kind(objects.tree, "ground", 0.20, 0.48, 0.06, 4),
    "cloud": Kind(objects.cloud, "high", 0.18, 0.46, 0.08, 3),
    "bird": Kind(objects.bird, "air", 0.13, 0.32, 0.35, 4),
    "house": Kind(objects.house, "ground", 0.17, 0.42, 0.05, 2),
    "flower": Kind(objects.flower, "ground", 0.14, 0.34, 0.25, 4),
    "sun": Kind(objects.sun, "high", 0.13, 0.34, 3.0, 1),
    "star": Kind(objects.star, "high", 0.11, 0.20, 0.6, 4),
    "fish": Kind(objects.fish, "water", 0.13, 0.36, 0.45, 3),
    "boat": Kind(objects.boat, "water", 0.16, 0.44, 0.12, 2),
    "moon": Kind(objects.moon, "high", 0.16, 0.36, 0.7, 1),
    "mushroom": Kind(objects.mushroom, "ground", 0.17, 0.38, 0.18, 3),
    "balloon": Kind(objects.balloon, "air", 0.20, 0.45, 0.12, 3),
}


class Theme(NamedTuple):
    """A kind of image: how often it comes, where its horizon is, its colors and the objects it favors."""

    share: float
    horizon: tuple[float, float]
    skies: tuple[str, ...]  # "top bottom"
    ground: str
    tint: Color
    likes: dict[str, float]


_DAY: Color = (1.0, 1.0, 1.0)
_DUSK: Color = (1.0, 0.88, 0.84)
_NIGHT: Color = (0.66, 0.70, 0.88)
_DAYS = ("8ecae6 fdf3e1", "a8d8ea fff1e6", "b5d6e8 f3f7f0", "9fc5e8 fbe9d7", "c3dfe0 fcf6e8")
_DUSKS = ("8e7cc3 f7b787", "b8c0ff ffd6e0", "e8998d fbe3b9", "7d8cc4 f6c6b8")
_NIGHTS = ("12203f 4a5a8f", "1e1a40 6b4a7d", "0c2a38 2f6b73", "16213e 53608c")

THEMES: dict[str, Theme] = {
    "meadow": Theme(
        0.30,
        (0.42, 0.62),
        _DAYS,
        "8fbf6a a3c46c 79b08a c2c873",
        _DAY,
        {"tree": 0.72, "flower": 0.42, "house": 0.32, "cloud": 0.44, "bird": 0.28, "sun": 0.26},
    ),
    "dusk": Theme(
        0.14,
        (0.45, 0.65),
        _DUSKS,
        "a98f6b b59a63 8d8f6a a8806f",
        _DUSK,
        {
            "tree": 0.74,
            "house": 0.34,
            "bird": 0.28,
            "sun": 0.28,
            "moon": 0.1,
            "mushroom": 0.3,
            "cloud": 0.26,
        },
    ),
    "sea": Theme(
        0.22,
        (0.30, 0.55),
        _DAYS + _DUSKS[:2],
        "4f9fb5 5aa9a3 4a86b8 6fb1c8",
        _DAY,
        {"boat": 0.5, "fish": 0.58, "cloud": 0.42, "bird": 0.34, "sun": 0.28, "tree": 0.16},
    ),
    "night": Theme(
        0.20,
        (0.48, 0.72),
        _NIGHTS,
        "3c5a55 41506e 4a4a6a 3a5f60",
        _NIGHT,
        {
            "star": 0.74,
            "moon": 0.48,
            "tree": 0.66,
            "house": 0.34,
            "bird": 0.1,
            "cloud": 0.1,
            "mushroom": 0.05,
        },
    ),
    "sky": Theme(
        0.14,
        (0.80, 0.95),
        _DAYS + _DUSKS,
        "9dbf8a a9c4b0 b7b7a4",
        _DAY,
        {"cloud": 0.7, "bird": 0.52, "balloon": 0.36, "sun": 0.38, "tree": 0.2, "star": 0.08, "moon": 0.06},
    ),
}
_ANYWHERE = 0.015  # any class may turn up in any theme
ALONE = 1.5
"""How much larger an object is that has an image for itself."""


@dataclass(frozen=True)
class Item:
    """One object to paint: ``kind`` is the number of its class, -1 for what only decorates."""

    depth: float
    kind: int
    drawing: Drawing
    placement: Placement


@dataclass(frozen=True)
class Plan:
    """A scene before it is painted: the same for every size of the image."""

    theme: str
    horizon: float
    sky: tuple[Color, Color]
    ground: Color
    light: Light
    items: tuple[Item, ...]  # back to front


def plan(rng: Random, alone: bool = False) -> Plan:
    """Draw a theme, its colors and the objects in it, or one large object ``alone``, any class as often."""
    shares = np.cumsum([theme.share for theme in THEMES.values()])
    name = list(THEMES)[int(np.searchsorted(shares, rng.random() * shares[-1]))]
    theme = THEMES[name]
    top, bottom = (pick(rng, code) for code in theme.skies[int(rng.integers(len(theme.skies)))].split())
    ground = pick(rng, theme.ground)
    horizon = rng.uniform(*theme.horizon)
    side = -1 if rng.random() < 0.5 else 1
    dark = name == "night"
    haze = mixed(bottom, ground, 0.3)
    light = Light(theme.tint, haze, 0.2 if dark else 0.28, (side * rng.uniform(0.05, 0.14), -0.12))
    if alone:
        number = int(rng.integers(len(KINDS)))
        items = _group(rng, number, name, horizon, most=1, larger=ALONE)
    else:
        items = [item for number in _chosen(rng, theme) for item in _group(rng, number, name, horizon)]
    items += _decoration(rng, name, horizon, ground)
    items.sort(key=lambda item: item.depth)
    return Plan(name, horizon, (top, bottom), ground, light, tuple(items))


def _chosen(rng: Random, theme: Theme) -> list[int]:
    chances = np.array([theme.likes.get(name, _ANYWHERE) for name in KINDS])
    numbers = np.flatnonzero(rng.random(len(chances)) < chances)
    if len(numbers) == 0:
        numbers = np.array([np.searchsorted(np.cumsum(chances), rng.random() * chances.sum())])
    return [int(number) for number in numbers]


def _group(
    rng: Random, number: int, theme: str, horizon: float, most: int | None = None, larger: float = 1.0
) -> list[Item]:
    """One or more objects of a class, each at its place."""
    kind = KINDS[list(KINDS)[number]]
    count, most = 1, most or kind.most
    while count < most and rng.random() < 0.38:
        count += 1
    items: list[Item] = []
    for _ in range(count):
        near = rng.random() ** 1.3
        side = larger * (kind.small + (kind.large - kind.small) * near)
        turn = rng.uniform(-kind.turn, kind.turn)
        haze = 0.42 * (1 - near) * rng.random()
        x = rng.uniform(0.06 + side * 0.2, 0.94 - side * 0.2)
        depth, y = _height(rng, kind.zone, side, near, horizon)
        placement = Placement(x, y, side, turn, rng.random() < 0.5, haze)
        items += _footing(kind.zone, theme, placement, depth)
        items.append(Item(depth, number, kind.draw(rng), placement))
    return items


def _height(rng: Random, zone: str, side: float, near: float, horizon: float) -> tuple[float, float]:
    """How near an object is (what is painted over what) and the height of its center."""
    top, bottom = 0.03 + side * 0.42, 0.97 - side * 0.42
    if rng.random() < 0.1:  # a little magic: anything may float anywhere
        return rng.uniform(0, 2), rng.uniform(top, bottom)
    if zone == "high":
        return rng.uniform(0, 0.6), rng.uniform(top, min(bottom, max(top + 0.1, horizon - 0.2 * side)))
    if zone == "air":
        return rng.uniform(0.4, 1.6), rng.uniform(top, min(bottom, max(top + 0.1, horizon + 0.1)))
    if zone == "water":
        base = horizon + (0.98 - horizon) * (0.16 + 0.84 * near * rng.uniform(0.7, 1)) - side * 0.4
        return 1 + near, min(bottom, base + rng.uniform(0, 0.12))
    base = horizon + (1.0 - horizon) * (0.12 + 0.86 * near * rng.uniform(0.75, 1))
    return 1 + near, min(bottom, base - side * 0.46 + rng.uniform(0, 0.06))


def _footing(zone: str, theme: str, placement: Placement, depth: float) -> list[Item]:
    """An island under what needs ground at sea, a pond under what needs water on land."""
    at_sea = theme == "sea"
    if depth < 1 or (zone == "ground") != at_sea or zone not in ("ground", "water"):
        return []
    colors: tuple[Color, Color] = (
        ((232, 210, 160), (205, 178, 128)) if at_sea else ((120, 178, 200), (92, 150, 178))
    )
    drawing = [Patch(oval(0, 0.03, 0.5, 0.15), colors[1]), Patch(oval(0, 0, 0.48, 0.13), colors[0])]
    return [
        Item(
            depth - 0.01,
            -1,
            drawing,
            Placement(placement.x, placement.y + placement.side * 0.46, placement.side * 1.3),
        )
    ]


def _decoration(rng: Random, theme: str, horizon: float, ground: Color) -> list[Item]:
    """Tufts, stones and crests: for the eye, and to be told from the real objects."""
    items = []
    for _ in range(int(rng.integers(0, 4))):
        near = rng.random()
        y = horizon + (1 - horizon) * (0.15 + 0.8 * near)
        placement = Placement(
            rng.uniform(0.03, 0.97), y, 0.05 + 0.07 * near, 0.0, rng.random() < 0.5, 0.3 * (1 - near)
        )
        if theme == "sea":
            drawing = [
                Patch(oval(0, 0, 0.8, 0.1), shade(ground, 1.35)),
                Patch(oval(0.2, 0.14, 0.6, 0.09), shade(ground, 0.9)),
            ]
        elif rng.random() < 0.25:
            gray = pick(rng, "a39e93 8d8a94 b8ada0")
            drawing = [
                Patch(oval(0, 0, 0.6, 0.36), shade(gray, 0.85)),
                Patch(oval(-0.06, -0.06, 0.5, 0.27), gray),
            ]
        else:
            tone = shade(ground, rng.uniform(0.74, 0.88))
            tips = [
                (float(x), float(h))
                for x, h in zip((-0.4, -0.1, 0.2, 0.45), rng.uniform(-0.6, -0.2, 4), strict=True)
            ]
            drawing = [
                Patch(corners((x * 0.4 - 0.06, 0.3), (x, h), (x * 0.4 + 0.06, 0.3)), tone) for x, h in tips
            ]
        items.append(Item(0.98 + near * 0.9, -1, drawing, placement))
    return items


def backdrop(scene: Plan, rng: Random, size: int) -> Pixels:
    """Sky, and hills or the sea below the horizon."""
    pixels = gradient(size, *scene.sky, scene.horizon)
    across = (np.arange(size, dtype=np.float32) + 0.5) / size
    if scene.theme == "sea":
        far, near = mixed(scene.ground, scene.light.haze, 0.55), shade(scene.ground, 0.72)
        ridge(pixels, np.full(size, scene.horizon, np.float32), near, far)
        down = np.clip((across - scene.horizon) / (1 - scene.horizon), 0, 1)[:, None]
        crests = np.sin(2 * np.pi * (9 * np.sqrt(down) + 0.9 * mottle(rng, size, 7)))
        pixels += 22 * (np.maximum(crests, 0) ** 4 * np.minimum(1, 6 * down))[..., None]
    else:
        for layer, fading in enumerate((0.5, 0.25, 0.0)):
            waves = rng.uniform(0, 1, (3, 2))
            swell = sum(
                (0.5 + b) * np.sin(2 * np.pi * ((0.5 + k) * across + a)) for k, (a, b) in enumerate(waves)
            )
            height = scene.horizon + (1 - scene.horizon) * 0.24 * layer - 0.03 + 0.022 * np.asarray(swell)
            tone = mixed(scene.ground, scene.light.haze, fading)
            ridge(pixels, height.astype(np.float32), shade(tone, 0.84), shade(tone, 1.08))
    pixels += 5 * mottle(rng, size, 5)[..., None] + 4 * mottle(rng, size, 24)[..., None]
    return pixels
