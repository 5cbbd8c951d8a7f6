"""Predicting many images: how fast, and whether memory grows with their number.

    python -m benchmarks.predict [RUN]

20,000 images are links to 200 drawn ones; with RUN its model labels them, else a small network with random
weights. The million entries have a model and a reader that do nothing: what is left is our own work.
"""

import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sparselabel.data.image_paths import image_paths
from sparselabel.data.transforms import squashed
from sparselabel.inference.class_thresholds import no_class_thresholds
from sparselabel.inference.prediction_csv import PredictionWriter
from sparselabel.inference.predictor import Predictor, load_predictor
from sparselabel.models.backbone import NONE, make_backbone
from sparselabel.models.classifier import Classifier, LinearHead, Output
from sparselabel.resources import keep_freed_memory

IMAGES, DRAWN, ENTRIES, CLASSES, SIZE = 20_000, 200, 1_000_000, 80, 64
PAGE = resource.getpagesize()


class Memory:
    """The largest resident memory of this process so far, in MB, watched while work goes on."""

    def __enter__(self) -> "Memory":
        self.largest, self._over = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.largest = max(self.largest, pages * PAGE / 1e6)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def main(run: Path | None = None) -> dict[str, float]:
    keep_freed_memory()
    with TemporaryDirectory() as name:
        folder = Path(name)
        real, stub = _real(folder, run), _stub(folder)
    return real | stub


def _real(folder: Path, run: Path | None) -> dict[str, float]:
    random = np.random.default_rng(0)
    photos = folder / "photos"
    photos.mkdir()
    for number in range(DRAWN):
        blocks = random.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(blocks).resize((320, 240), Image.Resampling.BICUBIC).save(photos / f"{number:06}.jpg")
    for number in range(DRAWN, IMAGES):
        os.link(photos / f"{number % DRAWN:06}.jpg", photos / f"{number:06}.jpg")
    predictor = _small() if run is None else load_predictor(run)
    _predict(predictor, iter([str(photos / "000000.jpg")] * 320), folder / "warm.csv")
    figures = {}
    for count in (IMAGES // 10, IMAGES):
        names = (path for _, path in zip(range(count), image_paths([str(photos)]), strict=False))
        with Memory() as memory:
            begin = time.perf_counter()
            _predict(predictor, names, folder / f"{count}.csv")
            figures[f"{count:,} images: images a second"] = count / (time.perf_counter() - begin)
        figures[f"{count:,} images: peak MB"] = memory.largest
    figures["ratio of peaks, 10 times as many (1.0)"] = (
        figures[f"{IMAGES:,} images: peak MB"] / figures[f"{IMAGES // 10:,} images: peak MB"]
    )
    return figures


def _small() -> Predictor:
    backbone = make_backbone("test_efficientnet", NONE, size=SIZE)
    model = Classifier(backbone, LinearHead(backbone.width, CLASSES)).eval()
    return Predictor(model, squashed(SIZE), no_class_thresholds(_names(), "nothing"))


def _stub(folder: Path) -> dict[str, float]:
    views = np.zeros((3, 2, 2), np.uint8)

    def model(inputs: Tensor, maps: bool = False) -> Output:
        return Output(torch.linspace(-4, 4, CLASSES).expand(len(inputs), -1))

    predictor = Predictor(
        model, squashed(2), no_class_thresholds(_names(), "nothing"), read=lambda path: views
    )
    figures = {}
    for count in (ENTRIES // 10, ENTRIES):
        with Memory() as memory:
            begin = time.perf_counter()
            _predict(predictor, (f"photos/{number:09}.jpg" for number in range(count)), folder / "stub.jsonl")
            seconds = time.perf_counter() - begin
        figures[f"{count:,} entries: peak MB"] = memory.largest
        figures[f"{count:,} entries: µs each"] = 1e6 * seconds / count
    figures["ratio of peaks, 10 times as many entries (1.0)"] = (
        figures[f"{ENTRIES:,} entries: peak MB"] / figures[f"{ENTRIES // 10:,} entries: peak MB"]
    )
    return figures


def _names() -> tuple[str, ...]:
    return tuple(f"class {number}" for number in range(CLASSES))


def _predict(predictor: Predictor, names: Iterator[str], out: Path) -> None:
    output = PredictionWriter(str(out), predictor.classes, {}, all_scores=False, resume=False)
    for found in predictor(names):
        output.write(found)
    output.finish()


if __name__ == "__main__":
    from benchmarks.common import show

    show("predict", main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
