"""Scores of a trained model for every image of a split, each exactly once."""

from collections.abc import Callable

import torch
from torch import Tensor

from sparselabel.data.loaders import Loader, in_order, rows_of
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.models.classifier import Output


@torch.no_grad()
def score(
    model: Callable[[Tensor], Output],
    loader: Loader,
    count: int,
    device: torch.device,
    *,
    batch: int = 32,
    shard: int = 0,
    shards: int = 1,
    report: Callable[[int], None] | None = None,
    scores_of: Callable[[Tensor], Tensor] = torch.sigmoid,
    look: Callable[[Tensor, Output, ViewGeometry], None] | None = None,
) -> Tensor:
    """(count, L) scores on the CPU, in 0..1 as they are made of logits by default.

    Rows of other shards are 0, so that all shards add up. The model must be in evaluation mode. ``report`` is
    told the number of images after each batch, and ``look`` sees each batch's rows, output and frames.
    """
    scores: Tensor | None = None
    for rows, inputs, geometries in loader(in_order(rows_of(count, shard, shards), batch), 0):
        output = model(inputs[0].to(device))
        if look is not None:
            look(rows, output, geometries[0])
        logits = output.logits
        values = scores_of(logits.double() if logits.dtype == torch.float64 else logits.float()).cpu()
        if scores is None:
            scores = torch.zeros(count, values.shape[1], dtype=values.dtype)
        scores[rows] = values
        if report is not None:
            report(len(rows))
    return scores if scores is not None else torch.zeros(count, 0)
