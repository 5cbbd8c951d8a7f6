"""Train the linear heads of several runs on the same stored features as one computation.

    rows (R, B) ─▶ features (R, B, D) ─▶ logits (R, B, L) ─▶ losses (R,) ─▶ gradients (R, L, D) ─▶ optimizer

Runs of one method that differ in seed, learning rate and weight decay make the same steps on other rows. A
step for all of them costs little more than a step of one, whose time goes to overhead. Each run keeps its own
order of rows and its own folder. Its head, its optimizer's state and its method's row stores are views of the
stacked ones.
"""

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sparselabel.config import Handling, Machine, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.data.loaders import epoch_batches
from sparselabel.distributed import default_precision, start_fabric
from sparselabel.errors import SparselabelError
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.step import Progress, Step
from sparselabel.models.backbone import NONE
from sparselabel.models.classifier import LinearHead, Output
from sparselabel.progress import Bar
from sparselabel.resources import available_memory
from sparselabel.run import Run
from sparselabel.training.checkpoint import TrainingState, checkpoints, files_of, in_ram
from sparselabel.training.logger import Log, ScoreHistogram
from sparselabel.training.network import LazyBackbone
from sparselabel.training.phase_loaders import PhaseLoaders
from sparselabel.training.phases import MULTIPLE, make_optimizer, set_rate
from sparselabel.training.resolve import is_estimated, method_of, pools_first, resolve
from sparselabel.training.train_run import begin_run, finish
from sparselabel.training.trainer import Trainer
from sparselabel.training.validate import finite_scores, validate

MOST_RUNS = 48  # more make a step no cheaper per run
NORM_EPSILON = 1e-6  # of torch's clip_grad_norm_


def stack_key(data: Dataset, config: TrainConfig, out: Path, machine: Machine) -> Hashable | None:
    """Runs with equal keys can be trained side by side in one process; None if a run cannot.

    They train the head alone, on stored pooled features, with a method that ``ComposedLoss.stack`` takes. A
    run that has a checkpoint goes on alone.
    """
    head = config.head
    if (
        not config.frozen
        or config.finetune.epochs
        or not pools_first(config)
        or (head.ema_decay or head.patience or head.micro_batches > 1)
        or config.precision not in ("32-true", "64-true")
        or machine.memories == "file"
        or (machine.accelerator != "cpu" and torch.accelerator.is_available())
        or checkpoints(Run(out).checkpoints)
    ):
        return None
    resolved = resolve(data, config)
    config, needs = resolved.config, resolved.needs
    if (
        (needs.maps or needs.features or needs.spatial_labels or needs.scan or needs.solves)
        or needs.views > 1
        or "prior" in config.settings
        or not method_of(config).side_by_side
    ):
        return None
    # Random weights, and with them features, differ from seed to seed; so does a K that is estimated.
    own = config.weights == NONE or config.partial_weights or is_estimated(config)
    alike = replace(config, seed=config.seed if own else 0, head=replace(head, lr=1.0, weight_decay=0.0))
    return repr(alike)


def stored_bytes(data: Dataset, config: TrainConfig, out: Path, machine: Machine) -> int | None:
    """Bytes of the features that a run of a ``stack_key`` needs; None if some are not stored yet."""
    config = resolve(data, config).config
    fabric, log = start_fabric(machine, config.precision), Log(Run(out), speaks=False)
    return PhaseLoaders(data, config, LazyBackbone(config), fabric, machine, log).stored_bytes()


def train_side_by_side(
    data: Dataset,
    runs: Sequence[tuple[TrainConfig, Path]],
    machine: Machine,
    handling: Handling,
    command: Sequence[str] = (),
) -> Iterator[tuple[Path, Callable[[], dict[str, Any]]]]:
    """Train runs of one ``stack_key``.

    Yields the folder of each run with a function that returns its result or raises its error.
    """
    waiting, beside = list(runs), None
    while waiting:
        with ExitStack() as held:  # the locks of the runs that are trained at once
            trainers: list[Trainer] = []
            most = 1
            while waiting and len(trainers) < most:
                config, out = waiting.pop(0)
                given = (machine, handling, command, out.name)
                try:
                    trainer = begin_run(data, config, out, held, *given, beside=beside)
                except SparselabelError as error:
                    yield out, functools.partial(_fail, error)
                    continue
                if trainer is None:
                    yield out, Run(out).result
                    continue
                trainers.append(trainer)
                beside = beside or trainer
                most = most_side_by_side(trainer) if len(trainers) == 1 else most
            if trainers:
                with default_precision(trainers[0].config.precision):
                    stack = StackedHeads(trainers)
                    states = stack.train()
                for trainer, state in zip(stack.trainers, states, strict=True):
                    yield trainer.run.path, functools.partial(_finish, trainer, state)


def _fail(error: SparselabelError) -> dict[str, Any]:
    raise error


def _finish(trainer: Trainer, state: TrainingState | SparselabelError) -> dict[str, Any]:
    if isinstance(state, SparselabelError):
        raise state
    with default_precision(trainer.config.precision):
        return finish(trainer, state)


def most_side_by_side(trainer: Trainer) -> int:
    """The number of runs like this one to train at once; 1 if its row stores are in files."""
    if files_of(trainer.method):
        return 1
    remembered = in_ram(trainer.method)
    return max(1, min(MOST_RUNS, available_memory() // (4 * remembered) if remembered else MOST_RUNS))


@dataclass(frozen=True)
class Snapshot:
    """A copy of a run after an epoch: parameters, optimizer state, method."""

    state: TrainingState
    parameters: Tensor
    optimizer: dict[str, Tensor]
    method: dict[str, Tensor]
    row_stores: dict[str, dict[str, Tensor]]


class StackedHeads:
    """Several prepared runs of one ``stack_key``: ``train`` trains them all."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        # Equal rates beside each other, so that the optimizer needs few groups.
        self.trainers = sorted(trainers, key=lambda one: (one.config.head.lr, one.config.head.weight_decay))
        first = self.trainers[0]
        self.phase, self.needs, self.log = first.config.head, first.needs, first.log
        for trainer in trainers:
            trainer.log.cost.shared_by = len(trainers)
        heads = [head_of(trainer).linear for trainer in self.trainers]
        runs, (classes, width) = len(heads), heads[0].weight.shape
        # All runs have the same features, and so see them alike.
        features = first.loaders.features("train").to(heads[0].weight.dtype)
        self.features = head_of(first).standardized(features)
        self.parameters = torch.stack(
            [nn.utils.parameters_to_vector(head.parameters()).detach() for head in heads]
        )
        self.gradients = torch.zeros_like(self.parameters)
        (self.weights, self.biases), (self.weight_gradients, self.bias_gradients) = (
            (stacked[:, : classes * width].view(runs, classes, width), stacked[:, classes * width :])
            for stacked in (self.parameters, self.gradients)
        )
        for head, weight, bias in zip(heads, self.weights, self.biases, strict=True):
            head.weight.data, head.bias.data = weight, bias
        self.stages = [trainer.stage("head", 0, None) for trainer in self.trainers]
        self.optimizer = self._optimizer()
        self.method = ComposedLoss.stack([trainer.method for trainer in self.trainers])
        self.best: dict[int, Snapshot] = {}

    def _optimizer(self) -> torch.optim.Optimizer:
        """The runs' optimizer, with a group for each pair of learning rate and weight decay."""
        groups: dict[tuple[float, float], list[int]] = {}
        for run, trainer in enumerate(self.trainers):
            head = trainer.config.head
            groups.setdefault((head.lr, head.weight_decay), []).append(run)
        described = []
        self.groups: list[tuple[list[int], nn.Parameter]] = []
        for (lr, weight_decay), runs in groups.items():
            run_slice = slice(runs[0], runs[-1] + 1)
            parameter = nn.Parameter(self.parameters[run_slice])
            parameter.grad = self.gradients[run_slice]
            self.groups.append((runs, parameter))
            described.append(
                {"params": [parameter], "weight_decay": weight_decay, MULTIPLE: lr / self.phase.lr}
            )
        return make_optimizer(self.phase, described)

    def train(self) -> list[TrainingState | SparselabelError]:
        """Run all epochs; the final states of ``trainers``, or why one failed."""
        states: list[TrainingState | SparselabelError] = [
            TrainingState().in_new_phase("head") for _ in self.trainers
        ]
        for trainer in self.trainers:
            trainer.log.keep_epochs(0)
        steps = self.phase.epochs * self.stages[0].steps_per_epoch
        with self.log.bar(steps, f"{len(self.trainers)} runs side by side") as bar:
            for epoch in range(self.phase.epochs):
                losses, logits, order = self.train_epoch(epoch, bar)
                for run, state in enumerate(states):
                    if isinstance(state, TrainingState):
                        own = {name: float(values[run]) for name, values in losses.items()}
                        states[run] = self.end_epoch(run, state, own, logits[run], order[run])
        for run, state in enumerate(states):
            if isinstance(state, TrainingState):
                self._save(run, self.best[run])
        return states

    def train_epoch(self, epoch: int, bar: Bar) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """One epoch; returns the mean losses (R,) by name, and the logits (R, N, L) of the rows (R, N)."""
        first, phase = self.trainers[0], self.phase
        orders = [
            np.concatenate(epoch_batches(len(self.features), phase.batch_size, one.config.seed, epoch))
            for one in self.trainers
        ]
        order = torch.from_numpy(np.stack(orders))
        progress = first.progress(self.stages[0], epoch)
        self.method.begin_epoch(progress)
        multiples = torch.tensor(
            [one.config.head.lr / phase.lr for one in self.trainers], dtype=torch.float64
        )
        logits = self.parameters.new_empty(*order.shape, self.weights.shape[1])
        sums: dict[str, Tensor] = {}
        per_epoch = self.stages[0].steps_per_epoch
        for number in range(per_epoch):
            batch = slice(number * phase.batch_size, (number + 1) * phase.batch_size)
            lr = set_rate(self.optimizer, phase, epoch * per_epoch + number, per_epoch * phase.epochs)
            rate = lr * multiples if self.needs.lr else lr
            step, losses = self.train_step(order[:, batch], replace(progress, lr=rate))
            logits[:, batch] = step.outputs[0].logits.detach()
            for name, loss in losses.items():
                sums[name] = sums.get(name, 0) + loss.detach()
            bar.advance()
        return {name: values / per_epoch for name, values in sums.items()}, logits, order

    def train_step(self, rows: Tensor, progress: Progress) -> tuple[Step, dict[str, Tensor]]:
        """One step of every run, with rows (R, B)."""
        first, flat = self.trainers[0], rows.flatten()
        features = self.features.index_select(0, flat).view(*rows.shape, -1)
        logits = torch.baddbmm(self.biases[:, None], features, self.weights.mT).requires_grad_()
        step = Step(
            rows=rows,
            observed=first.observed.index_select(0, flat).view(*logits.shape),
            outputs=(Output(logits, None, features),),
            geometries=(),
            progress=progress,
            truth=first.truth.index_select(0, flat).view(*logits.shape) if self.needs.truth else None,
            check=False,
        )
        losses = self.method(step)
        # A run's loss depends on its own logits alone: the gradient of the sum is that of every run.
        (slopes,) = torch.autograd.grad(functools.reduce(torch.add, losses.values()).sum(), logits)
        torch.bmm(slopes.mT, features, out=self.weight_gradients)
        torch.sum(slopes, 1, out=self.bias_gradients)
        if self.phase.grad_clip:
            norms = torch.linalg.vector_norm(self.gradients, dim=1, keepdim=True)
            self.gradients.mul_((self.phase.grad_clip / (norms + NORM_EPSILON)).clamp(max=1))
        self.optimizer.step()
        self.method.update(step)
        return step, losses

    def end_epoch(
        self, run: int, state: TrainingState, losses: dict[str, float], logits: Tensor, rows: Tensor
    ) -> TrainingState | SparselabelError:
        """End an epoch of a run; a run that has diverged is skipped."""
        trainer, stage = self.trainers[run], self.stages[run]
        try:
            trainer.refuse_diverged(stage, state.epochs, losses)
            histogram = None
            if trainer.truth_known:
                counts = ScoreHistogram(trainer.unobserved_positives)
                counts.add(logits, rows)
                histogram = counts.take()
            state = trainer.end_epoch(stage, state, losses, histogram, self._validate(trainer))
        except SparselabelError as error:
            return error
        if state.best_epoch == state.epochs:
            self.best[run] = self._snapshot(run, state)
        return state

    @torch.no_grad()
    def _validate(self, trainer: Trainer) -> dict[str, Any] | None:
        """The mAP on the validation split, in one forward pass of the head."""
        if "val" not in trainer.data.splits:
            return None
        head = head_of(trainer)
        scores = torch.sigmoid(head(trainer.loaders.features("val").to(head.linear.weight.dtype)).logits)
        finite_scores(scores, trainer.loaders, "head", "val")
        return validate(scores.numpy(), trainer.data.split("val").observed)

    def _snapshot(self, run: int, state: TrainingState) -> Snapshot:
        """A copy of a run as it is now."""
        runs, parameter = next(group for group in self.groups if run in group[0])
        method = self.trainers[run].method
        optimizer = {
            name: (value[run - runs[0]] if value.ndim else value).clone()
            for name, value in self.optimizer.state[parameter].items()
        }
        stores = {name: store.state() for name, store in method.row_stores().items()}
        return Snapshot(
            state,
            self.parameters[run].clone(),
            optimizer,
            _copies(method.state_dict()),
            {name: _copies(tensors) for name, tensors in stores.items()},
        )

    def _save(self, run: int, best: Snapshot) -> None:
        """Write the checkpoint of the best epoch, one per run: writing takes longer than an epoch."""
        trainer, stage = self.trainers[run], self.stages[run]
        self.parameters[run].copy_(best.parameters)
        trainer.method.load_state_dict(best.method)
        for name, store in trainer.method.row_stores().items():
            store.restore(best.row_stores[name])
        head, own = head_of(trainer).linear, stage.optimizer
        weights = head.weight.numel()
        for name, value in best.optimizer.items():
            own.state[head.weight][name] = value[:weights].view_as(head.weight) if value.ndim else value
            own.state[head.bias][name] = value[weights:] if value.ndim else value
        trainer.save(stage, best.state)
        trainer.saver.wait()  # the run's lock may be released next


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def head_of(trainer: Trainer) -> LinearHead:
    """A run's head, which must be linear."""
    head = trainer.network.head
    if not isinstance(head, LinearHead):
        raise TypeError(f"{type(head).__name__} cannot be stacked")
    return head
