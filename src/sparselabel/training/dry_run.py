"""What a run would cost: everything up to a few real steps of each phase, measured; nothing is kept.

    checks of a run ─▶ model, feeds, memories ─▶ per phase: steps of its last epoch ─▶ one batch of scores
                    └▶ what is estimated before training: K from features, a prior by a run of its own

Steps are those of a phase's last epoch, when all terms have joined; the first of them makes the optimizer's
state, so the most memory of steps is that of the second. Then weights are written to the temporary folder and
read back, as a run does with its best epoch: for large models that is the peak. What the method remembers of
every image is made as in a run if it belongs in RAM; of what belongs in files only the size is told.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sparselabel.config import Handling, Machine, TrainConfig
from sparselabel.data.dataset import Prepared
from sparselabel.data.loaders import Batch, ImageLoader, Loader, Rows, epoch_batches, in_order, rows_of
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.distributed import default_precision
from sparselabel.files import require_folder_to_write
from sparselabel.losses.base import Layout, Progress, SparseLoss, Step
from sparselabel.models.classifier import Output
from sparselabel.resources import available_memory, free_disk
from sparselabel.run import Run
from sparselabel.training.checkpoint import files_of, in_ram, load_tensors, save_tensors
from sparselabel.training.class_prior import run_before
from sparselabel.training.estimate_positives import seconds_to_estimate
from sparselabel.training.phase_loaders import Inputs
from sparselabel.training.logger import Log
from sparselabel.training.network import LazyBackbone, Network, in_evaluation, weights_of
from sparselabel.training.phases import Stage
from sparselabel.training.resolve import is_estimated, method_of, resolve, trains_for_prior
from sparselabel.training.run_cost import PhaseCost, RunCost, forget_peak, peak_memory
from sparselabel.training.train_run import prepare_method, run_metadata, started
from sparselabel.training.trainer import Session, train_step
from sparselabel.training.watch import Watch

if TYPE_CHECKING:
    from lightning_fabric import Fabric


SCORED = 32  # images in a batch of evaluation


@dataclass
class FirstInputs(Inputs):
    """Inputs that compute no more stored features than a batch: the others are made up.

    ``to_come`` counts the bytes of features that a run would compute, in ``time`` seconds, and ``in_ram``
    those of them that it would hold: pooled ones; those of cells stay in their file.
    """

    to_come: int = 0
    in_ram: int = 0
    time: float = 0.0
    _made_up: dict[tuple[str, bool], Tensor] = field(default_factory=dict)

    def _features_of(self, split: str, cells: bool) -> Tensor:
        if self._file(split, cells).exists():
            return super()._features_of(split, cells)
        if (split, cells) not in self._made_up:
            part, backbone = self.data.split(split), self.backbone().to(self.fabric.device).eval()
            loader = ImageLoader(part, self.test_view)
            seconds, found = timed(loader, len(part), self.fabric, self.workers, backbone)
            one = found[:1].half().cpu() if cells else found[:1].float().mean(dim=(2, 3)).cpu()
            self._made_up[split, cells] = one.expand(len(part), *one.shape[1:])
            self._count(seconds, found)
        return self._made_up[split, cells]

    def _count(self, seconds: float, found: Tensor) -> None:
        """What all missing features will take: those of a frozen backbone, and others that were asked for."""
        wanted = {(name, self._of_cells(name)) for name in self.data.splits if self.config.frozen}
        missing = [one for one in wanted | {*self._made_up} if not self._file(*one).exists()]
        width, grid = found.shape[1], found.shape[2] * found.shape[3]
        sizes = {(name, cells): len(self.data.split(name)) * width for name, cells in missing}
        pooled = sum(4 * size for (_, cells), size in sizes.items() if not cells)
        kept = sum(2 * size * grid for (_, cells), size in sizes.items() if cells)
        self.to_come, self.in_ram = pooled + kept, pooled
        self.time = seconds * sum(len(self.data.split(name)) for name, _ in missing) / self.fabric.world_size


@torch.no_grad()
def timed(
    loader: Loader, count: int, fabric: "Fabric", workers: int, model: Callable[[Tensor], Any]
) -> tuple[float, Any]:
    """Seconds an image, of a batch loaded and seen by the model, and what it said of it.

    Workers load while the model works.
    """
    rows = rows_of(count, fabric.global_rank, fabric.world_size)[:SCORED]
    began = time.monotonic()
    batch = next(iter(loader(in_order(rows, SCORED), 0)))
    loaded = time.monotonic()
    said = model(batch.inputs[0].to(fabric.device))
    wait(fabric.device)
    loading, seeing = loaded - began, time.monotonic() - loaded
    return (max(loading / workers, seeing) if workers else loading + seeing) / len(rows), said


def wait(device: torch.device) -> None:
    """Let a GPU finish what it was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


STEPS = 6  # at most, of a phase
LONG = 20.0  # seconds after which two steps will do


def dry_run(
    data: Prepared,
    config: TrainConfig,
    out: Path,
    machine: Machine | None = None,
    handling: Handling | None = None,
    command: Sequence[str] = (),
) -> RunCost:
    """Refuse what a run would refuse, take a few steps of each phase, and tell what the run would cost."""
    machine, handling = machine or Machine(), handling or Handling()
    require_folder_to_write(out)
    resolved = resolve(data, config)
    config = resolved.config
    there = Run(out)
    there.goes_on(config, run_metadata(data, command, config), resume=handling.resume, force=handling.force)
    prior = None
    if trains_for_prior(config):
        prior = dry_run(data, run_before(config), out / "prior", machine, handling, command)
    fabric = started(data, config, machine)
    with TemporaryDirectory(prefix="sparselabel-dry-run-") as folder, default_precision(config.precision):
        run = Run(Path(folder))
        log = Log(run, speaks=fabric.is_global_zero, quiet=handling.quiet)
        for note in resolved.notes:
            log.say(note)
        backbone = LazyBackbone(config)
        inputs = FirstInputs(data, config, backbone, fabric, machine.workers, log)
        network = Network(
            config, len(data.classes), backbone, inputs.feature_width if config.frozen else None
        )
        inputs.check(network)
        estimating = seconds_to_estimate(config, inputs) if is_estimated(config) else 0.0
        trial = method_of(config)
        prepare_method(trial, config, data, there, fabric, machine, network, inputs)
        files = sum(memory.bytes for memory in files_of(trial))
        ram, disk = available_memory(), free_disk(out)
        forget_peak()
        taken = peak_memory()
        rows = rows_of(len(data.train), fabric.global_rank, fabric.world_size)
        method = trial
        if files:
            rows = _rows_of_steps(config, data, fabric)
            method = _for_a_few(rows, config, data, inputs).to(fabric.device)
        session = Session(
            data, config, run, log, fabric, network, inputs, method, Watch(run.watched, 0, inputs)
        )
        phases: list[PhaseCost] = []
        for name in config.phases:
            if phases:
                method.begin_phase()
            first = config.head.epochs if name == "finetune" else 0
            forget_peak()
            _forget_gpu_peak(fabric.device)
            with log.bar(STEPS, f"measuring the {name} phase") as bar:
                stage = session.stage(name, first, None)
                seconds = _steps(session, stage, rows, bar.advance)
                scoring = _scoring(session, stage, machine.workers)
                unmeasured = _write_and_load(session, stage)
            phases.append(
                PhaseCost(
                    name,
                    stage.phase.epochs,
                    stage.steps_per_epoch,
                    stage.phase.batch_size,
                    seconds,
                    _scored_in_epoch(session),
                    scoring,
                    peak_memory() + unmeasured,
                    _gpu_peak(fabric.device),
                    _checkpoint(session, stage),
                )
            )
        return RunCost(
            tuple(phases),
            _scored_at_end(session),
            inputs.to_come,
            inputs.in_ram,
            inputs.time,
            files,
            _bytes(network.classifier.state_dict()),
            _gpu_size(fabric.device),
            ram,
            disk,
            estimating,
            0.0 if prior is None else _to_find(prior, len(data.train) // fabric.world_size),
            0 if prior is None else prior.disk,
            taken,
        )


def _to_find(prior: RunCost, images: int) -> float:
    """Seconds to train and to score the training images; the features are those of the run itself."""
    return prior.seconds - prior.features_time + images * prior.phases[-1].scoring


@torch.no_grad()
def _scan(session: Session, stage: Stage, rows: Rows, progress: Progress) -> Iterator[Step]:
    """What a method looks over before an epoch: the first batch is real, and the others look like it."""
    model = in_evaluation(stage.eval_module, session.fabric, maps=session.needs.maps)
    first: Output | None = None
    for some in in_order(rows, stage.phase.batch_size):
        if first is None:
            batch = next(iter(session.inputs.evaluation(stage.name, "train")([some], progress.epoch)))
            first = model(session.on_device(batch.inputs[0]))
        output = Output(*(None if value is None else value[: len(some)] for value in first))  # type: ignore[arg-type]
        seen = Batch(torch.from_numpy(some), (), (ViewGeometry.whole(len(some)),))
        yield session.step(seen, (output,), progress)


def _rows_of_steps(config: TrainConfig, data: Prepared, fabric: "Fabric") -> Rows:
    """The rows of the steps to be taken, and of some more, as memories are told of those to come."""
    rows, epoch = {fabric.global_rank}, 0
    for phase in config.phases.values():
        epoch += phase.epochs
        batches = epoch_batches(
            len(data.train), phase.batch_size, config.seed, epoch - 1, fabric.global_rank, fabric.world_size
        )
        rows |= {int(row) for some in batches[: 2 * STEPS] for row in some if row >= 0}
    return np.array(sorted(rows))


def _for_a_few(rows: Rows, config: TrainConfig, data: Prepared, inputs: Inputs) -> SparseLoss:
    """The method prepared for a few rows: its files for all would be gigabytes."""
    method = method_of(config)
    layout = Layout(
        torch.from_numpy(rows),
        torch.from_numpy(data.train.observed.values[rows]),
        len(data.train),
        seed=config.seed,
        keep="ram",
        grid=inputs.grid() if method.needs.maps else None,
    )
    method.prepare(layout)
    return method


def _steps(session: Session, stage: Stage, rows: Rows, report: Any) -> float:
    """Take steps as in the phase's last epoch; seconds of one, loading included."""
    epoch = stage.first_epoch + stage.phase.epochs - 1
    progress = session.progress(stage, epoch)
    torch.manual_seed(session.epoch_seed(epoch))
    session.method.begin_epoch(progress)

    def scan(some: Tensor | None) -> Iterator[Step]:
        return _scan(session, stage, rows if some is None else some.numpy(), progress)

    session.method.scan(scan)
    stage.wrapped.train()
    times = [time.monotonic()]
    for rate, batch in islice(stage.batches(epoch, prefetch=session.method.prefetch), STEPS):
        train_step(session, stage, batch, replace(progress, lr=rate))
        wait(session.fabric.device)
        times.append(time.monotonic())
        report()
        if len(times) > 2 and times[-1] - times[0] > LONG:
            break
    # The first step has what comes once: loaders that start, the optimizer's state.
    later = times[1:] if len(times) > 2 else times
    return (later[-1] - later[0]) / (len(later) - 1)


def _scoring(session: Session, stage: Stage, workers: int) -> float:
    """Seconds to score per image."""
    train, stored = session.data.train, session.inputs.stored(stage.name)
    loader: Loader = (
        session.inputs.evaluation(stage.name, "train")
        if stored
        else ImageLoader(train, session.inputs.test_view)
    )
    model = in_evaluation(stage.eval_module, session.fabric)
    return timed(loader, len(train), session.fabric, 0 if stored else workers, model)[0]


def _write_and_load(session: Session, stage: Stage) -> int:
    """Write the weights and load them, as those of the best epoch; returns bytes of RAM that were not taken.

    That is none, but where the temporary folder has no room: then a copy to write, and the file read back.
    """
    weights = weights_of(stage.eval_module, stage.name == "head")
    size = _bytes(weights)
    if free_disk(session.run.path) < 2 * size:
        return 2 * size
    file = session.run.path / "weights.safetensors"
    save_tensors(weights, file)
    session.network.load(load_tensors(file))
    file.unlink()
    return 0


def _scored_in_epoch(session: Session) -> int:
    """Images that a process scores around every epoch: validation, and what a method wants to look over."""
    scan = len(session.data.train) * session.needs.scan
    return (_size(session, "val") + scan) // session.fabric.world_size


def _scored_at_end(session: Session) -> int:
    """Images that a process scores when training is over."""
    recovered = len(session.data.train) * session.truth_known
    return (_size(session, "val") + _size(session, "test") + recovered) // session.fabric.world_size


def _size(session: Session, split: str) -> int:
    return len(session.data.split(split)) if split in session.data.splits else 0


def _checkpoint(session: Session, stage: Stage) -> int:
    """Bytes of a checkpoint: the trained weights, their average, the optimizer, memories in RAM."""
    trained = _bytes(weights_of(stage.module, stage.name == "head"))
    states = [value for state in stage.optimizer.state_dict()["state"].values() for value in state.values()]
    optimizer = sum(value.nbytes for value in states if isinstance(value, Tensor))
    return trained * (2 if stage.average is not None else 1) + optimizer + in_ram(session.method)


def _bytes(tensors: dict[str, Tensor]) -> int:
    return sum(value.nbytes for value in tensors.values())


def _forget_gpu_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _gpu_size(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0


def _gpu_peak(device: torch.device) -> int:
    """What torch has reserved at the most: other programs cannot have it, used or not."""
    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0
