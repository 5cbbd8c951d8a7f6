"""Where a run sees a few classes in a few pictures: RUN/maps-SPLIT.npz, for reports."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparselabel.data.loaders import PictureFeed, in_order
from sparselabel.data.transforms import views_of
from sparselabel.errors import ModelError, RunError
from sparselabel.inference.evaluate import load_classifier
from sparselabel.inference.saved_scores import read_arrays, split_of
from sparselabel.models.output import Output
from sparselabel.run import RunFolder

BATCH = 16


@torch.no_grad()
def write_maps(
    path: Path,
    split: str,
    rows: Sequence[int] | npt.NDArray[np.int64],
    classes: Sequence[int] | npt.NDArray[np.int64],
    data: Path | None = None,
    file: Path | None = None,
) -> None:
    """Write, for n pairs of a picture and a class, ``scores`` (n,) and ``cells`` (n, h, w), their logits.

    Beside them ``rows`` (n,) and ``classes`` (n,). A file of the same pairs is left as it is; its name may
    be given.
    """
    run = RunFolder(path)
    run.result()  # refuses a run that is not finished
    part = split_of(run, split, data)
    wanted, indices = np.asarray(rows, np.int64), np.asarray(classes, np.int64)
    file = file or run.maps_file(split)
    if not len(wanted) or _there(file, wanted, indices):
        return
    model = load_classifier(run).eval()
    feed = PictureFeed(part, views_of(run.config().views)[1])
    cells, scores = [], []
    for batch, chosen in zip(
        feed(in_order(wanted, BATCH), 0), in_order(indices, BATCH), strict=True
    ):  # a picture with two classes is seen twice: these are few
        output = model(batch.inputs[0], maps=True)
        places = np.arange(len(chosen))
        cells.append(cells_of(output)[places, chosen].float().numpy())
        scores.append(torch.sigmoid(output.logits)[places, chosen].float().numpy())
    np.savez(
        file,
        rows=wanted,
        classes=indices,
        scores=np.concatenate(scores),
        cells=np.concatenate(cells),
    )


def cells_of(output: Output) -> Tensor:
    """(B, L, h, w) The maps of an output that was asked for them, as logits.

    Attention, where a model has that instead, is a share.
    """
    if output.maps is not None:
        return output.maps
    if output.attention is None:
        raise ModelError("the model gave no maps: ask it for them (maps=True)")
    return torch.logit(output.attention, eps=1e-6)


def _there(file: Path, rows: npt.NDArray[np.int64], classes: npt.NDArray[np.int64]) -> bool:
    """Whether the file has these maps already."""
    if not file.is_file():
        return False
    try:
        kept = read_arrays(file, ("rows", "classes", "scores", "cells"), "")
    except RunError:  # damaged: it is written anew
        return False
    return np.array_equal(kept["rows"], rows) and np.array_equal(kept["classes"], classes)
