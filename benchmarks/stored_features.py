"""The folder that ``benchmarks.defaults`` and ``benchmarks.prior`` take: labels, sizes of objects, features.

    python -m benchmarks.stored_features FOLDER --coco COCO --voc VOC --mobilenet WEIGHTS --dino WEIGHTS

COCO and VOC are prepared data. Of COCO 14,500 images are taken and of VOC 3,500, from all splits; scenes are
drawn, 1,600 of each kind. In scenes-dense, what a theme likes is twice as likely. Features that are there
are not computed again.
"""

import argparse
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch

from sparselabel.config import Machine, Preparation
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes
from sparselabel.data.scenes import world
from sparselabel.data.transforms import squashed
from sparselabel.distributed import start_fabric
from sparselabel.inference.engine import CellFeatures, CompiledNetwork, choose_engine
from sparselabel.models.backbone import make_backbone
from sparselabel.training.features import compute_features

SIZE = 224
DENSE = {
    name: theme._replace(likes={kind: min(2 * chance, 0.95) for kind, chance in theme.likes.items()})
    for name, theme in world.THEMES.items()
}


def some(data: Dataset, images: int) -> list[PreparedSplit]:
    """So many images, chosen at random, with the splits in the proportion they have."""
    share = images / sum(len(split) for split in data.splits.values())
    return [
        split.take(np.random.default_rng(0).permutation(len(split))[: round(share * len(split))])
        for split in data.splits.values()
    ]


def largest(split: PreparedSplit) -> npt.NDArray[Any]:
    """(N, L) The share of an image that each class's largest object takes."""
    area = np.zeros(split.truth.values.shape, np.float32)
    objects = split.spatial_labels
    np.maximum.at(area, (objects.rows, objects.classes), objects.sizes.prod(axis=1))
    return area


def write(folder: Path, name: str, splits: list[PreparedSplit], weights: dict[str, tuple[str, Path]]) -> None:
    """Labels and sizes, and the features of every backbone."""
    truth, area = (
        np.concatenate([of(one) for one in splits]) for of in (lambda one: one.truth.values == 1, largest)
    )
    np.savez(folder / f"{name}.npz", truth=truth, area=area)
    fabric = start_fabric(Machine(accelerator="cpu"), "32-true")
    for short, (backbone, file) in weights.items():
        network = make_backbone(backbone, str(file), size=SIZE)
        compiled = CompiledNetwork(CellFeatures(network.eval()), choose_engine("auto", torch.device("cpu")))
        features = []
        for split in splits:
            path = folder / f"{name}-{short}-{split.name}.npy"
            if not path.is_file():
                compute_features(path, split, squashed(SIZE), compiled, (network.width,), fabric, None, print)
            features.append(np.load(path))
        np.save(folder / f"{name}-{short}.npy", np.concatenate(features))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name in ("coco", "voc", "mobilenet", "dino"):
        parser.add_argument(f"--{name}", type=Path)
    given = parser.parse_args()
    folder: Path = given.folder
    folder.mkdir(exist_ok=True)
    files = {"mbv2": ("mobilenetv2_100", given.mobilenet), "dino": ("vit_small_patch14_dinov2", given.dino)}
    weights = {short: (backbone, file) for short, (backbone, file) in files.items() if file}
    for name, themes in (("scenes", world.THEMES), ("scenes-dense", DENSE)):
        with patch.object(world, "THEMES", themes):
            source = scenes.make(folder / name, train=800, test=800, seed=2)
            data = prepare(source, folder / name, Preparation(), force=True)
        write(folder, name, some(data, 1600), weights)
    if given.voc:
        write(folder, "voc", some(Dataset.open(given.voc), 3500), weights)
    if given.coco:
        write(folder, "coco", some(Dataset.open(given.coco), 14_500), weights)


if __name__ == "__main__":
    main()
