"""Run by test_train_on_ray: trains on a Ray cluster of two local nodes."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import sparselabel
from sparselabel.config import TrainConfig
from sparselabel.errors import ConfigError
from sparselabel.locks import locked
from sparselabel.training.callbacks import Callback
from tests.training import some_processes, two_processes

LOCAL: dict[str, Any] = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
FLAGS = """
    --method an --backbone test_convnext --weights none --views.size 32 --head.epochs 0
    --finetune.epochs 500 --finetune.batch-size 12 --accelerator cpu --workers 1
"""


class Accidents(Callback):
    """The second of two processes is killed at the end of epoch 2; at that of epoch 3 its machine is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_epoch_end(self, trainer: Any, record: dict[str, Any]) -> None:
        """Die, or wait for it, once each."""
        fabric, file = trainer.fabric, self.folder / f"accident-{record['epoch']}"
        if fabric.world_size == 1 or fabric.global_rank == 0 or file.exists():
            return
        if record["epoch"] == 2:
            file.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if record["epoch"] == 3:
            file.touch()
            time.sleep(300)


def train(folder: Path, name: str, address: str, config: TrainConfig, **more: Any) -> None:
    """Train a run on both nodes."""
    where: dict[str, Any] = {"cluster": address, "processes": 2, "accelerator": "cpu", "workers": 0}
    sparselabel.train(folder / "data", folder / name, config=config, **where, **more)


def unfit(folder: Path, nodes: Any) -> None:
    """A node that has another version of the package."""
    about = folder / "other" / "sparselabel-9.9.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sparselabel\nVersion: 9.9\n")
    path = os.pathsep.join([str(about.parent), os.environ["PYTHONPATH"]])
    third = nodes.add_node(env_vars={"PYTHONPATH": path}, **LOCAL)
    try:
        train(folder, "unfit", nodes.address, two_processes.config("an"))
    except ConfigError as error:
        tell(str(error))
    nodes.remove_node(third, allow_graceful=False)


def interrupted(folder: Path, nodes: Any) -> None:
    """A run whose command gets Ctrl-C."""
    run = folder / "stopped"
    command = [sys.executable, "-m", "sparselabel", "train", str(folder / "data"), "--out", str(run)]
    where = ["--cluster", nodes.address, "--processes", "2"]
    process = subprocess.Popen([*command, *FLAGS.split(), *where], stderr=subprocess.PIPE, text=True)
    while not (run / "checkpoints" / "0001").is_dir() and process.poll() is None:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    tell(f"stopped with {process.returncode}: {said.splitlines()[-1]}")
    with locked(run):
        tell("and nobody holds it")


def elastic(folder: Path, nodes: Any, second: Any) -> None:
    """A run that loses a process, then a node."""

    def lose_node() -> None:
        while not (folder / "accident-3").exists():
            time.sleep(0.2)
        nodes.remove_node(second, allow_graceful=False)

    threading.Thread(target=lose_node, daemon=True).start()
    train(folder, "elastic", nodes.address, some_processes.CONFIG, callbacks=[Accidents(folder)])


def main(folder: Path) -> None:
    """All of it, one after the other: a cluster takes half a minute to start."""
    from ray.cluster_utils import Cluster

    nodes: Any = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **LOCAL})
    try:
        second = nodes.add_node(**LOCAL)
        unfit(folder, nodes)
        train(folder, "far", nodes.address, two_processes.config("an"))
        interrupted(folder, nodes)
        elastic(folder, nodes, second)
    finally:
        nodes.shutdown()


def tell(text: str) -> None:
    """To the test."""
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
