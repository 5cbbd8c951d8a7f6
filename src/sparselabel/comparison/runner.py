"""Train the runs of a comparison one by one, side by side or on a cluster; failures do not stop others."""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparselabel.comparison.planned_runs import Outcome, PlannedRun, RunsCallback, in_comparison
from sparselabel.comparison.ray_runs import Cluster
from sparselabel.config import Handling, Machine, TrainConfig
from sparselabel.errors import ConfigError, RunError, SparselabelError, command
from sparselabel.files import require_folder_to_write, write_text
from sparselabel.locks import locked
from sparselabel.progress import first_process
from sparselabel.resources import available_memory, give_back_memory
from sparselabel.run import Run

if TYPE_CHECKING:
    from sparselabel.data.dataset import Dataset


def check_all(data: "Dataset", planned: Sequence[PlannedRun], machine: Machine, out: Path) -> None:
    """Check every run as far as possible without training: method, data, backbone, memories, folders."""
    from sparselabel.training.train_run import check_run

    rows = {(run.method, run.value, run.annotation, run.key) for run in planned}
    if len(rows) < len(planned) and "val" not in data.splits:
        raise ConfigError(
            "settings are chosen by validation, but the data has no validation split",
            "give each one value",
            f"prepare the data with one ({command('prepare', validation=0.2)})",
        )
    require_folder_to_write(out)
    backbones: dict[tuple[Any, ...], Any] = {}
    checked: list[tuple[TrainConfig, int | None, str]] = []
    for run in planned:
        config = run.config  # the key is what decides about the backbone, except for random weights
        key = (config.backbone, config.weights, config.partial_weights, config.output_stride, config.views,
               config.precision)  # fmt: skip
        if not run.path.exists():
            alike = (_without_numbers(config), run.label_seed, run.annotation)
            if alike in checked:
                continue
            checked.append(alike)
        try:
            backbones[key] = check_run(data_of(run, data), config, run.path, machine, backbones.get(key))
        except SparselabelError as error:
            raise in_comparison(error, run) from error
    out.mkdir(parents=True, exist_ok=True)


def data_of(run: PlannedRun, data: "Dataset") -> "Dataset":
    """The data that a run is trained on: with its draw and kind of labels, if it has its own."""
    from sparselabel.data.redraw_labels import redraw_labels

    if run.label_seed is None and not run.annotation:
        return data
    return redraw_labels(data, run.label_seed, run.annotation)


def _without_numbers(config: TrainConfig) -> TrainConfig:
    """A configuration without seed and learning rates, which do not decide whether it works."""
    head, finetune = replace(config.head, lr=1.0), replace(config.finetune, lr=1.0)
    return replace(config, seed=0, head=head, finetune=finetune)


def train_all(
    data: "Dataset",
    planned: Sequence[PlannedRun],
    machine: Machine,
    callback: RunsCallback | None = None,
    command: Sequence[str] = (),
    cluster: Cluster | None = None,
    handling: Handling | None = None,
) -> list[Outcome]:
    """Check all runs, train what is not finished yet; an outcome for each, in their order."""
    callback = callback or RunsCallback()
    folders = {run.path.parent for run in planned}
    with ExitStack() as held:
        for out in folders if first_process() else ():
            held.enter_context(locked(out))
        for out in folders:
            runs = [run for run in planned if run.path.parent == out]
            check_all(data, runs, machine_here(machine, cluster), out)
        return _train_checked(data, planned, machine, callback, command, cluster, handling)


def _train_checked(
    data: "Dataset",
    planned: Sequence[PlannedRun],
    machine: Machine,
    callback: RunsCallback,
    command: Sequence[str],
    cluster: Cluster | None,
    handling: Handling | None,
) -> list[Outcome]:
    finished = [run for run in planned if Run(run.path).finished]
    callback.on_skipped(len(finished))
    outcomes = {run.path: Outcome(run, Run(run.path).result()) for run in finished}
    left = [run for run in planned if run.path not in outcomes]
    if cluster is None:
        again = replace(handling or Handling(), resume=True)
        ended = _train_here(data, left, machine, callback, command, again)
    else:
        ended = cluster.train(data, left, machine, command) if left else iter(())
    for outcome in ended:
        outcomes[outcome.run.path] = outcome
        write_error(outcome)
        callback.on_end(outcome)
    return [outcomes[run.path] for run in planned]


def machine_here(machine: Machine, cluster: Cluster | None) -> Machine:
    """The machine to check runs for: a cluster's nodes may have GPUs that this machine lacks."""
    return machine if cluster is None else replace(machine, accelerator="cpu", devices=1, workers=0)


def _train_here(
    data: "Dataset",
    planned: Sequence[PlannedRun],
    machine: Machine,
    callback: RunsCallback,
    command: Sequence[str],
    handling: Handling,
) -> Iterator[Outcome]:
    """Runs on this machine: those that can side by side, the others one after the other.

    Groups side by side with stored features have a process each: their steps are too small for several
    threads.
    """
    # Where one of several processes failed, the others would wait for it in the next run.
    alone = machine.devices == 1 and int(os.environ.get("WORLD_SIZE", "1")) == 1
    with _Processes() as processes:
        for group in _groups(data, planned, machine) if alone else [[run] for run in planned]:
            if len(group) > 1 and processes.most > 1:
                from sparselabel.training.stacked_heads import stored_bytes

                size = stored_bytes(data_of(group[0], data), group[0].config, group[0].path, machine)
                if size is not None:
                    yield from processes.wait_for_room(2 * size)  # the head sees a standardized copy
                    callback.on_start(group[0], len(group) - 1)
                    processes.start(data, group, machine, command, handling)
                    continue
            callback.on_start(group[0], len(group) - 1)
            if len(group) > 1:
                yield from _train_group(data, group, machine, command, handling)
            else:
                [run] = group
                given = (run.config, run.path, machine, handling, command, run.path.name)
                yield outcome_of(run, partial(_trained, run, data, given), alone)
            give_back_memory()
        yield from processes.wait_for_all()


class _Processes:
    """Groups of runs that are trained by copies of this process, at most one for each thread of torch."""

    def __init__(self) -> None:
        import torch

        # Only fork does not run the user's program again, and autograd's threads for a GPU do not survive it.
        can_fork = sys.platform == "linux" and not torch.accelerator.is_available()
        self.most = torch.get_num_threads() if can_fork else 1
        self._running: dict[Connection, tuple[BaseProcess, list[PlannedRun]]] = {}

    def __enter__(self) -> "_Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for process, _group in self._running.values():
            process.terminate()
            process.join()

    def start(self, data: "Dataset", group: list[PlannedRun], *given: Any) -> None:
        """Train a group in a process of its own."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_train_apart, args=(theirs, data, group, *given))
        process.start()
        theirs.close()
        self._running[ours] = process, group

    def wait_for_room(self, size: int) -> Iterator[Outcome]:
        """Wait until a group of so many bytes fits; yields the outcomes of groups that end meanwhile."""
        while self._running and (len(self._running) == self.most or available_memory() < size):
            yield from self._ended()

    def wait_for_all(self) -> Iterator[Outcome]:
        """Wait for all groups; yields their outcomes."""
        while self._running:
            yield from self._ended()

    def _ended(self) -> Iterator[Outcome]:
        for ready in wait([*self._running]):
            if not isinstance(ready, Connection):
                raise TypeError(f"{ready} is no pipe")
            process, group = self._running[ready]
            try:
                outcomes: list[Outcome] = ready.recv()
            except EOFError:
                killed = RunError("its process was killed, by the system if memory ran out", "begin again")
                outcomes = [Outcome(run, None, killed) for run in group]
            process.join()
            del self._running[ready]
            ready.close()
            yield from outcomes


def _train_apart(
    results: Connection,
    data: "Dataset",
    group: Sequence[PlannedRun],
    machine: Machine,
    command: Sequence[str],
    handling: Handling,
) -> None:
    """Train a group in a forked process, which an interrupt ends without a traceback."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout, sys.stderr = (
        sys.__stdout__,
        sys.__stderr__,
    )  # a bar's may be locked by a lost thread
    torch.set_num_threads(1)
    outcomes = [*_train_group(data, group, machine, command, replace(handling, quiet=True))]
    results.send(outcomes)


def _groups(data: "Dataset", planned: Sequence[PlannedRun], machine: Machine) -> list[list[PlannedRun]]:
    """The runs in groups to train side by side, in the order of their first runs."""
    from sparselabel.training.stacked_heads import stack_key

    drawn: dict[tuple[object, ...], Dataset] = {}
    groups: dict[object, list[PlannedRun]] = {}
    for run in planned:
        labels = run.label_seed, run.annotation
        if labels not in drawn:
            drawn[labels] = data_of(run, data)
        key = stack_key(drawn[labels], run.config, run.path, machine)
        groups.setdefault(run.path if key is None else (key, labels), []).append(run)
    return list(groups.values())


def _train_group(
    data: "Dataset",
    group: Sequence[PlannedRun],
    machine: Machine,
    command: Sequence[str],
    handling: Handling,
) -> Iterator[Outcome]:
    from sparselabel.training.stacked_heads import train_side_by_side

    by_path = {run.path: run for run in group}
    runs = [(run.config, run.path) for run in group]
    ended = train_side_by_side(data_of(group[0], data), runs, machine, handling, command)
    try:
        for path, result in ended:
            yield outcome_of(by_path.pop(path), result)
    except Exception as error:  # of all that were trained together
        for run in by_path.values():
            yield outcome_of(run, partial(_fail, error))


def _fail(error: Exception) -> dict[str, Any]:
    raise error


def _trained(run: PlannedRun, data: "Dataset", given: tuple[Any, ...]) -> dict[str, Any]:
    from sparselabel.training.train_run import train_run

    return train_run(data_of(run, data), *given)


def outcome_of(run: PlannedRun, train: Callable[[], dict[str, object]], survive: bool = True) -> Outcome:
    """Train; a failure becomes the run's outcome, or is raised unless ``survive``."""
    try:
        return Outcome(run, train())
    except Exception as error:
        if not survive:
            raise
        if isinstance(error, SparselabelError):
            return Outcome(run, None, in_comparison(error))
        return Outcome(run, None, RunError("".join(traceback.format_exception(error)).strip()))


def write_error(outcome: Outcome) -> None:
    """Write the error of a failed run beside its folder, and remove that of an earlier attempt."""
    file = error_file(outcome.run)
    if outcome.error:
        write_text(file, f"{outcome.error}\n")
    else:
        file.unlink(missing_ok=True)


def error_file(run: PlannedRun) -> Path:
    """The file with the error of a failed run."""
    return run.path.with_name(f"{run.path.name}.error.txt")
