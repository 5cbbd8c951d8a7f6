"""Runs on a Ray cluster: their order with a stub, and training on two local nodes."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparselabel
from sparselabel.comparison.grid import Varied
from sparselabel.comparison.planned_runs import Outcome, PlannedRun, plan_runs
from sparselabel.comparison.ray_runs import Cluster, _outcome, _resources, features_first, train_task
from sparselabel.config import HeadPhase, Machine, TrainConfig
from sparselabel.errors import ConfigError, RunError
from sparselabel.ray_cluster import Node

PLANNED = plan_runs(TrainConfig(head=HeadPhase(epochs=1)), ["an", "bce"], [0, 1, 2], Path("out"))


class Pool:
    """Stands in for a cluster: what was submitted ends in the same order."""

    def __init__(self) -> None:
        self.waiting: list[PlannedRun] = []
        self.happened: list[str] = []

    def submit(self, run: PlannedRun) -> None:
        self.waiting.append(run)
        self.happened.append(f"+{run.path.name}")

    def wait(self) -> Outcome:
        run = self.waiting.pop(0)
        self.happened.append(f"-{run.path.name}")
        return Outcome(run, None, RunError("failed")) if run.seed == 0 else Outcome(run, {})


def test_all_runs_at_once() -> None:
    pool = Pool()
    outcomes = list(features_first(PLANNED, pool.submit, pool.wait, lambda run: None))
    assert [outcome.run for outcome in outcomes] == PLANNED
    assert [word[0] for word in pool.happened] == ["+"] * 6 + ["-"] * 6


def test_one_run_does_shared_work_for_the_others() -> None:
    pool = Pool()
    outcomes = list(
        features_first(
            PLANNED, pool.submit, pool.wait, lambda run: "features" if run.method == "an" else None
        )
    )
    assert {outcome.run.path for outcome in outcomes} == {run.path for run in PLANNED}
    assert pool.happened[:7] == [
        "+an-seed0",
        "+bce-seed0",
        "+bce-seed1",
        "+bce-seed2",
        "-an-seed0",  # it failed; the others try themselves
        "+an-seed1",
        "+an-seed2",
    ]


def test_an_error_is_told_without_rays_words() -> None:
    def fail(error: Exception) -> Any:
        def get() -> Any:
            raise error

        return get

    ours = RuntimeError("a long traceback of Ray")
    ours.cause = RunError("training diverged")  # type: ignore[attr-defined]
    assert str(_outcome(PLANNED[0], fail(ours)).error) == "training diverged"
    assert str(_outcome(PLANNED[0], fail(RuntimeError("worker died"))).error) == "worker died"
    assert _outcome(PLANNED[0], lambda: {"test": 1}) == Outcome(PLANNED[0], {"test": 1})


def test_what_no_node_has_is_refused() -> None:
    nodes = [Node("a", "a (1)", 4, 0)]
    assert _resources(nodes, 4, Machine()) == {"num_cpus": 4, "num_gpus": 0}
    with pytest.raises(
        ConfigError, match=r"no node of the cluster has 5 cores for a run \(there are: 4 cores and 0 GPUs"
    ):
        _resources(nodes, 5, Machine())
    with pytest.raises(ConfigError, match="has 1 core and a GPU"):
        _resources(nodes, 1, Machine(accelerator="gpu"))
    nodes.append(Node("b", "b (2)", 64, 8))
    assert _resources(nodes, 1, Machine()) == {"num_cpus": 1, "num_gpus": 1}
    assert _resources(nodes, 64, Machine(accelerator="cpu")) == {"num_cpus": 64, "num_gpus": 0}
    with pytest.raises(ConfigError, match="`cluster_cores` must be at least 1, not 0"):
        Cluster("auto", 0)


def test_a_node_without_the_shared_disk(tmp_path: Path) -> None:
    with pytest.raises(
        RunError, match=r"has no folder .*no: data, runs and the folder of the command must be on a disk"
    ):
        train_task(str(tmp_path), str(tmp_path / "no"), PLANNED[0], Machine(), ())


def test_several_devices_are_refused() -> None:
    data: Any = None
    with pytest.raises(ConfigError, match="a run on a cluster has 1 device, not 2"):
        next(Cluster("auto").train(data, PLANNED, Machine(devices=2), ()))


# Ray's word for: take 127.0.0.1 for this machine's address, so that nothing outside can reach the nodes.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
TWO_NODES = """
import json, os, sys
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
from pathlib import Path
from ray.cluster_utils import Cluster as Nodes
from sparselabel.comparison.ray_runs import Cluster
from tests.comparison.test_runner import compare
from sparselabel.config import Machine
from sparselabel.data.prepared_files import open_prepared
from sparselabel.errors import ConfigError
from tests.comparison.test_ray_runs import planned_runs

here = Machine(accelerator="cpu", workers=0)
folder = Path(sys.argv[1])
nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "node_ip_address": "127.0.0.1",
                                                    "include_dashboard": False})
try:
    nodes.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    where = Cluster(nodes.address)
    try:
        list(Cluster(nodes.address, 2).train(None, [], here, ()))
    except ConfigError as error:
        print(error)
    rows = compare(open_prepared(folder / "data"), planned_runs(folder / "far"), here, cluster=where)
    errors = [[str(outcome.error) for outcome in row.failed] for row in rows]
    print(json.dumps([[row.method, len(row.test), failed] for row, failed in zip(rows, errors)]))
finally:
    nodes.shutdown()
"""


def planned_runs(out: Path) -> list[PlannedRun]:
    """Four runs on stored features; one of them diverges."""
    from tests.comparison.test_runner import TINY

    rates = Varied("head.lr", ("0.01", "1e38"))
    good = plan_runs(replace(TINY, precision="32-true"), ["an", "bce"], [0], out)
    return [*good, *plan_runs(TINY, ["wan"], [0], out, varied=rates)]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray (the extra `cluster`)")
def test_a_cluster_gives_what_this_machine_gives(tmp_path: Path) -> None:
    from tests.comparison.test_runner import HERE, compare, small_scenes

    data = small_scenes(tmp_path / "data")
    near = planned_runs(tmp_path / "near")
    compare(data, near, HERE)
    sources = [str(Path(sparselabel.__file__).parents[1]), str(Path(__file__).parents[2])]
    # A process of its own: what Ray leaves in the one that started it must not reach other tests.
    done = subprocess.run(
        [sys.executable, "-c", TWO_NODES, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **LOOPBACK, "PYTHONPATH": os.pathsep.join(sources), "OMP_NUM_THREADS": "1"},
        timeout=540,
    )
    assert done.returncode == 0, done.stderr
    refused, rows = done.stdout.splitlines()[-2:]
    assert refused.startswith("no node of the cluster has 2 cores for a run")
    *good, (method, tested, (error,)) = json.loads(rows)
    assert good == [["an", 1, []], ["bce", 1, []], ["wan", 1, []]]
    assert (method, tested) == ("wan", 0)
    assert error.startswith("training diverged in phase head (learning rate 1e+38)")  # not Ray's traceback
    for run in near:
        far = tmp_path / "far" / run.path.name
        if (run.path / "result.json").exists():
            here, there = (json.loads((path / "result.json").read_text()) for path in (run.path, far))
            assert here == there
            assert (run.path / "model.safetensors").read_bytes() == (far / "model.safetensors").read_bytes()
        else:
            assert not (far / "result.json").exists()
