"""How time and memory of an evaluation, a report and a review grow with images and classes.

    python -m benchmarks.growth [CLASSES [IMAGES ...]]

Scores and labels are made up, for three numbers of images or those given. Each work has a process of its
own; its memory is the peak beside what it has once everything is imported. The slopes are those of the last
two sizes. Scores of more than 1 GB are in a file: two works have them there whatever their size.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks import report as made_up
from benchmarks.common import imagined
from sparselabel.data.dataset import Dataset
from sparselabel.metrics import tiled_scores
from sparselabel.resources import forget_peak, peak_memory
from sparselabel.run import Run

SIZES, CLASSES = (2_000, 4_000, 8_000), 1000
BATCH = 500  # images, of which all sizes are multiples
IN_FILE = ", scores in a file"
WORKS = ("evaluate", "report", "review", f"evaluate{IN_FILE}", f"report{IN_FILE}")


def main(classes: int = CLASSES, *sizes: int) -> dict[str, float]:
    sizes = sizes or SIZES
    figures: dict[str, float] = {}
    measured: dict[str, list[tuple[float, float]]] = {work: [] for work in WORKS}
    for images in sizes:
        with TemporaryDirectory() as folder:
            _child("prepare", folder, images, classes)
            for work in WORKS:
                seconds, computing, memory = _child(work, folder, images, classes)
                figures[f"{work}, {images:,} images: s"] = seconds
                figures[f"{work}, {images:,} images: s of computing"] = computing
                figures[f"{work}, {images:,} images: peak GB"] = memory / 1e9
                measured[work].append((computing, memory))
    for work, ((early, small), (late, large)) in ((work, values[-2:]) for work, values in measured.items()):
        entries = (sizes[-1] - sizes[-2]) * classes
        figures[f"{work}: bytes an entry"] = (large - small) / entries
        figures[f"{work}: ns of computing an entry"] = (late - early) * 1e9 / entries
    return figures


def _child(work: str, folder: str, images: int, classes: int) -> tuple[float, float, float]:
    words = [sys.executable, "-m", "benchmarks.growth", "--work", work, folder, str(images), str(classes)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    seconds, computing, memory = json.loads(done.stdout.splitlines()[-1])
    return seconds, computing, memory


def _prepare(folder: Path, images: int, classes: int) -> None:
    """A run on data with so many test images; its scores are as an evaluation leaves them."""
    data = imagined(folder, {"train": images, "val": 2000, "test": images}, classes)
    made_up.save(data, folder)
    made_up.finished(folder / "run", data, 0)


def _scores(images: int, classes: int) -> np.ndarray:
    return np.random.default_rng(0).random((images, classes), dtype=np.float32)


def _evaluate(folder: Path, images: int, classes: int) -> Callable[[], object]:
    from sparselabel.inference.class_thresholds import write_class_thresholds
    from sparselabel.inference.evaluate import keep_evaluation
    from sparselabel.inference.saved_scores import new_scores
    from sparselabel.metrics.localization import LocalizationMetric
    from sparselabel.metrics.tiled_scores import ScoreMatrix, TiledScores

    data, run = Dataset.open(folder), Run(folder / "run")
    write_class_thresholds(run, data, _scores(2000, classes))
    without_places = data.split("test").without_labels()
    split = data.split("test")
    localization = LocalizationMetric(without_places)

    def evaluate() -> object:
        scores: ScoreMatrix | None = new_scores(run, split)
        if isinstance(scores, TiledScores):
            for _ in range(0, images, BATCH):
                scores.append(_scores(BATCH, classes))
        else:
            scores = _scores(images, classes)
        return keep_evaluation(run, split, scores, localization, "torch")

    return evaluate


def _report(folder: Path, images: int, classes: int) -> Callable[[], object]:
    from sparselabel.report.make_report import make_report
    from sparselabel.report.run_data import read_runs

    return lambda: make_report(read_runs([folder / "run"]), folder / "report.html")


def _review(folder: Path, images: int, classes: int) -> Callable[[], object]:
    from sparselabel.review.answer_log import AnswerFile
    from sparselabel.review.session import Review

    split, file = Run(folder / "run").split("train"), folder / "scores.npy"
    mapped = np.lib.format.open_memmap(file, "w+", np.float16, (images, classes))
    for start in range(0, images, BATCH):
        mapped[start : start + BATCH] = _scores(BATCH, classes)
    mapped.flush()
    del mapped

    def ask() -> object:
        with AnswerFile(folder / "answers.csv", "somebody") as answers:
            review = Review(split, np.load(file, mmap_mode="r"), answers)
            return [review.summary(), *(review.next(6) for _ in range(3))]

    return ask


def _measured(work: str, folder: Path, images: int, classes: int) -> tuple[float, float, float]:
    made_up.CLASSES = classes
    if work == "prepare":
        _prepare(folder, images, classes)
        return 0.0, 0.0, 0.0
    if work.endswith(IN_FILE):
        tiled_scores.LARGEST_SCORES = 0
    works = {"evaluate": _evaluate, "report": _report, "review": _review}
    ready = works[work.removesuffix(IN_FILE)](folder, images, classes)
    forget_peak()
    before, begin, used = peak_memory(), time.perf_counter(), time.process_time()
    ready()
    return time.perf_counter() - begin, time.process_time() - used, peak_memory() - before


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work, folder, images, classes = sys.argv[2:]
        print(json.dumps(_measured(work, Path(folder), int(images), int(classes))))
    else:
        from benchmarks.common import show

        show("growth", main(*map(int, sys.argv[1:])))
