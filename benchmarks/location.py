"""mAP-loc at the size of COCO's val2014 (40,137 images, 292,000 masks, 14 × 14 cells), beside a plain way.

The plain way looks at one image after the other: it decodes every mask, joins those of a class and averages
the pixels of each cell. It is timed on 500 images, and the ratio is that of an image's time. As many boxes
as masks are evaluated beside them.
"""

import time
import warnings
from pathlib import Path

import numpy as np
import torch
from pycocotools import mask as run_lengths

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.label_table import LabelTable
from sparselabel.data.masks import MaskColumns
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.metrics.localization import GroundTruth, LocalizationMetric, enough
from sparselabel.models.classifier import Output

IMAGES, CLASSES, SAMPLE, BATCH = 40_137, 80, 500, 32
HEIGHT, WIDTH, GRID = 448, 644, (14, 14)


def made_up(random: np.random.Generator) -> PreparedSplit:
    truth = (random.random((IMAGES, CLASSES)) < 2.9 / CLASSES).astype(np.int8)
    rows, classes = np.nonzero(truth)
    times = random.geometric(1 / 2.51, len(rows))
    rows, things = np.repeat(rows, times), np.repeat(classes, times).astype(np.int32)
    shapes = [run_lengths.frPyObjects([_outline(random)], HEIGHT, WIDTH)[0] for _ in range(500)]
    columns = MaskColumns()
    for shape in random.integers(0, len(shapes), len(rows)).tolist():
        columns.add(shapes[shape])
    places = random.uniform(0.2, 0.8, (len(rows), 2)).astype(np.float32)
    sizes = random.uniform(0.01, 0.4, (len(rows), 2)).astype(np.float32)
    spatial_labels = SpatialLabels(rows, things, places, sizes, check=False)
    names = np.arange(IMAGES).astype(np.str_)
    labels = LabelTable(names, tuple(map(str, range(CLASSES))), truth, check=False)
    digests = np.zeros(IMAGES, np.uint64)
    return PreparedSplit(
        "test", Path(), names, labels, labels, spatial_labels, digests, "", masks=columns.build()
    )


def _outline(random: np.random.Generator) -> list[float]:
    """Forty corners around a random place; sizes as varied as COCO's."""
    angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    radius = np.exp(random.normal(3.4, 0.9)) * random.uniform(0.7, 1.3, 40)
    center = random.uniform(0, (WIDTH, HEIGHT))
    corners = center + radius[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
    return [float(number) for number in np.clip(corners, 0, (WIDTH, HEIGHT)).ravel()]


def plainly(part: PreparedSplit, maps: torch.Tensor) -> np.ndarray:
    """Whether each class of the first images is shown well."""
    right = []
    for row in range(SAMPLE):
        things = part.spatial_labels.of_rows([row])[0]
        for index in np.unique(part.spatial_labels.classes[things]):
            same = things[part.spatial_labels.classes[things] == index]
            pixels = np.zeros((HEIGHT, WIDTH), np.bool_)
            for spatial_label in same:
                pixels |= run_lengths.decode(part.masks.rle(spatial_label)).astype(np.bool_)  # type: ignore[union-attr]
            covered = pixels.reshape(GRID[0], HEIGHT // GRID[0], GRID[1], -1).mean(axis=(1, 3))
            shown = maps[row % BATCH, index].numpy()
            scaled = (shown - shown.min()) / (shown.max() - shown.min())
            right.append([covered[scaled >= cut].mean() >= 0.5 for cut in (0.6, 0.7, 0.8, 0.9)])
    return np.array(right)


def evaluated(
    part: PreparedSplit, ground_truth: GroundTruth, maps: torch.Tensor
) -> tuple[LocalizationMetric, float]:
    """All images, and how many seconds that took."""
    begin = time.perf_counter()
    located = LocalizationMetric(part, ground_truth)
    for start in range(0, IMAGES, BATCH):
        rows = torch.arange(start, min(start + BATCH, IMAGES))
        located.update(
            rows, Output(maps[: len(rows), :, 0, 0], maps[: len(rows)]), ViewGeometry.whole(len(rows))
        )
    return located, time.perf_counter() - begin


def main() -> dict[str, float]:
    random = np.random.default_rng(0)
    part = made_up(random)
    maps = torch.from_numpy(random.random((BATCH, CLASSES, *GRID)).astype(np.float32))
    scores = random.random((IMAGES, CLASSES)).astype(np.float32)
    located, evaluating = evaluated(part, "any", maps)
    _, by_boxes = evaluated(part, "boxes", maps)
    begin = time.perf_counter()
    located.compute(scores)
    ranking = time.perf_counter() - begin
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pycocotools with numpy 2
        first = time.perf_counter()
        expected = plainly(part, maps)
        plain = (time.perf_counter() - first) / SAMPLE
    ours = enough(located.shares[: len(expected)])
    return {
        "masks": float(len(part.spatial_labels)),
        "evaluating all maps, s": evaluating,
        "evaluating all maps by boxes, s": by_boxes,
        "ranking, s": ranking,
        "time an image, of the plain way's": evaluating / IMAGES / plain,
        "evaluated otherwise, of the sample": float(np.mean(ours != expected)),
    }
