"""Training, read from top to bottom.

    phases ──▶ epochs ──▶ steps: views ▶ outputs ▶ Step ▶ losses ▶ optimiser ▶ the method remembers
                  └──▶ after each: validate, log, checkpoint

Nothing random depends on what was drawn before the epoch, so a run that was killed goes on from its last
checkpoint and ends with the same bits as one that was not.
"""

import math
from dataclasses import replace
from typing import Any

import torch

from sparselabel.config import Phase, TrainConfig
from sparselabel.data.loaders import Batch
from sparselabel.losses.base import Progress, Step
from sparselabel.progress import Bar
from sparselabel.training.checkpoint import TrainingState, newest_checkpoint
from sparselabel.training.logger import ScoreHistogram
from sparselabel.training.phases import Stage
from sparselabel.training.session import Session
from sparselabel.training.validate import diverged, too_large


def train(session: Session) -> TrainingState:
    """Run the phases that are left; returns the state at the end, whose best epoch is in the checkpoints."""
    newest = newest_checkpoint(session.run.checkpoints)
    state = TrainingState() if newest is None else newest.state
    if newest is not None:
        session.restore(newest)
        session.log.say(f"going on after epoch {state.epochs}")
    session.log.keep_epochs(state.epochs)
    with session.log.bar(session.steps(), "training") as bar:
        bar.skip(session.steps(state))
        for name, phase in phases_left(session.config, state):
            if name != state.phase:
                session.begin_phase(phase, state)
                state = state.in_new_phase(name)
                newest = None  # the optimiser is new
            stage = session.stage(name, state.phase_began, newest)
            for epoch in range(state.epochs, state.phase_began + phase.epochs):
                losses, histogram = train_epoch(session, stage, epoch, bar)
                validation = session.validate(stage)
                state = after_epoch(state, stage, epoch, validation)
                session.watch.keep(name, epoch + 1, stage.judged, session.method)
                session.log.epoch(
                    {
                        "epoch": epoch + 1,  # what people see counts from 1
                        "phase": name,
                        "losses": losses,
                        "validation": validation,
                        "hidden_positives": histogram,
                    }
                )
                # Last: what is logged but not in a checkpoint is forgotten and done again after a crash.
                session.save(stage, state)
                if state.phase_over:
                    break
    return state


def phases_left(config: TrainConfig, state: TrainingState) -> list[tuple[str, Phase]]:
    """The phases that are not over, the current one first."""
    phases = list(config.phases.items())
    current = next((number for number, (name, _) in enumerate(phases) if name == state.phase), 0)
    return phases[current + (bool(state.phase) and state.phase_over) :]


def train_epoch(
    session: Session, stage: Stage, epoch: int, bar: Bar
) -> tuple[dict[str, float], list[int] | None]:
    """One epoch; returns its mean losses and the histogram of the scores of unobserved positives."""
    torch.manual_seed(session.epoch_seed(epoch))
    config, method = session.config, session.method
    progress = session.progress(stage, epoch)
    method.begin_epoch(progress)
    if session.needs.survey:
        method.survey(lambda rows: session.survey(stage, progress, rows))
    stage.wrapped.train()
    sums: dict[str, torch.Tensor] = {}
    histogram = ScoreHistogram(session.hidden_positives)
    for rate, batch in stage.batches(epoch, expect=method.expect):
        step, losses = train_step(session, stage, batch, replace(progress, learning_rate=rate))
        for name, loss in losses.items():
            sums[name] = sums.get(name, 0) + loss.detach()
        if session.truth_known:
            histogram.add(step.outputs[0].logits, batch.rows)
        bar.advance()
    means = {name: float(value) / stage.steps_per_epoch for name, value in sums.items()}
    for name, mean in means.items():
        if not math.isfinite(mean):
            raise diverged(config, stage.name, f"the loss {name!r} of epoch {epoch + 1} is {mean}")
    return means, histogram.take() if session.truth_known else None


def train_step(
    session: Session, stage: Stage, batch: Batch, progress: Progress
) -> tuple[Step, dict[str, torch.Tensor]]:
    """One step: the model moves, and the method remembers."""
    try:
        step = session.step(batch, session.outputs(stage, batch), progress)
        losses, targets = session.method(step)
        stage.move(losses.values())
    except torch.OutOfMemoryError as error:
        raise too_large(session.config, stage.name, error) from error
    session.method.observe(step, targets)
    return step, losses


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
