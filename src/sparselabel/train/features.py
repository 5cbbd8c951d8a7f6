"""Features of a frozen backbone, computed once and kept beside the data (P3's linear protocol).

A file is found by everything that decides its content: the pictures, the backbone and its weights, the view.
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from sparselabel.config import TrainConfig
from sparselabel.data.augment import View
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.feed import PictureFeed, in_order
from sparselabel.data.sampler import rows_of
from sparselabel.model.backbone import NONE, PRETRAINED, Backbone

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def features_file(split: PreparedSplit, folder: Path, config: TrainConfig, view: View) -> Path:
    """Where the features of a split are, or will be."""
    return folder / f"{split.name}-{_key(split, config, view)}.npy"


@torch.no_grad()
def compute_features(
    file: Path,
    split: PreparedSplit,
    view: View,
    backbone: Backbone,
    *,
    fabric: "Fabric",
    workers: int,
    report: Callable[[int], None],
) -> None:
    """Write (N, D) float32 pooled features: every process its rows; the file gets its name when all are done.

    ``report`` is told the number of pictures after each batch.
    """
    # Another run may be computing the same features: each has a file of its own until it is complete.
    partial = file.with_suffix(f".{fabric.broadcast(_process())}.partial.npy")
    network = backbone.to(fabric.device).eval()
    if fabric.is_global_zero:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.lib.format.open_memmap(partial, "w+", np.float32, (len(split), backbone.width))
    fabric.barrier()
    stored = np.lib.format.open_memmap(partial, "r+")
    rows = rows_of(len(split), fabric.global_rank, fabric.world_size)
    feed = PictureFeed(split, view, workers=workers)
    for numbers, inputs, _ in feed(in_order(rows, 32), epoch=0):
        cells = network(inputs[0].to(fabric.device))
        stored[numbers.numpy()] = cells.float().mean(dim=(2, 3)).cpu().numpy()
        report(len(numbers))
    stored.flush()
    fabric.barrier()
    if fabric.is_global_zero:
        partial.rename(file)
    fabric.barrier()


def _process() -> str:
    """A name for this process among all that may write to a shared disk."""
    return f"{platform.node()}-{os.getpid()}"


def _key(split: PreparedSplit, config: TrainConfig, view: View) -> str:
    # Labels do not change features: pictures count by their bytes, not by the split's whole digest.
    pictures = hashlib.blake2b(np.ascontiguousarray(split.digests).tobytes(), digest_size=16).hexdigest()
    decides = {
        "pictures": pictures,
        "backbone": config.backbone,
        "weights": weights_identity(config),
        "output_stride": config.output_stride,
        "view": vars(view),
        "double": config.precision == "64-true",
    }
    return hashlib.blake2b(json.dumps(decides, sort_keys=True).encode(), digest_size=10).hexdigest()


def content_digest(path: Path) -> str:
    """What tells a file's content from any other."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weights_identity(config: TrainConfig) -> str:
    """What the backbone's weights are: a file's content, the published ones, or random ones of a seed."""
    if config.weights == PRETRAINED:
        return PRETRAINED
    if config.weights == NONE:
        return f"{NONE}-{config.seed}"
    content = content_digest(Path(config.weights))
    return f"{content}-{config.seed}" if config.partial_weights else content
