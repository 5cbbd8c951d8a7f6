"""Things that stand on the ground: tree, house, flower, mushroom."""

import numpy as np

from sparselabel.data.scenes.shapes import (
    Colour,
    Patch,
    Random,
    Thing,
    block,
    corners,
    oval,
    pick,
    shade,
    smooth,
)

LAMP: Colour = (255.0, 214.0, 122.0)


def tree(rng: Random) -> Thing:
    """A leafy tree, a fir or a poplar; green, autumnal or in blossom."""
    bark = pick(rng, "7b5b45 6b4f4f 8a6d5a 9c8672")
    leaf = pick(rng, "5b9a5b 6fa04c 3f7d63 4f8f8b 88a84e 5b9a5b d98e3f c8553d e6a4b4 d9b54a")
    kind = int(rng.integers(3))
    if kind == 0:
        top = rng.uniform(0.2, 0.26)
        thing = [Patch(corners((-0.06, 0.5), (0.06, 0.5), (0.03, 0.0), (-0.03, 0.0)), bark)]
        spots = [(-0.22, 0.0), (0.22, 0.02), (-0.14, -0.2), (0.15, -0.2), (0.0, -0.06), (0.0, -top - 0.04)]
        puffs = [(x + rng.uniform(-0.03, 0.03), y - 0.04, rng.uniform(0.15, 0.2)) for x, y in spots]
        thing += [Patch(oval(x, y + 0.03, r, r * 0.95), shade(leaf, 0.82)) for x, y, r in puffs]
        thing += [Patch(oval(x, y, r * 0.94, r * 0.9), leaf) for x, y, r in puffs]
        thing += [
            Patch(oval(x - 0.05, y - 0.06, r * 0.45, r * 0.4), shade(leaf, 1.18)) for x, y, r in puffs[2:]
        ]
        if rng.random() < 0.25:
            fruit = pick(rng, "d1495b f2c14e")
            thing += [Patch(oval(x + 0.04, y + 0.05, 0.035, 0.035), fruit) for x, y, _ in puffs[:5]]
        return thing
    if kind == 1:
        thing = [Patch(block(-0.045, 0.3, 0.045, 0.5), bark)]
        wide = rng.uniform(0.25, 0.34)
        for step, width in enumerate((wide, wide * 0.78, wide * 0.52)):
            low, high = 0.38 - 0.25 * step, 0.02 - 0.26 * step
            whole = ((0, high), (width, low), (width / 2, low - 0.03), (0, low + 0.03))
            thing.append(Patch(corners(*whole, (-width / 2, low - 0.03), (-width, low)), leaf))
            thing.append(Patch(corners(*whole), shade(leaf, 0.84)))
        return thing
    wide = rng.uniform(0.15, 0.21)
    crown = smooth((0, -0.5), (wide, -0.12), (wide * 0.8, 0.2), (0, 0.3), (-wide * 0.8, 0.2), (-wide, -0.12))
    return [
        Patch(block(-0.035, 0.2, 0.035, 0.5), bark),
        Patch(crown, shade(leaf, 0.86)),
        Patch(crown * (0.72, 0.9) + (-0.035, -0.02), leaf),
        Patch(oval(-wide * 0.45, -0.18, wide * 0.28, 0.14, 0.15), shade(leaf, 1.16)),
    ]


def house(rng: Random) -> Thing:
    """A house with a gabled or a hipped roof; the windows may be lit."""
    wall = pick(rng, "f3e3c7 f6efe3 e8b4a0 b9cfdc dcc48e e7a977 c9b7d8 d9877a")
    roof = pick(rng, "b5533c 8c4a3f 5f6b7a 3f7d80 a8763e c8553d 6b5b95")
    wide, eaves = rng.uniform(0.26, 0.42), rng.uniform(-0.16, 0.02)
    ridge = (0.0, 0.0, 0.12)[int(rng.integers(3))]
    pane, lit = (LAMP, True) if rng.random() < 0.5 else ((126.0, 156.0, 176.0), False)
    stack = wide * 0.5
    thing = [
        Patch(block(stack - 0.04, -0.46, stack + 0.05, eaves), shade(roof, 0.7)),
        Patch(block(-wide, eaves, wide, 0.47), wall),
        Patch(block(wide * 0.45, eaves, wide, 0.47), shade(wall, 0.88)),
        Patch(corners((-wide - 0.07, eaves), (-ridge, -0.48), (ridge, -0.48), (wide + 0.07, eaves)), roof),
        Patch(corners((ridge, -0.48), (wide + 0.07, eaves), (wide * 0.45, eaves)), shade(roof, 0.85)),
        Patch(block(-wide - 0.07, eaves - 0.02, wide + 0.07, eaves + 0.015), shade(roof, 0.75)),
    ]
    door = rng.uniform(-0.12, 0.02)
    thing.append(Patch(block(door - 0.065, 0.22, door + 0.065, 0.47), shade(roof, 0.66)))
    for x in (-wide * 0.66, wide * 0.62):
        thing.append(Patch(block(x - 0.07, 0.1, x + 0.07, 0.25), shade(wall, 0.68)))
        thing.append(Patch(block(x - 0.055, 0.115, x + 0.055, 0.235), pane, lit))
    if ridge == 0 and wide > 0.3:
        thing.append(Patch(oval(-0.02, eaves - 0.13, 0.06, 0.06), pane, lit))
    return thing


def flower(rng: Random) -> Thing:
    """A daisy-like flower with or without its stem, or a tulip."""
    petal = pick(rng, "e57ba0 d1495b 9b72cf f2c14e fbf3ee f2a65a 7fa6e8 f5b7c5 c86bb0")
    heart = pick(rng, "f2c14e e09f3e 7a4a33")
    green = pick(rng, "5b9a5b 6fa04c 3f7d63")
    if rng.random() < 0.75:
        bend = rng.uniform(-0.07, 0.07)
        stem = corners((bend - 0.025, 0.5), (bend + 0.025, 0.5), (0.022, -0.1), (-0.022, -0.1))
        thing = [Patch(stem, green), Patch(oval(0.13, 0.3, 0.14, 0.055, -0.6), green)]
        thing.append(Patch(oval(-0.12, 0.36, 0.13, 0.05, 0.6), shade(green, 0.85)))
        y, size = -0.19, 0.31
    else:
        thing, y, size = [], 0.0, 0.5
    if thing and rng.random() < 0.3:
        thing.append(
            Patch(smooth((0, -0.46), (0.13, -0.2), (0.1, -0.02), (-0.1, -0.02), (-0.13, -0.2)), petal)
        )
        for side in (-1, 1):
            leaf = smooth(
                (side * 0.21, -0.42), (side * 0.2, -0.12), (side * 0.06, 0.03), (-side * 0.04, -0.08)
            )
            thing.append(Patch(leaf, shade(petal, 0.86 if side > 0 else 1.12)))
        return thing
    count, start = int(rng.integers(5, 10)), rng.uniform(0, 1)
    broad = size * 1.75 / count
    for turn in np.arange(count) * 2 * np.pi / count + start:
        x, dy = float(np.cos(turn)), float(np.sin(turn))
        leaf = oval(x * size * 0.6, y + dy * size * 0.6, size * 0.4, broad, float(turn))
        thing.append(Patch(leaf, shade(petal, 1.08 if dy < 0 else 0.9)))
    thing.append(Patch(oval(0, y, size * 0.32, size * 0.32), shade(heart, 0.85)))
    thing.append(Patch(oval(-size * 0.03, y - size * 0.04, size * 0.25, size * 0.25), heart))
    return thing


def mushroom(rng: Random) -> Thing:
    """A mushroom: flat or pointed cap, with or without spots."""
    cap = pick(rng, "c8423d b0633c d98e3f 8a6aa8 c9a27a d1495b e0b354")
    stem = pick(rng, "f3e3c7 f6efe3 e6d3b8")
    wide, rim = rng.uniform(0.33, 0.48), rng.uniform(-0.02, 0.08)
    top = rng.uniform(-0.5, -0.34)
    foot = rng.uniform(0.09, 0.14)
    thing = [
        Patch(smooth((-foot, 0.46), (0, 0.5), (foot, 0.46), (foot * 0.7, 0), (-foot * 0.7, 0)), stem),
        Patch(smooth((foot * 0.1, 0.48), (foot, 0.46), (foot * 0.7, 0), (foot * 0.2, 0)), shade(stem, 0.85)),
        Patch(oval(0, rim, wide * 0.92, 0.09), shade(stem, 0.72)),
    ]
    dome = smooth(
        (-wide, rim),
        (-wide * 0.8, top * 0.55),
        (0, top),
        (wide * 0.8, top * 0.55),
        (wide, rim),
        (0, rim + 0.03),
    )
    thing += [Patch(dome, shade(cap, 0.86)), Patch(dome * (0.86, 0.9) + (-0.035, -0.03), cap)]
    if rng.random() < 0.65:
        spots = (
            (-0.5, 0.3, 0.06),
            (0.05, 0.66, 0.075),
            (0.48, 0.35, 0.06),
            (-0.1, 0.2, 0.045),
            (-0.36, 0.62, 0.035),
        )
        for x, height, radius in spots:
            thing.append(
                Patch(oval(x * wide, rim + (top - rim) * height, radius, radius * 0.8), shade(stem, 1.3))
            )
    return thing
