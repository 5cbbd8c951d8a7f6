"""Things of the sky: sun, moon, star, cloud, bird, balloon."""

import numpy as np

from sparselabel.data.scenes.shapes import (
    INK,
    Colour,
    Patch,
    Random,
    Thing,
    block,
    corners,
    eye,
    oval,
    pick,
    shade,
    smooth,
)


def sun(rng: Random) -> Thing:
    """A sun: pointed rays, round rays or a plain disc; some smile."""
    gold = pick(rng, "f7c948 f2a65a f9d976 ef8354 f6bd60")
    kind = int(rng.integers(3))
    thing: Thing = []
    disc = 0.3 if kind < 2 else 0.42
    if kind < 2:
        count, start = int(rng.integers(8, 15)), rng.uniform(0, 1)
        for turn in np.arange(count) * 2 * np.pi / count + start:
            c, s = float(np.cos(turn)), float(np.sin(turn))
            if kind == 0:
                foot = 0.9 / count
                sides = corners((0.3, -foot), (0.5, 0), (0.3, foot)) @ np.array([[c, s], [-s, c]])
                thing.append(Patch(sides, shade(gold, 0.94), True))
            else:
                thing.append(Patch(oval(c * 0.42, s * 0.42, 0.075, 0.3 / count, float(turn)), gold, True))
    else:
        thing.append(Patch(oval(0, 0, 0.5, 0.5), shade(gold, 1.35), True))
    thing.append(Patch(oval(0, 0, disc, disc), gold, True))
    thing.append(Patch(oval(-disc * 0.1, -disc * 0.12, disc * 0.78, disc * 0.78), shade(gold, 1.22), True))
    return thing + (_smile(disc, shade(gold, 0.5)) if rng.random() < 0.3 else [])


def moon(rng: Random) -> Thing:
    """A crescent, a gibbous or a full moon with craters."""
    pale = pick(rng, "f4e9c1 f7d774 e8ecf2 f2b880 d7dcea")
    if rng.random() < 0.65:
        turns = np.linspace(-np.pi / 2, np.pi / 2, 20)
        rim = np.stack([-np.cos(turns), np.sin(turns)], axis=1)
        shadow = np.stack([-rng.uniform(0.0, 0.5) * np.cos(turns), np.sin(turns)], axis=1)[::-1]
        crescent = 0.48 * np.concatenate([rim, shadow]) + (0.2, 0.0)
        return [Patch(crescent, pale, True), Patch(oval(-0.16, 0.1, 0.045, 0.06), shade(pale, 0.88), True)]
    thing = [Patch(oval(0, 0, 0.48, 0.48), pale, True)]
    for x, y, radius in ((-0.18, -0.14, 0.11), (0.16, 0.1, 0.14), (0.14, -0.24, 0.06), (-0.16, 0.22, 0.08)):
        thing.append(Patch(oval(x, y, radius, radius), shade(pale, 0.87), True))
    return thing


def star(rng: Random) -> Thing:
    """A star of four to six points."""
    light = pick(rng, "f9d976 fdf0c8 cfe3ff f7c948 f5c6d6 f2a65a")
    count = (4, 5, 5, 5, 6)[int(rng.integers(5))]
    waist = rng.uniform(0.15, 0.19) if count == 4 else rng.uniform(0.2, 0.28)
    turns = np.arange(2 * count) * np.pi / count - np.pi / 2
    radius = np.where(np.arange(2 * count) % 2 == 0, 0.5, waist)[:, None]
    outline = radius * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    return [Patch(outline, light, True), Patch(outline * 0.55, shade(light, 1.45), True)]


def cloud(rng: Random) -> Thing:
    """A cloud of four to six puffs."""
    white = pick(rng, "fdfdfd f4f1ee e3e8f0 f7dfe0 d6d3e6 c9d3dc")
    count = int(rng.integers(3, 6))
    places = np.linspace(-0.27, 0.27, count) + rng.uniform(-0.03, 0.03, count)
    puffs = [(float(x), 0.02 - 0.12 * (1 - (x / 0.3) ** 2), rng.uniform(0.13, 0.2)) for x in places]
    thing = [Patch(oval(x, y + 0.04, r, r * 0.95), shade(white, 0.87)) for x, y, r in puffs]
    thing.append(Patch(oval(0, 0.12, 0.46, 0.09), shade(white, 0.87)))
    thing.append(Patch(oval(-0.01, 0.085, 0.43, 0.08), white))
    thing += [Patch(oval(x - 0.01, y, r * 0.92, r * 0.88), white) for x, y, r in puffs]
    return thing


def bird(rng: Random) -> Thing:
    """A songbird, sitting or flying, or a gull on its wings."""
    coat = pick(rng, "5b8fc9 c8553d e0b354 7d8597 f4f1ee 4a4e69 6fa04c d98e3f")
    beak = pick(rng, "e09f3e d98e3f 6b4f4f")
    if rng.random() < 0.35:
        lift = rng.uniform(-0.32, -0.16)
        wings = [
            smooth(
                (s * 0.5, lift + 0.12),
                (s * 0.3, lift),
                (s * 0.05, 0.0),
                (s * 0.02, 0.12),
                (s * 0.28, lift + 0.14),
            )
            for s in (-1, 1)
        ]
        return [
            Patch(wings[0], shade(coat, 0.8)),
            Patch(smooth((-0.24, 0.06), (0.0, -0.02), (0.2, 0.03), (0.16, 0.12), (-0.05, 0.14)), coat),
            Patch(corners((0.2, 0.02), (0.29, 0.07), (0.18, 0.1)), beak),
            Patch(wings[1], shade(coat, 0.92)),
        ]
    belly = rng.uniform(0.18, 0.27)
    body = smooth(
        (-0.5, 0.02), (-0.12, -0.12), (0.16, -0.3), (0.34, -0.2), (0.26, 0.08), (0.02, belly), (-0.25, 0.13)
    )
    thing = [
        Patch(corners((0.31, -0.26), (0.5, -0.17), (0.31, -0.12)), beak),
        Patch(body, coat),
        Patch(
            smooth((0.26, -0.06), (0.24, 0.08), (0.02, belly - 0.02), (-0.1, 0.14), (0.08, 0.06)),
            shade(coat, 1.4),
        ),
    ]
    if rng.random() < 0.5:
        wing = smooth((-0.3, -0.44), (-0.02, -0.24), (0.1, -0.02), (-0.1, 0.05), (-0.22, -0.12))
    else:
        wing = smooth((-0.34, 0.1), (-0.1, -0.1), (0.12, -0.06), (0.06, 0.09), (-0.1, 0.13))
        for x in (-0.02, 0.07):
            thing.insert(0, Patch(corners((x, 0.15), (x + 0.03, 0.15), (x + 0.02, 0.36), (x, 0.36)), beak))
    thing.append(Patch(wing, shade(coat, 0.72)))
    return thing + eye(0.22, -0.18, 0.05)


def balloon(rng: Random) -> Thing:
    """A hot-air balloon with coloured gores."""
    first = pick(rng, "d1495b f2c14e 4a6fa5 6fa04c ef8354 9b72cf e57ba0")
    second = pick(rng, "fbf6ec f2c14e 5b8fc9 f5b7c5 4f8f8b d1495b")
    wide = rng.uniform(0.3, 0.38)
    half = ((wide * 0.82, -0.38), (wide, -0.16), (wide * 0.62, 0.1), (0.08, 0.24))
    bag = smooth((0, -0.5), *half, *((-x, y) for x, y in reversed(half)))
    thing = [
        Patch(corners((-0.08, 0.22), (-0.06, 0.22), (-0.04, 0.4), (-0.06, 0.4)), INK),
        Patch(corners((0.08, 0.22), (0.06, 0.22), (0.04, 0.4), (0.06, 0.4)), INK),
        Patch(block(-0.075, 0.36, 0.075, 0.5), pick(rng, "8a6d5a b0824f 7b5b45")),
        Patch(bag, first),
        Patch(bag * (0.7, 1.0), second),
        Patch(bag * (0.36, 1.0), first),
    ]
    if rng.random() < 0.4:
        edge = wide * 0.9
        thing.append(
            Patch(
                smooth((-edge, -0.2), (0, -0.15), (edge, -0.2), (edge, -0.11), (0, -0.05), (-edge, -0.11)),
                shade(second, 0.85),
            )
        )
    return thing


def _smile(radius: float, ink: Colour) -> Thing:
    mouth = smooth((-0.4, 0.2), (0.0, 0.5), (0.4, 0.2), (0.0, 0.62)) * radius
    eyes = [oval(side * 0.35 * radius, -0.15 * radius, 0.1 * radius, 0.14 * radius) for side in (-1, 1)]
    return [Patch(points, ink, True) for points in (mouth, *eyes)]
