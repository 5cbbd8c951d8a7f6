"""onnxruntime against our own predict on the CPU, in one run: images a second, by the size of the batch.

    python -m benchmarks.export RUN

Images are in memory at the size of the model's view, so that networks are compared and not JPEG decoders.
Both make maps and have the same number of threads; turns alternate, and the best of each counts.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
import torch

from sparselabel.export import export_run
from sparselabel.inference.predictor import Predictor, load_predictor
from sparselabel.resources import keep_freed_memory
from sparselabel.run import Run

IMAGES, TURNS = 64, 5


def main(run: Path) -> dict[str, float]:
    keep_freed_memory()
    threads = torch.get_num_threads()
    figures: dict[str, float] = {"threads": threads}
    with TemporaryDirectory() as name:
        file = Path(name) / "model.onnx"
        export_run(Run(run), file)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        ours = load_predictor(run, device="cpu")
        size = ours.view.size
        pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, size, size, 3), dtype=np.uint8)
        predictor = Predictor(ours.model, ours.view, ours.class_thresholds, read=_reader(pixels))
        for batch in (1, 32):
            seconds = {"predict": np.inf, "onnxruntime": np.inf}
            turns: dict[str, Callable[[], None]] = {
                "predict": partial(_ours, predictor, batch),
                "onnxruntime": partial(_theirs, session, pixels, batch),
            }
            for _ in range(TURNS):
                for who, turn in turns.items():
                    begin = time.perf_counter()
                    turn()
                    seconds[who] = min(seconds[who], time.perf_counter() - begin)
            for who, value in seconds.items():
                figures[f"{who}, batches of {batch}: images a second"] = IMAGES / value
            figures[f"batches of {batch}: onnxruntime is faster by"] = (
                seconds["predict"] / seconds["onnxruntime"]
            )
    return figures


def _reader(pixels: np.ndarray) -> Callable[[str], np.ndarray]:
    views = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    return lambda path: np.asarray(views[int(path)])


def _ours(predictor: Predictor, batch: int) -> None:
    for _ in predictor((str(number) for number in range(IMAGES)), batch=batch, maps=True):
        pass


def _theirs(session: onnxruntime.InferenceSession, pixels: np.ndarray, batch: int) -> None:
    for start in range(0, IMAGES, batch):
        session.run(None, {"images": pixels[start : start + batch]})


if __name__ == "__main__":
    from benchmarks.common import show

    show("export", main(Path(sys.argv[1])))
