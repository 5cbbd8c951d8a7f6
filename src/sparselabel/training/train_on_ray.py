"""A run on a Ray cluster (the extra ``cluster``): its processes are those of Ray Train's ``TorchTrainer``.

    here: check, connect, look at the nodes ──▶ attempt: TorchTrainer.fit() ──▶ the result
                                      ▲                   │ a process or node died
                                      └── fewer processes, if there is less room ◀┘

Data and the run's folder are on a disk that all nodes share; a method's memory of an image stays with the
process that has its row, and is redistributed if the next attempt has another number of processes.
"""

import os
import signal
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, replace
from io import TextIOBase
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist

from sparselabel.config import Handling, Machine, TrainConfig
from sparselabel.data.answers import Answer, with_answers
from sparselabel.data.dataset import Dataset
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.redraw_labels import redraw_labels
from sparselabel.errors import ConfigError, ResourceError, RunError, SparselabelError, param
from sparselabel.files import require_folder_to_write
from sparselabel.locks import locked
from sparselabel.models.backbone import Backbone
from sparselabel.progress import status_console
from sparselabel.ray_cluster import (
    Node,
    answering_nodes,
    connected,
    import_ray,
    listed,
    refuse_unfit_nodes,
    wants_gpu,
)
from sparselabel.run import Run
from sparselabel.training.callbacks import Hooks
from sparselabel.training.checkpoint import checkpoints
from sparselabel.training.phases import refuse_uneven_batches
from sparselabel.training.resolve import resolve
from sparselabel.training.train_run import run_metadata, train_run

DEATHS = 3  # in a row without a new checkpoint, after which a run is given up
LOCK_PATIENCE = 120  # seconds until a lock of processes that were killed must be gone


@dataclass(frozen=True)
class Job:
    """What a process needs for training; it opens the data itself."""

    data: Path
    answers: tuple[Answer, ...]
    label_seed: int | None
    annotation: str
    config: TrainConfig
    out: Path
    machine: Machine
    handling: Handling
    command: tuple[str, ...]
    folder: Path
    backbone: Backbone | None
    hooks: Hooks

    @classmethod
    def of(
        cls,
        data: Dataset,
        config: TrainConfig,
        out: Path,
        machine: Machine,
        handling: Handling,
        command: Sequence[str],
        backbone: Backbone | None,
        hooks: Hooks,
    ) -> "Job":
        """The same with absolute paths, as another machine understands them."""
        about = (data.answers, data.label_seed, data.annotation, config, out.absolute(), machine, handling)
        return cls(data.folder.resolve(), *about, tuple(command), Path.cwd(), backbone, hooks)

    def open_data(self) -> Dataset:
        """The data with the labels and answers that it had where the job was made."""
        data = open_prepared(self.data)
        if self.label_seed is not None or self.annotation:
            data = redraw_labels(data, self.label_seed, self.annotation)
        return with_answers(data, list(self.answers), "answers") if self.answers else data


class Processes(NamedTuple):
    """How many processes a run has, and the resources of each."""

    number: int
    cores: int
    gpu: bool


def train_on_ray(
    address: str,
    processes: int | None,
    data: Dataset,
    config: TrainConfig,
    out: Path,
    machine: Machine | None = None,
    handling: Handling | None = None,
    command: Sequence[str] = (),
    backbone: Backbone | None = None,
    hooks: Hooks | None = None,
) -> dict[str, Any]:
    """Train on the cluster at ``address`` as ``train_run`` does here, and return the run's result.

    ``processes`` are by default one for each GPU, or for each node where there is none.
    """
    machine, handling, hooks = machine or Machine(), handling or Handling(), hooks or Hooks()
    refuse_at_once(data, machine, handling, processes)
    require_folder_to_write(out)
    run = Run(out)
    if handling.resume:
        run.refuse_other_data(run_metadata(data, command))
    resolved = resolve(data, config).config
    about = run_metadata(data, command, resolved)
    if run.goes_on(resolved, about, resume=handling.resume, force=handling.force) and run.finished:
        return run.result()
    refuse_uneven_batches(resolved, processes or 1)
    batches = [phase.batch_size for phase in resolved.phases.values()]
    if import_ray().is_initialized():
        raise ConfigError(
            "this program is connected to Ray already, and a run needs a connection that ends with it",
            "call ray.shutdown() before",
            what="cluster",
            value=address,
        )
    job = Job.of(data, config, out, machine, handling, command, backbone, hooks)
    with connected(address) as ray:
        nodes = answering_nodes(ray)
        wanted = choose_processes(nodes, processes, machine.accelerator, batches, len(data.train))
        able = [node for node in nodes if room([node], wanted)]
        with shared_files(data, out) as files:
            refuse_unfit_nodes(ray, able, files)
        return Attempts(ray, job, wanted, batches, len(data.train)).until_finished()


def refuse_at_once(data: Dataset, machine: Machine, handling: Handling, processes: int | None) -> None:
    """Raise for settings that a cluster cannot have, before connecting to it."""
    if processes is not None and processes < 1:
        problem = f"{param('processes')} must be at least 1, not {processes}"
        raise ConfigError(problem, what="processes", value=processes)
    if machine.devices > 1:
        raise ConfigError(
            f"{param('devices')} are processes of this machine, and the run is on a cluster",
            f"say how many it has there ({param('processes', machine.devices)})",
            what="devices",
            value=machine.devices,
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        problem = f"{param('cluster')} starts processes itself, and torchrun has started this one"
        raise ConfigError(problem, "leave one out", what="cluster")
    if handling.dry_run:
        raise ConfigError(
            f"{param('dry_run')} measures this machine, not the nodes of a cluster",
            "leave the cluster out, and run it on a node",
            what="dry_run",
        )
    if data.temporary is not None or any(split.in_memory for split in data.splits.values()):
        raise ConfigError(
            "the nodes of a cluster cannot see data that is in memory or in a temporary folder",
            "keep it in a folder that they share (Dataset.from_table(..., out=folder)) and train on that",
            what="data",
        )


def room(nodes: Sequence[Node], each: Processes) -> int:
    """How many processes of a kind the nodes have room for."""
    return sum(min(node.cores // each.cores, node.gpus if each.gpu else node.cores) for node in nodes)


def shareable(most: int, batches: Sequence[int], images: int) -> int:
    """The largest number of processes up to ``most`` that every batch can be shared by; 0 if most is 0."""
    common = gcd(*batches)
    return max((n for n in range(1, min(most, images) + 1) if common % n == 0), default=0)


def choose_processes(
    nodes: Sequence[Node], wanted: int | None, accelerator: str, batches: Sequence[int], images: int
) -> Processes:
    """How many processes there will be, each with as many cores as there are for it."""
    gpu = wants_gpu(nodes, accelerator)
    one_core = Processes(1, 1, gpu)
    most_processes = room(nodes, one_core)
    number = wanted
    if number is None:
        slots = sum(node.gpus for node in nodes) if gpu else sum(node.cores > 0 for node in nodes)
        number = shareable(min(slots, most_processes), batches, images)
    if not 1 <= number <= most_processes:
        kind = "processes with a core and a GPU each" if gpu else "processes"
        raise ConfigError(
            f"the cluster has room for {most_processes} {kind}, not for {max(number, 1)} ({listed(nodes)})",
            f"ask for fewer ({param('processes')})",
            "start more nodes",
            what="processes",
            value=number,
            allowed=most_processes,
        )
    most = max(node.cores for node in nodes)
    cores = max(k for k in range(1, most + 1) if room(nodes, Processes(number, k, gpu)) >= number)
    return Processes(number, cores, gpu)


@contextmanager
def shared_files(data: Dataset, out: Path) -> Iterator[list[Path]]:
    """Files that every node must see as they are here: of the data, an image, and new ones beside the run.

    A folder of the same name on another disk lacks what was just written.
    """
    files = [data.folder / "dataset.json"]
    files += [path for split in data.splits.values() if len(split) and (path := split.path(0)).is_file()]
    with ExitStack() as made:
        for folder in (out, data.features_folder):
            existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.is_dir())
            with suppress(OSError):  # features need not be written where they are there already
                file = existing / f".seen-by-nodes-{uuid.uuid4().hex}"
                file.write_text(file.name)
                made.callback(file.unlink, missing_ok=True)
                files.append(file)
        yield files


class Attempts:
    """Ray Train's trainer, started again from the last checkpoint whenever a process has died."""

    def __init__(self, ray: Any, job: Job, wanted: Processes, batches: Sequence[int], images: int) -> None:
        self.ray, self.job, self.wanted, self.batches, self.images = ray, job, wanted, batches, images
        self.console = status_console(quiet=job.handling.quiet)
        self.run = Run(job.out)
        self._before = self._begun()

    def until_finished(self) -> dict[str, Any]:
        """The result of the attempt that succeeds; raises errors that would recur in every attempt."""
        number, deaths, epochs = self.wanted.number, 0, self._epochs()
        while True:
            try:
                result: dict[str, Any] = self._attempt(number)
            except _NoRoomError:
                self.console.print(f"the cluster has no room for {number} of the run's processes yet")
            except _DeathError as death:
                deaths = 1 if self._epochs() > epochs else deaths + 1
                epochs = self._epochs()
                if deaths >= DEATHS:
                    raise RunError(
                        f"{deaths} times in a row a process of the run died before its next checkpoint, in "
                        f"epoch {epochs + 1} (the last time: {death})",
                        "look at the memory of the nodes",
                        f"go on from the last checkpoint with {param('resume', True)}",
                        what=self.job.out,
                    ) from death
                self.console.print(f"a process of the run died ({death})")
            else:
                return result
            self._wait_for_lock()
            number = self._number_now(number)

    def _number_now(self, before: int) -> int:
        """How many processes the next attempt has: as many as were wanted, if there is room for them."""
        nodes = answering_nodes(self.ray)
        number = shareable(min(self.wanted.number, room(nodes, self.wanted)), self.batches, self.images)
        if not number:
            raise RunError(
                "no node of the cluster is left that has room for a process of the run "
                f"({listed(nodes) or 'there are none'})",
                f"start nodes, then go on from the last checkpoint with {param('resume', True)}",
                what=self.job.out,
            )
        done = self._epochs()
        where = f"from the checkpoint of epoch {done}" if done else "from the start"
        fewer = f", with {number} instead of {before} processes" if number != before else ""
        self.console.print(f"going on {where}{fewer}")
        return number

    def _attempt(self, number: int) -> dict[str, Any]:
        import ray.train.torch
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        train: Any = ray.train  # its types are those of its first version
        here = NodeAffinitySchedulingStrategy(self.ray.get_runtime_context().get_node_id(), soft=False)
        messages = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
        job = replace(self.job, handling=self._handling())
        resources = {"CPU": self.wanted.cores} | ({"GPU": 1} if self.wanted.gpu else {})
        with tempfile.TemporaryDirectory(prefix="sparselabel-ray-") as storage:
            trainer = train.torch.TorchTrainer(
                lambda: train_in_process(job, messages),
                scaling_config=train.ScalingConfig(
                    num_workers=number, use_gpu=self.wanted.gpu, resources_per_worker=resources
                ),
                run_config=train.RunConfig(
                    name=job.out.name,
                    storage_path=storage,
                    # Ray would start as many processes again, also where there is no more room for them.
                    failure_config=train.FailureConfig(
                        max_failures=0, controller_failure_limit=0, max_preemption_failures=0
                    ),
                ),
            )
            with self._printing(messages), _ending_as_usual():
                try:
                    return {**trainer.fit().return_value}
                except Exception as error:
                    raise cause_of(error) from error

    @contextmanager
    def _printing(self, messages: Any) -> Iterator[None]:
        """Print what the processes say while they work."""
        from ray.util.queue import Empty

        over = threading.Event()

        def listen() -> None:
            while not over.is_set():
                with suppress(Empty):
                    self._print(messages.get(timeout=1))

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            yield
        finally:
            over.set()
            listener.join()
            for item in messages.get_nowait_batch(messages.qsize()):
                self._print(item)
            messages.shutdown(force=True)

    def _print(self, item: "str | Warning") -> None:
        if isinstance(item, Warning):
            warnings.warn(item, stacklevel=2)
        else:
            self.console.print(item)

    def _handling(self) -> Handling:
        """The handling of an attempt: once the run is begun, it is resumed."""
        if self._begun() == self._before:
            return self.job.handling
        return replace(self.job.handling, resume=True, force=False)

    def _begun(self) -> tuple[int, int] | None:
        """What distinguishes a run from the one that it replaces."""
        if not self.run.config_file.exists():
            return None
        about = self.run.config_file.stat()
        return about.st_ino, about.st_mtime_ns

    def _epochs(self) -> int:
        """The epochs of the newest checkpoint, if it is this run's."""
        there = checkpoints(self.run.checkpoints)
        goes_on = self.job.handling.resume or self._begun() != self._before
        return int(there[-1].name) if there and goes_on else 0

    def _wait_for_lock(self) -> None:
        """Wait until the processes of the last attempt have released the run's lock."""
        waited = time.monotonic()
        while self.job.out.exists():
            try:
                with locked(self.job.out):
                    return
            except RunError:
                if time.monotonic() - waited > LOCK_PATIENCE:
                    raise
                time.sleep(1)


@contextmanager
def _ending_as_usual() -> Iterator[None]:
    """Handle Ctrl-C as elsewhere: Ray would end the program with code 0."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as end:
        raise KeyboardInterrupt from end
    finally:
        if main:
            signal.signal(signal.SIGINT, before)


class _DeathError(Exception):
    """A process or a node is gone; the next attempt may succeed."""


class _NoRoomError(Exception):
    """The cluster has no room now: it is busy, or a dead node still counts as alive."""


class LostPeerError(Exception):
    """Another process of the run does not answer any more."""


def cause_of(error: BaseException) -> Exception:
    """The cause of an attempt's error: our own error, a death, no room, or Ray's error."""
    from ray.exceptions import RayError
    from ray.train import WorkerGroupError
    from ray.train.v2._internal.exceptions import (
        RayTrainError,
        WorkerGroupStartupFailedError,
        WorkerGroupStartupTimeoutError,
    )

    of_controller = getattr(error, "controller_failure", None)
    if isinstance(of_controller, WorkerGroupStartupTimeoutError):
        return _NoRoomError(str(of_controller))
    if isinstance(of_controller, WorkerGroupStartupFailedError):
        return _DeathError("it could not be started")
    failures = error.worker_failures if isinstance(error, WorkerGroupError) else {}
    for failure in failures.values():
        if isinstance(failure, SparselabelError):
            return failure
    dead = [one for one in failures.values() if isinstance(one, RayError | RayTrainError)]
    if dead:
        return _DeathError(_how_it_died(dead[0]))
    if failures and all(isinstance(one, LostPeerError) for one in failures.values()):
        return _DeathError(_how_it_died(next(iter(failures.values()))))
    others = [one for one in failures.values() if not isinstance(one, LostPeerError)]
    return RunError(f"a process of the run failed: {others[0]!r}" if others else str(error).strip())


def _how_it_died(error: BaseException) -> str:
    """In a few words what Ray says in a paragraph."""
    text = str(error)
    if "node has died" in text or "node was dead" in text or "node died" in text:
        return "its node is gone"
    if "running low on memory" in text:
        return "its node was short of memory"
    if isinstance(error, LostPeerError):
        return "it does not answer any more"
    return "it was killed, or crashed"


def train_in_process(job: Job, messages: Any) -> dict[str, Any] | None:
    """Train in one of the processes that Ray has started; the first one has the result."""
    first = dist.get_rank() == 0
    if job.folder.is_dir():  # relative paths of settings are of the folder of the command
        os.chdir(job.folder)
    with speaking(messages) if first else _silent():
        try:
            result = train_run(
                job.open_data(),
                job.config,
                job.out,
                job.machine,
                job.handling,
                job.command,
                backbone=job.backbone,
                hooks=job.hooks,
            )
        except ResourceError as error:
            problem = f"node {os.uname().nodename}: {error.problem}"
            raise ResourceError(
                problem, *error.remedies, what=error.what, where=os.uname().nodename
            ) from error
        except RuntimeError as error:
            if isinstance(error, dist.DistError) or "gloo" in str(error).lower():
                raise LostPeerError(str(error).partition("\n")[0]) from error
            raise
    return result if first else None


@contextmanager
def speaking(messages: Any) -> Iterator[None]:
    """Send the run's messages and warnings to the process that started it."""
    with warnings.catch_warnings(), redirect_stderr(_Lines(messages)):
        warnings.showwarning = lambda message, *_, **__: messages.put(message)
        yield


@contextmanager
def _silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _Lines(TextIOBase):
    """A file whose complete lines are put into a queue."""

    def __init__(self, messages: Any) -> None:
        self._messages, self._rest = messages, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._messages.put(line)
        return len(text)
