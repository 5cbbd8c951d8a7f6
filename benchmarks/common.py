"""What benchmarks share: data without images, and a table of figures."""

import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import UNKNOWN
from sparselabel.data.spatial_labels import SpatialLabels

Seconds = tuple[float, float]
"""Of the wall's clock, and of the processor."""


def now() -> Seconds:
    return time.perf_counter(), time.process_time()


def since(begin: Seconds) -> Seconds:
    wall, processor = now()
    return wall - begin[0], processor - begin[1]


def show(name: str, figures: dict[str, float]) -> None:
    table = Table("figure", "value", title=name, title_justify="left")
    for key, value in figures.items():
        table.add_row(key, f"{value:,.3f}".rstrip("0").rstrip("."))
    Console().print(table)


def table_of(files: Iterable[Path], table: Path, classes: int = 20) -> Path:
    """Write a table that gives every image one of the classes, in turn."""
    lines = [f"{file.name},class {number % classes}" for number, file in enumerate(sorted(files))]
    table.write_text("\n".join(["image,labels", *lines]))
    return table


def imagined(folder: Path, counts: dict[str, int], classes: int, seed: int = 0) -> Dataset:
    """Prepared data of random labels whose images do not exist: for benchmarks on stored features."""
    random = np.random.default_rng(seed)
    splits = {}
    for name, count in counts.items():
        ids = np.array([f"{name}-{row}" for row in range(count)])
        names = tuple(f"class {number}" for number in range(classes))
        truth = (random.random((count, classes)) < 1.5 / classes).astype(np.int8)
        truth[np.arange(count), random.integers(0, classes, count)] = 1
        observed = np.full_like(truth, UNKNOWN)
        observed[np.arange(count), truth.argmax(axis=1)] = 1
        splits[name] = PreparedSplit(
            name=name,
            root=folder,
            paths=ids,
            truth=LabelTable(ids, names, truth),
            observed=LabelTable(ids, names, observed if name == "train" else truth),
            spatial_labels=SpatialLabels.none(),
            digests=random.integers(0, 2**63, count).astype(np.uint64),
            digest=name,
        )
    return Dataset(folder, "imagined", splits["train"].truth.classes, splits)
