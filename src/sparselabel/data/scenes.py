"""Generated pictures with several things each: for the demo, the tests and teaching.

Twelve classes live in a small illustrated world of five themes (meadow, dusk, sea, night, sky). A theme favours
some classes, so classes occur together; trees are in every other picture, balloons in one of twenty. Masks,
boxes and labels are of what can be seen: a thing hidden almost completely is not there.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparselabel.data.drawing.canvas import Canvas
from sparselabel.data.drawing.world import KINDS, backdrop, plan
from sparselabel.data.labels import Labels
from sparselabel.data.marks import Floats
from sparselabel.errors import DataError

CLASSES: tuple[str, ...] = tuple(KINDS)
_STREAMS = {"train": 0, "test": 1}


@dataclass(frozen=True, eq=False)
class Scene:
    image: npt.NDArray[np.uint8]
    labels: Labels
    instances: npt.NDArray[np.uint8]
    classes: npt.NDArray[np.int32]
    centres: Floats
    sizes: Floats


def make_scene(seed: int, index: int, size: int = 96, split: str = "train") -> Scene:
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_STREAMS[split], index))))
    scene = plan(rng)
    canvas = Canvas(backdrop(scene, rng, size))
    painted = np.zeros((size, size), dtype=np.uint8)
    whole = [0]
    kinds = [-1]
    for item in scene.items:
        if item.kind >= 0 and CLASSES[item.kind] in ("sun", "moon"):
            canvas.glow(item.place, item.thing[-1].colour, 0.3)
        window, outline, pixels = canvas.paint(item.thing, item.place, scene.light)
        number = 0
        if item.kind >= 0:
            number = len(kinds)
            kinds.append(item.kind)
            whole.append(pixels)
        painted[window][outline] = number
    grain = rng.standard_normal((size, size, 1), dtype=np.float32)
    image = np.clip(canvas.pixels + 2.5 * grain, 0, 255).astype(np.uint8)
    visible = np.bincount(painted.ravel(), minlength=len(kinds))
    least = np.maximum(0.25 * np.array(whole), 12 * (size / 96) ** 2)
    kept = np.flatnonzero((visible >= least) & (np.array(kinds) >= 0))
    renumber = np.zeros(len(kinds), np.uint8)
    renumber[kept] = np.arange(1, len(kept) + 1)
    instances = renumber[painted]
    classes = np.array(kinds, np.int32)[kept]
    labels = np.zeros(len(CLASSES), np.int8)
    labels[classes] = 1
    c, s = _boxes(instances, len(kept))
    return Scene(image, labels, instances, classes, c, s)


def _boxes(instances, count):
    size = len(instances)
    boxes = np.empty((count, 4), np.float32)
    for k in range(count):
        mask = instances == k + 1
        ys = np.flatnonzero(mask.any(axis=1))
        xs = np.flatnonzero(mask.any(axis=0))
        boxes[k] = xs[0], ys[0], xs[-1] + 1, ys[-1] + 1
    boxes /= size
    return (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
