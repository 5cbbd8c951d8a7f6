"""Dry runs: measure a few real steps of each phase to forecast memory, disk and time; nothing is saved.

    checks of a run ─▶ model, loaders, memories ─▶ per phase: steps of its last epoch ─▶ one batch of scores
                    └▶ what is estimated before training: K from features, a prior by a run of its own

Steps are those of a phase's last epoch, when all terms are active. The first creates the optimizer's state,
so memory peaks at the second. Then weights are written to the temporary folder and read back, as a run does
with its best epoch: for large models that is the peak. Row stores in RAM are allocated as in a run; of those
in files only the size is computed. Metrics are timed on a few classes (``metric_seconds.py``), the disk with
a part of a checkpoint.
"""

import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from sparselabel.config import Handling, Machine, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.data.loaders import (
    Batch,
    ImageLoader,
    Loader,
    Rows,
    epoch_batches,
    in_order,
    rows_of,
    worker_processes,
)
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.distributed import default_precision
from sparselabel.errors import DataError
from sparselabel.files import require_folder_to_write
from sparselabel.inference.class_thresholds import MOST_SCORES
from sparselabel.inference.scorer import BATCH, Scorer
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.step import Layout, Progress, Step
from sparselabel.metrics.tiled_scores import LARGEST_SCORES
from sparselabel.models.classifier import Output
from sparselabel.resources import available_memory, forget_peak, free_disk, peak_memory
from sparselabel.run import Run
from sparselabel.training.checkpoint import (
    CHECKPOINTS,
    bytes_of,
    files_of,
    in_ram,
    load_tensors,
    save_tensors,
)
from sparselabel.training.class_prior import run_before
from sparselabel.training.estimate_positives import only_thresholds_need_them, seconds_to_estimate
from sparselabel.training.logger import Log
from sparselabel.training.metric_seconds import end_seconds, epoch_seconds
from sparselabel.training.network import LazyBackbone, weights_of
from sparselabel.training.phase_loaders import PhaseLoaders
from sparselabel.training.phases import Stage
from sparselabel.training.resolve import is_estimated, method_of, resolve, trains_for_prior
from sparselabel.training.train_run import run_metadata, started
from sparselabel.training.trainer import Trainer

if TYPE_CHECKING:
    from lightning_fabric import Fabric


STEPS = 6  # at most, of a phase
LONG = 20.0  # seconds of a phase, after which two steps are enough
PART, BLOCK = 1 << 26, 1 << 20  # bytes of a checkpoint to time the disk with, at most, and at a time


BYTES_OF_SCORE = 4
BYTES_TO_MEASURE = 36  # per label of a split: calibrated scores in double precision, and their decisions
BYTES_TO_RECOVER = 12  # per training label: scores and estimates of all of them


@dataclass(frozen=True)
class PhaseCost:
    """The cost of a phase: ``seconds`` per step, peak bytes of a process, bytes of a checkpoint.

    ``scored`` images are scored after (or before) every epoch, at ``scoring`` seconds each; ``saving`` are
    the seconds to write a checkpoint, ``beginning`` those before the first step.
    """

    name: str
    epochs: int
    steps: int
    batch_size: int
    seconds: float
    scored: int
    scoring: float
    ram: int
    gpu: int
    checkpoint: int
    saving: float = 0.0
    beginning: float = 0.0

    @property
    def time(self) -> float:
        """Seconds of all its epochs, without their metrics."""
        epoch = self.steps * self.seconds + self.scored * self.scoring + self.saving
        return self.beginning + self.epochs * epoch


@dataclass(frozen=True)
class RunCost:
    """The cost of a run, phase by phase; ``scored`` images are scored at its end.

    ``features`` are bytes of stored features beside the data, ``features_in_ram`` those of them in RAM too,
    ``features_time`` the seconds to compute them; ``files`` what the method keeps in files of the run;
    ``model`` the final model. ``expected_time`` are the seconds to estimate expected positives from features,
    ``prior_time`` and ``prior_disk`` the cost of the run that finds the prior: both come before training.
    ``gpu_there``, ``ram_there`` and ``disk_there`` are what the machine has (the GPU in total, others free);
    ``ram_taken`` is what the process had when free RAM was measured. ``ram_at_end`` is what scores,
    calibration and metrics take beside what training holds; ``scores`` are the bytes of the saved scores.
    ``beginning`` are the seconds before the first phase, ``metrics`` those of an epoch's metrics, ``end``
    those of calibration and metrics when training is over.
    """

    phases: tuple[PhaseCost, ...]
    scored: int
    features: int
    features_in_ram: int
    features_time: float
    files: int
    model: int
    gpu_there: int
    ram_there: int
    disk_there: int
    expected_time: float = 0.0
    prior_time: float = 0.0
    prior_disk: int = 0
    ram_taken: int = 0
    ram_at_end: int = 0
    scores: int = 0
    beginning: float = 0.0
    metrics: float = 0.0
    end: float = 0.0

    @property
    def measuring(self) -> float:
        """Seconds of metrics and calibration, after every epoch and at the end."""
        return self.metrics * sum(phase.epochs for phase in self.phases) + self.end

    @property
    def seconds(self) -> float:
        """Seconds of the whole run: features, estimates, training, scoring and metrics."""
        end = self.scored * self.phases[-1].scoring + self.measuring
        before = self.beginning + self.features_time + self.expected_time + self.prior_time
        return before + sum(phase.time for phase in self.phases) + end

    @property
    def ram(self) -> int:
        """Bytes of RAM at the peak, of one process without its loaders."""
        return max(phase.ram for phase in self.phases) + self.features_in_ram + self.ram_at_end

    @property
    def ram_short(self) -> bool:
        """Whether that is more than the process may have."""
        return self.ram > self.ram_taken + self.ram_there

    @property
    def gpu(self) -> int:
        """Bytes of the GPU at the peak."""
        return max(phase.gpu for phase in self.phases)

    @property
    def disk(self) -> int:
        """Bytes in the run's folder at the most."""
        largest = max(phase.checkpoint for phase in self.phases)
        most = min(CHECKPOINTS, sum(phase.epochs for phase in self.phases))
        return max(most * largest + self.model + self.scores, self.prior_disk) + self.files


@dataclass
class FirstBatchLoaders(PhaseLoaders):
    """Loaders that compute stored features of one batch and repeat them for all images.

    ``to_come`` counts the bytes of features that a run would compute, in ``time`` seconds, and ``in_ram``
    those of them that it would hold: pooled ones; those of cells stay in their file.
    """

    to_come: int = 0
    in_ram: int = 0
    time: float = 0.0
    _made_up: dict[tuple[str, bool], Tensor] = field(default_factory=dict)

    def _features_of(self, split: str, cells: bool) -> Tensor:
        if self._file(split, cells, self.engine).exists():
            return super()._features_of(split, cells)
        if (split, cells) not in self._made_up:
            prepared, network = self.data.split(split), self._network(self.engine)
            loader = ImageLoader(prepared, self.test_view)
            workers = worker_processes(self.machine.workers, self.fabric.device)
            seconds, (features, *_) = timed(loader, len(prepared), self.fabric, workers, network.run)
            one = features[:1].half().cpu() if cells else features[:1].float().mean(dim=(2, 3)).cpu()
            self._made_up[split, cells] = one.expand(len(prepared), *one.shape[1:])
            self._count(seconds, features)
        return self._made_up[split, cells]

    def _count(self, seconds: float, features: Tensor) -> None:
        """Add the cost of missing features: those of a frozen backbone, and others that were asked for."""
        wanted = {(name, self._of_cells(name)) for name in self.data.splits if self.config.frozen}
        missing = [one for one in wanted | {*self._made_up} if not self._file(*one, self.engine).exists()]
        width, grid = features.shape[1], features.shape[2] * features.shape[3]
        images = {
            cells: sum(len(self.data.split(name)) for name, of in missing if of == cells)
            for cells in (True, False)
        }
        self.in_ram = 4 * width * images[False]
        self.to_come = self.in_ram + 2 * width * grid * images[True]
        self.time = seconds * sum(images.values()) / self.fabric.world_size


@torch.no_grad()
def timed(
    loader: Loader, count: int, fabric: "Fabric", workers: int, model: Callable[[Tensor], Any]
) -> tuple[float, Any]:
    """Seconds per image to load a batch and run the model on it, and the output.

    Workers load while the model works.
    """
    rows = rows_of(count, fabric.global_rank, fabric.world_size)[:BATCH]
    began = time.monotonic()
    batch = next(iter(loader(in_order(rows, BATCH), 0)))
    loaded = time.monotonic()
    output = model(batch.inputs[0].to(fabric.device))
    wait(fabric.device)
    loading, seeing = loaded - began, time.monotonic() - loaded
    return (max(loading / workers, seeing) if workers else loading + seeing) / len(rows), output


def wait(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def dry_run(
    data: Dataset,
    config: TrainConfig,
    out: Path,
    machine: Machine | None = None,
    handling: Handling | None = None,
    command: Sequence[str] = (),
) -> RunCost:
    """Make the checks of a run, take a few steps of each phase, and return what the run would cost."""
    machine, handling = machine or Machine(), handling or Handling()
    began = time.monotonic()
    require_folder_to_write(out)
    resolved = resolve(data, config)
    config = resolved.config
    run = Run(out)
    run.goes_on(config, run_metadata(data, command, config), resume=handling.resume, force=handling.force)
    prior = None
    if trains_for_prior(config):
        prior = dry_run(data, run_before(config), out / "prior", machine, handling, command)
        began = time.monotonic()
    fabric = started(data, config, machine)
    with TemporaryDirectory(prefix="sparselabel-dry-run-") as folder, default_precision(config.precision):
        log = Log(Run(Path(folder)), speaks=fabric.is_global_zero, quiet=handling.quiet)
        for note in resolved.notes:
            log.say(note)
        backbone = LazyBackbone(config)
        trainer = Trainer(data, config, run, log, fabric, machine, backbone, FirstBatchLoaders)
        loaders = cast("FirstBatchLoaders", trainer.loaders)
        loaders.check(trainer.network)
        beginning, estimating = time.monotonic() - began, _to_estimate(loaders)
        began = time.monotonic()
        trainer.prepare(method_of(config))
        beginning += time.monotonic() - began
        files = sum(memory.bytes for memory in files_of(trainer.method))
        ram, disk = available_memory(), free_disk(out)
        forget_peak()
        taken = peak_memory()
        trainer.run = log.run
        rows = trainer.rows
        if files:
            rows = _rows_of_steps(config, data, fabric)
            trainer.method = _for_a_few(rows, trainer).to(fabric.device)
        phases: list[PhaseCost] = []
        for name in config.phases:
            if phases:
                trainer.method.begin_phase()
            phases.append(_measured(trainer, name, rows, out))
        once, metrics = epoch_seconds(data)
        return RunCost(
            phases=tuple(phases),
            scored=_scored_at_end(trainer),
            features=loaders.to_come,
            features_in_ram=loaders.in_ram,
            features_time=loaders.time,
            files=files,
            model=bytes_of(trainer.network.classifier.state_dict().values()),
            gpu_there=_gpu(fabric.device, lambda gpu: torch.cuda.get_device_properties(gpu).total_memory),
            ram_there=ram,
            disk_there=disk,
            expected_time=estimating,
            prior_time=0.0 if prior is None else _to_find(prior, len(data.train) // fabric.world_size),
            prior_disk=0 if prior is None else prior.disk,
            ram_taken=taken,
            ram_at_end=_ram_at_end(trainer),
            scores=BYTES_OF_SCORE * len(data.classes) * (_size(trainer, "val") + _size(trainer, "test")),
            beginning=beginning + once,
            metrics=metrics,
            end=end_seconds(trainer),
        )


def _to_estimate(loaders: PhaseLoaders) -> float:
    """Seconds to estimate expected positives, for the method or for thresholds alone."""
    if is_estimated(loaders.config):
        return seconds_to_estimate(loaders)
    if only_thresholds_need_them(loaders.data, loaders.config):
        with suppress(DataError):  # as the run does: it is guessed
            return seconds_to_estimate(loaders)
    return 0.0


def _measured(trainer: Trainer, name: str, rows: Rows, out: Path) -> PhaseCost:
    """Take a few steps of a phase and score a batch; returns their cost."""
    device, solves = trainer.fabric.device, trainer.needs.solves
    forget_peak()
    _gpu(device, torch.cuda.reset_peak_memory_stats)
    first_epoch = trainer.config.head.epochs if name == "finetune" else 0
    with trainer.log.bar(STEPS, f"measuring the {name} phase") as bar:
        began = time.monotonic()
        stage = trainer.stage(name, first_epoch, None)
        beginning = time.monotonic() - began
        first, seconds = _steps(trainer, stage, rows, bar.advance)
        scoring = _scoring(trainer, stage)
        unmeasured = _write_and_load(trainer, stage)
    checkpoint = _checkpoint(trainer, stage)
    return PhaseCost(
        name,
        stage.phase.epochs,
        1 if solves else stage.steps_per_epoch,
        len(trainer.data.train) if solves else stage.phase.batch_size,
        seconds,
        _scored_in_epoch(trainer),
        scoring,
        ram=peak_memory() + unmeasured,
        # The peak of what torch has reserved, used or not: other programs cannot have it.
        gpu=_gpu(device, torch.cuda.max_memory_reserved),
        checkpoint=checkpoint,
        saving=_to_write(out, checkpoint),
        beginning=beginning + max(0.0, first - seconds),
    )


def _to_write(out: Path, size: int) -> float:
    """Seconds to write a checkpoint of so many bytes on the disk of ``out``, timed with a part of it."""
    part = min(size, PART)
    if not part or free_disk(out) < 2 * part:
        return 0.0
    block = bytes(BLOCK)
    existing = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
    with TemporaryFile(dir=existing) as file:
        began = time.monotonic()
        for start in range(0, part, BLOCK):
            some = block[: part - start]
            zlib.crc32(some)
            file.write(some)
        file.flush()
        os.fsync(file.fileno())
        return (time.monotonic() - began) * size / part


def _gpu(device: torch.device, ask: Callable[[torch.device], Any]) -> int:
    """A number of CUDA's memory statistics; 0 without a GPU."""
    return (ask(device) or 0) if device.type == "cuda" else 0


def _to_find(prior: RunCost, images: int) -> float:
    """Seconds to train for the prior and to score the training images; stored features are shared."""
    return prior.seconds - prior.features_time + images * prior.phases[-1].scoring


@torch.no_grad()
def _scan(trainer: Trainer, stage: Stage, rows: Rows, progress: Progress) -> Iterator[Step]:
    """The steps of a method's scan before an epoch; all of them repeat the first real batch."""
    scorer = Scorer(stage.eval_module, trainer.fabric.device, trainer.config.precision)
    first: Output | None = None
    for some in in_order(rows, stage.phase.batch_size):
        if first is None:
            batch = next(iter(trainer.loaders.evaluation(stage.name, "train")([some], progress.epoch)))
            first = scorer(batch.inputs[0], maps=trainer.needs.maps)
        output = Output(*(None if value is None else value[: len(some)] for value in first))  # type: ignore[arg-type]
        seen = Batch(torch.from_numpy(some), (), (ViewGeometry.whole(len(some)),))
        yield trainer.make_step(seen, (output,), progress)


def _rows_of_steps(config: TrainConfig, data: Dataset, fabric: "Fabric") -> Rows:
    """The rows of the steps to take, and of a few more that are prefetched."""
    rows, epoch = {fabric.global_rank}, 0
    for phase in config.phases.values():
        epoch += phase.epochs
        batches = epoch_batches(
            len(data.train), phase.batch_size, config.seed, epoch - 1, fabric.global_rank, fabric.world_size
        )
        rows |= {int(row) for some in batches[: 2 * STEPS] for row in some if row >= 0}
    return np.array(sorted(rows))


def _for_a_few(rows: Rows, trainer: Trainer) -> ComposedLoss:
    """The method prepared for a few rows: its files for all would be gigabytes."""
    train, method = trainer.data.train, method_of(trainer.config)
    few, observed = torch.from_numpy(rows), torch.from_numpy(train.observed.matrix[rows])
    grid = trainer.loaders.grid() if method.needs.maps else None
    method.prepare(Layout(few, observed, len(train), seed=trainer.config.seed, keep="ram", grid=grid))
    return method


def _steps(trainer: Trainer, stage: Stage, rows: Rows, report: Any) -> tuple[float, float]:
    """Take steps as in the phase's last epoch; seconds of the first and of a later one, loading included.

    A head that is computed takes one, with all images.
    """
    epoch = stage.first_epoch + stage.phase.epochs - 1
    progress = trainer.progress(stage, epoch)
    torch.manual_seed(trainer.epoch_seed(epoch))
    trainer.method.begin_epoch(progress)
    if trainer.needs.solves:
        began = time.monotonic()
        trainer.solve(progress)
        report(STEPS)
        return 0.0, time.monotonic() - began

    def scan(some: Tensor | None) -> Iterator[Step]:
        return _scan(trainer, stage, rows if some is None else some.numpy(), progress)

    trainer.method.scan(scan)
    stage.fabric_module.train()
    times = [time.monotonic()]
    for lr, batch in islice(stage.batches(epoch, prefetch=trainer.method.prefetch), STEPS):
        trainer.train_step(stage, batch, replace(progress, lr=lr))
        wait(trainer.fabric.device)
        times.append(time.monotonic())
        report()
        if len(times) > 2 and times[-1] - times[0] > LONG:
            break
    # The first step has what comes once: loaders that start, the optimizer's state.
    later = times[1:] if len(times) > 2 else times
    return times[1] - times[0], (later[-1] - later[0]) / (len(later) - 1)


def _scoring(trainer: Trainer, stage: Stage) -> float:
    """Seconds to score an image."""
    loader = trainer.loaders.one_batch(stage.name)
    scorer = Scorer(stage.eval_module, trainer.fabric.device, trainer.config.precision)
    workers = worker_processes(trainer.machine.workers, trainer.fabric.device)
    workers = 0 if trainer.loaders.uses_stored_features(stage.name) else workers
    return timed(loader, len(trainer.data.train), trainer.fabric, workers, scorer)[0]


def _write_and_load(trainer: Trainer, stage: Stage) -> int:
    """Write the weights and load them, as a run does with its best epoch; returns bytes to add to the peak.

    These are 0 unless the temporary folder has no room: then a copy to write, and the file read back.
    """
    weights = weights_of(stage.eval_module, stage.name == "head")
    size = bytes_of(weights.values())
    if free_disk(trainer.run.path) < 2 * size:
        return 2 * size
    file = trainer.run.path / "weights.safetensors"
    save_tensors(weights, file)
    trainer.network.load(load_tensors(file))
    file.unlink()
    return 0


def _scored_in_epoch(trainer: Trainer) -> int:
    """Images that a process scores per epoch: those of validation, and of the method's scan."""
    scan = len(trainer.data.train) * trainer.needs.scan
    return (_size(trainer, "val") + scan) // trainer.fabric.world_size


def _scored_at_end(trainer: Trainer) -> int:
    """Images that a process scores when training is over."""
    recovered = len(trainer.data.train) * trainer.truth_known
    return (_size(trainer, "val") + _size(trainer, "test") + recovered) // trainer.fabric.world_size


def _ram_at_end(trainer: Trainer) -> int:
    """Bytes of scores and their metrics when training is over; some are in files."""
    classes = len(trainer.data.classes)
    entries = [classes * _size(trainer, split) for split in ("val", "test")]
    stored = sum(BYTES_OF_SCORE * n for n in entries if BYTES_OF_SCORE * n <= LARGEST_SCORES)
    measured = stored + BYTES_TO_MEASURE * min(max(entries), MOST_SCORES)
    if not trainer.truth_known:
        return measured
    # What the method remembers comes back from the best checkpoint: its file, mapped, and a copy.
    remembered = in_ram(trainer.method) + bytes_of(trainer.method.state_dict().values())
    recovered = BYTES_TO_RECOVER * classes * len(trainer.data.train) + 2 * remembered
    return max(measured, stored + recovered)


def _size(trainer: Trainer, split: str) -> int:
    return len(trainer.data.split(split)) if split in trainer.data.splits else 0


def _checkpoint(trainer: Trainer, stage: Stage) -> int:
    """Bytes of a checkpoint: the trained weights, their average, the optimizer, memories in RAM."""
    trained = bytes_of(weights_of(stage.module, stage.name == "head").values())
    states = [value for state in stage.optimizer.state_dict()["state"].values() for value in state.values()]
    optimizer = bytes_of(value for value in states if isinstance(value, Tensor))
    return trained * (2 if stage.average is not None else 1) + optimizer + in_ram(trainer.method)
