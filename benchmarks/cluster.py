"""Predicting on a cluster: whether memory grows with the number of images, and what a second node brings.

    python -m benchmarks.cluster [IMAGES]

Ray's nodes are processes of this machine, with a core each. The images of the first part have a model and
a reader that do nothing: what is left is our work and Ray's. In the second part the model sleeps for each
image, so that two nodes on the same processor could be twice as fast. Rates are of the time between the first
and the last part that is done while all nodes work: starting Ray and its workers is not in them.
"""

import os
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.predict import Memory
from sparselabel.data.transforms import squashed
from sparselabel.inference.class_thresholds import no_class_thresholds
from sparselabel.inference.predict_on_ray import Task, predict_parts
from sparselabel.inference.prediction_shards import PredictionShards
from sparselabel.inference.predictor import Predictor
from sparselabel.models.classifier import Output
from sparselabel.ray_cluster import alive_nodes, connected

IMAGES, CLASSES = 1_000_000, 80
SLEEP, SLEEPY, SLEEPY_PART = 0.01, 4096, 64
NAMES = tuple(f"class {number}" for number in range(CLASSES))
PAGE = os.sysconf("SC_PAGE_SIZE")


class Stub:
    """The same scores for every image, after a while; its process tells its memory."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds, self.calls = folder, seconds, 0

    def __call__(self, views: Tensor, maps: bool = False) -> Output:
        """The output of a batch."""
        if self.calls % 100 == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            with (self.folder / str(os.getpid())).open("a") as file:
                file.write(f"{pages * PAGE / 1e6}\n")
        self.calls += 1
        time.sleep(self.seconds * len(views))
        return Output(torch.linspace(-4, 4, CLASSES).expand(len(views), -1))


def nothing(item: Any) -> Any:
    return np.zeros((3, 2, 2), np.uint8)


def stub(folder: Path, seconds: float) -> Predictor:
    thresholds = no_class_thresholds(NAMES, "nothing")
    return Predictor(Stub(folder, seconds), squashed(2), thresholds, read=nothing)


def main(images: int = IMAGES) -> dict[str, float]:
    figures: dict[str, float] = {}
    os.environ.update(
        RAY_USAGE_STATS_ENABLED="0",
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # Ray's word for: 127.0.0.1 stays that
        RAY_worker_niceness="0",  # by default 15: beside other work they would hardly run
    )
    from ray.cluster_utils import Cluster

    with TemporaryDirectory() as name:
        folder = Path(name)
        address: dict[str, Any] = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
        nodes: Any = Cluster(initialize_head=True, head_node_args={**address, "include_dashboard": False})
        try:
            for count in (images // 10, images):
                figures |= _memory(nodes.address, folder, count)
            figures["ratio of a worker's memory, 10 times as many images (1.0)"] = (
                figures[f"{images:,} images: worker's peak MB"]
                / figures[f"{images // 10:,} images: worker's peak MB"]
            )
            one = _rate(nodes.address, folder, 1)
            nodes.add_node(**address)
            two = _rate(nodes.address, folder, 2)
        finally:
            nodes.shutdown()
    figures |= {"one node: images a second": one, "two nodes: images a second": two}
    figures["two nodes over one (1.8)"] = two / one
    return figures


def _memory(address: str, folder: Path, count: int) -> dict[str, float]:
    words = folder / f"{count}.txt"
    words.write_text("".join(f"photos/{number:09}.jpg\n" for number in range(count)))
    told = folder / f"memory-{count}"
    with Memory() as memory:
        begin = time.perf_counter()
        _predict(address, words, folder / f"out-{count}", told, 0.0, 1024)
        seconds = time.perf_counter() - begin
    workers = [float(line) for file in told.iterdir() for line in file.read_text().splitlines()]
    return {
        f"{count:,} images: peak MB of the command": memory.largest,
        f"{count:,} images: worker's peak MB": max(workers),
        f"{count:,} images: µs each": 1e6 * seconds / count,
    }


def _rate(address: str, folder: Path, nodes: int) -> float:
    words = folder / "sleepy.txt"
    words.write_text("".join(f"{number}.jpg\n" for number in range(SLEEPY * nodes)))
    out, told = folder / f"rate-{nodes}", folder / f"told-{nodes}"
    _predict(address, words, out, told, SLEEP, SLEEPY_PART)
    began = max(file.stat().st_ctime_ns for file in told.iterdir() if file.suffix == ".begun")
    done = sorted(file.stat().st_mtime_ns for file in out.glob("part-*"))
    inside = [when for when in done if when >= began]
    return SLEEPY_PART * (len(inside) - 1) / ((inside[-1] - inside[0]) / 1e9)


def _predict(address: str, words: Path, out: Path, told: Path, seconds: float, part: int) -> None:
    told.mkdir()
    task = Task(PredictionShards(out, "parquet", NAMES), partial(_begun, told, seconds))
    with connected(address) as ray:
        predict_parts(ray, alive_nodes(ray), [str(words)], task, {}, part)


def _begun(told: Path, seconds: float) -> Predictor:
    (told / f"{os.getpid()}.begun").touch()
    return stub(told, seconds)


if __name__ == "__main__":
    from benchmarks.common import show

    show("cluster", main(*map(int, sys.argv[1:])))
