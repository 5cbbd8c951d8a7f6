"""What an image costs in each part of the work, for docs/scale.md's exercise on paper.

    python -m benchmarks.slopes PREPARED

Seconds are those of the processor, on one core, so that a busy machine tells the same; bytes are those of
the prepared training split. It ends with what this makes of a billion images on a hundred machines.
"""

import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import show
from sparselabel.data.dataset import Dataset
from sparselabel.data.loaders import ImageLoader, epoch_batches, in_order
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.transforms import squashed
from sparselabel.inference.engine import CellFeatures
from sparselabel.models.backbone import make_backbone
from sparselabel.resources import keep_freed_memory

IMAGES, MACHINES, CORES, CLASSES = 10**9, 100, 32, 1000
ROWS = IMAGES // MACHINES  # of a process, one on each machine
SAMPLE, SIZE, BATCH = 256, 224, 32
BACKBONE, PARAMETERS = "mobilenetv2_100", 25_600_000  # the weights of a ResNet-50, whose gradients are sent
NETWORK = 1.25e9  # bytes a second, of a card of 10 Gbit/s


def seconds(work: Callable[[], object]) -> float:
    """The processor's time for some work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def measured(data: Dataset) -> dict[str, float]:
    """Seconds and bytes for an image."""
    split = data.train
    rows = np.linspace(0, len(split) - 1, SAMPLE).astype(np.int64)
    loader, views = ImageLoader(split, squashed(SIZE)), torch.zeros(BATCH, 3, SIZE, SIZE, dtype=torch.uint8)
    network = CellFeatures(make_backbone(BACKBONE, "none", size=SIZE, output_stride=None).eval())
    block = bytes(2**26)

    def score() -> None:
        with torch.inference_mode():
            for _ in range(SAMPLE // BATCH):
                network(views)

    loaded = seconds(lambda: list(loader(in_order(rows, BATCH), 0)))
    score()
    folder = data.folder / split.name
    size = {file.stem: file.stat().st_size / len(split) for file in folder.glob("*.npy")}
    return {
        "decode and crop, ms": loaded / SAMPLE * 1e3,
        f"{BACKBONE} at {SIZE} px, ms": seconds(score) / SAMPLE * 1e3,
        "order of an epoch, ns": seconds(lambda: epoch_batches(ROWS, 64, 0, 0)) / ROWS * 1e9,
        "checksum, s per GB": seconds(lambda: zlib.crc32(block)) / len(block) * 1e9,
        "names and paths, bytes": size["ids"] + size["paths"],
        "labels, bytes per class": (size["truth"] + size["observed"]) / len(data.classes),
        "image file, bytes": float(np.mean([split.path(int(row)).stat().st_size for row in rows])),
    }


def on_paper(slope: dict[str, float]) -> dict[str, float]:
    """A billion images on a hundred machines."""
    decode, network, order, checksum, names, labels, file = slope.values()
    decode, network, order = decode / 1e3, network / 1e3, order / 1e9
    arrays = IMAGES * (names + labels * CLASSES)
    return {
        "image files, TB": IMAGES * file / 1e12,
        "prepare: decode all, hours": IMAGES * decode / (MACHINES * CORES) / 3600,
        "predict or store features, hours": IMAGES * (decode + network) / (MACHINES * CORES) / 3600,
        "their reading, GB/s of the store": file * MACHINES * CORES / (decode + network) / 1e9,
        "labels as bytes, TB": IMAGES * labels * CLASSES / 1e12,
        "names and paths, TB": IMAGES * names / 1e12,
        "checksums of these by process 0, hours": arrays / 1e9 * checksum / 3600,
        "order of an epoch in a process, s": ROWS * order,
        "order of an epoch in a process, GB": ROWS * 8 * 3 / 1e9,
        f"running scores of {CLASSES} classes, GB a process": ROWS * CLASSES * 2 / 1e9,
        "stored features (1280, float32), TB": IMAGES * 1280 * 4 / 1e12,
        "gradients of a ResNet-50, s per step": 2 * PARAMETERS * 4 / NETWORK,
        "scores of 0.1 % for validation, GB a process": IMAGES / 1000 * CLASSES * 4 / 1e9,
    }


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()  # as every run does
    slope = measured(open_prepared(Path(sys.argv[1])))
    show("slopes, for an image", slope)
    show(f"{IMAGES:,} images on {MACHINES} machines of {CORES} cores", on_paper(slope))


if __name__ == "__main__":
    main()
