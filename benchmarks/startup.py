"""Until something happens. Targets: help under 0.5 s; first step under 3 s beyond importing torch."""

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from sparselabel.config import Preparation
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes

FIRST_STEP = """
import os, sys
from sparselabel.cli import main
import sparselabel.losses.base as base
original = base.Method.observe
def stop(self, step, targets):
    original(self, step, targets)
    os._exit(0)
base.Method.observe = stop
main()
"""


def seconds(command: list[str]) -> float:
    def once() -> float:
        begin = time.perf_counter()
        # No pipes: loader processes that outlive the one they work for would keep them open.
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - begin

    return min(once() for _ in range(3))


def main() -> dict[str, float]:
    python = sys.executable
    with TemporaryDirectory() as name:
        folder = Path(name)
        source = scenes.make(folder / "data", train=200, test=20, size=64)
        prepare(source, folder / "data", Preparation(sparsify="single-positive"))
        flags = [
            "train",
            str(folder / "data"),
            "--backbone",
            "test_resnet",
            "--weights",
            "none",
            "--views.size",
            "64",
        ]
        flags += ["--out", str(folder / "run"), "--force", "--quiet"]
        subprocess.run([python, "-m", "sparselabel", *flags, "--frozen", "--head.epochs", "1"], check=True)
        torch_alone = seconds([python, "-c", "import torch"])
        images = seconds([python, "-c", FIRST_STEP, *flags])
        stored = seconds([python, "-c", FIRST_STEP, *flags, "--frozen"])
        return {
            "help, s (under 0.5)": seconds([python, "-m", "sparselabel", "--help"]),
            "import torch, s": torch_alone,
            "first step on images, s beyond torch (under 3)": images - torch_alone,
            "first step on stored features, s beyond torch (under 3)": stored - torch_alone,
        }
