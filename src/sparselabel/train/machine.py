"""Where training runs: devices and processes, through Lightning Fabric."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sparselabel.errors import ConfigError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

WORKERS = max(1, min(8, os.cpu_count() or 1))


@dataclass(frozen=True)
class Machine:
    """Where to run; none of it changes the outcome.

    Parameters
    ----------
    accelerator
        auto takes a GPU if there is one.
    devices
        Processes on this machine, one a device. Under `torchrun` it is torchrun's business.
    workers
        Processes that load pictures, per device.
    """

    accelerator: Literal["auto", "cpu", "gpu", "mps"] = "auto"
    devices: int = 1
    workers: int = WORKERS

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ConfigError(f"devices must be at least 1, not {self.devices}")
        if self.workers < 0:
            raise ConfigError(f"workers must not be negative, but is {self.workers}")


def start(machine: Machine, precision: str) -> "Fabric":
    """Join the other processes, if there are any (torchrun tells by the environment)."""
    import logging

    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", machine.devices))
    everywhere = int(os.environ.get("WORLD_SIZE", local))
    fabric = Fabric(
        accelerator=machine.accelerator,
        devices=local,
        num_nodes=everywhere // local,
        strategy="ddp" if everywhere > 1 else "auto",
        precision=precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    return fabric
