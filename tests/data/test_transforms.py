import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from sparselabel.config import Views
from sparselabel.data.transforms import (
    TrackedTransform,
    View,
    draw,
    imagenet_test,
    imagenet_train,
    render,
    squashed,
    verelst_train,
    views_of,
)
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError

WHOLE = np.array([0.0, 0.0, 1.0, 1.0, 0.0])


def smooth(height: int, width: int) -> npt.NDArray[np.uint8]:
    """A colorful image without sharp edges, which JPEG keeps."""
    y, x = np.mgrid[:height, :width] / np.array([height, width])[:, None, None]
    waves = [np.sin(5 * x + 3 * y), np.cos(7 * y), np.sin(4 * x * y + 1)]
    return np.stack([127 + 100 * wave for wave in waves], axis=-1).astype(np.uint8)


def draws(view: View, count: int, width: int = 500, height: int = 375) -> npt.NDArray[np.float64]:
    return np.stack([draw(view, (7, 0, row, 0), width, height) for row in range(count)])


# Views


def test_views_that_do_not_crop() -> None:
    assert draw(squashed(448), (0, 0, 0, 0), 500, 375).tolist() == WHOLE.tolist()
    flips = draws(View(448, flip=0.5), 400)
    assert (flips[:, :4] == WHOLE[:4]).all()
    assert 0.4 < flips[:, 4].mean() < 0.6
    assert set(flips[:, 4]) == {0.0, 1.0}
    assert draws(View(8, flip=1.0), 20)[:, 4].all()


def test_imagenet_test_is_the_central_square() -> None:
    # Short side 256 of 400 × 256: the central 224 × 224 pixels.
    numbers = draw(imagenet_test(), (0, 0, 0, 0), 400, 256)
    assert numbers == pytest.approx([88 / 400, 16 / 256, 224 / 400, 224 / 256, 0])
    numbers = draw(imagenet_test(), (0, 0, 0, 0), 300, 600)
    assert numbers == pytest.approx([1 / 16, 1 / 4 + 1 / 32, 7 / 8, 7 / 16, 0])


def test_p1_crops_are_square_in_the_unit_square_and_uniform_in_area() -> None:
    left, top, width, height, flip = draws(verelst_train(), 2000).T
    assert (width == height).all()
    area = width * height
    assert area.min() >= 0.25
    assert area.max() <= 1
    quarters = np.histogram(area, bins=4, range=(0.25, 1))[0] / len(area)
    assert quarters == pytest.approx([0.25] * 4, abs=0.04)
    for start, length in ((left, width), (top, height)):
        free = start / (1 - length)
        assert free.min() >= 0
        assert free.max() <= 1
        assert np.mean(free) == pytest.approx(0.5, abs=0.03)
    assert flip.mean() == pytest.approx(0.5, abs=0.04)


def test_a_ratio_is_width_by_height() -> None:
    squashed_twice_as_wide = draws(View(8, area=(0.1, 0.3), ratio=(2.0, 2.0)), 20)
    assert squashed_twice_as_wide[:, 2] == pytest.approx(2 * squashed_twice_as_wide[:, 3])
    in_pixels = draws(View(8, area=(0.1, 0.3), ratio=(2.0, 2.0), squash=False), 20, width=300, height=200)
    assert in_pixels[:, 2] * 300 == pytest.approx(2 * in_pixels[:, 3] * 200)


@settings(max_examples=50)
@given(st.integers(1, 2000), st.integers(1, 2000), st.integers(0, 10**9))
def test_imagenet_crops_follow_the_images_pixels(width: int, height: int, row: int) -> None:
    numbers = draw(imagenet_train(), (0, 1, row, 0), width, height)
    left, top, wide, high = numbers[:4] * [width, height, width, height]
    assert 3 / 4 - 1e-9 <= wide / high <= 4 / 3 + 1e-9
    assert min(left, top) >= 0
    assert left + wide <= width * (1 + 1e-9)
    assert top + high <= height * (1 + 1e-9)


def test_a_crop_that_never_fits_is_central() -> None:
    view = View(224, area=(0.9, 1.0), ratio=(3 / 4, 4 / 3), squash=False)
    # 1000 × 100 pixels hold no crop of 90 % of the area in these ratios: all of the height, 4/3 of it wide.
    numbers = draw(view, (0, 0, 0, 0), 1000, 100)
    assert numbers[:4] == pytest.approx([0.5 - 1 / 15, 0, 2 / 15, 1])
    numbers = draw(view, (0, 0, 0, 0), 100, 1000)
    assert numbers[:4] == pytest.approx([0, 0.5 - 1 / 15, 1, 2 / 15])


def test_a_draw_depends_on_its_key_alone() -> None:
    view = imagenet_train()
    keys = [(s, e, r, v) for s in range(2) for e in range(3) for r in (0, 5, 10**7) for v in range(2)]
    first = np.stack([draw(view, key, 640, 480) for key in keys])
    np.random.default_rng(1).shuffle(shuffled := list(range(len(keys))))
    again = np.stack([draw(view, keys[i], 640, 480) for i in shuffled])
    assert (again == first[shuffled]).all()
    assert len(np.unique(first[:, 0])) == len(keys)


def test_a_draw_stays_the_same_over_versions() -> None:
    expected = [0.43534463174285043, 0.22776351262143174, 0.5094374719646964, 0.5094374719646964, 0]
    assert draw(verelst_train(), (1, 2, 3, 0), 500, 375) == pytest.approx(expected, abs=1e-12)


def test_enough_detail() -> None:
    assert squashed(448).at_least == 896  # twice the view
    assert verelst_train(448).at_least == 896  # the smallest crop is half a side
    assert View(100, area=(0.01, 1.0)).at_least == 1000
    assert imagenet_train(224).at_least == math.ceil(224 / math.sqrt(0.08 * 3 / 4))


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"size": 0}, "size must be at least 1 pixel, not 0"),
        ({"area": (0.0, 1.0)}, r"area must be a range within 0..1, not \(0.0, 1.0\)"),
        ({"area": (0.8, 0.5)}, "area must be"),
        ({"area": (0.5, 1.5)}, "area must be"),
        ({"area": (0.5, 1.0), "ratio": (2.0, 1.0)}, "ratio must be a range above 0"),
        ({"flip": 1.5}, "flip must be a probability, not 1.5"),
        ({"center": 0.0}, "center must be above 0"),
        ({"center": 0.5, "area": (0.5, 1.0)}, "center must be 1 where area is below 1, not 0.5"),
        ({"ratio": (0.5, 2.0)}, r"ratio must be \(1, 1\) where area is"),
    ],
)
def test_wrong_views_are_refused(fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        View(**{"size": 8, **fields})


# Rendering


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_rendering_is_what_frame_cuts(seed: int, flip: bool) -> None:
    random = np.random.default_rng(seed)
    wide, high = random.uniform(0.05, 1, 2)
    numbers = np.array([random.uniform(0, 1 - wide), random.uniform(0, 1 - high), wide, high, flip])
    pixels = random.integers(0, 256, (40, 56, 3), dtype=np.uint8)
    view = render(Image.fromarray(pixels), numbers, 24)
    grids = torch.from_numpy(pixels).double().permute(2, 0, 1)[None]
    expected = ViewGeometry.from_params(numbers[None]).crop_maps(grids, (24, 24))[0].numpy()
    assert np.abs(view - expected).max() < 1.1  # Pillow rounds twice, once for each axis


def test_rendering_takes_pixels_as_they_are() -> None:
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    view = render(Image.fromarray(pixels), np.array([1 / 6, 0.25, 0.5, 0.75, 0]), 3)
    assert view.dtype == np.uint8
    assert view.flags.c_contiguous
    assert (view == pixels[1:4, 1:4].transpose(2, 0, 1)).all()
    mirrored = render(Image.fromarray(pixels), np.array([1 / 6, 0.25, 0.5, 0.75, 1]), 3)
    assert (mirrored == view[:, :, ::-1]).all()


def test_a_rounding_error_beyond_the_edge_is_forgiven() -> None:
    image = Image.fromarray(smooth(30, 30))
    over = np.array([-1e-9, -1e-9, 1 + 2e-9, 1 + 2e-9, 0])
    assert (render(image, over, 8) == render(image, WHOLE, 8)).all()


def test_views_do_not_need_torch() -> None:
    code = "import sys, sparselabel.data.transforms; sys.exit('torch' in sys.modules)"
    source = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **source}, check=False)
    assert done.returncode == 0


def test_the_configuration_chooses_the_presets() -> None:
    assert views_of(Views(size=448)) == (verelst_train(448), squashed(448))
    assert views_of(Views(size=448, smallest_crop=1.0)) == (View(448, flip=0.5), squashed(448))
    published = Views(size=224, geometry="imagenet", smallest_crop=0.08)
    assert views_of(published) == (imagenet_train(224), imagenet_test(224))
    uncropped = Views(size=224, geometry="imagenet", smallest_crop=1.0, flip=0.25)
    assert views_of(uncropped) == (replace(imagenet_test(224), flip=0.25), imagenet_test(224))


# Pipelines of somebody else


@pytest.mark.parametrize("size", [16, 300])
@pytest.mark.parametrize("flip", ["no", "before", "after"])
def test_a_pipeline_is_followed(flip: str, size: int) -> None:
    mirror = v2.RandomHorizontalFlip(1.0)

    def crop(*inputs: Any) -> list[Any]:
        return [tv.resized_crop(one, 10, 20, 60, 90, [size, size]) for one in inputs]

    moves = {"no": [crop], "before": [mirror, crop], "after": [crop, mirror]}[flip]
    colors = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)]
    pipeline = v2.Compose([*moves, v2.ColorJitter(0.3), *colors, v2.RandomErasing(1.0), v2.ToPureTensor()])
    view, parameters = TrackedTransform(pipeline)(smooth(100, 200))
    left = 200 - 20 - 90 if flip == "before" else 20
    pixels = parameters[:4] * torch.tensor([200, 100, 200, 100])
    cell = max(1.0, 90 / size)
    assert torch.allclose(pixels, torch.tensor([left, 10.0, 90.0, 60.0]), atol=cell)
    assert bool(parameters[4]) == (flip != "no")
    assert view.shape == (3, size, size)
    assert len(ViewGeometry.from_params(parameters[None])) == 1


def test_a_tracked_view_is_the_pipelines_own() -> None:
    pipeline, image = v2.RandomResizedCrop(24), torch.from_numpy(smooth(40, 60)).permute(2, 0, 1)
    torch.manual_seed(3)
    alone = pipeline(image)
    torch.manual_seed(3)
    assert torch.equal(TrackedTransform(pipeline)(image)[0], alone)


@pytest.mark.parametrize(
    "transform",
    [v2.RandomRotation((5, 5)), v2.Pad(4), v2.RandomVerticalFlip(1.0), v2.RandomPerspective(p=1.0)],
)
def test_a_view_that_is_no_crop_is_refused(transform: Any) -> None:
    with pytest.raises(ConfigError, match="not a crop of the image") as refused:
        TrackedTransform(transform)(Image.fromarray(smooth(40, 60)))
    assert refused.value.what == "transform"


@pytest.mark.parametrize("transform", [v1.Compose([v1.RandomCrop(8)]), v2.RandAugment()])
def test_a_transform_without_masks_is_refused(transform: Any) -> None:
    with pytest.raises(ConfigError, match="does not take an image with masks") as refused:
        TrackedTransform(transform)(Image.fromarray(smooth(40, 60)))
    assert refused.value.value == type(transform).__name__
