"""Heat maps of COCO and of ImageNet in files, at full size, on made-up scores: what they take of RAM.

Run it by itself (`python -m benchmarks.maps_at_full_size FOLDER`): it writes up to 10 GB there. The labels
themselves are there before it counts; everything that en+scl does with them, and the choice of expected
positives among all rows, is counted.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.common import show
from benchmarks.heatmaps import random_frame
from sparselabel.data.labels import UNKNOWN
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.registry import make_method
from sparselabel.losses.step import Layout, Progress, Step
from sparselabel.models.classifier import Output


def resident() -> int:
    """Bytes of RAM this process holds now; from now on ``most_resident`` counts."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return most_resident()


def most_resident() -> int:
    """The most bytes of RAM this process has held since ``resident`` was asked."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def commit(method: ComposedLoss) -> None:
    """What a checkpoint does with the memories."""
    for memory in method.row_stores().values():
        memory.state()
        memory.on_checkpoint_saved()


def trained(
    name: str, rows: int, classes: int, cells: int, batch: int, steps: int, top: int | None, folder: Path
) -> dict[str, float]:
    """The beginning of an epoch and some of its steps, over rows from everywhere in the file."""
    observed = torch.full((rows, classes), UNKNOWN, dtype=torch.int8)
    observed[torch.arange(rows), torch.randint(classes, (rows,))] = 1
    method = make_method("en+scl", expected_positives=3.0, **({"top_maps": top} if top else {}))
    progress = Progress(epoch=6, epochs=30, head_epochs=5, lr=1e-5)
    before, begin = resident(), time.perf_counter()
    layout = Layout(torch.arange(rows), observed, rows, folder=folder, keep="file", grid=(cells, cells))
    method.prepare(layout)
    method.begin_epoch(progress)  # nobody has a score yet: all rows are equal, the most work for the choice
    filled = begin
    order = [torch.randperm(rows)[:batch].clone() for _ in range(steps)]  # a view would keep all rows
    for number, batch_rows in enumerate(order):
        for soon in order[number + 1 : number + 4]:
            method.prefetch(soon)
        maps = torch.randn(batch, classes, cells, cells).to(memory_format=torch.channels_last)
        step = Step(
            batch_rows,
            observed[batch_rows],
            (Output(maps.mean(dim=(2, 3)), maps),),
            (random_frame(batch),),
            progress,
        )
        with torch.no_grad():
            method(step)
            method.update(step)
        if number == 0:
            commit(method)  # what was filled is on the disk: what follows is the middle of a run
            filled = time.perf_counter()
    took = time.perf_counter() - filled
    begin_commit = time.perf_counter()
    commit(method)
    return {
        f"{name}: files, GB": sum(file.stat().st_size for file in folder.iterdir()) / 1e9,
        f"{name}: most RAM for them, MB (under 500)": (most_resident() - before) / 1e6,
        f"{name}: s to count, choose and fill": filled - begin,
        f"{name}: ms a step, the model's time left out": 1e3 * took / (steps - 1),
        f"{name}: s to commit a checkpoint": time.perf_counter() - begin_commit,
    }


def main(where: str | None = None) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, arguments in {
        "COCO, 65,665 × 80 × 28²": (65_665, 80, 14, 8, 300, None),
        "ImageNet, 1,281,167 × 10 of 1,000 × 14²": (1_281_167, 1000, 7, 64, 60, 10),
    }.items():
        with TemporaryDirectory(dir=where) as folder:
            found = trained(name, *arguments, folder=Path(folder))
            show("maps at full size", found)
            figures |= found
    return figures


if __name__ == "__main__":
    main(*sys.argv[1:])
