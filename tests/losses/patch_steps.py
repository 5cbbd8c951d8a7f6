"""A step of three images with cells, a point, and the losses of PatchML's paper by hand."""

import math

import numpy as np
import torch
from torch import Tensor

from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.step import Progress, Step
from sparselabel.models.classifier import Output

PROGRESS = Progress(1, 10, 0, 0.1)
FIRST = Progress(0, 10, 0, 0.1)
# Three images, three classes. Image 0: class 0 there with a point, class 1 absent. Image 1: class 2
# there, without a point. Image 2 has no label: it is D^u.
OBSERVED = torch.tensor([[1, 0, -1], [-1, -1, 1], [-1, -1, -1]], dtype=torch.int8)
ZERO = np.zeros((1, 2), np.float32)
POINT = SpatialLabels(np.array([0]), np.array([0], np.int32), np.array([[0.75, 0.25]], np.float32), ZERO)
MAPS = torch.tensor(
    [
        [[[0.0, 2.0], [-1.0, 1.0]], [[1.0, -1.0], [0.0, 0.5]], [[0.0, 0.0], [0.0, 0.0]]],
        [[[3.0, 1.0], [0.0, 0.0]], [[-2.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [2.0, -1.0]]],
        [[[5.0, 5.0], [5.0, 5.0]], [[-4.0, 0.0], [0.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]],
    ],
    dtype=torch.float64,
)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def focal(p: float, gamma: float) -> float:
    """PatchML's L_F with its sign: −(1−p)^γ log p."""
    return -float((1 - p) ** gamma) * math.log(p)


def step(
    maps: Tensor = MAPS,
    observed: Tensor = OBSERVED,
    spatial_labels: SpatialLabels = POINT,
    features: Tensor | None = None,
    progress: Progress = PROGRESS,
    rows: Tensor | None = None,
) -> Step:
    rows = torch.arange(len(maps)) if rows is None else rows
    output = Output(maps.mean(dim=(2, 3)), maps, features)
    return Step(rows, observed, (output,), (ViewGeometry.whole(len(maps)),), progress, spatial_labels)


def losses_of(method: ComposedLoss, **changes: object) -> dict[str, float]:
    losses = method(step(**changes))  # type: ignore[arg-type]
    return {name: float(value) for name, value in losses.items()}


F = torch.sigmoid(MAPS.mean(dim=(2, 3))).tolist()  # image scores
SEEN = [focal(F[0][0], 0), focal(1 - F[0][1], 1), focal(F[1][2], 0)]  # the three observed entries
