"""Labels of Open Images' size: what reading, preparing, counting, training and evaluating take.

    python -m benchmarks.open_images_size --images 1000000 FOLDER

A table of labels is generated, in the form of Open Images': so many images and classes, about seven known
labels an image, a few classes frequent and most rare. Images are stubs of a few pixels, and not files. Each
part runs in a process of its own, whose peak of memory is told; what takes long can be run alone (--only):
without ``generate``, ``prepare`` begins with labels in memory instead of a table.
"""

import argparse
import contextlib
import io
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from benchmarks.common import show
from sparselabel import SparseLoss, train
from sparselabel.cli.data import data as data_command
from sparselabel.config import Preparation
from sparselabel.data.dataset import Dataset
from sparselabel.data.image_source import ImageSource
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import SparseLabels, take_rows
from sparselabel.data.prepare import prepare
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.readers import table
from sparselabel.data.readers.raw_dataset import Listing, RawDataset, RawSplit
from sparselabel.files import write_json
from sparselabel.inference.evaluate import evaluate_run
from sparselabel.resources import forget_peak, peak_memory
from sparselabel.run import Run

KNOWN = 20 / 3  # labels an image, 60 million of 9 million
POSITIVE = 0.4  # share of the known labels
TEST = 100_000
STEPS, BATCH, WIDTH = 20, 256, 64
BLOCK = 200_000  # images whose labels are made at a time
METHODS: dict[str, dict[str, Any]] = {"an": {}, "pu": {"expected_positives": 5.0}}
PARTS = ("generate", "read", "prepare", "data", "step", "evaluate")


class Stubs:
    """Images of one color and 32 pixels, made when they are asked for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> Image.Image:
        return Image.new("RGB", (32, 32), (row % 256, row // 256 % 256, 99))


class Everything(Listing):
    """A folder that has every file."""

    def __contains__(self, path: str) -> bool:
        return True


def known_labels(images: int, classes: int, first: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, classes and values of about ``KNOWN`` labels of each image, rows rising, none twice."""
    random = np.random.default_rng(first)
    rows = np.repeat(np.arange(images), random.poisson(KNOWN - 1, images) + 1)
    columns = (classes * random.random(len(rows)) ** 3).astype(np.int64)  # few are frequent
    keys = np.unique(rows * classes + columns)
    rows, columns = np.divmod(keys, classes)
    values = ((rows + first) * 31 + columns * 17) % 100 < 100 * POSITIVE
    return rows, columns, values.astype(np.int8)


def sparse_labels(images: int, classes: int) -> SparseLabels:
    starts, columns, known = [np.zeros(1, np.int64)], [], []
    for first in range(0, images, BLOCK):
        rows, some, values = known_labels(min(BLOCK, images - first), classes, first)
        starts.append(starts[-1][-1] + np.cumsum(np.bincount(rows)))
        columns.append(some.astype(np.int32))
        known.append(values)
    return SparseLabels(np.concatenate(starts), np.concatenate(columns), np.concatenate(known), classes)


def generate(folder: Path, images: int, classes: int) -> dict[str, float]:
    lines = 0
    names = [f"/m/{number:05x}" for number in range(classes)]
    with (folder / "labels.csv").open("w") as file:
        file.write("ImageID,LabelName,Confidence\n")
        for start in range(0, images, BLOCK):
            rows, columns, values = known_labels(min(BLOCK, images - start), classes, start)
            ids = [f"{number * 2654435761 % 2**61:016x}" for number in range(start, start + BLOCK)]
            parts = zip(rows.tolist(), columns.tolist(), values.tolist(), strict=True)
            file.writelines(f"{ids[row]},{names[column]},{value}\n" for row, column, value in parts)
            lines += len(rows)
    return {"labels": lines, "GB of the table": (folder / "labels.csv").stat().st_size / 1e9}


def read_table(folder: Path) -> RawDataset:
    with patch.object(table, "Listing", Everything):
        source = table.read(
            folder / "labels.csv", image="ImageID", label="LabelName", value="Confidence", suffix=".jpg"
        )
    stubs = {name: _with_stubs(split) for name, split in source.splits.items()}
    return replace(source, splits=stubs)


def _with_stubs(split: RawSplit) -> RawSplit:
    return replace(split, images=ImageSource(Stubs(len(split.paths)), np.arange(len(split.paths))))


def read(folder: Path, images: int, classes: int) -> dict[str, float]:
    labels = read_table(folder).splits["train"].labels
    return {
        "images": len(labels),
        "known labels": labels.known,
        "GB of the labels": labels.matrix.nbytes / 1e9,
    }


def prepare_all(folder: Path, images: int, classes: int) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rare classes have no positive
        if (folder / "labels.csv").is_file():
            source = read_table(folder)
        else:
            source = _imagined(folder, images, classes)
            forget_peak()  # that of making labels up
        prepare(source, folder / "prepared", Preparation(validation=0.001), force=True)
    files = (folder / "prepared").rglob("*.npy")
    return {"GB of the prepared data": sum(file.stat().st_size for file in files) / 1e9}


def _imagined(folder: Path, images: int, classes: int) -> RawDataset:
    """What reading the table would give, without the table."""
    names = tuple(f"/m/{number:05x}" for number in range(classes))
    ids = np.empty(images, "U20")
    for start in range(0, images, 1 << 16):
        numbers = range(start, min(start + (1 << 16), images))
        ids[start : start + len(numbers)] = [f"{number * 2654435761 % 2**61:016x}.jpg" for number in numbers]
    split = _with_stubs(RawSplit(LabelTable(ids, names, sparse_labels(images, classes)), ids))
    return RawDataset("imagined", folder, {"train": split}, own=True)


def count(folder: Path, images: int, classes: int) -> dict[str, float]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        data_command(folder / "prepared", json=True)
    described = json.loads(out.getvalue())
    known = described["splits"]["train"]["observed"]
    return {"share of labels that is known": known["positive"] + known["negative"]}


def step(folder: Path, images: int, classes: int) -> dict[str, float]:
    """Steps of a linear head, in turn with the labels of all images, a tenth and a hundredth of them."""
    table = open_prepared(folder / "prepared").train.observed
    sizes = [len(table) // part for part in (100, 10, 1)]
    random, figures = np.random.default_rng(0), dict[str, float]()
    for method, settings in METHODS.items():
        criteria = {
            size: SparseLoss(method, take_rows(table.matrix, np.arange(size)), epochs=1, **settings)
            for size in sizes
        }
        head, features = nn.Linear(WIDTH, len(table.classes)), torch.randn(BATCH, WIDTH)
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        seconds: dict[int, list[float]] = {size: [] for size in sizes}
        for criterion in criteria.values():
            criterion.set_epoch(0)
        for _ in range(STEPS):  # in turn, so that what else the machine does slows all of them
            for size, criterion in criteria.items():
                index = torch.from_numpy(random.integers(0, size, BATCH))
                began = time.perf_counter()
                loss: Tensor = criterion(head(features), index)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                optimizer.zero_grad()
                seconds[size].append(time.perf_counter() - began)
        for size, times in seconds.items():
            figures[f"{method}: ms a step of {BATCH} images of {size:,}"] = 1000 * float(np.median(times))
    return figures


def evaluate(folder: Path, images: int, classes: int) -> dict[str, float]:
    """Train a tiny network on a few images, then score and measure ``TEST`` of them."""
    data = _small(folder / "small", classes)
    settings: dict[str, Any] = {"head": {"epochs": 0}, "finetune": {"epochs": 1}, "views": {"size": 32}}
    to_train_on = replace(data, splits={"train": data.train})
    run = train(to_train_on, folder / "run", model=Tiny(), method="an", force=True, quiet=True, **settings)
    # Training would have scored the test images itself: the run is told of them afterwards.
    about = run.metadata()
    about["data_digest"]["test"] = data.split("test").digest
    write_json(run.metadata_file, about)
    run = Run.open(run.path, data=data, model=Tiny())
    forget_peak()
    began = time.perf_counter()
    measured = evaluate_run(run, "test")
    return {
        "images": TEST,
        "seconds of evaluate": time.perf_counter() - began,
        "observed-label mAP": measured["mean_average_precision"]["sklearn"]["mean"],
        "mAP by known labels": measured["known"]["mean_average_precision"],
    }


class Tiny(nn.Module):
    """A backbone of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, WIDTH, 8, stride=8)

    def forward(self, views: Tensor) -> Tensor:
        return torch.relu(self.layer(views))


def _small(folder: Path, classes: int) -> Dataset:
    splits, names = {}, tuple(f"/m/{number:05x}" for number in range(classes))
    for name, count in (("train", 20_000), ("test", TEST)):
        ids = np.array([f"{name}-{row}" for row in range(count)])
        labels = LabelTable(ids, names, sparse_labels(count, classes))
        splits[name] = _with_stubs(RawSplit(labels, ids))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return prepare(RawDataset("small", folder, splits), folder, Preparation(validation=0), force=True)


RUN: dict[str, Callable[[Path, int, int], dict[str, float]]] = dict(
    zip(PARTS, (generate, read, prepare_all, count, step, evaluate), strict=True)
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the table and the prepared data; it stays")
    parser.add_argument("--images", type=int, default=9_000_000)
    parser.add_argument("--classes", type=int, default=20_000)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if not given.here:
        for part in given.only:
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "benchmarks.open_images_size",
                    *sys.argv[1:],
                    "--here",
                    "--only",
                    part,
                ],
                check=True,
            )
        return
    for part in given.only:
        before, began, worked = peak_memory(), time.perf_counter(), time.process_time()
        figures = RUN[part](given.folder, given.images, given.classes)
        figures |= {
            "seconds": time.perf_counter() - began,
            "seconds of the processor": time.process_time() - worked,
            "GB of memory at the peak": peak_memory() / 1e9,
            "of these before it began": before / 1e9,
        }
        show(f"{part}, {given.images:,} images, {given.classes:,} classes", figures)


if __name__ == "__main__":
    main()
