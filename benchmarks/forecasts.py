"""What dry runs tell of memory, time and disk, beside what the same runs then take.

Heads of many classes on frozen features; each dry run and each run is a process of its own. Target: told and
taken within a factor of 1.5. ``python -m benchmarks.forecasts --classes 20000 --images 50000 --methods an``
takes other sizes.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from benchmarks.common import show
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, TrainConfig, Views
from sparselabel.data.label_table import LabelTable
from sparselabel.data.prepare import prepare
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.readers.raw_dataset import RawDataset, RawSplit

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
POSITIVES = 3  # per image
SIDE = 32


def write_data(folder: Path, images: int, classes: int) -> None:
    """Prepared data of small noise images with random labels; training sees one positive of each."""
    random = np.random.default_rng(0)
    names, splits = tuple(f"class {number}" for number in range(classes)), {}
    (folder / "images").mkdir(parents=True)
    for split, share in SHARES.items():
        count = round(share * images)
        paths = np.array([f"{split}-{row}.jpg" for row in range(count)])
        for path in paths:
            noise = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(noise).resize((SIDE, SIDE)).save(folder / "images" / path)
        values = np.zeros((count, classes), np.int8)
        for _ in range(POSITIVES):
            values[np.arange(count), random.integers(0, classes, count)] = 1
        splits[split] = RawSplit(LabelTable(paths, names, values), paths)
    source = RawDataset("noise", folder / "images", splits)
    prepare(source, folder / "data", Preparation(sparsify="single-positive"))


def config_of(method: str) -> TrainConfig:
    """A head on frozen features, for two epochs."""
    return TrainConfig(
        method=method,
        settings={} if method == "an" else {"expected_positives": float(POSITIVES)},
        backbone="test_efficientnet",
        weights="none",
        frozen=True,
        views=Views(size=SIDE),
        head=HeadPhase(epochs=2, lr=1e-3, batch_size=256),
        finetune=FinetunePhase(epochs=0),
        watch=0,
    )


def _disk(folder: Path) -> int:
    """Bytes of what is in a folder now."""
    sizes = 0
    for file in folder.rglob("*"):
        try:
            sizes += file.stat().st_blocks * 512
        except OSError:
            continue  # gone meanwhile
    return sizes


def work(folder: Path, method: str, *, dry: bool) -> dict[str, float]:
    """Bytes and seconds that a dry run tells, or that a run takes."""
    data, out, machine = open_prepared(folder / "data"), folder / f"run-{method}", Machine("cpu", workers=0)
    if dry:
        from sparselabel.training.dry_run import dry_run

        cost = dry_run(data, config_of(method), out, machine, Handling(quiet=True))
        return {"memory": cost.ram, "seconds": cost.seconds, "disk": cost.disk}
    from sparselabel.run import Run
    from sparselabel.training.train_run import train_run

    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            most[0] = max(most[0], _disk(out))

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    try:
        train_run(data, config_of(method), out, machine, Handling(quiet=True))
    finally:
        done.set()
        watcher.join()
    return {
        "memory": Run(out).cost()["peak_memory"],
        "seconds": time.monotonic() - began,
        "disk": most[0],
    }


def main(
    images: int = 5000, classes: int = 2000, methods: tuple[str, ...] = ("an", "en", "role")
) -> dict[str, float]:
    figures: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        subprocess.run(_again("--write", folder, str(images), str(classes)), check=True)
        for method in methods:
            told, taken = (_measured(folder, method, what) for what in ("dry", "run"))
            for name, unit in (("memory", 1e6), ("seconds", 1.0), ("disk", 1e6)):
                label = f"{method}: {name}{', MB' if unit > 1 else ''}"
                figures[f"{label}, told"] = told[name] / unit
                figures[f"{label}, taken"] = taken[name] / unit
                figures[f"{method}: {name}, told of taken"] = told[name] / max(taken[name], 1e-9)
    return figures


def _again(*words: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.forecasts", *words]


def _measured(folder: str, method: str, what: str) -> dict[str, float]:
    done = subprocess.run(_again("--work", folder, method, what), check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(method, what, measured, file=sys.stderr, flush=True)
    return measured


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--classes", type=int, default=2000)
    parser.add_argument("--methods", nargs="+", default=["an", "en", "role"])
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write_data(Path(given.write[0]), int(given.write[1]), int(given.write[2]))
    elif given.work:
        print(json.dumps(work(Path(given.work[0]), given.work[1], dry=given.work[2] == "dry")))
    else:
        show("forecasts", main(given.images, given.classes, tuple(given.methods)))
