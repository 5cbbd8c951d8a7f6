"""Evaluation's view of a whole picture as part of a network: what Pillow does, in operations of torch.

Pillow's antialiased bilinear resampling is a product with a matrix along each axis, rounded after each. It is
made of tensors alone, so that an exported graph takes pictures of any size.
"""

import torch
from torch import Tensor


def seen(pictures: Tensor, size: int, centre: float | None) -> Tensor:
    """(B, 3, size, size) uint8 of whole pictures (B, H, W, 3) uint8.

    The whole picture is squashed into the square, or, if ``centre`` is given, a central square whose side is
    that share of the short side. Differs from ``data.augment.render`` by a grey level here and there.
    """
    height, width = (_positions(pictures, axis) for axis in (1, 2))
    high, wide = height[-1] + 0.5, width[-1] + 0.5  # as tensors: a size that is a number would be fixed
    down, across = high, wide
    if centre is not None:
        down = across = centre * torch.minimum(high, wide)
    pixels = pictures.permute(0, 3, 1, 2).float()
    rows = _rounded(pixels @ _weights(width, (wide - across) / 2, across, size).T)
    return _rounded(_weights(height, (high - down) / 2, down, size) @ rows).to(torch.uint8)


def _positions(pictures: Tensor, axis: int) -> Tensor:
    """The middles of pixels along an axis."""
    count = pictures.shape[axis]
    return torch.arange(count, dtype=torch.float32, device=pictures.device) + 0.5


def _weights(pixels: Tensor, start: Tensor, length: Tensor, size: int) -> Tensor:
    """(size, pixels) How much of each pixel a place of the view has: a triangle as wide as its share."""
    scale = length / size
    middles = start + (torch.arange(size, dtype=torch.float32, device=pixels.device) + 0.5) * scale
    reach = torch.clamp(scale, min=1.0)  # enlarged pictures are interpolated between neighbours
    weights = torch.clamp(1 - (pixels[None] - middles[:, None]).abs() / reach, min=0.0)
    return weights / weights.sum(dim=1, keepdim=True)


def _rounded(values: Tensor) -> Tensor:
    return torch.floor(values + 0.5)
