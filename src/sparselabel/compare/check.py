"""What cannot work is refused before the first hour is spent."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparselabel.compare.outcome import without_force
from sparselabel.compare.planned_runs import Planned
from sparselabel.config import Machine, TrainConfig
from sparselabel.errors import ConfigError, SparselabelError
from sparselabel.place import require_folder_to_write

if TYPE_CHECKING:
    from sparselabel.data.dataset import Prepared


def check_all(data: "Prepared", planned: Sequence[Planned], machine: Machine, out: Path) -> None:
    """Check every run as far as that goes without training: method, data, backbone, memories, folders."""
    from sparselabel.training.train import check_run

    rows = {(run.method, run.value, run.seed) for run in planned}
    if len(rows) < len(planned) and "val" not in data.splits:
        raise ConfigError(
            "settings are chosen by validation, but the data has no validation split: give each one value, "
            "or prepare the data with --validation 0.2"
        )
    require_folder_to_write(out)
    backbones: dict[tuple[Any, ...], Any] = {}
    alike: list[TrainConfig] = []
    for run in planned:
        key = _backbone(run.config)
        if not run.path.exists():
            if _but_for_numbers(run.config) in alike:
                continue
            alike.append(_but_for_numbers(run.config))
        try:
            backbones[key] = check_run(data, run.config, run.path, machine, backbones.get(key))
        except SparselabelError as error:
            raise type(error)(f"{run}: {without_force(str(error))}") from error
    out.mkdir(parents=True, exist_ok=True)


def _backbone(config: TrainConfig) -> tuple[Any, ...]:
    """What decides about the backbone, but for random numbers in it."""
    return (
        config.backbone, config.weights, config.partial_weights, config.output_stride, config.views,
        config.precision,
    )  # fmt: skip


def _but_for_numbers(config: TrainConfig) -> TrainConfig:
    """A configuration without the numbers that decide what comes out, but not whether it works."""
    return replace(
        config,
        seed=0,
        head=replace(config.head, learning_rate=1.0),
        full=replace(config.full, learning_rate=1.0),
    )
