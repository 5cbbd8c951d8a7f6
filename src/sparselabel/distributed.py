"""Distributed training: sums and top-k per class over all processes, and how a run joins them.

``all_reduce_sum`` and ``all_gather`` wrap torch.distributed's for one process and for DDP's gradients.
``topk_per_class`` finds the best rows of every class exactly, by a radix search over the bits of the scores:
processes exchange histograms of (L, 256) counts, never the scores.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from sparselabel.config import Machine
from sparselabel.errors import ConfigError, param
from sparselabel.resources import keep_freed_memory
from sparselabel.slow_imports import import_fabric

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def is_alone() -> bool:
    """Whether there is no other process."""
    return not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1


def all_reduce_sum(value: Tensor) -> Tensor:
    """The sum of ``value`` over all processes, with a gradient for DDP.

    DDP divides summed gradients by the number of processes, so the gradient of the own value has that factor.
    With one process this is the identity.
    """
    if is_alone():
        return value
    summed = value.detach().to(_backend_device(value), copy=True)
    dist.all_reduce(summed)
    summed = summed.to(value.device)
    if not value.requires_grad:
        return summed
    return summed + dist.get_world_size() * (value - value.detach())


def all_gather(values: Tensor) -> Tensor:
    """The ``values`` (n,) of all processes, one after the other, without gradient; n is the same in all."""
    if is_alone():
        return values.detach()
    own = values.detach().to(_backend_device(values)).contiguous()
    all_values = own.new_empty(dist.get_world_size() * len(own))
    dist.all_gather_into_tensor(all_values, own)
    return all_values.to(values.device)


def _backend_device(value: Tensor) -> torch.device:
    """The device to exchange values on: NCCL needs the GPU, but row stores and scores are on the CPU."""
    return torch.device("cuda") if dist.get_backend() == "nccl" else value.device


DIGIT = 8
SCORE_BITS = 32
HELD_ENTRIES = 2**20  # once so few entries agree with the digits found so far, they are kept in memory


class Threshold(NamedTuple):
    """Per class (L,) the lowest selected score, and the last row that is selected with exactly that score."""

    score: Tensor
    row: Tensor

    def selects(self, scores: Tensor, rows: Tensor) -> Tensor:
        """(B, L) Whether rows (B,) with these scores (B, L) are selected."""
        return (scores > self.score) | ((scores == self.score) & (rows[..., None] <= self.row))


class Chunk(NamedTuple):
    """Some rows (c,) with their scores (c, L) in 0..1 and whether they may be selected (c, L)."""

    rows: Tensor
    scores: Tensor
    candidate: Tensor


def no_rows(classes: int) -> Threshold:
    """The threshold that selects no row of any class."""
    return Threshold(torch.full((classes,), torch.inf), torch.full((classes,), -1, dtype=torch.int64))


def topk_per_class(chunks: Callable[[], Iterable[Chunk]], num_to_select: Tensor, rows: int) -> Threshold:
    """The threshold that selects the ``num_to_select`` (L,) best candidates of every class.

    ``chunks`` yields the rows of this process, a bounded number at a time; ``rows`` is the number of rows in
    all processes. ``num_to_select`` must not be above the number of candidates.
    """
    row_bits = -(-max(rows - 1, 1).bit_length() // DIGIT) * DIGIT
    classes = len(num_to_select)
    left = num_to_select.clone()
    prefix = torch.zeros(classes, dtype=torch.int64)  # the digits found so far of the last chosen rank
    # One block for all that is held: many small ones would fragment the memory.
    buffer = torch.empty(2, HELD_ENTRIES, dtype=torch.int64)
    held: Tensor | None = None

    def entries(shift: int) -> Iterable[tuple[Tensor, Tensor]]:
        """(class, rank) of the candidates that agree with the digits found so far."""
        if held is not None:
            agreeing = (held[1] >> (shift + DIGIT)) == prefix[held[0]]
            yield held[0][agreeing], held[1][agreeing]
            return
        for chunk in chunks():
            ranks = _ranks(chunk, row_bits)
            agreeing = chunk.candidate & (num_to_select > 0) & ((ranks >> (shift + DIGIT)) == prefix)
            yield agreeing.nonzero()[:, 1], ranks[agreeing]

    for shift in range(SCORE_BITS + row_bits - DIGIT, -1, -DIGIT):
        counts = torch.zeros(classes, 1 << DIGIT, dtype=torch.int64)
        size = 0
        for of_class, ranks in entries(shift):
            digits = (ranks >> shift) & ((1 << DIGIT) - 1)
            counts += torch.bincount(of_class << DIGIT | digits, minlength=classes << DIGIT).view(classes, -1)
            first, size = size, size + len(ranks)
            if size <= HELD_ENTRIES:
                buffer[0, first:size], buffer[1, first:size] = of_class, ranks
        if size <= HELD_ENTRIES:
            held = buffer[:, :size]
        from_top = all_reduce_sum(counts).flip(1).cumsum(1)
        steps = torch.searchsorted(from_top, left[:, None]).clamp(max=(1 << DIGIT) - 1)  # down from the top
        above = torch.where(steps > 0, from_top.gather(1, (steps - 1).clamp(min=0)), 0)
        left = left - above[:, 0]
        prefix = prefix << DIGIT | ((1 << DIGIT) - 1 - steps[:, 0])
    row = (1 << row_bits) - 1 - (prefix & ((1 << row_bits) - 1))
    score = (prefix >> row_bits).to(torch.int32).view(torch.float32)
    none = no_rows(classes)
    return Threshold(
        torch.where(num_to_select > 0, score, none.score), torch.where(num_to_select > 0, row, none.row)
    )


def _ranks(chunk: Chunk, row_bits: int) -> Tensor:
    """(c, L) The score's bits, then the row, counted backwards."""
    scores = chunk.scores.float() + 0.0  # no negative zero
    bits = scores.contiguous().view(torch.int32).to(torch.int64)
    return bits << row_bits | ((1 << row_bits) - 1 - chunk.rows[:, None])


LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
"""Environment variables by which torchrun and Ray Train tell a process which one it is."""


def start_fabric(machine: Machine, precision: str) -> "Fabric":
    """Lightning Fabric for this run, joined with the other processes of torchrun or Ray Train, if any."""
    import_fabric()
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    class Launched(TorchElasticEnvironment):
        """Processes that are there; nodes may have different numbers of them."""

        def validate_settings(self, num_devices: int, num_nodes: int) -> None:
            """The environment is already set up."""

    keep_freed_memory()
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", machine.devices))
    world_size = int(os.environ.get("WORLD_SIZE", local_size))
    if machine.accelerator in ("gpu", "mps") and not torch.accelerator.is_available():
        problem = f"this machine has no {param('accelerator', machine.accelerator)}"
        raise ConfigError(problem, f"take {param('accelerator', 'auto')}", param("accelerator", "cpu"))
    fabric = Fabric(
        accelerator=machine.accelerator,
        devices=local_size,
        num_nodes=max(1, world_size // local_size),
        strategy="ddp" if world_size > 1 else "auto",
        precision=precision,  # type: ignore[arg-type]
        plugins=[Launched()] if all(name in os.environ for name in LAUNCHED) else None,
    )
    fabric.launch()
    if fabric.device.type == "cpu":
        # Lightning has torch ask the driver for GPUs in every optimizer step, which takes 0.2 ms.
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
