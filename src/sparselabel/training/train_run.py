"""A training run from beginning to end: check, train, evaluate the best epoch, write the result."""

import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from sparselabel.config import Handling, Machine, TrainConfig
from sparselabel.data.answers import file_of, last_words
from sparselabel.data.dataset import Prepared
from sparselabel.data.loaders import epoch_batches, rows_of
from sparselabel.distributed import all_reduce_sum, default_precision, start_fabric
from sparselabel.errors import ConfigError, counted
from sparselabel.files import atomic_write, require_folder_to_write, write_json
from sparselabel.inference.class_thresholds import threshold_metrics, write_class_thresholds
from sparselabel.inference.score_files import keep_scores
from sparselabel.losses.base import Layout, Progress, SparseLoss
from sparselabel.metrics.imagenet_real import real_metrics_of
from sparselabel.metrics.label_metrics import label_metrics
from sparselabel.models.backbone import Backbone
from sparselabel.run import Run
from sparselabel.training.checkpoint import (
    Checkpoint,
    TrainingState,
    files_of,
    newest_checkpoint,
    refuse_best_start,
    refuse_full_disk,
    remove_old_files,
    say_where,
)
from sparselabel.training.class_prior import prior_of_run, take_prior
from sparselabel.training.estimate_positives import (
    counts_of_run,
    new_counts,
)
from sparselabel.training.features import content_digest, weights_identity
from sparselabel.training.phase_loaders import Inputs
from sparselabel.training.logger import Log
from sparselabel.training.network import LazyBackbone, Network
from sparselabel.training.resolve import (
    expected_file,
    method_of,
    prior_file,
    resolve,
)
from sparselabel.training.trainer import Session, train
from sparselabel.training.validate import scores_of, validate
from sparselabel.training.watch import Watch

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def run_metadata(data: Prepared, command: Sequence[str], config: TrainConfig | None = None) -> dict[str, Any]:
    """What run.json says; with a configuration, of the content of the files that it names too."""
    packages = ("sparselabel", "torch", "torchvision", "timm", "lightning-fabric", "numpy")
    contents = {}
    if config is not None:
        contents["weights_identity"] = weights_identity(config)
        given = expected_file(config)
        if given is not None:
            contents["expected_identity"] = content_digest(given)
        prior = prior_file(config)
        if prior is not None:
            contents["prior_identity"] = content_digest(prior)
    return contents | {
        "data": str(data.folder.resolve()),
        "data_digest": {name: split.digest for name, split in data.splits.items()},
        "answers": len(last_words(data.answers)),
        "classes": list(data.classes),
        "command": list(command),
        "versions": {name: version(name) for name in packages} | {"python": sys.version.split()[0]},
    }


def train_run(
    data: Prepared,
    config: TrainConfig,
    out: Path,
    machine: Machine | None = None,
    handling: Handling | None = None,
    command: Sequence[str] = (),
    title: str = "",
    backbone: Backbone | None = None,
) -> dict[str, Any]:
    """Train, evaluate the best epoch on validation and test, and return the run's result.

    A run of a comparison has a ``title``: all it shows is a progress bar with that name. ``backbone`` is the
    configuration's, if it is made already.
    """
    machine, handling = machine or Machine(), handling or Handling()
    require_folder_to_write(out)
    run = Run(out)
    if handling.resume:
        run.refuse_other_data(run_metadata(data, command))  # first: other data have other faults as well
    resolved = resolve(data, config)
    config = resolved.config
    fabric = started(data, config, machine)
    speaks, tensorboard = fabric.is_global_zero, handling.tensorboard
    log = Log(run, speaks=speaks, quiet=handling.quiet, tensorboard=tensorboard, title=title)
    if handling.resume and not title and not run.config_file.exists():
        log.say(f"nothing to resume in {out}: starting")
    for note in resolved.notes:
        log.say(note)
    metadata = run_metadata(data, command, config)
    goes_on = run.goes_on(config, metadata, resume=handling.resume, force=handling.force)
    if goes_on and run.finished:
        log.say(f"{out} is finished already")
        return run.result()
    newest = newest_checkpoint(run.checkpoints) if goes_on and fabric.is_global_zero else None
    if newest is not None:  # other numbers of processes were tried since, and got to no checkpoint
        remove_old_files(run.checkpoints, newest.processes)
    fabric.barrier()
    lazy = LazyBackbone(config, backbone)
    inputs = Inputs(data, config, lazy, fabric, machine.workers, log)
    network = Network(config, len(data.classes), lazy, inputs.feature_width if config.frozen else None)
    with default_precision(config.precision):
        # What cannot work is found before a folder is made, or an old run replaced.
        if not goes_on:
            inputs.check(network)
        counts = counts_of_run(config, inputs, run) if goes_on else new_counts(config, inputs)
        method = method_of(config, counts)
        prepare_method(method, config, data, run, fabric, machine, network, inputs)
        if not goes_on:
            method.begin_epoch(Progress(0, config.epochs, 0, 0.0))
        fabric.barrier()  # before an old run is replaced that others still look at
        if fabric.is_global_zero:
            answers = file_of(data.answers)
            run.begin(config, metadata, resume=handling.resume, force=handling.force, answers=answers)
            if counts is not None:
                counts.write(run.expected_file)
        fabric.barrier()
        if counts is not None:
            log.say(f"expected positives: {counts.summary}")

        def train_first(other: TrainConfig, folder: Path) -> None:
            log.say(f"the prior comes from {counted(other.epochs, 'epoch')} in ignore mode")
            resume = Handling(resume=True, quiet=handling.quiet)
            train_run(data, other, folder, machine, resume, command, f"{title}: prior" if title else "prior")

        take_prior(method, prior_of_run(config, inputs, run, train_first))
        say_where(method, machine, log)
        watch = Watch(run.watched, config.watch, inputs)
        session = Session(data, config, run, log, fabric, network, inputs, method, watch)
        return finish(session, train(session))


def check_run(
    data: Prepared, config: TrainConfig, out: Path, machine: Machine, backbone: Backbone | None = None
) -> Backbone | None:
    """Refuse now what would be refused when the run begins, or goes on; nothing is written.

    ``backbone`` is one that another run with the same backbone was checked with. Expected positives that are
    to be estimated are not.
    """
    run = Run(out)
    run.refuse_other_data(run_metadata(data, ()))  # first: other data have other faults as well
    config = resolve(data, config).config
    if run.goes_on(config, run_metadata(data, (), config), resume=True, force=False):
        return backbone
    fabric = started(data, config, machine)
    lazy = LazyBackbone(config, backbone)
    with default_precision(config.precision):
        inputs = Inputs(data, config, lazy, fabric, 0, Log(run, speaks=False))
        network = Network(config, len(data.classes), lazy, inputs.feature_width if config.frozen else None)
        inputs.check(network)
        method = method_of(config)
        prepare_method(method, config, data, run, fabric, machine, network, inputs)
        method.begin_epoch(Progress(0, config.epochs, 0, 0.0))
    return lazy.made


def started(data: Prepared, config: TrainConfig, machine: Machine) -> "Fabric":
    """Join the other processes; refuses data and batches that they cannot share."""
    fabric = start_fabric(machine, config.precision)
    if len(data.train) < fabric.world_size:
        raise ConfigError(
            f"{fabric.world_size} processes cannot share {counted(len(data.train), 'training image')}: "
            "use fewer"
        )
    for phase in config.phases.values():
        epoch_batches(1, phase.batch_size, 0, 0, 0, fabric.world_size)  # refuses one that cannot be shared
    return fabric


def finish(session: Session, state: TrainingState) -> dict[str, Any]:
    """Take the best epoch, keep its model, and measure it."""
    run, data, fabric = session.run, session.data, session.fabric
    best = Checkpoint(run.checkpoints / f"{state.best_epoch:04d}")
    session.network.load(best.average() or best.model())
    phase = best.state.phase
    stored = session.inputs.stored(phase)
    module = session.network.head if stored else session.network.classifier
    module.to(fabric.device)
    result: dict[str, Any] = {
        "method": session.config.method,
        "oracle": session.method.needs.truth,
        "best_epoch": state.best_epoch,
        "epochs": state.epochs,
        "validation": None,
        "test": None,
        "recovery": None,
    }
    found = {
        split: scores_of(module, session.inputs, phase, split).numpy()
        for split in ("val", "test")
        if split in data.splits
    }
    decisions = write_class_thresholds(run, data, found.get("val")) if fabric.is_global_zero else None
    for split, key in (("val", "validation"), ("test", "test")):
        if split in found:
            scores, part = found[split], data.split(split)
            result[key] = validate(scores, part.observed) | label_metrics(scores, part.observed)
            if part.real is not None:
                result[key]["real"] = real_metrics_of(scores, part)
            if decisions is not None:  # so that figures and reports need not score the images again
                result[key]["decided"] = threshold_metrics(scores, part.observed, decisions)
                keep_scores(run, part, scores)
    if session.truth_known:
        result["recovery"] = _recovery(session, best, module, phase)
    if fabric.is_global_zero:
        weights = session.network.classifier.state_dict()
        with atomic_write(run.model_file) as partial:
            save_file({name: value.cpu().contiguous() for name, value in weights.items()}, partial)
        session.log.cost.keep()
        write_json(run.result_file, result)
        shutil.rmtree(run.memory, ignore_errors=True)  # gigabytes that nobody will read again
    fabric.barrier()
    return result


def _recovery(
    session: Session, best: Checkpoint, module: torch.nn.Module, phase: str
) -> dict[str, float | None]:
    """How well all training labels are known (Cole 2021 table 2): by the model, and by the method's
    estimates.
    """
    truth = session.data.train.truth
    scores = scores_of(module, session.inputs, phase, "train")
    in_files = bool(files_of(session.method)) or best.in_files
    if not in_files:
        best.restore_method(session.method, session.fabric)
    newest = newest_checkpoint(session.run.checkpoints)
    other_epoch = in_files and newest is not None and newest.path != best.path  # a file has the last one only
    here = None if other_epoch else session.method.estimates()
    if other_epoch:
        session.log.say(
            "of all training labels only the model's knowledge is measured: what the method remembers is in "
            "files, which have the last epoch and not the best"
        )
    estimates = None
    if here is not None:
        rows = torch.from_numpy(rows_of(len(truth), session.fabric.global_rank, session.fabric.world_size))
        whole = torch.zeros(len(truth), here.shape[1], dtype=here.dtype)
        whole[rows] = here
        estimates = validate(all_reduce_sum(whole).numpy(), truth)["value"]
    return {"model": validate(scores.numpy(), truth)["value"], "estimates": estimates}


def prepare_method(
    method: SparseLoss,
    config: TrainConfig,
    data: Prepared,
    run: Run,
    fabric: "Fabric",
    machine: Machine,
    network: Network,
    inputs: Inputs,
) -> None:
    """Show the method the labels of this process, and refuse what its memories cannot do."""
    rows = rows_of(len(data.train), fabric.global_rank, fabric.world_size)
    observed = torch.from_numpy(data.train.observed.values[rows])
    layout = Layout(
        torch.from_numpy(rows),
        observed,
        len(data.train),
        seed=config.seed,
        processes=fabric.world_size,
        folder=run.memory,
        keep=machine.memories,
        grid=inputs.grid() if method.needs.maps else None,
    )
    method.to(fabric.device)
    method.prepare(layout)
    if len(config.phases) > 1 and config.finetune.start == "best":
        refuse_best_start(method)
    refuse_full_disk(config, method, run, network, fabric, validated="val" in data.splits)
