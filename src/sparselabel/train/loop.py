"""Training, read from top to bottom.

    phases ──▶ epochs ──▶ steps: views ▶ outputs ▶ Step ▶ losses ▶ optimiser ▶ the method remembers
                  └──▶ after each: validate, log, checkpoint

Everything random is drawn from (seed, epoch, row), so a run that was killed goes on from its last checkpoint
and ends with the same bits as one that was not.
"""

from dataclasses import replace
from typing import Any

import torch

from sparselabel.config import Phase, TrainConfig
from sparselabel.data.sampler import PADDING
from sparselabel.method.base import Progress, Step
from sparselabel.train.checkpoint import TrainingState, newest_checkpoint
from sparselabel.train.log import Bar, ScoreHistogram, hidden_positives
from sparselabel.train.phases import Stage
from sparselabel.train.session import Session


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
                state = replace(state, phase=name, phase_began=state.epochs, phase_over=False)
                newest = None  # the optimiser is new
            stage = session.stage(name, state.phase_began, newest)
            for epoch in range(state.epochs, state.phase_began + phase.epochs):
                losses, histogram = train_epoch(session, stage, epoch, bar)
                validation = session.validate(stage)
                state = after_epoch(state, stage, epoch, validation)
                session.save(stage, state)
                session.watch.keep(name, epoch, stage.judged)
                session.log.epoch(
                    {
                        "epoch": epoch,
                        "phase": name,
                        "losses": losses,
                        "validation": validation,
                        "hidden_positives": histogram,
                    }
                )
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
    progress = Progress(epoch, config.epochs, session.warm_up, stage.phase.learning_rate)
    method.begin_epoch(progress)
    stage.wrapped.train()
    sums: dict[str, torch.Tensor] = {}
    histogram = ScoreHistogram()
    for rate, batch in stage.batches(epoch):
        rows = batch.rows.clamp(min=0)
        observed, truth = session.observed[rows], session.truth[rows]
        outputs = tuple(stage.wrapped(session.on_device(x), maps=session.needs.maps) for x in batch.inputs)
        step = Step(
            rows=session.on_device(batch.rows),
            observed=session.on_device(observed),
            outputs=outputs,
            frames=batch.frames,
            progress=replace(progress, learning_rate=rate),
            marks=session.marks(batch.rows),
            truth=session.on_device(truth) if session.needs.truth else None,
        )
        losses, targets = method(step)
        session.fabric.backward(sum(losses.values()))
        stage.move()
        method.observe(step, targets)
        for name, loss in losses.items():
            sums[name] = sums.get(name, 0) + loss.detach()
        if session.truth_known:
            hidden = hidden_positives(truth, observed) & (batch.rows != PADDING)[:, None]
            histogram.add(outputs[0].logits, hidden)
        bar.advance()
    means = {name: float(value) / stage.steps_per_epoch for name, value in sums.items()}
    return means, histogram.take() if session.truth_known else None


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
