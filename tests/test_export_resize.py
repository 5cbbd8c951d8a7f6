import numpy as np
import pytest
import torch
from PIL import Image

from sparselabel.data.transforms import View, draw, imagenet_test, render, squashed
from sparselabel.export import seen


@pytest.mark.parametrize("view", [squashed(100), imagenet_test(100)], ids=["squashed", "central"])
@pytest.mark.parametrize(("width", "height"), [(500, 375), (64, 48), (30, 300), (224, 224)])
def test_it_is_what_pillow_does(view: View, width: int, height: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    pillows = render(Image.fromarray(pixels), draw(view, (0, 0, 0, 0), width, height), 100)
    ours = seen(torch.from_numpy(pixels)[None], 100, None if view.squash else view.center)[0].numpy()
    apart = np.abs(ours.astype(int) - pillows)
    assert apart.max() <= 1  # in 8 bits Pillow rounds its weights too
    assert apart.mean() < (0.3 if width < 100 else 0.02)


def test_a_image_of_the_right_size_stays_as_it_is() -> None:
    pixels = torch.randint(0, 256, (2, 40, 40, 3), dtype=torch.uint8)
    assert torch.equal(seen(pixels, 40, None), pixels.permute(0, 3, 1, 2))
