"""Train the candidates of a plan and judge them; what is finished is not done again."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sparselabel.compare.outcome import Watcher, without_force
from sparselabel.compare.runner import keep_error, outcome_of
from sparselabel.config import Handling, Machine
from sparselabel.data.dataset import Prepared
from sparselabel.errors import ConfigError, SparselabelError, counted
from sparselabel.json_file import read_json
from sparselabel.place import require_folder_to_write
from sparselabel.plan.candidates import Candidate, simulate
from sparselabel.plan.hours import Budget
from sparselabel.run import RunFolder

if TYPE_CHECKING:
    from sparselabel.models.backbone import Backbone


def check_candidates(
    data: Prepared, budget: Budget, candidates: Sequence[Candidate], machine: Machine
) -> None:
    """Refuse now what would be refused when one of the runs begins."""
    from sparselabel.training.train import check_run

    backbone: Backbone | None = None
    require_folder_to_write(candidates[0].run.path.parent)
    for one in candidates:
        _refuse_nothing(one)
        own, _ = simulate(data, budget, one.kind, one.fraction, one.draw)
        try:
            backbone = check_run(own, one.run.config, one.run.path, machine, backbone)
        except SparselabelError as error:
            raise type(error)(f"{one.run}: {without_force(str(error))}") from error


def _refuse_nothing(one: Candidate) -> None:
    """Raise if there is nothing to learn from: no yes, or no point or box of one."""
    marks = one.bought["points"] + one.bought["boxes"]
    if one.bought["positive"] and (one.kind == "I" or marks):
        return
    lacking = "a yes" if not one.bought["positive"] else "a yes to something whose place is known"
    raise ConfigError(
        f"{one.run}: {counted(one.bought['answers'], 'answer')} for the sample, and none is {lacking}, so "
        "there is nothing to learn from: give a larger --budget, or leave small --fractions out"
    )


def train_candidates(
    data: Prepared,
    budget: Budget,
    candidates: Sequence[Candidate],
    machine: Machine,
    watcher: Watcher,
    command: Sequence[str] = (),
) -> list[str]:
    """Train what is not finished; the errors of those that failed."""
    from sparselabel.training.train import train_run

    left = [one for one in candidates if not RunFolder(one.run.path).finished]
    watcher.skips(len(candidates) - len(left))
    failed = []
    for one in left:
        run = one.run
        watcher.begins(run)
        own, _ = simulate(data, budget, one.kind, one.fraction, one.draw)
        again = Handling(resume=True)
        train = partial(train_run, own, run.config, run.path, machine, again, command, run.path.name)
        outcome = outcome_of(run, train)
        keep_error(outcome)
        watcher.ends(outcome)
        if outcome.error:
            failed.append(f"{run}: {outcome.error}")
    return failed


def judge_maps(
    candidates: Sequence[Candidate], split: str, workers: int, report: Callable[[int], None]
) -> None:
    """mAP-loc of the finished runs that have none yet: in one pass where they share a frozen backbone."""
    from sparselabel.inference.evaluate import evaluate_run
    from sparselabel.inference.together import evaluate_together

    left = unjudged(candidates, split)
    if not left:
        return
    if left[0].run.config.full.epochs:
        for one in left:
            evaluate_run(one.run.path, split, workers=workers, report=report)
    else:
        evaluate_together([one.run.path for one in left], split, workers=workers, report=report)


def unjudged(candidates: Sequence[Candidate], split: str) -> list[Candidate]:
    """Finished runs whose maps have not been judged."""
    return [
        one
        for one in candidates
        if RunFolder(one.run.path).finished and not RunFolder(one.run.path).evaluation_file(split).is_file()
    ]


def passes(candidates: Sequence[Candidate], split: str) -> int:
    """How often the pictures must be looked at to judge the maps."""
    left = unjudged(candidates, split)
    return len(left) if left and left[0].run.config.full.epochs else min(1, len(left))


def reached(one: Candidate, split: str) -> tuple[float | None, float | None]:
    """MAP and mAP-loc of a candidate, 0..1; None where it failed or there is nothing to judge by."""
    run = RunFolder(one.run.path)
    if not run.finished:
        return None, None
    judged = run.result()["test" if split == "test" else "validation"]
    file = run.evaluation_file(split)
    located = read_json(file).get("location") if file.is_file() else None
    return float(judged["value"]), None if not located else float(located["mean"])
