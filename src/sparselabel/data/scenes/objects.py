"""How an object of each of the twelve classes is drawn."""

import numpy as np

from sparselabel.data.scenes.shapes import (
    INK,
    Color,
    Drawing,
    Patch,
    Random,
    block,
    corners,
    eye,
    oval,
    pick,
    shade,
    smooth,
)

LAMP: Color = (255.0, 214.0, 122.0)


def tree(rng: Random) -> Drawing:
    """A leafy tree, a fir or a poplar; green, autumnal or in blossom."""
    bark = pick(rng, "7b5b45 6b4f4f 8a6d5a 9c8672")
    leaf = pick(rng, "5b9a5b 6fa04c 3f7d63 4f8f8b 88a84e 5b9a5b d98e3f c8553d e6a4b4 d9b54a")
    kind = int(rng.integers(3))
    if kind == 0:
        top = rng.uniform(0.2, 0.26)
        drawing = [Patch(corners((-0.06, 0.5), (0.06, 0.5), (0.03, 0.0), (-0.03, 0.0)), bark)]
        spots = [(-0.22, 0.0), (0.22, 0.02), (-0.14, -0.2), (0.15, -0.2), (0.0, -0.06), (0.0, -top - 0.04)]
        puffs = [(x + rng.uniform(-0.03, 0.03), y - 0.04, rng.uniform(0.15, 0.2)) for x, y in spots]
        drawing += [Patch(oval(x, y + 0.03, r, r * 0.95), shade(leaf, 0.82)) for x, y, r in puffs]
        drawing += [Patch(oval(x, y, r * 0.94, r * 0.9), leaf) for x, y, r in puffs]
        drawing += [
            Patch(oval(x - 0.05, y - 0.06, r * 0.45, r * 0.4), shade(leaf, 1.18)) for x, y, r in puffs[2:]
        ]
        if rng.random() < 0.25:
            fruit = pick(rng, "d1495b f2c14e")
            drawing += [Patch(oval(x + 0.04, y + 0.05, 0.035, 0.035), fruit) for x, y, _ in puffs[:5]]
        return drawing
    if kind == 1:
        drawing = [Patch(block(-0.045, 0.3, 0.045, 0.5), bark)]
        wide = rng.uniform(0.25, 0.34)
        for step, width in enumerate((wide, wide * 0.78, wide * 0.52)):
            low, high = 0.38 - 0.25 * step, 0.02 - 0.26 * step
            whole = ((0, high), (width, low), (width / 2, low - 0.03), (0, low + 0.03))
            drawing.append(Patch(corners(*whole, (-width / 2, low - 0.03), (-width, low)), leaf))
            drawing.append(Patch(corners(*whole), shade(leaf, 0.84)))
        return drawing
    wide = rng.uniform(0.15, 0.21)
    crown = smooth((0, -0.5), (wide, -0.12), (wide * 0.8, 0.2), (0, 0.3), (-wide * 0.8, 0.2), (-wide, -0.12))
    return [
        Patch(block(-0.035, 0.2, 0.035, 0.5), bark),
        Patch(crown, shade(leaf, 0.86)),
        Patch(crown * (0.72, 0.9) + (-0.035, -0.02), leaf),
        Patch(oval(-wide * 0.45, -0.18, wide * 0.28, 0.14, 0.15), shade(leaf, 1.16)),
    ]


def house(rng: Random) -> Drawing:
    """A house with a gabled or a hipped roof; the windows may be lit."""
    wall = pick(rng, "f3e3c7 f6efe3 e8b4a0 b9cfdc dcc48e e7a977 c9b7d8 d9877a")
    roof = pick(rng, "b5533c 8c4a3f 5f6b7a 3f7d80 a8763e c8553d 6b5b95")
    wide, eaves = rng.uniform(0.26, 0.42), rng.uniform(-0.16, 0.02)
    ridge = (0.0, 0.0, 0.12)[int(rng.integers(3))]
    pane, lit = (LAMP, True) if rng.random() < 0.5 else ((126.0, 156.0, 176.0), False)
    stack = wide * 0.5
    drawing = [
        Patch(block(stack - 0.04, -0.46, stack + 0.05, eaves), shade(roof, 0.7)),
        Patch(block(-wide, eaves, wide, 0.47), wall),
        Patch(block(wide * 0.45, eaves, wide, 0.47), shade(wall, 0.88)),
        Patch(corners((-wide - 0.07, eaves), (-ridge, -0.48), (ridge, -0.48), (wide + 0.07, eaves)), roof),
        Patch(corners((ridge, -0.48), (wide + 0.07, eaves), (wide * 0.45, eaves)), shade(roof, 0.85)),
        Patch(block(-wide - 0.07, eaves - 0.02, wide + 0.07, eaves + 0.015), shade(roof, 0.75)),
    ]
    door = rng.uniform(-0.12, 0.02)
    drawing.append(Patch(block(door - 0.065, 0.22, door + 0.065, 0.47), shade(roof, 0.66)))
    for x in (-wide * 0.66, wide * 0.62):
        drawing.append(Patch(block(x - 0.07, 0.1, x + 0.07, 0.25), shade(wall, 0.68)))
        drawing.append(Patch(block(x - 0.055, 0.115, x + 0.055, 0.235), pane, lit))
    if ridge == 0 and wide > 0.3:
        drawing.append(Patch(oval(-0.02, eaves - 0.13, 0.06, 0.06), pane, lit))
    return drawing


def flower(rng: Random) -> Drawing:
    """A daisy-like flower with or without its stem, or a tulip."""
    petal = pick(rng, "e57ba0 d1495b 9b72cf f2c14e fbf3ee f2a65a 7fa6e8 f5b7c5 c86bb0")
    heart = pick(rng, "f2c14e e09f3e 7a4a33")
    green = pick(rng, "5b9a5b 6fa04c 3f7d63")
    if rng.random() < 0.75:
        bend = rng.uniform(-0.07, 0.07)
        stem = corners((bend - 0.025, 0.5), (bend + 0.025, 0.5), (0.022, -0.1), (-0.022, -0.1))
        drawing = [Patch(stem, green), Patch(oval(0.13, 0.3, 0.14, 0.055, -0.6), green)]
        drawing.append(Patch(oval(-0.12, 0.36, 0.13, 0.05, 0.6), shade(green, 0.85)))
        y, size = -0.19, 0.31
    else:
        drawing, y, size = [], 0.0, 0.5
    if drawing and rng.random() < 0.3:
        drawing.append(
            Patch(smooth((0, -0.46), (0.13, -0.2), (0.1, -0.02), (-0.1, -0.02), (-0.13, -0.2)), petal)
        )
        for side in (-1, 1):
            leaf = smooth(
                (side * 0.21, -0.42), (side * 0.2, -0.12), (side * 0.06, 0.03), (-side * 0.04, -0.08)
            )
            drawing.append(Patch(leaf, shade(petal, 0.86 if side > 0 else 1.12)))
        return drawing
    count, start = int(rng.integers(5, 10)), rng.uniform(0, 1)
    broad = size * 1.75 / count
    for turn in np.arange(count) * 2 * np.pi / count + start:
        x, dy = float(np.cos(turn)), float(np.sin(turn))
        leaf = oval(x * size * 0.6, y + dy * size * 0.6, size * 0.4, broad, float(turn))
        drawing.append(Patch(leaf, shade(petal, 1.08 if dy < 0 else 0.9)))
    drawing.append(Patch(oval(0, y, size * 0.32, size * 0.32), shade(heart, 0.85)))
    drawing.append(Patch(oval(-size * 0.03, y - size * 0.04, size * 0.25, size * 0.25), heart))
    return drawing


def mushroom(rng: Random) -> Drawing:
    """A mushroom: flat or pointed cap, with or without spots."""
    cap = pick(rng, "c8423d b0633c d98e3f 8a6aa8 c9a27a d1495b e0b354")
    stem = pick(rng, "f3e3c7 f6efe3 e6d3b8")
    wide, rim = rng.uniform(0.33, 0.48), rng.uniform(-0.02, 0.08)
    top = rng.uniform(-0.5, -0.34)
    foot = rng.uniform(0.09, 0.14)
    drawing = [
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
    drawing += [Patch(dome, shade(cap, 0.86)), Patch(dome * (0.86, 0.9) + (-0.035, -0.03), cap)]
    if rng.random() < 0.65:
        spots = (
            (-0.5, 0.3, 0.06),
            (0.05, 0.66, 0.075),
            (0.48, 0.35, 0.06),
            (-0.1, 0.2, 0.045),
            (-0.36, 0.62, 0.035),
        )
        for x, height, radius in spots:
            drawing.append(
                Patch(oval(x * wide, rim + (top - rim) * height, radius, radius * 0.8), shade(stem, 1.3))
            )
    return drawing


def sun(rng: Random) -> Drawing:
    """A sun: pointed rays, round rays or a plain disc; some smile."""
    gold = pick(rng, "f7c948 f2a65a f9d976 ef8354 f6bd60")
    kind = int(rng.integers(3))
    drawing: Drawing = []
    disc = 0.3 if kind < 2 else 0.42
    if kind < 2:
        count, start = int(rng.integers(8, 15)), rng.uniform(0, 1)
        for turn in np.arange(count) * 2 * np.pi / count + start:
            c, s = float(np.cos(turn)), float(np.sin(turn))
            if kind == 0:
                foot = 0.9 / count
                sides = corners((0.3, -foot), (0.5, 0), (0.3, foot)) @ np.array([[c, s], [-s, c]])
                drawing.append(Patch(sides, shade(gold, 0.94), True))
            else:
                drawing.append(Patch(oval(c * 0.42, s * 0.42, 0.075, 0.3 / count, float(turn)), gold, True))
    else:
        drawing.append(Patch(oval(0, 0, 0.5, 0.5), shade(gold, 1.35), True))
    drawing.append(Patch(oval(0, 0, disc, disc), gold, True))
    drawing.append(Patch(oval(-disc * 0.1, -disc * 0.12, disc * 0.78, disc * 0.78), shade(gold, 1.22), True))
    return drawing + (_smile(disc, shade(gold, 0.5)) if rng.random() < 0.3 else [])


def moon(rng: Random) -> Drawing:
    """A crescent, a gibbous or a full moon with craters."""
    pale = pick(rng, "f4e9c1 f7d774 e8ecf2 f2b880 d7dcea")
    if rng.random() < 0.65:
        turns = np.linspace(-np.pi / 2, np.pi / 2, 20)
        rim = np.stack([-np.cos(turns), np.sin(turns)], axis=1)
        shadow = np.stack([-rng.uniform(0.0, 0.5) * np.cos(turns), np.sin(turns)], axis=1)[::-1]
        crescent = 0.48 * np.concatenate([rim, shadow]) + (0.2, 0.0)
        return [Patch(crescent, pale, True), Patch(oval(-0.16, 0.1, 0.045, 0.06), shade(pale, 0.88), True)]
    drawing = [Patch(oval(0, 0, 0.48, 0.48), pale, True)]
    for x, y, radius in ((-0.18, -0.14, 0.11), (0.16, 0.1, 0.14), (0.14, -0.24, 0.06), (-0.16, 0.22, 0.08)):
        drawing.append(Patch(oval(x, y, radius, radius), shade(pale, 0.87), True))
    return drawing


def star(rng: Random) -> Drawing:
    """A star of four to six points."""
    light = pick(rng, "f9d976 fdf0c8 cfe3ff f7c948 f5c6d6 f2a65a")
    count = (4, 5, 5, 5, 6)[int(rng.integers(5))]
    waist = rng.uniform(0.15, 0.19) if count == 4 else rng.uniform(0.2, 0.28)
    turns = np.arange(2 * count) * np.pi / count - np.pi / 2
    radius = np.where(np.arange(2 * count) % 2 == 0, 0.5, waist)[:, None]
    outline = radius * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    return [Patch(outline, light, True), Patch(outline * 0.55, shade(light, 1.45), True)]


def cloud(rng: Random) -> Drawing:
    """A cloud of four to six puffs."""
    white = pick(rng, "fdfdfd f4f1ee e3e8f0 f7dfe0 d6d3e6 c9d3dc")
    count = int(rng.integers(3, 6))
    places = np.linspace(-0.27, 0.27, count) + rng.uniform(-0.03, 0.03, count)
    puffs = [(float(x), 0.02 - 0.12 * (1 - (x / 0.3) ** 2), rng.uniform(0.13, 0.2)) for x in places]
    drawing = [Patch(oval(x, y + 0.04, r, r * 0.95), shade(white, 0.87)) for x, y, r in puffs]
    drawing.append(Patch(oval(0, 0.12, 0.46, 0.09), shade(white, 0.87)))
    drawing.append(Patch(oval(-0.01, 0.085, 0.43, 0.08), white))
    drawing += [Patch(oval(x - 0.01, y, r * 0.92, r * 0.88), white) for x, y, r in puffs]
    return drawing


def bird(rng: Random) -> Drawing:
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
    drawing = [
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
            drawing.insert(0, Patch(corners((x, 0.15), (x + 0.03, 0.15), (x + 0.02, 0.36), (x, 0.36)), beak))
    drawing.append(Patch(wing, shade(coat, 0.72)))
    return drawing + eye(0.22, -0.18, 0.05)


def balloon(rng: Random) -> Drawing:
    """A hot-air balloon with colored gores."""
    first = pick(rng, "d1495b f2c14e 4a6fa5 6fa04c ef8354 9b72cf e57ba0")
    second = pick(rng, "fbf6ec f2c14e 5b8fc9 f5b7c5 4f8f8b d1495b")
    wide = rng.uniform(0.3, 0.38)
    half = ((wide * 0.82, -0.38), (wide, -0.16), (wide * 0.62, 0.1), (0.08, 0.24))
    bag = smooth((0, -0.5), *half, *((-x, y) for x, y in reversed(half)))
    drawing = [
        Patch(corners((-0.08, 0.22), (-0.06, 0.22), (-0.04, 0.4), (-0.06, 0.4)), INK),
        Patch(corners((0.08, 0.22), (0.06, 0.22), (0.04, 0.4), (0.06, 0.4)), INK),
        Patch(block(-0.075, 0.36, 0.075, 0.5), pick(rng, "8a6d5a b0824f 7b5b45")),
        Patch(bag, first),
        Patch(bag * (0.7, 1.0), second),
        Patch(bag * (0.36, 1.0), first),
    ]
    if rng.random() < 0.4:
        edge = wide * 0.9
        drawing.append(
            Patch(
                smooth((-edge, -0.2), (0, -0.15), (edge, -0.2), (edge, -0.11), (0, -0.05), (-edge, -0.11)),
                shade(second, 0.85),
            )
        )
    return drawing


def _smile(radius: float, ink: Color) -> Drawing:
    mouth = smooth((-0.4, 0.2), (0.0, 0.5), (0.4, 0.2), (0.0, 0.62)) * radius
    eyes = [oval(side * 0.35 * radius, -0.15 * radius, 0.1 * radius, 0.14 * radius) for side in (-1, 1)]
    return [Patch(points, ink, True) for points in (mouth, *eyes)]


def fish(rng: Random) -> Drawing:
    """A fish: slim or round, plain or striped."""
    scales = pick(rng, "ef8354 f2c14e 5b8fc9 4f8f8b d1495b 9b72cf e57ba0 7fb7be a3b18a")
    fin = (
        shade(scales, rng.uniform(0.72, 0.85))
        if rng.random() < 0.6
        else pick(rng, "f2c14e ef8354 4a6fa5 e57ba0")
    )
    tall = rng.uniform(0.17, 0.29)
    fork = rng.uniform(0.14, 0.24)
    drawing = [
        Patch(corners((-0.18, 0), (-0.48, -fork), (-0.4, 0), (-0.48, fork)), fin),
        Patch(
            smooth((-0.14, -tall * 0.6), (0.0, -tall * 1.45), (0.2, -tall * 0.8), (0.05, -tall * 0.4)), fin
        ),
        Patch(smooth((-0.02, tall * 0.6), (-0.06, tall * 1.4), (0.14, tall * 0.8)), fin),
        Patch(
            smooth(
                (0.5, 0.01), (0.25, -tall * 0.9), (-0.05, -tall), (-0.3, 0), (-0.05, tall), (0.25, tall * 0.9)
            ),
            scales,
        ),
        Patch(
            smooth((0.4, 0.06), (0.1, tall * 0.45), (-0.2, 0.02), (-0.04, tall * 0.9), (0.24, tall * 0.8)),
            shade(scales, 1.35),
        ),
    ]
    if rng.random() < 0.5:
        band = shade(scales, 1.6) if rng.random() < 0.5 else shade(scales, 0.68)
        for x, high in ((-0.1, 0.72), (0.05, 0.86), (0.18, 0.8)):
            drawing.append(Patch(oval(x, -0.01, 0.027, tall * high), band))
    drawing.append(Patch(smooth((0.08, 0.0), (-0.06, 0.1), (-0.08, 0.02)), fin))
    return drawing + eye(0.31, -tall * 0.25, 0.055)


def boat(rng: Random) -> Drawing:
    """A sailing boat with one or two sails, or a steamer."""
    wood = pick(rng, "8a4b32 b5533c 4a6fa5 3f7d80 f3e3c7 6b4f4f d98e3f")
    cloth = pick(rng, "fbf6ec f3e3c7 e8b4a0 d1495b f2c14e b9cfdc")
    hull = smooth((-0.44, 0.22), (0.0, 0.24), (0.47, 0.2), (0.32, 0.43), (0.0, 0.47), (-0.3, 0.43))
    band = Patch(corners((-0.41, 0.27), (0.42, 0.27), (0.4, 0.32), (-0.39, 0.32)), shade(wood, 1.45))
    if rng.random() < 0.65:
        lean = rng.uniform(0.24, 0.38)
        drawing = [
            Patch(block(-0.03, -0.48, 0.0, 0.26), shade(wood, 0.6)),
            Patch(smooth((0.02, -0.45), (0.1, -0.2), (lean, 0.14), (0.16, 0.17), (0.02, 0.16)), cloth),
            Patch(corners((-0.03, -0.48), (-0.16, -0.44), (-0.03, -0.4)), shade(wood, 1.1)),
        ]
        if rng.random() < 0.7:
            drawing.append(
                Patch(smooth((-0.05, -0.36), (-0.06, 0.15), (-0.3, 0.15), (-0.16, -0.1)), shade(cloth, 0.86))
            )
        return [*drawing, Patch(hull, wood), band]
    funnel = pick(rng, "c8553d 5f6b7a f2c14e")
    drawing = [
        Patch(block(-0.04, -0.34, 0.1, 0.05), funnel),
        Patch(block(-0.04, -0.34, 0.1, -0.25), shade(funnel, 0.6)),
        Patch(block(-0.28, -0.03, 0.27, 0.26), cloth),
        Patch(block(-0.31, -0.06, 0.3, -0.01), shade(cloth, 0.8)),
        Patch(hull, wood),
        band,
    ]
    return drawing + [Patch(oval(x, 0.1, 0.05, 0.05), (96.0, 132.0, 158.0)) for x in (-0.17, 0.0, 0.17)]
