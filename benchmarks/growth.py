"""How time and memory of an evaluation, a report and a review grow with images and classes.

    python -m benchmarks.growth [CLASSES]

Scores and labels are made up, at three sizes. Each work has a process of its own; its memory is the peak
beside what it has once everything is imported. The slopes are those of the last two sizes, and tell what a
million images would take.
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
from sparselabel.resources import forget_peak, peak_memory
from sparselabel.run import Run

SIZES, MANY, CLASSES = (2_000, 4_000, 8_000), 1_000_000, 1000
WORKS = ("evaluate", "report", "review")


def main(classes: int = CLASSES) -> dict[str, float]:
    figures: dict[str, float] = {}
    measured: dict[str, list[tuple[float, float]]] = {work: [] for work in WORKS}
    for images in SIZES:
        with TemporaryDirectory() as folder:
            _child("prepare", folder, images, classes)
            for work in WORKS:
                seconds, computing, memory = _child(work, folder, images, classes)
                figures[f"{work}, {images:,} images: s"] = seconds
                figures[f"{work}, {images:,} images: s of computing"] = computing
                figures[f"{work}, {images:,} images: peak GB"] = memory / 1e9
                measured[work].append((computing, memory))
    for work, ((early, small), (late, large)) in ((work, values[-2:]) for work, values in measured.items()):
        entries = (SIZES[-1] - SIZES[-2]) * classes
        figures[f"{work}: bytes an entry"] = (large - small) / entries
        figures[f"{work}: ns of computing an entry"] = (late - early) * 1e9 / entries
        more = (MANY - SIZES[-1]) * classes / entries
        figures[f"{work}, {MANY:,} images: GB expected"] = (large + more * (large - small)) / 1e9
        figures[f"{work}, {MANY:,} images: min expected"] = (late + more * (late - early)) / 60
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
    from sparselabel.metrics.localization import LocalizationMetric

    data, run = Dataset.open(folder), Run(folder / "run")
    write_class_thresholds(run, data, _scores(2000, classes))
    without_places = data.split("test").without_labels()
    split = data.split("test")
    localization = LocalizationMetric(without_places)
    return lambda: keep_evaluation(run, split, _scores(images, classes), localization, "torch")


def _report(folder: Path, images: int, classes: int) -> Callable[[], object]:
    from sparselabel.report.make_report import make_report
    from sparselabel.report.run_data import read_runs

    return lambda: make_report(read_runs([folder / "run"]), folder / "report.html")


def _review(folder: Path, images: int, classes: int) -> Callable[[], object]:
    from sparselabel.review.answer_log import AnswerFile
    from sparselabel.review.session import Review

    split, file = Run(folder / "run").split("train"), folder / "scores.npy"
    mapped = np.lib.format.open_memmap(file, "w+", np.float16, (images, classes))
    for start in range(0, images, 1000):
        mapped[start : start + 1000] = _scores(1000, classes)
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
    ready = {"evaluate": _evaluate, "report": _report, "review": _review}[work](folder, images, classes)
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
