"""Training on a Ray cluster: choices, refusals, and training on two local nodes."""

import importlib.util
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import sparselabel
from sparselabel.config import Handling, Machine
from sparselabel.data.dataset import Dataset
from sparselabel.data.prepared_files import open_prepared
from sparselabel.errors import ConfigError, DataWarning, ResourceError, RunError
from sparselabel.files import TemporaryFolder
from sparselabel.progress import status_console
from sparselabel.ray_cluster import Node
from sparselabel.training import train_on_ray as module
from sparselabel.training.callbacks import Hooks
from sparselabel.training.train_on_ray import (
    DEATHS,
    Attempts,
    Job,
    LostPeerError,
    Processes,
    cause_of,
    choose_processes,
    refuse_at_once,
    room,
    shareable,
    shared_files,
    speaking,
    train_in_process,
    train_on_ray,
)
from tests.training.conftest import tiny

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs ray (the extra `cluster`)"
)
HERE = Machine(accelerator="cpu", workers=0)
SMALL, LARGE, GPUS = Node("a", "a (1)", 4, 0), Node("b", "b (2)", 10, 0), Node("c", "c (3)", 16, 4)


def test_processes_share_the_cores_that_there_are() -> None:
    assert choose_processes([SMALL, LARGE], 2, "auto", [16], 100) == Processes(2, 5, False)
    assert choose_processes([SMALL, LARGE], 3, "cpu", [16], 100) == Processes(3, 4, False)
    assert choose_processes([SMALL, LARGE], 14, "cpu", [28], 100) == Processes(14, 1, False)
    assert choose_processes([SMALL, GPUS], 4, "auto", [16], 100) == Processes(4, 4, True)
    assert room([SMALL, GPUS], Processes(4, 4, True)) == 4
    assert room([SMALL, GPUS], Processes(4, 4, False)) == 5


def test_processes_when_nobody_says_how_many() -> None:
    assert choose_processes([SMALL, LARGE], None, "auto", [16], 100).number == 2
    assert choose_processes([SMALL, GPUS], None, "auto", [16], 100).number == 4
    assert choose_processes([SMALL, GPUS], None, "cpu", [16], 100).number == 2
    assert choose_processes([SMALL, LARGE, SMALL], None, "cpu", [16, 8], 100).number == 2  # 3 share no batch
    assert choose_processes([SMALL, Node("d", "head", 0, 0)], None, "cpu", [16], 100).number == 1


def test_more_processes_than_there_is_room_for() -> None:
    with pytest.raises(ConfigError, match="the cluster has room for 14 processes, not for 15 ") as refused:
        choose_processes([SMALL, LARGE], 15, "cpu", [30], 100)
    assert (refused.value.what, refused.value.value, refused.value.allowed) == ("processes", 15, 14)
    assert "4 cores and 0 GPUs, 10 cores and 0 GPUs" in str(refused.value)
    with pytest.raises(ConfigError, match="room for 0 processes with a core and a GPU each, not for 1 "):
        choose_processes([SMALL], None, "gpu", [16], 100)


def test_the_largest_number_that_shares_every_batch() -> None:
    assert [shareable(most, [8, 12], 100) for most in range(6)] == [0, 1, 2, 2, 4, 4]
    assert shareable(8, [8], 5) == 4


def test_what_cannot_be_on_a_cluster(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Handling(quiet=True)
    with pytest.raises(ConfigError, match="`processes` must be at least 1, not 0"):
        refuse_at_once(small, HERE, quiet, 0)
    with pytest.raises(ConfigError, match="`devices` are processes of this machine") as devices:
        refuse_at_once(small, Machine(devices=2), quiet, None)
    assert devices.value.parameters == ["processes"]
    with pytest.raises(ConfigError, match="`dry_run` measures this machine"):
        refuse_at_once(small, HERE, Handling(dry_run=True), 2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="torchrun has started this one"):
        refuse_at_once(small, HERE, quiet, None)


def test_data_that_no_node_can_see(small: Dataset) -> None:
    data = replace(small, temporary=TemporaryFolder())
    with pytest.raises(ConfigError, match="cannot see data that is in memory or in a temporary folder"):
        refuse_at_once(data, HERE, Handling(), 2)


def test_refusals_before_anything_is_asked_of_the_cluster(small: Dataset, tmp_path: Path) -> None:
    def train(**changes: Any) -> None:
        config, out = changes.pop("config", tiny()), changes.pop("out", tmp_path / "run")
        train_on_ray("127.0.0.1:1", changes.pop("processes", 2), small, config, out, HERE, **changes)

    with pytest.raises(ConfigError, match="a batch of 16 cannot be shared evenly by 3 processes") as uneven:
        train(processes=3)
    assert uneven.value.parameters == [uneven.value.what]
    with pytest.raises(ConfigError, match=r"'no-method'"):
        train(config=tiny("no-method"))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    with pytest.raises(RunError, match="exists and is not a run"):
        train(out=tmp_path / "photos")
    with pytest.raises(ConfigError, match=r"there is no Ray cluster at '127.0.0.1:1' "):
        train()
    assert not (tmp_path / "run").exists()


def test_processes_without_a_cluster(small: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`processes` are those of a cluster, and none is given") as refused:
        sparselabel.train(small, tmp_path / "run", processes=2)
    assert refused.value.parameters == ["cluster", "devices"]


def test_files_that_nodes_must_see(small: Dataset, tmp_path: Path) -> None:
    data = open_prepared(copytree(small.folder, tmp_path / "data"))  # of its own: others leave files there
    (runs := tmp_path / "runs").mkdir()
    data.features_folder.mkdir(exist_ok=True)
    folders = [runs, data.features_folder]
    before = [sorted(folder.iterdir()) for folder in folders]
    with shared_files(data, runs / "first") as files:
        assert files[0] == data.folder / "dataset.json"
        assert [file.is_file() for file in files] == [True] * len(files)
        assert [file.parent for file in files[-2:]] == folders
    assert [sorted(folder.iterdir()) for folder in folders] == before


@needs_ray
def test_what_an_attempt_ended_by() -> None:
    from ray.exceptions import RayError
    from ray.train import WorkerGroupError
    from ray.train.v2._internal.exceptions import (
        WorkerGroupStartupFailedError,
        WorkerGroupStartupTimeoutError,
        WorkerHealthCheckFailedError,
    )
    from ray.train.v2.api.exceptions import ControllerError

    def cause(*failures: Exception) -> Exception:
        return cause_of(WorkerGroupError("many words", dict(enumerate(failures))))

    dead = WorkerHealthCheckFailedError("no answer", RayError("The actor died: its node has died."))
    ours, lost = RunError("training diverged"), LostPeerError("gloo: connection closed")
    assert cause(dead, lost, ours) is ours
    assert isinstance(cause(lost, dead), module._DeathError)
    assert str(cause(lost, dead)) == "its node is gone"
    assert str(cause(lost, lost)) == "it does not answer any more"
    assert str(cause(RayError("Worker exit type: SYSTEM_ERROR"), lost)) == "it was killed, or crashed"
    assert "its node was short of memory" in str(cause(RayError("the node running low on memory")))
    defect = cause(lost, KeyError("a defect"))
    assert isinstance(defect, RunError)
    assert str(defect) == "a process of the run failed: KeyError('a defect')"
    late = cause_of(ControllerError(WorkerGroupStartupTimeoutError(2)))
    assert isinstance(late, module._NoRoomError)
    failed = cause_of(ControllerError(WorkerGroupStartupFailedError("at start")))
    assert isinstance(failed, module._DeathError)


def a_job(data: Dataset, out: Path, **handling: bool) -> Job:
    return Job.of(data, tiny(), out, HERE, Handling(quiet=True, **handling), (), None, Hooks())


class Scripted(Attempts):
    """Attempts that do what a list says instead of training."""

    def __init__(self, job: Job, *script: Callable[["Scripted"], Any]) -> None:
        super().__init__(None, job, Processes(2, 4, False), [16], 61)
        self.script = list(script)
        self.attempted: list[tuple[int, Handling]] = []

    def _attempt(self, number: int) -> dict[str, Any]:
        self.attempted.append((number, self._handling()))
        return dict(self.script.pop(0)(self) or {})


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """The nodes that answer; a test may change them."""
    there = [SMALL, SMALL._replace(id="b")]
    monkeypatch.setattr(module, "answering_nodes", lambda ray: there)
    return there


def dies(attempts: Scripted) -> None:
    raise module._DeathError("killed")


def dies_after_an_epoch(attempts: Scripted) -> None:
    run = attempts.run
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    run.config_file.touch()
    (run.checkpoints / f"{attempts._epochs() + 1:04d}").mkdir()
    dies(attempts)


def finishes(attempts: Scripted) -> dict[str, Any]:
    return {"test": 1}


def test_a_run_goes_on_with_the_processes_that_there_is_room_for(
    small: Dataset, tmp_path: Path, nodes: list[Node]
) -> None:
    def loses_a_node(attempts: Scripted) -> None:
        nodes.pop()
        dies_after_an_epoch(attempts)

    job = a_job(small, tmp_path / "run", force=True)
    attempts = Scripted(job, dies, dies_after_an_epoch, loses_a_node, finishes)
    assert attempts.until_finished() == {"test": 1}
    assert [number for number, _ in attempts.attempted] == [2, 2, 2, 1]
    # What was to be replaced is replaced once.
    assert [how.force for _, how in attempts.attempted] == [True, True, False, False]
    assert [how.resume for _, how in attempts.attempted] == [False, False, True, True]


def test_a_run_whose_processes_always_die(small: Dataset, tmp_path: Path, nodes: list[Node]) -> None:
    job = a_job(small, tmp_path / "run")
    attempts = Scripted(job, dies_after_an_epoch, *[dies] * DEATHS)
    with pytest.raises(RunError, match=f"{DEATHS} times in a row a process of the run died") as gone:
        attempts.until_finished()
    assert "in epoch 2 (the last time: killed)" in str(gone.value)
    assert gone.value.parameters == ["resume"]
    assert len(attempts.attempted) == DEATHS


def test_no_node_is_left(small: Dataset, tmp_path: Path, nodes: list[Node]) -> None:
    nodes.clear()
    attempts = Scripted(a_job(small, tmp_path / "run"), dies)
    with pytest.raises(RunError, match=r"no node of the cluster is left .*\(there are none\)"):
        attempts.until_finished()


class Told(list[Any]):
    """Stands in for Ray's queue."""

    put = list.append


def test_the_first_process_says_what_the_run_says() -> None:
    told = Told()
    with speaking(told):
        status_console().print("epoch 1\nepoch 2")
        sys.stderr.write("and no end of a line")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(warnings, "filters", [])
            warnings.warn(DataWarning("few images"), stacklevel=1)
    assert told[:2] == ["epoch 1", "epoch 2"]
    assert isinstance(told[2], DataWarning)
    with pytest.warns(DataWarning, match="few images"):
        Attempts._print(SimpleNamespace(), told[2])  # type: ignore[arg-type]


@pytest.fixture
def as_process(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``train_in_process`` with a rank, and what training does instead of training."""

    def call(job: Job, rank: int, work: Callable[..., Any]) -> Any:
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
        monkeypatch.setattr(module, "train_run", work)
        return train_in_process(job, Told())

    return call


def test_a_process_opens_the_data_and_answers(
    small: Dataset, tmp_path: Path, as_process: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def work(data: Dataset, config: Any, out: Path, *more: Any, **also: Any) -> dict[str, Any]:
        seen.append((data.splits["train"].digest, config, out, Path.cwd()))
        return {"test": 1}

    monkeypatch.chdir(tmp_path)
    job = a_job(small, Path("run"))
    assert as_process(job, 0, work) == {"test": 1}
    assert as_process(job, 1, work) is None
    assert seen == [(small.train.digest, tiny(), tmp_path / "run", tmp_path)] * 2


def test_errors_of_a_process(small: Dataset, tmp_path: Path, as_process: Callable[..., Any]) -> None:
    def fails(error: Exception) -> Callable[..., Any]:
        def work(*given: Any, **also: Any) -> Any:
            raise error

        return work

    job, node = a_job(small, tmp_path / "run"), os.uname().nodename
    with pytest.raises(ResourceError, match=f"^node {node}: heat maps need 9 GB: use fewer") as short:
        as_process(job, 1, fails(ResourceError("heat maps need 9 GB", "use fewer", what="ram")))
    assert (short.value.what, short.value.where) == ("ram", node)
    with pytest.raises(LostPeerError, match="Connection closed by peer"):
        as_process(job, 1, fails(RuntimeError("[gloo/transport/tcp/pair.cc:1] Connection closed by peer")))
    with pytest.raises(RuntimeError, match="a defect"):
        as_process(job, 0, fails(RuntimeError("a defect")))


# Ray's word for: take 127.0.0.1 for this machine's address, so that nothing outside can reach the nodes.
# Its processes have niceness 15 by default: beside other work they would hardly run.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}


@pytest.mark.slow
@needs_ray
def test_two_nodes(small: Dataset, tmp_path: Path) -> None:
    """As one process; ended by Ctrl-C; and through a killed process and a lost node to the end."""
    from tests.training import some_processes, test_two_processes, two_nodes
    from tests.training.processes import SOURCES, run_processes

    copytree(small.folder, tmp_path / "data")
    # A process of its own: what Ray leaves in the one that started it must not reach other tests.
    done = subprocess.run(
        [sys.executable, two_nodes.__file__, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **LOOPBACK, "PYTHONPATH": os.pathsep.join(SOURCES), "OMP_NUM_THREADS": "1"},
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr
    assert "has sparselabel 9.9, and this machine has 0.1.0" in done.stdout
    assert "stopped with 130" in done.stdout
    assert "and nobody holds it" in done.stdout
    assert done.stderr.count("a process of the run died") == 2
    assert "going on from the checkpoint of epoch 1\n" in done.stderr
    assert "going on from the checkpoint of epoch 2, with 1 instead of 2 processes" in done.stderr

    near = test_two_processes.train_twice(small, tmp_path / "near", ("an",))
    copytree(tmp_path / "far", tmp_path / "ray" / "an")
    test_two_processes.refuse_difference({"one": near["one"], "two": tmp_path / "ray"}, small, "an")

    data, reference, whole = str(tmp_path / "data"), tmp_path / "reference", tmp_path / "whole"
    run_processes(2, some_processes.__file__, data, str(reference), "ram", "after", "2")
    some_processes.main(data, str(reference), "ram", "after", "99")
    run_processes(2, some_processes.__file__, data, str(whole), "ram", "after", "99")
    elastic, as_planned, calm = (
        json.loads((run / "result.json").read_text()) for run in (tmp_path / "elastic", reference, whole)
    )
    assert elastic == as_planned
    model = "model.safetensors"
    assert (tmp_path / "elastic" / model).read_bytes() == (reference / model).read_bytes()
    # One process draws other batches than two, so a run that shrinks is another run, as with another seed.
    assert elastic["test"]["value"] == pytest.approx(calm["test"]["value"], abs=0.05)
