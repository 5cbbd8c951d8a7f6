"""Until something happens, beyond importing torch: a training's first step, an image's prediction.

Targets: help under 0.5 s, the first step under 2 s, a prediction under 1 s. The time of the processor is what
a quiet machine takes; others move the wall's clock.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import show
from sparselabel.config import Preparation
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes

FIRST_STEP = """
import os
from sparselabel.cli import main
from sparselabel.losses.base import ComposedLoss
update = ComposedLoss.update
def stop(self, step):
    update(self, step)
    os._exit(0)
ComposedLoss.update = stop
main()
"""
TURNS = 3


def seconds(command: list[str]) -> tuple[float, float]:
    """The least of three turns, by the wall's clock and by the processor's."""

    def once() -> tuple[float, float]:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        # No pipes: loader processes that outlive the one they work for would keep them open.
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    turns = [once() for _ in range(TURNS)]
    return min(wall for wall, _ in turns), min(processor for _, processor in turns)


def main() -> dict[str, float]:
    python = sys.executable
    with TemporaryDirectory() as name:
        folder = Path(name)
        source = scenes.make(folder / "data", train=200, test=20, size=64)
        data = prepare(source, folder / "data", Preparation(sparsify="single-positive"))
        network = ["--backbone", "test_resnet", "--weights", "none", "--views.size", "64", "--quiet"]
        run = ["train", str(folder / "data"), *network, "--out", str(folder / "run"), "--force"]
        run += ["--method", "an"]  # one that takes steps
        subprocess.run([python, "-m", "sparselabel", *run, "--frozen", "--head.epochs", "1"], check=True)
        image = str(data.train.path(0))
        out = ["--out", str(folder / "tags.csv"), "--force"]
        predict = seconds([python, "-m", "sparselabel", "predict", str(folder / "run"), image, *out])
        stored = seconds([python, "-c", FIRST_STEP, *run, "--frozen"])
        images = seconds([python, "-c", FIRST_STEP, *run])
        alone = seconds([python, "-c", "import torch"])
        help_alone = seconds([python, "-m", "sparselabel", "--help"])
    figures: dict[str, float] = {}
    for clock, words in enumerate(("s", "s of computing")):
        figures |= {
            f"help, {words} (under 0.5)": help_alone[clock],
            f"import torch, {words}": alone[clock],
            f"predict an image, {words} beyond torch (under 1)": predict[clock] - alone[clock],
            f"first step on stored features, {words} beyond torch (under 2)": stored[clock] - alone[clock],
            f"first step on images, {words} beyond torch (under 2)": images[clock] - alone[clock],
        }
    return figures


if __name__ == "__main__":
    show("startup", main())
