"""Settings chosen in two stages: the head's on stored features, then those of fine-tuning (Cole 2021 §6.1).

Every run of the second stage trains its head again with the chosen settings, then fine-tunes; on stored
features this is quick, and the head is that of the first stage to the bit.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sparselabel.comparison.grid import CHOOSE, Varied
from sparselabel.comparison.planned_runs import Chosen, Outcome, PlannedRun
from sparselabel.comparison.summary import rows_of
from sparselabel.config import TrainConfig
from sparselabel.errors import ConfigError, param

FOLDER = "head"
"""Of the runs of the first stage, in that of the comparison."""


def refuse_stages(base: TrainConfig, choose: Sequence[Varied], varied: Varied | None) -> None:
    """Raise unless there are two stages, and something to choose in the first."""
    if not (base.frozen and base.head.epochs and base.finetune.epochs):
        raise ConfigError(
            f"{param('staged', True)} chooses the head's settings on stored features, and then those of "
            "fine-tuning: it needs both",
            f"give {param('frozen', True)}, {param('head.epochs')} and {param('finetune.epochs')}",
            f"leave {param('staged')} out",
            what="staged",
        )
    if all(_of_finetuning(setting) for setting in choose):
        raise ConfigError(
            f"{param('staged', True)}: {param(CHOOSE)} names no setting of the head",
            f"give {param(CHOOSE, 'head.lr 1e-2 1e-3')}",
            f"leave {param('staged')} out",
            what="staged",
        )
    if varied is not None and _of_finetuning(varied):
        raise ConfigError(
            f"{param('staged', True)}: {param('vary', varied.name)} is of the second stage",
            f"leave {param('staged')} out",
            what="staged",
        )


def _of_finetuning(setting: Varied) -> bool:
    return setting.keys[0] == "finetune"


def first_stage(
    base: TrainConfig, choose: Sequence[Varied], out: Path
) -> tuple[TrainConfig, list[Varied], Path]:
    """Configuration, choices and folder of the runs that train the head alone."""
    # Alone it would see standardized features, and this is the head that will be fine-tuned.
    raw = replace(base.head, raw_features=True)
    head_alone = replace(base, head=raw, finetune=replace(base.finetune, epochs=0))
    return head_alone, [setting for setting in choose if not _of_finetuning(setting)], out / FOLDER


def second_stage(
    planned: Sequence[PlannedRun], first: Sequence[Outcome]
) -> tuple[list[PlannedRun], list[Outcome]]:
    """The runs with the head's chosen settings, and the failures of heads that all failed."""
    chosen: dict[tuple[str, str, str], Chosen] = {}
    failed: list[Outcome] = []
    for row in rows_of(first):
        if row.paths:
            chosen[row.method, row.value, row.annotation] = row.chosen
        else:
            failed += row.failed
    left = [
        run
        for run in planned
        if {*chosen.get((run.method, run.value, run.annotation), (("", ""),))} <= {*run.chosen}
    ]
    return left, failed
