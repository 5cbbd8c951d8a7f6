"""The training loop: read ``train``, ``train_epoch``, ``train_step``.

    train         phases ──▶ epochs ──▶ after each: validate, log, checkpoint
    train_epoch   method.begin_epoch ──▶ steps, with the learning rate of each ──▶ mean losses
    train_step    views ──▶ outputs of the model ──▶ Step ──▶ method: losses ──▶ backward, optimizer step
                                                      └─────────────────────────▶ method.update

The random numbers of an epoch depend only on the seed, the epoch and the process, so a resumed run gives the
same bits.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sparselabel.config import Machine, Phase, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import POSITIVE
from sparselabel.data.loaders import Batch, Rows, in_order, rows_of
from sparselabel.inference.scorer import Scorer
from sparselabel.losses.base import ComposedLoss, Needs
from sparselabel.losses.step import Layout, Observed, Progress, Step, observed_rows
from sparselabel.models.classifier import LinearHead, Output
from sparselabel.progress import Bar
from sparselabel.run import Run
from sparselabel.training.callbacks import Hooks
from sparselabel.training.checkpoint import (
    Checkpoint,
    CheckpointSaver,
    TrainingState,
    newest_checkpoint,
    refuse_best_start,
    refuse_full_disk,
)
from sparselabel.training.logger import Log, ScoreHistogram, WatchedImages
from sparselabel.training.micro_batches import Backward, differences_from_whole_batch
from sparselabel.training.network import (
    LazyBackbone,
    Network,
    freeze_unused_parameters,
    load_into,
    weights_of,
)
from sparselabel.training.phase_loaders import PhaseLoaders
from sparselabel.training.phases import COMPILERS, Stage, diverged, does_not_fit, not_compiled
from sparselabel.training.resolve import standardizes
from sparselabel.training.validate import score_matrix_of, validate

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass
class Trainer:
    """Trains a model with a method: call ``prepare(method)``, then ``train()``."""

    data: Dataset
    config: TrainConfig
    run: Run
    log: Log
    fabric: "Fabric"
    machine: Machine
    backbone: LazyBackbone
    loaders_type: type[PhaseLoaders] = PhaseLoaders
    hooks: Hooks = field(default_factory=Hooks)
    should_stop: bool = False
    method: ComposedLoss = field(init=False)

    def __post_init__(self) -> None:
        data, config = self.data, self.config
        self.loaders = self.loaders_type(data, config, self.backbone, self.fabric, self.machine, self.log)
        width = self.loaders.feature_width if config.frozen else None
        standardize = self._standardize if standardizes(config) else None
        self.network = Network(config, len(data.classes), self.backbone, width, standardize)
        self.watched = WatchedImages(self.run.watched, config.watch, self.loaders)
        self.saver = CheckpointSaver(self.run.checkpoints, self.fabric)

    def _standardize(self, head: LinearHead) -> None:
        observed = self.data.train.observed
        positives = torch.from_numpy(observed.counts())
        # Half an image more, so that a class without annotations has a finite logit.
        head.standardize(self.loaders.features("train"), (positives + 0.5) / (len(observed) + 1.0))

    def prepare(self, method: ComposedLoss) -> None:
        """Prepare the method with the labels of this process; raise if the disk is too small."""
        layout = Layout(
            torch.from_numpy(self.rows),
            observed_rows(self.data.train.observed.matrix, self.rows),
            len(self.data.train),
            seed=self.config.seed,
            processes=self.fabric.world_size,
            folder=self.run.memory,
            keep=self.machine.memories,
            grid=self.loaders.grid() if method.needs.maps else None,
        )
        self.method = method.to(self.fabric.device)
        method.prepare(layout)
        if len(self.config.phases) > 1 and self.config.finetune.start == "best":
            refuse_best_start(method)
        validated = "val" in self.data.splits
        refuse_full_disk(self.config, method, self.run, self.network, self.fabric, validated)

    def train(self) -> TrainingState:
        """Train the remaining phases; returns the final state, which names the best epoch."""
        newest = newest_checkpoint(self.run.checkpoints)
        state = TrainingState() if newest is None else newest.state
        if newest is not None:
            self.restore(newest)
            self.log.say(f"resuming after epoch {state.epochs}")
        self.log.keep_epochs(state.epochs)
        for callback in self.hooks.callbacks:
            callback.on_fit_start(self)
        with self.log.bar(self.steps(), "training") as bar, self.saver:
            bar.skip(self.steps(state))
            for name, phase in phases_left(self.config, state):
                if name != state.phase:
                    self.begin_phase(phase, state)
                    state = state.in_new_phase(name)
                    newest = None  # the optimizer is new
                stage = self.stage(name, state.phase_began, newest)
                # A method would see the copy, and parameters of its own would get no gradients.
                if not (self.needs.features or self.needs.solves or [*self.method.parameters()]):
                    stage.standardize_once()
                for epoch in range(state.epochs, state.phase_began + phase.epochs):
                    losses, histogram = self.train_epoch(stage, epoch, bar)
                    state = self.end_epoch(stage, state, losses, histogram, self.validate(stage))
                    # Last: after a crash, epochs that are logged but not in a checkpoint are trained again.
                    self.save(stage, state)
                    if self.should_stop:
                        return state
                    if state.phase_over:
                        break
        return state

    def train_epoch(self, stage: Stage, epoch: int, bar: Bar) -> tuple[dict[str, float], list[int] | None]:
        """Train one epoch; returns the mean losses and a histogram of the scores of unobserved positives."""
        torch.manual_seed(self.epoch_seed(epoch))
        progress = self.progress(stage, epoch)
        self.method.begin_epoch(progress)
        if self.needs.solves:
            bar.advance(stage.steps_per_epoch)
            return self.solve(progress)
        if self.needs.scan:
            self.method.scan(lambda rows: self.scan(stage, progress, rows))
        stage.fabric_module.train()
        sums: dict[str, Tensor] = {}
        histogram = ScoreHistogram(self.unobserved_positives)
        for lr, batch in stage.batches(epoch, prefetch=self.method.prefetch):
            if lr != progress.lr:
                progress = replace(progress, lr=lr)
            step, losses = self.train_step(stage, batch, progress)
            for name, loss in losses.items():
                sums[name] = sums.get(name, 0) + loss.detach()
            if self.truth_known:
                histogram.add(step.outputs[0].logits, batch.rows)
            for callback in self.hooks.callbacks:
                callback.on_step_end(self, losses)
            bar.advance()
        means = {name: float(value) / stage.steps_per_epoch for name, value in sums.items()}
        self.refuse_diverged(stage, epoch, means)
        return means, histogram.take() if self.truth_known else None

    def train_step(self, stage: Stage, batch: Batch, progress: Progress) -> tuple[Step, dict[str, Tensor]]:
        """One optimizer step, then ``method.update``."""
        try:
            outputs, backward = self.forward(stage, batch)
            step = self.make_step(batch, outputs, progress)
            losses = self.method(step)
            backward(functools.reduce(torch.add, losses.values()))
            stage.optimizer_step()
        except torch.OutOfMemoryError as error:
            raise does_not_fit(self.config, stage.name, error) from error
        except RuntimeError as error:
            if self.machine.compile and type(error).__module__.startswith(COMPILERS):
                raise not_compiled(error) from error
            raise
        self.method.update(step)
        return step, losses

    def forward(self, stage: Stage, batch: Batch) -> tuple[tuple[Output, ...], Backward]:
        """The model's output for every view of a batch, and the function that runs backward.

        All views share one forward pass, so batch norm sees one batch and DDP gets one forward per backward.
        """
        views = len(batch.inputs)
        inputs = batch.inputs[0] if views == 1 else torch.cat(batch.inputs)
        output, backward = stage.forward(self.on_device(inputs), self.needs)
        if views == 1:
            return (output,), backward
        chunks = [[None] * views if value is None else value.chunk(views) for value in output]
        return tuple(Output(*view) for view in zip(*chunks, strict=True)), backward

    def make_step(self, batch: Batch, outputs: tuple[Output, ...], progress: Progress) -> Step:
        """The ``Step`` of a batch: all that the method sees."""
        rows, train, needs = batch.rows.clamp(min=0), self.data.train, self.needs
        return Step(
            rows=batch.rows,
            observed=self.on_device(self.observed.index_select(0, rows)),
            outputs=outputs,
            geometries=batch.geometries,
            progress=progress,
            spatial_labels=train.seen.take(batch.rows.numpy()) if needs.spatial_labels else None,
            truth=self.on_device(self.truth[rows]) if needs.truth else None,
            check=False,
        )

    def refuse_diverged(self, stage: Stage, epoch: int, means: dict[str, float]) -> None:
        """Raise if a mean loss of the epoch is not finite."""
        for name, mean in means.items():
            if not math.isfinite(mean):
                raise diverged(self.config, stage.name, f"the loss {name!r} of epoch {epoch + 1} is {mean}")

    def end_epoch(
        self,
        stage: Stage,
        state: TrainingState,
        losses: dict[str, float],
        histogram: list[int] | None,
        validation: dict[str, Any] | None,
    ) -> TrainingState:
        """Log an epoch; returns the state after it."""
        state = after_epoch(state, stage, state.epochs, validation)
        self.watched.keep(stage.name, state.epochs, stage.eval_module, self.method)
        record = {
            "epoch": state.epochs,  # logs count from 1
            "phase": stage.name,
            "losses": losses,
            "validation": validation,
            "hidden_positives": histogram,
        }
        self.log.epoch(record, self.waiting_terms(stage, state.epochs - 1))
        for callback in self.hooks.callbacks:
            callback.on_epoch_end(self, record)
        return state

    def validate(self, stage: Stage) -> dict[str, Any] | None:
        """The mAP on the validation split, if there is one."""
        if "val" not in self.data.splits:
            return None
        self._share_buffers(stage)
        scores = score_matrix_of(stage.eval_module, self.loaders, stage.name, "val")
        return validate(scores, self.data.split("val").observed)

    @torch.no_grad()
    def scan(self, stage: Stage, progress: Progress, some: Tensor | None = None) -> Iterator[Step]:
        """Steps in evaluation mode with the training images of this process, or with ``some`` of them."""
        self._share_buffers(stage)
        scorer = Scorer(stage.eval_module, self.fabric.device, self.config.precision)
        rows = self.rows if some is None else some.numpy()
        loader = self.loaders.evaluation(stage.name, "train")
        for batch in loader(in_order(rows, stage.phase.batch_size), epoch=progress.epoch):
            yield self.make_step(batch, (scorer(batch.inputs[0], maps=self.needs.maps),), progress)

    def _share_buffers(self, stage: Stage) -> None:
        """Broadcast the buffers of process 0: batch norm statistics differ between processes."""
        if self.fabric.world_size > 1:
            for buffer in stage.eval_module.buffers():
                buffer.copy_(self.fabric.broadcast(buffer))

    @torch.no_grad()
    def solve(self, progress: Progress) -> tuple[dict[str, float], list[int] | None]:
        """Instead of an epoch: compute the head from the stored features of all training images."""
        head, features = self.network.head, self.loaders.features("train")
        if not isinstance(head, LinearHead):
            raise TypeError("only a linear head can be solved")
        features = self.on_device(features.to(head.linear.weight.dtype))
        solved = self.method.label_loss.solve_head(head.standardized(features).cpu(), self.observed)
        head.linear.weight.copy_(solved.weight)
        head.linear.bias.copy_(solved.bias)
        rows = torch.from_numpy(self.rows)
        batch = Batch(rows, (features[rows],), ())
        step = self.make_step(batch, (head(batch.inputs[0]),), progress)
        histogram = ScoreHistogram(self.unobserved_positives)
        if self.truth_known:
            histogram.add(step.outputs[0].logits, rows)
        losses = {name: float(loss) for name, loss in self.method(step).items()}
        return losses, histogram.take() if self.truth_known else None

    def begin_phase(self, phase: Phase, state: TrainingState) -> None:
        """Begin a new phase from the last or the best epoch of the phase before."""
        if state.epochs == 0:
            return
        if phase.start == "best":
            self.load_best(state).restore_method(self.method, self.fabric)
        self.method.begin_phase()

    def load_best(self, state: TrainingState) -> Checkpoint:
        """Load the weights of the best epoch; returns its checkpoint."""
        self.saver.wait()
        best = Checkpoint(self.run.checkpoints / f"{state.best_epoch:04d}")
        self.network.load(best.average() or best.model())
        return best

    def stage(self, name: str, first_epoch: int, restored: Checkpoint | None) -> Stage:
        """Set up a phase; ``restored`` is the checkpoint to resume it from."""
        phase, needs = self.config.phases[name], self.needs
        module: nn.Module = self.network.head
        if not self.loaders.uses_stored_features(name):
            module = self.network.classifier_of(name)
            freeze_unused_parameters(module, self.config.views.size)
            if phase.micro_batches > 1:
                for note in differences_from_whole_batch(module, phase, self.fabric.world_size):
                    self.log.say(note)
        loader = self.loaders.training(
            name, needs.views, needs.strong_views, with_geometry=needs.maps or needs.spatial_labels
        )
        rows, seed, precision = len(self.data.train), self.config.seed, self.config.precision
        stage = Stage(
            *(name, phase, first_epoch, module, loader, rows, self.fabric, seed, precision, self.hooks),
            compile=self.machine.compile and not self.loaders.uses_stored_features(name),
        )
        if restored is not None:
            saved = restored.optimizer()
            stage.optimizer.load_state_dict(saved["optimizer"])
            self.fabric.strategy.precision.load_state_dict(saved["precision"])
            if stage.scheduler is not None:
                stage.scheduler.load_state_dict(saved["scheduler"])
            if (average := restored.average()) is not None:
                load_into(stage.eval_module, average)
        return stage

    def restore(self, checkpoint: Checkpoint) -> None:
        """Load the model and the method from a checkpoint."""
        self.network.load(checkpoint.model())
        before, now = checkpoint.processes, self.fabric.world_size
        if before != now:
            numbers = f"number of processes: {before} before, {now} now"
            self.log.say(f"{numbers}; row stores are redistributed")
        checkpoint.restore_method(self.method, self.fabric)

    def save(self, stage: Stage, state: TrainingState) -> None:
        """Save a checkpoint: the trained part of the model, the optimizer, the method."""
        head_only = stage.name == "head"  # the backbone does not change: no need to write it every epoch
        self.saver.save(
            state,
            weights_of(stage.module, head_only),
            None if stage.average is None else weights_of(stage.eval_module, head_only),
            {
                "optimizer": stage.optimizer.state_dict(),
                "precision": self.fabric.strategy.precision.state_dict(),
                **({"scheduler": stage.scheduler.state_dict()} if stage.scheduler is not None else {}),
            },
            self.method,
        )

    def progress(self, stage: Stage, epoch: int) -> Progress:
        """The progress at an epoch; a head phase that stopped early shortens the run."""
        lr = stage.phase.lr
        if stage.name == "finetune":
            return Progress(epoch, stage.first_epoch + stage.phase.epochs, stage.first_epoch, lr)
        head_epochs = self.config.head.epochs if self.config.finetune.epochs else 0
        return Progress(epoch, self.config.epochs, head_epochs, lr)

    def waiting_terms(self, stage: Stage, epoch: int) -> list[str]:
        """During the warm-up, the names of the terms that start after it."""
        if self.progress(stage, epoch).warmed_up:
            return []
        return [name for name, term in self.method.terms.items() if getattr(term, "after_warm_up", False)]

    def steps(self, done: TrainingState | None = None) -> int:
        """Training steps of the whole run, or of the epochs done."""
        head, finetune = self.config.head, self.config.finetune
        epochs = self.config.epochs if done is None else done.epochs
        of_head, of_finetune = (-(-len(self.data.train) // phase.batch_size) for phase in (head, finetune))
        return min(epochs, head.epochs) * of_head + max(0, epochs - head.epochs) * of_finetune

    def epoch_seed(self, epoch: int) -> int:
        """The random seed of an epoch in this process."""
        sequence = np.random.SeedSequence((self.config.seed, epoch, self.fabric.global_rank))
        return int(sequence.generate_state(1)[0])

    def on_device(self, tensor: Tensor) -> Tensor:
        """The tensor on the model's device."""
        return tensor.to(self.fabric.device, non_blocking=True)

    @cached_property
    def rows(self) -> Rows:
        """The training rows of this process."""
        return rows_of(len(self.data.train), self.fabric.global_rank, self.fabric.world_size)

    @cached_property
    def needs(self) -> Needs:
        """The needs of the method."""
        return self.method.needs

    @cached_property
    def observed(self) -> Observed:
        """(N, L) The labels that training sees."""
        return observed_rows(self.data.train.observed.matrix)

    @cached_property
    def truth(self) -> Observed:
        """(N, L) All known labels; only oracles and logs use them."""
        return observed_rows(self.data.train.truth.matrix)

    @cached_property
    def truth_known(self) -> bool:
        """Whether all labels are known but training does not see all of them."""
        return self.data.train.truth.complete and not self.data.train.observed.complete

    def unobserved_positives(self, rows: Tensor) -> Tensor:
        """(B, L) Which labels are positive but not observed as positive."""
        valid = rows.clamp(min=0)
        unobserved = (self.truth[valid] == POSITIVE) & (self.observed[valid] != POSITIVE)
        return unobserved & (rows >= 0)[:, None]


def phases_left(config: TrainConfig, state: TrainingState) -> list[tuple[str, Phase]]:
    """The phases that are not over, the current one first."""
    phases = list(config.phases.items())
    current = next((number for number, (name, _) in enumerate(phases) if name == state.phase), 0)
    return phases[current + (bool(state.phase) and state.phase_over) :]


def after_epoch(
    state: TrainingState, stage: Stage, epoch: int, validation: dict[str, Any] | None
) -> TrainingState:
    """The state after an epoch: the best one so far, and whether the phase is over."""
    value = None if validation is None else validation["value"]
    if value is None or state.best is None or value > state.best:
        state = replace(state, best_epoch=epoch + 1, best=value)
    stale = epoch + 1 - max(state.best_epoch, state.phase_began)
    early = bool(stage.phase.patience) and stale >= stage.phase.patience
    over = early or epoch + 1 == state.phase_began + stage.phase.epochs
    return replace(state, epochs=epoch + 1, phase_over=over)
