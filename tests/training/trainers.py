"""A session without a run, for tests of what it is made of."""

from pathlib import Path

from sparselabel.config import Machine, TrainConfig
from sparselabel.data.dataset import Prepared
from sparselabel.distributed import start_fabric
from sparselabel.run import Run
from sparselabel.training.phase_loaders import Inputs
from sparselabel.training.logger import Log
from sparselabel.training.network import LazyBackbone, Network
from sparselabel.training.resolve import method_of
from sparselabel.training.train_run import prepare_method
from sparselabel.training.trainer import Session
from sparselabel.training.watch import Watch


def make_trainer(data: Prepared, config: TrainConfig, folder: Path) -> Session:
    """What ``train_run`` makes before it trains."""
    machine = Machine(accelerator="cpu", workers=0)
    fabric = start_fabric(machine, config.precision)
    run = Run(folder)
    folder.mkdir(parents=True, exist_ok=True)
    log = Log(run, speaks=False, quiet=True)
    backbone = LazyBackbone(config)
    inputs = Inputs(data, config, backbone, fabric, 0, log)
    network = Network(config, len(data.classes), backbone, inputs.feature_width if config.frozen else None)
    method = method_of(config)
    prepare_method(method, config, data, run, fabric, machine, network, inputs)
    watch = Watch(run.watched, config.watch, inputs)
    return Session(data, config, run, log, fabric, network, inputs, method, watch)
