"""Runs on a Ray cluster (the extra ``cluster``): each is a task on a node that has the cores for it.

Prepared data, the folder of the runs and every file that the settings name are on a disk that all nodes share
under the same path, and all have this package. A task that fails is that run's failure only. A stopped
comparison is resumed by the same command.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparselabel.comparison.planned_runs import Outcome, PlannedRun, in_comparison
from sparselabel.config import Handling, Machine
from sparselabel.errors import ConfigError, RunError, SparselabelError, counted, param
from sparselabel.ray_cluster import Node, alive_nodes, connected, listed, refuse_unfit_nodes, wants_gpu
from sparselabel.run import Run

if TYPE_CHECKING:
    from sparselabel.data.dataset import Dataset


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster: its address, and the cores of each run."""

    address: str
    cores: int = 1

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise ConfigError(f"{param('cluster_cores')} must be at least 1, not {self.cores}")

    def train(
        self, data: "Dataset", planned: Sequence[PlannedRun], machine: Machine, command: Sequence[str]
    ) -> Iterator[Outcome]:
        """Train runs on the cluster; outcomes come as they end."""
        if machine.devices > 1:
            problem = f"a run on a cluster has 1 device, not {machine.devices}"
            raise ConfigError(problem, f"leave {param('devices')} out")
        with connected(self.address) as ray:
            nodes = alive_nodes(ray)
            resources = _resources(nodes, self.cores, machine)
            able = [node for node in nodes if node.cores >= self.cores]
            refuse_unfit_nodes(ray, able, [data.folder / "dataset.json"])
            task = ray.remote(max_retries=0, **resources)(train_task)
            here = (str(Path.cwd()), str(data.folder.resolve()))
            running: dict[Any, PlannedRun] = {}

            def submit(run: PlannedRun) -> None:
                out = replace(run, path=run.path.absolute())
                running[task.options(name=run.path.name).remote(*here, out, machine, list(command))] = run

            def wait() -> Outcome:
                (done, *_), _ = ray.wait(list(running), num_returns=1)
                return _outcome(running.pop(done), lambda: ray.get(done))

            try:
                yield from features_first(planned, submit, wait, lambda run: shared_features(data, run))
            except BaseException:
                for left in running:
                    ray.cancel(left, force=True)
                raise


def features_first(
    planned: Sequence[PlannedRun],
    submit: Callable[[PlannedRun], None],
    wait: Callable[[], Outcome],
    shares: Callable[[PlannedRun], object],
) -> Iterator[Outcome]:
    """Submit all runs; of those that share features still to be computed, one goes first and stores them."""
    waiting: dict[object, list[PlannedRun]] = {}
    first: dict[Path, object] = {}
    running = 0
    for run in planned:
        work = shares(run)
        if work is not None and work in waiting:
            waiting[work].append(run)
            continue
        if work is not None:
            waiting[work], first[run.path] = [], work
        submit(run)
        running += 1
    while running:
        outcome = wait()
        running -= 1
        for run in waiting.pop(first.get(outcome.run.path), []):
            submit(run)
            running += 1
        yield outcome


def shared_features(data: "Dataset", run: PlannedRun) -> Path | None:
    """The file of stored features that a run would compute first; None if it exists or is not needed."""
    from sparselabel.data.transforms import views_of
    from sparselabel.inference.engine import PACKAGES, TORCH
    from sparselabel.training.features import features_elsewhere, features_file
    from sparselabel.training.resolve import stores_cells

    if not run.config.frozen:
        return None
    view, cells = views_of(run.config.views)[1], stores_cells(run.config)
    files = [
        features_file(data.train, data.features_folder, run.config, view, cells, engine)
        for engine in (TORCH, *PACKAGES)
    ]
    there = any(file.exists() or features_elsewhere(file, data.train) for file in files)
    return None if there else files[0]


def train_task(
    folder: str, data: str, run: PlannedRun, machine: Machine, command: Sequence[str]
) -> dict[str, Any]:
    """Train one run on a node, in the working folder of the command."""
    from sparselabel.comparison.evaluate_maps import evaluate_maps, has_places, maps_to_evaluate
    from sparselabel.comparison.runner import data_of
    from sparselabel.data.prepared_files import open_prepared
    from sparselabel.training.train_run import train_run

    for path in (folder, data):
        if not Path(path).is_dir():
            raise RunError(
                f"node {os.uname().nodename} has no folder {path}: data, runs and the folder of the command "
                "must be on a disk that all nodes share"
            )
    os.chdir(folder)
    quiet = Handling(resume=True, quiet=True)
    own = data_of(run, open_prepared(Path(data)))
    result = train_run(own, run.config, run.path, machine, quiet, command)
    if has_places(own):
        for group in maps_to_evaluate([Run(run.path, own)], "test"):
            evaluate_maps(group, "test", machine.workers)
    return result


def _outcome(run: PlannedRun, get: Callable[[], dict[str, Any]]) -> Outcome:
    """A run's result, or the error of its task: our own, or Ray's text."""
    try:
        return Outcome(run, get())
    except Exception as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, SparselabelError):
            return Outcome(run, None, in_comparison(cause))
        return Outcome(run, None, RunError(str(error).strip()))


def _resources(nodes: Sequence[Node], cores: int, machine: Machine) -> dict[str, int]:
    """Resources of a run; refuses what no node has, for which Ray would wait forever."""
    gpu = wants_gpu(nodes, machine.accelerator)
    if not any(node.cores >= cores and node.gpus >= gpu for node in nodes):
        wanted = f"{counted(cores, 'core')}{' and a GPU' if gpu else ''}"
        raise ConfigError(
            f"no node of the cluster has {wanted} for a run (there are: {listed(nodes)})",
            f"ask for less ({param('cluster_cores')})",
        )
    return {"num_cpus": cores, "num_gpus": int(gpu)}
