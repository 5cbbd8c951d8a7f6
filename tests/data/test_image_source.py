from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sparselabel.data.image_source import ImageSource, as_image
from sparselabel.errors import DataError

PIXELS = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3) * 4


@pytest.mark.parametrize(
    "given",
    [
        PIXELS,
        PIXELS.transpose(2, 0, 1),
        torch.from_numpy(PIXELS).permute(2, 0, 1),
        PIXELS / np.float32(255),
        torch.from_numpy(PIXELS).permute(2, 0, 1).double() / 255,
        Image.fromarray(PIXELS),
    ],
)
def test_every_kind_of_image_is_the_same(given: Any) -> None:
    assert (np.asarray(as_image(given)) == PIXELS).all()


def test_gray_becomes_rgb() -> None:
    assert np.asarray(as_image(PIXELS[..., 0]))[1, 2].tolist() == [PIXELS[1, 2, 0]] * 3
    assert np.asarray(as_image(PIXELS[..., :1]))[1, 2].tolist() == [PIXELS[1, 2, 0]] * 3


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (PIXELS.astype(np.float32), (0.0, 236.0)),
        (PIXELS.astype(np.int64), (0.0, 236.0)),
        (PIXELS / 255 - 0.5, (-0.5, pytest.approx(236 / 255 - 0.5))),
        (np.zeros((2, 4, 5, 3), np.uint8), (2, 4, 5, 3)),
        (np.zeros((5, 5, 7), np.uint8), (5, 5, 7)),
    ],
)
def test_other_numbers_are_refused(given: Any, value: Any) -> None:
    with pytest.raises(DataError) as error:
        as_image(given)
    assert (error.value.what, error.value.value) == ("image", value)


def test_an_image_that_cannot_be_had_is_named() -> None:
    source = ImageSource([PIXELS, "a.jpg"], np.array([1, 0]))
    with pytest.raises(DataError, match="image 1 cannot be read") as error:
        source[0]
    assert (error.value.what, error.value.where) == ("images", 1)
    assert source.take(np.array([1]))[0].size == (5, 4)
