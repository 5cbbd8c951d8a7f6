"""Statistics of a whole batch when it is spread over processes."""

import torch
import torch.distributed as dist
from torch import Tensor


def total(value: Tensor) -> Tensor:
    """The sum of ``value`` over all processes, with a gradient that DDP's averaging makes right.

    DDP divides the summed gradients by the number of processes, so a process's own contribution carries
    that factor. With one process this is the identity.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return value
    # NCCL adds up on the GPU only; memories and scores are on the CPU.
    where = torch.device("cuda") if dist.get_backend() == "nccl" else value.device
    summed = value.detach().to(where, copy=True)
    dist.all_reduce(summed)
    summed = summed.to(value.device)
    if not value.requires_grad:
        return summed
    return summed + dist.get_world_size() * (value - value.detach())


def gathered(values: Tensor) -> Tensor:
    """The ``values`` (n,) of all processes, one after the other, without gradient; n is the same in all."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return values.detach()
    where = torch.device("cuda") if dist.get_backend() == "nccl" else values.device
    own = values.detach().to(where).contiguous()
    everyone = own.new_empty(dist.get_world_size() * len(own))
    dist.all_gather_into_tensor(everyone, own)
    return everyone.to(values.device)
