"""Points and boxes in a training step, and pseudo labels by prototypes at COCO's size.

Targets: the patch loss with marks adds at most 5 % to a step; prototypes and pseudo labels of 65,000 pictures
of 196 cells for 80 classes are products of matrices whose memory does not grow with the pictures.
"""

import time
from functools import partial

import numpy as np
import torch

from benchmarks.heatmaps import alternating, random_frame
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.marks import Marks
from sparselabel.method.base import Method, Progress, Step
from sparselabel.method.catalog import build_method, make_method
from sparselabel.method.cluster import PseudoLabels
from sparselabel.method.layout import Layout
from sparselabel.model.allocator import keep_freed_memory
from sparselabel.model.backbone import make_backbone
from sparselabel.model.classifier import Classifier, LinearHead
from sparselabel.model.output import Output

ROWS, CLASSES, BATCH = 2000, 80, 8
CELLS, WIDTH = 14, 768  # DeiT-base at 224 px
COCO = 65_000
PROGRESS = Progress(epoch=1, epochs=20, warm_up=0, learning_rate=1e-5)


def annotated() -> tuple[torch.Tensor, Marks]:
    """Labels of which 5 % are known, and for each known positive a point, a small box and a large one."""
    random = np.random.default_rng(0)
    truth = random.random((ROWS, CLASSES)) < 2.9 / CLASSES
    known = random.random((ROWS, CLASSES)) < 0.05
    observed = np.where(known, np.where(truth, POSITIVE, NEGATIVE), UNKNOWN).astype(np.int8)
    rows, classes = np.nonzero(observed == POSITIVE)
    sizes = np.concatenate([np.full((len(rows), 2), size, np.float32) for size in (0, 0.1, 0.5)])
    centres = 0.25 + 0.5 * random.random((len(sizes), 2)).astype(np.float32)
    marks = Marks(np.tile(rows, 3), np.tile(classes, 3).astype(np.int32), centres, sizes)
    return torch.from_numpy(observed), marks


def of_training() -> dict[str, float]:
    """Whole training steps, batch 8 at 224 px: image level alone, and with patches."""
    observed, marks = annotated()
    figures = {}
    for name in ("mobilenetv2_100",):
        backbone = make_backbone(name, "none", size=224)
        model = Classifier(backbone, LinearHead(backbone.width, CLASSES)).train()
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
        views = torch.randint(0, 256, (BATCH, 3, 224, 224), dtype=torch.uint8)

        def one(method: Method, model: Classifier, views: torch.Tensor, optimiser: torch.optim.Adam) -> None:
            rows = torch.randperm(ROWS)[:BATCH]
            output = model(views, maps=method.needs.maps)
            seen = marks.take(rows.numpy()) if method.needs.marks else None
            step = Step(rows, observed[rows], (output,), (random_frame(BATCH),), PROGRESS, seen)
            losses, _ = method(step)
            torch.stack([*losses.values()]).sum().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            optimiser.zero_grad()

        methods = {
            "image": build_method("csl-i", observed, unknown="ignore"),
            "patchml": build_method("patchml", observed),
            "csl-p": build_method("csl-p", observed),
        }
        times = alternating(
            {key: partial(one, method, model, views, optimiser) for key, method in methods.items()}, 7
        )
        figures[f"{name} at 224 px, image level alone, ms a step"] = times["image"]
        for key in ("patchml", "csl-p"):
            figures[f"{name}, {key} against it (at most 1.05)"] = times[key] / times["image"]
    return figures


def of_prototypes() -> dict[str, float]:
    """Seconds of product and comparison for all of COCO, from as many pictures as take a few seconds."""
    pictures = 320
    observed = torch.full((2 * pictures, CLASSES), UNKNOWN, dtype=torch.int8)
    observed[torch.arange(pictures), torch.randint(CLASSES, (pictures,))] = POSITIVE
    observed[:pictures, 0] = NEGATIVE
    method = make_method("patchml+cluster")
    method.prepare(Layout(torch.arange(2 * pictures), observed, 2 * pictures, grid=(CELLS, CELLS)))
    labels = next(part for part in method.parts() if isinstance(part, PseudoLabels))
    features = torch.randn(16, WIDTH, CELLS, CELLS)
    rows, classes = (observed == POSITIVE).nonzero(as_tuple=True)
    middle = np.full((len(rows), 2), 0.5, np.float32)
    marks = Marks(rows.numpy(), classes.numpy().astype(np.int32), middle, middle)

    def steps(wanted: torch.Tensor | None) -> "list[Step]":
        some = torch.arange(2 * pictures) if wanted is None else wanted
        return [
            Step(
                batch,
                observed[batch],
                (Output(features.mean(dim=(2, 3)), None, features),),
                (random_frame(16),),
                PROGRESS,
                marks.take(batch.numpy()),
            )
            for batch in some.split(16)  # type: ignore[no-untyped-call]
        ]

    method.begin_epoch(PROGRESS)
    shown = steps(labels.with_positive), steps(labels.without)
    begin = time.perf_counter()
    prototypes = labels.prototypes(lambda rows: shown[0])
    middle_time = time.perf_counter()
    labels.prototypes = lambda steps: prototypes  # type: ignore[method-assign]
    labels.survey(lambda rows: shown[1])
    end = time.perf_counter()
    for _ in shown[1]:  # nothing but the product
        torch.matmul(prototypes.float(), features.flatten(2))
    bare = time.perf_counter() - end
    return {
        "65,000 pictures of 196 cells, 80 classes: prototypes, s": (middle_time - begin) / pictures * COCO,
        "their pseudo labels, s": (end - middle_time) / pictures * COCO,
        "pseudo labels against the bare product": (end - middle_time) / bare,
        "cosines of a batch of 16, MB (computed)": 16 * CELLS**2 * CLASSES * 4 / 1e6,
        "kept labels, MB (computed)": COCO * CLASSES / 1e6,
    }


def main() -> dict[str, float]:
    keep_freed_memory()
    torch.manual_seed(0)
    return of_prototypes() | of_training()
