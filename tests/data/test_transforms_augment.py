"""RandAugment's operations as torchvision has them, and cutout."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, autoaugment

from sparselabel.data.transforms import GEOMETRIC, OPERATIONS, SIGNED, RandAugment, apply_operation


def noise(size: int = 48) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    smooth = np.random.default_rng(0).integers(0, 256, (3, 6, 6), dtype=np.uint8)
    return np.ascontiguousarray(smooth.repeat(size // 6, axis=1).repeat(size // 6, axis=2))


@pytest.mark.parametrize("magnitude", [0, 9, 30])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_those_of_torchvision(name: str, magnitude: int) -> None:
    image = Image.fromarray(noise().transpose(1, 2, 0))
    theirs = autoaugment.RandAugment()._augmentation_space(31, (48, 48))
    assert {*OPERATIONS} == {*theirs}
    strengths, signed = theirs[name]
    assert signed == (name in SIGNED)
    for sign in (1.0, -1.0) if signed else (1.0,):
        strength = sign * float(strengths[magnitude] if strengths.ndim else strengths)
        expected = autoaugment._apply_op(image, name, strength, InterpolationMode.NEAREST, None)
        ours = apply_operation(image, name, magnitude / 30, sign)
        assert np.array_equal(np.asarray(ours), np.asarray(expected))


def test_a_change_depends_on_its_key_alone() -> None:
    augment = RandAugment(operations=2, cutout=0.5)
    first, hidden = augment(noise(), (0, 3, 7, 0))
    torch.manual_seed(99)
    again, same = augment(noise(), (0, 3, 7, 0))
    assert np.array_equal(first, again)
    assert np.array_equal(hidden, same)
    others = [augment(noise(), key)[0] for key in ((1, 3, 7, 0), (0, 4, 7, 0), (0, 3, 8, 0), (0, 3, 7, 1))]
    assert not any(np.array_equal(first, other) for other in others)


def test_without_moves_every_pixel_stays_where_it_is() -> None:
    """Color operations but sharpness are functions of a pixel's value: equal pixels stay equal."""
    image = np.zeros((3, 48, 48), np.uint8)
    image[:, :, 24:] = 200
    augment = RandAugment(operations=3, magnitude=30, geometric=False)
    for row in range(40):
        view, _ = augment(image, (0, 0, row, 0))
        for side in (view[:, :, :22], view[:, :, 26:]):
            assert (side == side[:, :1, :1]).all()
    assert len(GEOMETRIC) == 5


def test_the_hole_is_told_and_covered_with_one_color() -> None:
    sizes = []
    for row in range(60):
        view, (left, top, width, height) = RandAugment(cutout=0.5)(noise(), (0, 0, row, 0))
        a, b, c, d = (round(48 * number) for number in (left, top, width, height))
        hole = view[:, b : b + d, a : a + c]
        assert (hole == hole[:, :1, :1]).all()
        outside = np.ones((48, 48), bool)
        outside[b : b + d, a : a + c] = False
        assert np.array_equal(view[:, outside], noise()[:, outside])
        sizes.append((c, d))
    assert max(sizes) == (24, 24)
    assert min(min(size) for size in sizes) >= 12  # around a point of the view: at least half of the side
