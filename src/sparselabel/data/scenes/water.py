"""Things of the sea: fish and boat."""

from sparselabel.data.scenes.shapes import (
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


def fish(rng: Random) -> Thing:
    """A fish: slim or round, plain or striped."""
    scales = pick(rng, "ef8354 f2c14e 5b8fc9 4f8f8b d1495b 9b72cf e57ba0 7fb7be a3b18a")
    fin = (
        shade(scales, rng.uniform(0.72, 0.85))
        if rng.random() < 0.6
        else pick(rng, "f2c14e ef8354 4a6fa5 e57ba0")
    )
    tall = rng.uniform(0.17, 0.29)
    fork = rng.uniform(0.14, 0.24)
    thing = [
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
            thing.append(Patch(oval(x, -0.01, 0.027, tall * high), band))
    thing.append(Patch(smooth((0.08, 0.0), (-0.06, 0.1), (-0.08, 0.02)), fin))
    return thing + eye(0.31, -tall * 0.25, 0.055)


def boat(rng: Random) -> Thing:
    """A sailing boat with one or two sails, or a steamer."""
    wood = pick(rng, "8a4b32 b5533c 4a6fa5 3f7d80 f3e3c7 6b4f4f d98e3f")
    cloth = pick(rng, "fbf6ec f3e3c7 e8b4a0 d1495b f2c14e b9cfdc")
    hull = smooth((-0.44, 0.22), (0.0, 0.24), (0.47, 0.2), (0.32, 0.43), (0.0, 0.47), (-0.3, 0.43))
    band = Patch(corners((-0.41, 0.27), (0.42, 0.27), (0.4, 0.32), (-0.39, 0.32)), shade(wood, 1.45))
    if rng.random() < 0.65:
        lean = rng.uniform(0.24, 0.38)
        thing = [
            Patch(block(-0.03, -0.48, 0.0, 0.26), shade(wood, 0.6)),
            Patch(smooth((0.02, -0.45), (0.1, -0.2), (lean, 0.14), (0.16, 0.17), (0.02, 0.16)), cloth),
            Patch(corners((-0.03, -0.48), (-0.16, -0.44), (-0.03, -0.4)), shade(wood, 1.1)),
        ]
        if rng.random() < 0.7:
            thing.append(
                Patch(smooth((-0.05, -0.36), (-0.06, 0.15), (-0.3, 0.15), (-0.16, -0.1)), shade(cloth, 0.86))
            )
        return [*thing, Patch(hull, wood), band]
    funnel = pick(rng, "c8553d 5f6b7a f2c14e")
    thing = [
        Patch(block(-0.04, -0.34, 0.1, 0.05), funnel),
        Patch(block(-0.04, -0.34, 0.1, -0.25), shade(funnel, 0.6)),
        Patch(block(-0.28, -0.03, 0.27, 0.26), cloth),
        Patch(block(-0.31, -0.06, 0.3, -0.01), shade(cloth, 0.8)),
        Patch(hull, wood),
        band,
    ]
    return thing + [Patch(oval(x, 0.1, 0.05, 0.05), (96.0, 132.0, 158.0)) for x in (-0.17, 0.0, 0.17)]
