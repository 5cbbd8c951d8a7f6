"""Small data sets of images that tests write, read and prepare."""

from pathlib import Path

import numpy as np
from PIL import Image

from sparselabel.data.labels import Labels
from sparselabel.data.readers import table
from sparselabel.data.readers.raw_dataset import RawDataset

CLASSES = ("ant", "bee", "cow")


def paint(file: Path, seed: int, width: int = 24, height: int = 16) -> Path:
    """An image of colored blocks that no other seed gives."""
    file.parent.mkdir(parents=True, exist_ok=True)
    blocks = np.random.default_rng(seed).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    Image.fromarray(blocks).resize((width, height), Image.Resampling.BICUBIC).save(file)
    return file


def random_labels(count: int, seed: int = 0) -> Labels:
    """Complete labels with at least one positive per image."""
    random = np.random.default_rng(seed)
    values = (random.random((count, len(CLASSES))) < 0.5).astype(np.int8)
    values[np.arange(count), random.integers(0, len(CLASSES), count)] = 1
    return values


def read_table(folder: Path, values: Labels, splits: list[str] | None = None) -> RawDataset:
    """Images 000.jpg, 001.jpg … with these labels, as the ``table`` reader finds them."""
    splits = splits or ["train"] * len(values)
    lines = [",".join(("image", *CLASSES, "split"))]
    for row, (labels, split) in enumerate(zip(values.tolist(), splits, strict=True)):
        if not (folder / f"{row:03}.jpg").exists():
            paint(folder / f"{row:03}.jpg", seed=row)
        lines.append(",".join([f"{row:03}.jpg", *("" if v < 0 else str(v) for v in labels), split]))
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return table.read(folder / "labels.csv")
