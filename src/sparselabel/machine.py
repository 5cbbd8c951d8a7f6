"""Devices and processes, through Lightning Fabric."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from sparselabel.allocator import keep_freed_memory
from sparselabel.config import Machine
from sparselabel.errors import ConfigError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def start(machine: Machine, precision: str) -> "Fabric":
    """Join the other processes, if there are any (torchrun tells by the environment)."""
    from lightning_fabric import Fabric

    keep_freed_memory()
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", machine.devices))
    everywhere = int(os.environ.get("WORLD_SIZE", local))
    if machine.accelerator in ("gpu", "mps") and not torch.accelerator.is_available():
        raise ConfigError(f"accelerator {machine.accelerator}: this machine has none; use auto or cpu")
    fabric = Fabric(
        accelerator=machine.accelerator,
        devices=local,
        num_nodes=everywhere // local,
        strategy="ddp" if everywhere > 1 else "auto",
        precision=precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    if fabric.device.type == "cpu":
        # Lightning has torch ask the driver for GPUs in every optimiser step, which takes 0.2 ms.
        os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
    return fabric


@contextmanager
def default_precision(precision: str) -> Iterator[None]:
    """Double precision everywhere for ``64-true``: Fabric hands a model's output over in the default one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if precision == "64-true" else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
