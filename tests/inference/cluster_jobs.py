"""Run by ``test_predict_on_ray`` in a separate process: jobs on Ray nodes, and what they wrote."""

import json
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sparselabel.data.dataset import Dataset
from sparselabel.data.image_paths import image_paths, images
from sparselabel.data.transforms import squashed
from sparselabel.errors import SparselabelError
from sparselabel.inference.predict_on_ray import Done, Task, predict_parts
from sparselabel.inference.prediction_shards import PredictionShards
from sparselabel.inference.predictor import Predictor
from sparselabel.models.classifier import Output
from sparselabel.ray_cluster import alive_nodes, connected
from tests.inference.local_nodes import local_nodes
from tests.inference.stub import CLASSES, Colors, class_thresholds

BATCH, PART = 4, 16


class SlowColors(Colors):
    """Takes its time, and tells which processes there are."""

    def __init__(self, pids: Path, seconds: float) -> None:
        self.pids, self.seconds = pids, seconds

    def __call__(self, views: torch.Tensor, maps: bool = False) -> Output:
        (self.pids / str(os.getpid())).touch()
        time.sleep(self.seconds * len(views))
        return super().__call__(views, maps)


def slow(pids: Path, seconds: float) -> Predictor:
    pids.mkdir(exist_ok=True)
    return Predictor(SlowColors(pids, seconds), squashed(8), class_thresholds(0.5, 0.5, 0.5))


def job(nodes: Any, words: list[str], out: Path, seconds: float = 0.0, **how: Any) -> Done:
    load = partial(slow, pids_of(out), seconds)
    task = Task(PredictionShards(out.absolute(), "csv", CLASSES), load, batch=BATCH)
    with connected(nodes.address) as ray:
        return predict_parts(ray, alive_nodes(ray), words, task, {"run": "stub"}, PART, **how)


def rows(out: Path) -> list[str]:
    return [line for file in sorted(out.glob("part-*.csv")) for line in file.read_text().splitlines()[1:]]


def kill_while(nodes: Any, node: Any, out: Path) -> None:
    """A worker after two parts, a node after five more."""
    wait_for(out, 2)
    os.kill(int(next(pids_of(out).iterdir()).name), signal.SIGKILL)
    wait_for(out, 7)
    nodes.remove_node(node, allow_graceful=False)


def wait_for(out: Path, parts: int) -> None:
    while len([*out.glob("part-*")]) < parts:
        time.sleep(0.02)


def wait_for_death(nodes: Any) -> int:
    """The number of nodes, once one of the two is dead: Ray may find that out after the job has ended."""
    deadline = time.monotonic() + 60
    with connected(nodes.address) as ray:
        while len(alive_nodes(ray)) > 1 and time.monotonic() < deadline:
            time.sleep(0.2)
        return len(alive_nodes(ray))


def pids_of(out: Path) -> Path:
    """Where the workers of a job tell their processes."""
    return out.with_name(f"{out.name}-pids")


def main(folder: Path) -> None:
    os.chdir(folder)
    said: dict[str, Any] = {}
    with local_nodes(1) as nodes:
        said["whole"] = job(nodes, ["photos", "shard.tar", "table.parquet"], folder / "whole")
        try:
            job(nodes, ["photos", "torn.tar.gz"], folder / "torn")
        except SparselabelError as error:
            said["torn"] = str(error)
        prepare = partial(Dataset.from_table, "labels.csv", validation=0, cluster=nodes.address)
        said["prepared"] = {
            images: prepare(images=images, out=folder / f"prepared-{images}").train.digest
            for images in ("many", "many.tar")
        }
        second = nodes.add_node(num_cpus=1, node_ip_address="127.0.0.1")
        killer = threading.Thread(target=kill_while, args=(nodes, second, folder / "killed"))
        killer.start()
        said["killed"] = job(nodes, ["many"], folder / "killed", 0.02)
        killer.join()
        said["left"] = wait_for_death(nodes)
        other = folder / "other"
        nodes.add_node(num_cpus=1, node_ip_address="127.0.0.1", env_vars={"PYTHONPATH": str(other)})
        try:
            job(nodes, ["photos"], folder / "unfit")
        except SparselabelError as error:
            said["unfit"] = str(error)
    said["rows"] = {name: rows(folder / name) for name in ("whole", "killed")}
    sys.stdout.write(json.dumps(said))


def on_one_machine(words: list[str]) -> Any:
    """The predictions that the jobs should give."""
    predictor = Predictor(Colors(), squashed(8), class_thresholds(0.5, 0.5, 0.5))
    return predictor(images(image_paths(words)), batch=BATCH)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
