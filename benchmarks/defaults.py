"""Which method and which recipe generalize on frozen features (docs/results.md, results/defaults.csv).

    python -m benchmarks.defaults FOLDER --out FILE [--candidates an pu ...] [--part 0 --parts 2]

FOLDER has NAME.npz and the features NAME-dino.npy and NAME-mbv2.npy, as for ``benchmarks.expected_suite``, for
NAME coco, voc, scenes and scenes-dense. A setting is a source with a number of training images, a backbone, an
annotator who hides labels, and a draw of them. Everything is trained as users train it, by
``SparseLabelClassifier``; a fifth of the images is held out with labels as sparse as the others, so that what they
would choose can be said. Half of the settings is for deciding, half for reporting, by a hash of their names:
the halves share no label set (source, images and annotator), only images.
"""

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.metrics.average_precision import average_precision

Array = npt.NDArray[Any]
SOURCES = {  # training images with sparse labels, a fifth of which are held out; test images
    "voc-2000": ("voc", 2000, 1500),
    "coco-3000": ("coco", 3000, 4000),
    "coco-10000": ("coco", 10000, 4000),
    "scenes-800": ("scenes", 800, 800),
    "scenes-dense-800": ("scenes-dense", 800, 800),
}
BACKBONES = "dino", "mbv2"
ANNOTATORS = "one", "largest", "frequent", "kept-40", "kept-75", "names"
HELD_OUT = 0.2
SALT = 275


@dataclass(frozen=True)
class Setting:
    source: str
    backbone: str
    annotator: str
    draw: int

    @property
    def half(self) -> str:
        """Decide or report: for both backbones and all draws of a label set alike, half of every source's."""
        own = sorted(annotators(self.source), key=lambda name: _hash(f"{self.source}/{name}"))
        return "decide" if own.index(self.annotator) < len(own) / 2 else "report"


def annotators(source: str) -> list[str]:
    """Those of a source; COCO's labels come without sizes."""
    return [name for name in ANNOTATORS if name != "largest" or not source.startswith("coco")]


def _hash(name: str) -> bytes:
    # With this salt, label sets that were looked at before there were halves are all for deciding.
    return hashlib.sha256(f"{SALT}/{name}".encode()).digest()


def settings(draws: int) -> Iterator[Setting]:
    for draw in range(draws):
        for source in SOURCES:
            for annotator in annotators(source):
                for backbone in BACKBONES:
                    yield Setting(source, backbone, annotator, draw)


def one_label(truth: Array, weight: Array, random: np.random.Generator) -> Array:
    """One of each image's classes, with a chance in proportion to its weight."""
    draw = np.where(truth, np.log(weight + 1e-30) + random.gumbel(size=truth.shape), -np.inf)
    named = np.zeros_like(truth)
    named[np.arange(len(truth)), draw.argmax(1)] = True
    return named


def annotate(annotator: str, truth: Array, area: Array | None, random: np.random.Generator) -> Array:
    """(N, L) Which of the classes that are there somebody named."""
    if annotator == "one":
        return one_label(truth, np.ones(truth.shape), random)
    if annotator == "largest" and area is not None:
        return one_label(truth, area.astype(np.float64) ** 20, random)
    if annotator == "frequent":
        return one_label(truth, np.broadcast_to(truth.mean(0) + 1e-6, truth.shape), random)
    if annotator.startswith("kept"):
        return truth & (random.random(truth.shape) < float(annotator.split("-")[1]) / 100)
    # A chance of its own for every class, and a larger one for what is large; one where that names none.
    evidence = np.broadcast_to(random.normal(-0.3, 1, truth.shape[1]), truth.shape)
    if area is not None:
        size = np.log(area + 1e-4)
        evidence = evidence + 1.2 * (size - size[truth].mean()) / size[truth].std()
    chance = 1 / (1 + np.exp(-evidence))
    named = truth & (random.random(truth.shape) < chance)
    none = ~named.any(1)
    named[none] = one_label(truth[none], chance[none], random)
    return np.asarray(named)


@dataclass(frozen=True)
class Task:
    """Features and labels of a setting; ``train``, ``held`` and ``test`` are rows."""

    features: Array
    truth: Array
    observed: Array
    train: Array
    held: Array
    test: Array


def task_of(setting: Setting, folder: Path) -> Task:
    name, images, tests = SOURCES[setting.source]
    source = np.load(folder / f"{name}.npz")
    truth = source["truth"] == 1
    area = None if name == "coco" else source["area"].astype(np.float32)
    order = np.random.default_rng(0).permutation(len(truth))
    rows = np.concatenate([order[:images], order[-tests:]])
    seed = zlib.crc32(f"{setting.source}/{setting.annotator}/{setting.draw}".encode())
    named = annotate(
        setting.annotator, truth[rows], None if area is None else area[rows], np.random.default_rng(seed)
    )
    features = np.load(folder / f"{name}-{setting.backbone}.npy", mmap_mode="r")
    own = np.arange(len(rows))
    first = round(images * (1 - HELD_OUT))
    return Task(
        np.asarray(features[rows], np.float32),
        np.where(truth[rows], POSITIVE, NEGATIVE).astype(np.int8),
        np.where(named, POSITIVE, UNKNOWN).astype(np.int8),
        own[:first],
        own[first:images],
        own[images:],
    )


def mean_ap(scores: Array, labels: Array) -> float:
    """MAP in percent; unknown is negative."""
    present = (labels == POSITIVE).any(0)
    positive = (labels[:, present] == POSITIVE).astype(np.int8)
    return 100 * float(np.mean(average_precision(scores[:, present], positive)))
