"""Devices and processes, through Lightning Fabric."""

import logging
import os
from typing import TYPE_CHECKING

from sparselabel.config import Machine
from sparselabel.model.allocator import keep_freed_memory

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def start(machine: Machine, precision: str) -> "Fabric":
    """Join the other processes, if there are any (torchrun tells by the environment)."""
    from lightning_fabric import Fabric

    keep_freed_memory()
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
