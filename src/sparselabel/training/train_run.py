"""One training run: check, train, evaluate the best epoch, write the result."""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import nn

from sparselabel.checksums import file_checksum
from sparselabel.config import AUTO, Handling, Machine, TrainConfig
from sparselabel.data.answers import file_of, last_words
from sparselabel.data.dataset import Dataset
from sparselabel.data.prepared_files import require_as_written
from sparselabel.distributed import all_reduce_sum, default_precision, start_fabric
from sparselabel.errors import ConfigError, RunError, counted, param, spell
from sparselabel.expected_positives.class_counts import ClassCounts
from sparselabel.file_formats import read_json_lines
from sparselabel.files import atomic_write, require_folder_to_write, write_json
from sparselabel.inference.class_thresholds import threshold_metrics, write_class_thresholds
from sparselabel.inference.engine import TORCH
from sparselabel.inference.saved_scores import keep_scores
from sparselabel.locks import locked
from sparselabel.losses.registry import settings_of
from sparselabel.losses.step import Progress
from sparselabel.metrics.imagenet_real import real_metrics_of
from sparselabel.metrics.label_metrics import label_metrics
from sparselabel.models.backbone import Backbone
from sparselabel.run import REPLACE, EpochRecord, Run
from sparselabel.training.callbacks import Hooks
from sparselabel.training.checkpoint import (
    Checkpoint,
    TrainingState,
    disk_errors,
    files_of,
    newest_checkpoint,
    remove_old_files,
    save_tensors,
    say_where,
)
from sparselabel.training.class_prior import column_means, read_prior, run_before, take_prior
from sparselabel.training.estimate_positives import counts_of_run, new_counts, only_thresholds_need_them
from sparselabel.training.features import content_digest, weights_identity
from sparselabel.training.load_external_scores import (
    load_external_scores,
    log_external_scores,
    save_external_scores,
)
from sparselabel.training.logger import Log
from sparselabel.training.network import LazyBackbone
from sparselabel.training.phases import refuse_uneven_batches
from sparselabel.training.resolve import Resolved, expected_file, method_of, prior_file, resolve, scores_file
from sparselabel.training.trainer import Trainer
from sparselabel.training.validate import score_matrix_of, scores_of, validate

if TYPE_CHECKING:
    from lightning_fabric import Fabric


LONG_CALIBRATION = 10_000_000  # entries of validation from which on a bar is shown: it takes ten seconds


def run_metadata(data: Dataset, command: Sequence[str], config: TrainConfig | None = None) -> dict[str, Any]:
    """The content of run.json; with a configuration, it includes digests of the files that this names."""
    contents = {}
    if config is not None:
        contents["weights_identity"] = weights_identity(config)
        files = {
            "expected_identity": expected_file(config),
            "prior_identity": prior_file(config),
            "scores_identity": scores_file(config),
        }
        contents |= {name: content_digest(file) for name, file in files.items() if file is not None}
    return contents | {
        "data": str(data.folder.resolve()),
        "data_digest": {name: split.digest for name, split in data.splits.items()},
        "answers": len(last_words(data.answers)),
        "label_seed": data.label_seed,
        "annotation": data.annotation,
        "classes": list(data.classes),
        "command": list(command),
        "versions": _versions() | {"python": sys.version.split()[0]},
    }


@cache
def _versions() -> dict[str, str]:
    packages = ("sparselabel", "torch", "torchvision", "timm", "lightning-fabric", "numpy")
    return {name: version(name) for name in packages}


def train_run(
    data: Dataset,
    config: TrainConfig,
    out: Path,
    machine: Machine | None = None,
    handling: Handling | None = None,
    command: Sequence[str] = (),
    title: str = "",
    backbone: Backbone | None = None,
    hooks: Hooks | None = None,
) -> dict[str, Any]:
    """Train, evaluate the best epoch on validation and test, and return the run's result.

    A run of a comparison has a ``title``: all it shows is a progress bar with that name. ``backbone`` is the
    configuration's, if it is made already. ``hooks`` come from Python.
    """
    with ExitStack() as held:
        trainer = begin_run(data, config, out, held, machine, handling, command, title, backbone, hooks)
        if trainer is None:
            return Run(out).result()
        with default_precision(trainer.config.precision):
            result = finish(trainer, trainer.train())
    for callback in trainer.hooks.callbacks:
        callback.on_fit_end(trainer.run)
    for logger in trainer.hooks.loggers:
        logger.finalize("success")
    return result


def train_somewhere(
    data: Dataset,
    config: TrainConfig,
    out: Path,
    machine: Machine,
    handling: Handling,
    command: Sequence[str] = (),
    backbone: Backbone | None = None,
    hooks: Hooks | None = None,
    cluster: str | None = None,
    processes: int | None = None,
) -> dict[str, Any]:
    """Train here, in the processes that there are, or on a cluster; returns the run's result."""
    if cluster is not None:
        from sparselabel.training.train_on_ray import train_on_ray

        return train_on_ray(
            cluster, processes, data, config, out, machine, handling, command, backbone, hooks
        )
    if processes is not None:
        raise ConfigError(
            f"{param('processes')} are those of a cluster, and none is given",
            f"name it ({param('cluster', 'auto')})",
            f"take {param('devices', processes)} for processes of this machine",
            what="processes",
            value=processes,
        )
    return train_run(data, config, out, machine, handling, command, backbone=backbone, hooks=hooks)


def begin_run(
    data: Dataset,
    config: TrainConfig,
    out: Path,
    held: ExitStack,
    machine: Machine | None = None,
    handling: Handling | None = None,
    command: Sequence[str] = (),
    title: str = "",
    backbone: Backbone | None = None,
    hooks: Hooks | None = None,
    beside: Trainer | None = None,
) -> Trainer | None:
    """Do all that comes before the first epoch; None if the run is finished already.

    ``held`` gets the lock of its folder, to release when the run has its result. ``beside`` is a run on the
    same stored features: it shares them and the backbone.
    """
    machine, handling, hooks = machine or Machine(), handling or Handling(), hooks or Hooks()
    require_folder_to_write(out)
    run = Run(out)
    if handling.resume:
        run.refuse_other_data(run_metadata(data, command))  # first: other data have other faults as well
    resolved = resolve(data, config)
    fabric = started(data, resolved.config, machine)
    with ExitStack() as own:
        own.enter_context(_locked_by_first(fabric, out))
        given = (machine, handling, command, title, backbone, hooks, beside)
        trainer = _begin_locked(data, resolved, run, fabric, *given)
        if trainer is not None:
            held.push(own.pop_all())
    return trainer


@contextmanager
def _locked_by_first(fabric: "Fabric", folder: Path) -> Iterator[None]:
    """Lock the folder of a run: the first of its processes holds the lock, and all raise if it is taken."""
    refusal: RunError | None = None
    with ExitStack() as held:
        if fabric.is_global_zero:
            try:
                held.enter_context(locked(folder))
            except RunError as error:
                refusal = error
        refusal = fabric.broadcast(refusal)
        if refusal is not None:
            raise refusal
        yield


def _begin_locked(
    data: Dataset,
    resolved: Resolved,
    run: Run,
    fabric: "Fabric",
    machine: Machine,
    handling: Handling,
    command: Sequence[str],
    title: str,
    backbone: Backbone | None,
    hooks: Hooks,
    beside: Trainer | None,
) -> Trainer | None:
    config, out = resolved.config, run.path
    speaks, tensorboard = fabric.is_global_zero, handling.tensorboard
    quiet, loggers = handling.quiet, hooks.loggers
    log = Log(run, speaks=speaks, quiet=quiet, tensorboard=tensorboard, title=title, loggers=loggers)
    if handling.resume and not title and not run.config_file.exists():
        log.say(f"nothing to resume in {out}: starting")
    for note in resolved.notes:
        log.say(note)
    metadata = run_metadata(data, command, config)
    goes_on = run.goes_on(config, metadata, resume=handling.resume, force=handling.force)
    if goes_on and run.finished:
        log.say(f"{out} is finished already")
        return None
    if fabric.is_global_zero and data.made:
        require_as_written(data)
    newest = newest_checkpoint(run.checkpoints) if goes_on and fabric.is_global_zero else None
    if newest is not None:  # other numbers of processes were tried since, and got to no checkpoint
        remove_old_files(run.checkpoints, newest.processes)
    fabric.barrier()
    machine = _engine_of_run(run, machine) if goes_on and config.frozen else machine
    lazy = LazyBackbone(config, backbone) if beside is None else beside.backbone
    trainer = Trainer(data, config, run, log, fabric, machine, lazy, hooks=hooks)
    if beside is not None:
        trainer.loaders.share_features(beside.loaders)
    with default_precision(config.precision):
        # What cannot work is found before a folder is made, or an old run replaced.
        if not goes_on:
            trainer.loaders.check(trainer.network)
        metadata["engine"] = trainer.loaders.engine if config.frozen else TORCH
        # A comparison is about ranking: in it thresholds would take their time in every run.
        find = {"thresholds": not title}
        counts = (
            counts_of_run(trainer.loaders, run, **find) if goes_on else new_counts(trainer.loaders, **find)
        )
        scores = load_external_scores(trainer.loaders, run, goes_on)
        trainer.prepare(method_of(config, counts, scores))
        if not goes_on:
            trainer.method.begin_epoch(Progress(0, config.epochs, 0, 0.0))
        fabric.barrier()  # before an old run is replaced that others still look at
        if fabric.is_global_zero:
            answers = file_of(data.answers)
            run.begin(config, metadata, resume=handling.resume, force=handling.force, answers=answers)
            if counts is not None:
                counts.write(run.expected_file)
            save_external_scores(run, scores)
        fabric.barrier()
        if counts is not None:
            _say_counts(counts, only_thresholds_need_them(data, config), log)
        log_external_scores(trainer.method, log)

        def train_before(before: TrainConfig, folder: Path) -> None:
            log.say(f"the prior comes from {counted(before.epochs, 'epoch')} in ignore mode")
            resume = Handling(resume=True, quiet=handling.quiet)
            train_run(
                *(data, before, folder, machine, resume, command),
                title=f"{title}: prior" if title else "prior",
                backbone=lazy.for_another_run(before).made,
            )

        take_prior(trainer.method, _prior_of_run(trainer, train_before))
        say_where(trainer.method, machine, log)
    return trainer


def _say_counts(counts: ClassCounts, for_thresholds: bool, log: Log) -> None:
    """Log how many labels images are expected to have."""
    if for_thresholds:
        low, high = counts.interval
        # Thresholds see the scores too, so that their estimate is another one.
        log.say(f"labels per image, before training: about {counts.per_image:.1f} ({low:.1f} – {high:.1f})")
    else:
        log.say(f"expected positives: {counts.summary}")


def _engine_of_run(run: Run, machine: Machine) -> Machine:
    """The machine with the engine that made the run's stored features, as others differ by rounding."""
    recorded = run.metadata().get("engine", TORCH)
    if machine.engine not in (AUTO, recorded):
        raise RunError(
            f"{run.path} was begun with features of {param('engine', recorded)}, not {machine.engine}",
            f"resume it with {param('engine', recorded)}",
            *REPLACE,
            what="engine",
            value=machine.engine,
            allowed=recorded,
        )
    return replace(machine, engine=recorded)


def _prior_of_run(trainer: Trainer, train: Callable[[TrainConfig, Path], object]) -> tuple[float, ...] | None:
    """The prior of a run, saved in its folder for resuming; ``auto`` trains another run for it first."""
    config, data, run, fabric = trainer.config, trainer.data, trainer.run, trainer.fabric
    given = config.settings.get("prior")
    if given is None or "prior" not in settings_of(config.method):
        return None
    folder = run.path / "prior"
    if not fabric.broadcast(run.prior_file.exists()):
        if given == AUTO:
            before = run_before(config)
            train(before, folder)
            lazy = trainer.backbone.for_another_run(before)
            trained = replace(trainer, config=before, run=Run(folder), backbone=lazy)
            trained.network.load(load_file(trained.run.model_file))
            phase = [*before.phases][-1]
            prior = column_means(scores_of(_evaluated(trained, phase), trained.loaders, phase, "train"))
        else:
            prior = read_prior(Path(str(given)), data.classes)
        fabric.barrier()
        if fabric.is_global_zero:
            write_json(run.prior_file, dict(zip(data.classes, prior, strict=True)))
        fabric.barrier()
    if fabric.is_global_zero:
        shutil.rmtree(folder, ignore_errors=True)
    return read_prior(run.prior_file, data.classes)


def _evaluated(trainer: Trainer, phase: str) -> nn.Module:
    """The module to evaluate after a phase, on its device: the head on stored features, or all."""
    network = trainer.network
    module: nn.Module = network.head if trainer.loaders.uses_stored_features(phase) else network.classifier
    return module.to(trainer.fabric.device)


def check_run(
    data: Dataset, config: TrainConfig, out: Path, machine: Machine, backbone: Backbone | None = None
) -> Backbone | None:
    """Make the checks of a run without writing anything.

    ``backbone`` is one that another run with the same backbone was checked with. Expected positives are not
    estimated.
    """
    run = Run(out)
    run.refuse_other_data(run_metadata(data, ()))  # first: other data have other faults as well
    config = resolve(data, config).config
    if run.goes_on(config, run_metadata(data, (), config), resume=True, force=False):
        return backbone
    fabric, lazy = started(data, config, machine), LazyBackbone(config, backbone)
    with default_precision(config.precision):
        trainer = Trainer(data, config, run, Log(run, speaks=False), fabric, machine, lazy)
        trainer.loaders.check(trainer.network)
        trainer.prepare(method_of(config))
        trainer.method.begin_epoch(Progress(0, config.epochs, 0, 0.0))
    return lazy.made


def started(data: Dataset, config: TrainConfig, machine: Machine) -> "Fabric":
    """Join the other processes; refuses data and batches that they cannot share."""
    fabric = start_fabric(machine, config.precision)
    if len(data.train) < fabric.world_size:
        images = counted(len(data.train), "training image")
        raise ConfigError(f"{fabric.world_size} processes cannot share {images}", "use fewer")
    refuse_uneven_batches(config, fabric.world_size)
    return fabric


def finish(trainer: Trainer, state: TrainingState) -> dict[str, Any]:
    """Save and evaluate the model of the best epoch."""
    run, data, fabric = trainer.run, trainer.data, trainer.fabric
    best = trainer.load_best(state)
    module = _evaluated(trainer, best.state.phase)
    result: dict[str, Any] = {
        "method": trainer.config.method,
        "oracle": trainer.method.needs.truth,
        "best_epoch": state.best_epoch,
        "epochs": state.epochs,
        "validation": None,
        "test": None,
        "recovery": None,
    }
    scores_by_split = {
        split: score_matrix_of(module, trainer.loaders, best.state.phase, split)
        for split in ("val", "test")
        if split in data.splits
    }
    thresholds = None
    if fabric.is_global_zero:
        entries = scores_by_split["val"].size if "val" in scores_by_split else 0
        long = trainer.log.bar(None, f"calibrating {len(data.classes):,} classes")
        with long if entries > LONG_CALIBRATION else nullcontext():
            thresholds = write_class_thresholds(run, data, scores_by_split.get("val"))
    for split, scores in scores_by_split.items():
        labels, real = data.split(split).observed, data.split(split).real
        metrics = validate(scores, labels) | label_metrics(scores, labels)
        if real is not None:
            metrics["real"] = real_metrics_of(scores, data.split(split))
        if thresholds is not None:  # so that figures and reports need not score the images again
            metrics["decided"] = threshold_metrics(scores, labels, thresholds)
            keep_scores(run, data.split(split), scores)
        result["validation" if split == "val" else split] = metrics
    if trainer.truth_known:
        result["recovery"] = _recovery(trainer, best, module)
    if fabric.is_global_zero:
        weights = trainer.network.classifier.state_dict()
        comfort = "the checkpoints are unharmed"
        with disk_errors(f"the model {run.model_file}", comfort), atomic_write(run.model_file) as partial:
            save_tensors(weights, partial)
        result["model_checksum"] = file_checksum(run.model_file)
        trainer.log.cost.keep()
        write_json(run.result_file, result)
        shutil.rmtree(run.memory, ignore_errors=True)  # gigabytes that nobody will read again
        _say_better_head(trainer, state)
    fabric.barrier()
    return result


def _say_better_head(trainer: Trainer, state: TrainingState) -> None:
    """Log that an epoch of an earlier phase was better in validation than the best of the last one."""
    if state.best is None or not state.phase_began or not trainer.run.metrics_file.exists():
        return
    lines = read_json_lines(trainer.run.metrics_file, EpochRecord)
    before = [
        (one["validation"]["value"], one["epoch"], one["validation"]["name"])
        for one in lines
        if one["epoch"] <= state.phase_began and one["validation"] is not None
    ]
    if before and (best := max(before))[0] > state.best:
        value, epoch, name = best
        trainer.log.say(
            spell(
                f"the head alone was better: validation {name} {100 * value:.2f} in epoch {epoch}, and at "
                f"best {100 * state.best:.2f} in fine-tuning, whose model is kept: fine-tune for fewer "
                f"epochs, or not at all ({param('finetune.epochs', 0)}, fastest with {param('frozen', True)})"
            )
        )


def _recovery(trainer: Trainer, best: Checkpoint, module: nn.Module) -> dict[str, float | None]:
    """The mAP of the model and of the method's estimates on all training labels (Cole 2021 table 2)."""
    truth, fabric, method = trainer.data.train.truth, trainer.fabric, trainer.method
    scores = scores_of(module, trainer.loaders, best.state.phase, "train")
    in_files = bool(files_of(method)) or best.in_files
    if not in_files:
        best.restore_method(method, fabric)
    newest = newest_checkpoint(trainer.run.checkpoints)
    other_epoch = in_files and newest is not None and newest.path != best.path  # a file has the last one only
    own = None if other_epoch else method.estimates()
    if other_epoch:
        trainer.log.say(
            "of all training labels only the model's knowledge is measured: what the method remembers is in "
            "files, which have the last epoch and not the best"
        )
    estimates = None
    if own is not None:
        whole = torch.zeros(len(truth), own.shape[1], dtype=own.dtype)
        whole[torch.from_numpy(trainer.rows)] = own
        estimates = validate(all_reduce_sum(whole).numpy(), truth)["value"]
    return {"model": validate(scores.numpy(), truth)["value"], "estimates": estimates}
