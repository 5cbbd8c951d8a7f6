"""What ROLE's label estimates cost a step: independent of the number of images, in RAM and in a file."""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F

from sparselabel.data.labels import UNKNOWN
from sparselabel.losses.base import ComposedLoss, TargetLoss
from sparselabel.losses.memory.row_store import FileRowStore, RamRowStore
from sparselabel.losses.role import EstimatesLoss, LabelEstimates, RoleTargets
from sparselabel.losses.step import Layout, Progress, Step
from sparselabel.models.classifier import Output

BATCH = 16


def trained(images: int, classes: int, folder: Path | None = None) -> ComposedLoss:
    """A method in the middle of training: every row has been touched, at different times."""
    observed = torch.full((1, classes), UNKNOWN, dtype=torch.int8).expand(images, classes)
    beliefs = LabelEstimates(1.5)
    method = ComposedLoss(
        TargetLoss(RoleTargets(beliefs), cross_entropy), {"estimates": EstimatesLoss(beliefs)}
    )
    method.prepare(Layout(torch.arange(images), observed, images))
    if folder is not None:
        lines = beliefs.lines
        beliefs.lines = FileRowStore(folder / "role.rows", images, lines.width, lines.initial, lines.dtype)
    for _ in range(2000):
        beliefs.clock.tick(0.01)
    beliefs.clock.touched.random_(1, 1500)
    for local_index in beliefs.lines.chunks():
        lines_of = beliefs.lines.read(local_index)
        lines_of[:, classes:] = 1e-4 * torch.rand(len(local_index), 2 * classes) ** 2
        beliefs.lines.write(local_index, lines_of)
    return method


def cross_entropy(logits: torch.Tensor, target: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(logits, target, reduction="none")


def some_steps(images: int, classes: int, count: int) -> Iterator[Step]:
    for _ in range(count):
        rows = torch.randint(images // BATCH, (BATCH,)) * BATCH + torch.arange(BATCH)  # no row twice
        observed = torch.full((BATCH, classes), UNKNOWN, dtype=torch.int8)
        yield Step(rows, observed, (Output(torch.randn(BATCH, classes)),), (), Progress(0, 1, 0, 0.001))


def microseconds(method: ComposedLoss, images: int, classes: int, count: int = 400) -> dict[str, float]:
    """Times of computing the losses (with the look-up) and of observing, undisturbed ones (lowest tenth)."""
    times = []
    for step in some_steps(images, classes, count):
        begin = time.perf_counter()
        with torch.no_grad():
            method(step)
        middle = time.perf_counter()
        method.update(step)
        times.append((middle - begin, time.perf_counter() - middle))
    looks, observes = torch.tensor(times[count // 10 :], dtype=torch.float64).T * 1e6
    columns = {"losses": looks, "observe": observes, "both": looks + observes}
    return {name: column.quantile(0.1).item() for name, column in columns.items()}


def main() -> dict[str, float]:
    figures: dict[str, float] = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for classes in (20, 80, 1000):
            method = trained(2000, classes)
            for name, value in microseconds(method, 2000, classes, count=100).items():
                figures[f"{name}, {classes} classes, {threads} threads, µs"] = round(value, 1)
    torch.set_num_threads(1)
    small, large = trained(5_000, 20), trained(500_000, 20)
    # The two take turns, so that a busy machine slows both.
    turns = [(microseconds(small, 5_000, 20), microseconds(large, 500_000, 20)) for _ in range(5)]
    few, many = (min(turn[which]["both"] for turn in turns) for which in (0, 1))
    figures["5,000 images, µs"] = round(few, 1)
    figures["500,000 images, µs"] = round(many, 1)
    figures["ratio (at most 1.1)"] = round(many / few, 3)
    lines = next(memory for memory in large.row_stores().values() if isinstance(memory, RamRowStore))
    held = sum(value.nbytes for memory in large.row_stores().values() for value in memory.state().values())
    figures["RAM for 500,000 images, MB"] = round(held / 1e6, 1)
    figures["of these φ and its moments, MB"] = round(lines.rows * lines.row_bytes / 1e6, 1)
    with TemporaryDirectory() as folder:
        in_file = microseconds(trained(5_000, 20, Path(folder)), 5_000, 20)["both"]
    figures["5,000 images in a file, µs"] = round(in_file, 1)
    figures["file to RAM"] = round(in_file / few, 2)
    return figures
