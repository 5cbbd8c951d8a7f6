"""Points and boxes in a training step, and pseudo labels by prototypes at COCO's size.

Targets: the patch loss with points and boxes adds at most 5 % to a step; prototypes and pseudo labels of
65,000 images of 196 cells for 80 classes are products of matrices whose memory does not grow with the images.
Memory is measured, on some images and on twice as many, each with features of its own, made when they are
asked for; the time for all of COCO is extrapolated from the time an image takes.
"""

import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from benchmarks.heatmaps import alternating, random_frame
from benchmarks.maps_at_full_size import most_resident, resident
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.patch_cluster import ClusterLabels
from sparselabel.losses.registry import make_method
from sparselabel.losses.step import Layout, Progress, Step
from sparselabel.models.backbone import make_backbone
from sparselabel.models.classifier import Classifier, Output
from sparselabel.models.heads import make_head
from sparselabel.resources import keep_freed_memory

ROWS, CLASSES, BATCH = 2000, 80, 8
CELLS, WIDTH = 14, 768  # DeiT-base at 224 px
COCO, SOME = 65_000, 1000
PROGRESS = Progress(epoch=1, epochs=20, head_epochs=0, lr=1e-5)


def annotated() -> tuple[torch.Tensor, SpatialLabels]:
    """Labels of which 5 % are known, and for each known positive a point, a small box and a large one."""
    random = np.random.default_rng(0)
    truth = random.random((ROWS, CLASSES)) < 2.9 / CLASSES
    known = random.random((ROWS, CLASSES)) < 0.05
    observed = np.where(known, np.where(truth, POSITIVE, NEGATIVE), UNKNOWN).astype(np.int8)
    rows, classes = np.nonzero(observed == POSITIVE)
    sizes = np.concatenate([np.full((len(rows), 2), size, np.float32) for size in (0, 0.1, 0.5)])
    centers = 0.25 + 0.5 * random.random((len(sizes), 2)).astype(np.float32)
    spatial_labels = SpatialLabels(np.tile(rows, 3), np.tile(classes, 3).astype(np.int32), centers, sizes)
    return torch.from_numpy(observed), spatial_labels


def of_training() -> dict[str, float]:
    """Whole training steps, batch 8 at 224 px: image level alone, and with patches."""
    observed, spatial_labels = annotated()
    figures = {}
    for name, head in (("mobilenetv2_100", "linear"), ("deit_tiny_patch16_224", "tscam")):
        backbone = make_backbone(name, "none", size=224)
        model = Classifier(backbone, make_head(head, backbone.width, CLASSES)).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
        views = torch.randint(0, 256, (BATCH, 3, 224, 224), dtype=torch.uint8)

        def one(
            method: ComposedLoss, model: Classifier, views: torch.Tensor, optimizer: torch.optim.Adam
        ) -> None:
            rows = torch.randperm(ROWS)[:BATCH]
            output = model(views, maps=method.needs.maps)
            seen = spatial_labels.take(rows.numpy()) if method.needs.spatial_labels else None
            step = Step(rows, observed[rows], (output,), (random_frame(BATCH),), PROGRESS, seen)
            losses, _ = method(step)
            torch.stack([*losses.values()]).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()

        methods = {
            "image": make_method("csl-i", unknown="ignore"),
            "patchml": make_method("patchml"),
            "csl-p": make_method("csl-p"),
        }
        for method in methods.values():
            method.prepare(Layout(torch.arange(ROWS), observed, ROWS))
        times = alternating(
            {key: partial(one, method, model, views, optimizer) for key, method in methods.items()}, 7
        )
        figures[f"{name}, {head}, at 224 px, image level alone, ms a step"] = times["image"]
        for key in ("patchml", "csl-p"):
            figures[f"{name}, {key} against it (at most 1.05)"] = times[key] / times["image"]
    return figures


class Images:
    """So many annotated images and as many without a label, whose features are made when asked for."""

    def __init__(self, count: int) -> None:
        self.observed = torch.full((2 * count, CLASSES), UNKNOWN, dtype=torch.int8)
        self.observed[torch.arange(count), torch.randint(CLASSES, (count,))] = POSITIVE
        self.observed[:count, 0] = NEGATIVE
        rows, classes = (self.observed == POSITIVE).nonzero(as_tuple=True)
        middle = np.full((len(rows), 2), 0.5, np.float32)
        self.spatial_labels = SpatialLabels(rows.numpy(), classes.numpy().astype(np.int32), middle, middle)
        self.making = 0.0  # seconds

    def __call__(self, wanted: torch.Tensor | None) -> Iterator[Step]:
        """Steps of some images, or of all."""
        rows = torch.arange(len(self.observed)) if wanted is None else wanted
        for batch in rows.split(16):  # type: ignore[no-untyped-call]
            begin = time.perf_counter()
            features = torch.randn(len(batch), WIDTH, CELLS, CELLS)
            output = Output(features.mean(dim=(2, 3)), None, features)
            spatial_labels = self.spatial_labels.take(batch.numpy())
            step = Step(
                batch, self.observed[batch], (output,), (random_frame(len(batch)),), PROGRESS, spatial_labels
            )
            self.making += time.perf_counter() - begin
            yield step


def surveyed(count: int) -> dict[str, float]:
    """Seconds an image for prototypes and for pseudo labels, and the most RAM meanwhile, in MB."""
    images = Images(count)
    method = make_method("patchml+cluster")
    method.prepare(Layout(torch.arange(2 * count), images.observed, 2 * count, grid=(CELLS, CELLS)))
    labels = next(part for part in method.parts() if isinstance(part, ClusterLabels))
    method.begin_epoch(PROGRESS)
    resident()
    begin = time.perf_counter()
    prototypes = labels.prototypes(images)
    first = time.perf_counter() - begin - images.making
    labels.prototypes = lambda steps: prototypes  # type: ignore[method-assign]
    images.making, begin = 0.0, time.perf_counter()
    labels.scan(images)
    second = time.perf_counter() - begin - images.making
    most = most_resident() / 1e6
    features = torch.randn(16, WIDTH, CELLS * CELLS)
    begin = time.perf_counter()
    for _ in range(0, count, 16):  # nothing but the product
        torch.matmul(prototypes.float(), features)
    bare = time.perf_counter() - begin
    return {"prototypes": first / count, "labels": second / count, "bare": bare / count, "MB": most}


def of_prototypes() -> dict[str, float]:
    """Memory on some images and on twice as many, and the time of all of COCO from that of the latter."""
    surveyed(64)  # what libraries set up once
    once, twice = surveyed(SOME), surveyed(2 * SOME)
    kept = SOME * WIDTH * CELLS**2 * 4 / 1e6
    return {
        f"prototypes and pseudo labels, {SOME:,} images each: most RAM, MB": once["MB"],
        f"{2 * SOME:,} images each: most RAM, MB (as much)": twice["MB"],
        f"features that {SOME:,} more images have, MB": kept,
        "65,000 images of 196 cells, 80 classes: prototypes, s (extrapolated)": twice["prototypes"] * COCO,
        "their pseudo labels, s (extrapolated)": twice["labels"] * COCO,
        "pseudo labels against the bare product": twice["labels"] / twice["bare"],
    }


def main() -> dict[str, float]:
    keep_freed_memory()
    torch.manual_seed(0)
    return of_prototypes() | of_training()
