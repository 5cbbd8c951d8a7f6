"""Run by test_sparse_loss_loops through torchrun: a plain DDP loop, whose losses the first process writes."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from sparselabel.errors import DataError
from sparselabel.losses.sparse_loss import ShardedSampler, SparseLoss
from tests.losses.test_sparse_loss import COUNT, EPOCHS, OBSERVED, Model, geometry


def main(method: str, sampler_name: str, out: str) -> None:
    """Train for some epochs on batches of 4 images over all processes."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = SparseLoss(method, OBSERVED, expected_positives=1.8)
    data = torch.arange(COUNT)
    sampler: ShardedSampler | DistributedSampler[int] = (
        ShardedSampler(COUNT) if sampler_name == "sharded" else DistributedSampler(data)  # type: ignore[arg-type]
    )
    losses = []
    for epoch in range(EPOCHS):
        criterion.set_epoch(epoch)
        sampler.set_epoch(epoch)
        for index in DataLoader(data, 4 // world, sampler=sampler):  # type: ignore[arg-type]
            output = model(index)
            try:
                loss = criterion(output.logits, index, output.maps, geometry(index))
            except DataError as error:
                Path(f"{out}.{rank}.refused").write_text(str(error))
                return
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    if rank == 0:
        torch.save(losses, out)
    dist.barrier()


def union_batches() -> list[tuple[int, torch.Tensor]]:
    """The batches that two processes see together, for one: (epoch, index)."""
    samplers = []
    for rank in range(2):
        sampler = ShardedSampler(COUNT)
        sampler._rank, sampler._world = rank, 2
        samplers.append(sampler)
    together = []
    for epoch in range(EPOCHS):
        shares = []
        for sampler in samplers:
            sampler.set_epoch(epoch)
            shares.append(torch.split(torch.tensor(list(sampler)), 2))
        together += [(epoch, torch.cat(pair)) for pair in zip(*shares, strict=True)]
    return together


if __name__ == "__main__":
    main(*sys.argv[1:])
    # Under load gloo's threads abort now and then while Python takes torch down: all is written by now.
    os._exit(0)
