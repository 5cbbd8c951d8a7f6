"""A trainer without a run, for unit tests."""

from pathlib import Path

from sparselabel.config import Machine, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.distributed import start_fabric
from sparselabel.run import Run
from sparselabel.training.logger import Log
from sparselabel.training.network import LazyBackbone
from sparselabel.training.resolve import method_of
from sparselabel.training.trainer import Trainer


def make_trainer(data: Dataset, config: TrainConfig, folder: Path, machine: Machine | None = None) -> Trainer:
    """What ``train_run`` makes before it trains."""
    machine = machine or Machine(accelerator="cpu", workers=0)
    fabric = start_fabric(machine, config.precision)
    folder.mkdir(parents=True, exist_ok=True)
    log = Log(Run(folder), speaks=False, quiet=True)
    trainer = Trainer(data, config, Run(folder), log, fabric, machine, LazyBackbone(config))
    trainer.prepare(method_of(config))
    return trainer
