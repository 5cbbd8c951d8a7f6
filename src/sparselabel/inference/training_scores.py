"""Scores of all training images, for a review: RUN/review-scores.npy, (N, L) float16.

An image that cannot be read gets NaN: nobody can be asked about it.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.loaders import Batch, ImageLoader, Loader, in_order
from sparselabel.data.transforms import views_of
from sparselabel.errors import DataError, DataWarning, RunError, counted, listing
from sparselabel.files import read_json, write_json
from sparselabel.inference.evaluate import load_classifier
from sparselabel.run import Run

BATCH = 32

TrainingScores = npt.NDArray[np.float16]


def training_scores(run: Run, part: PreparedSplit) -> TrainingScores | None:
    """What was kept, in the file; None if there is nothing, or it is of another model or other images."""
    file, about = run.review_scores_file, _about_file(run)
    if not file.is_file() or not about.is_file():
        return None
    try:
        if read_json(about) != _identity(run, part):
            return None
        found: TrainingScores = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, RunError):
        return None
    return found if found.shape == part.truth.values.shape else None


@torch.no_grad()
def write_training_scores(
    run: Run,
    part: PreparedSplit,
    *,
    features: npt.NDArray[np.float32] | None = None,
    workers: int = 0,
    report: Callable[[int], None] | None = None,
) -> TrainingScores:
    """Score every training image once, by its stored features (N, D) where there are some."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_classifier(run).to(device).eval()
    file = run.review_scores_file
    partial = file.with_name(file.name + ".partial")
    kept = np.lib.format.open_memmap(partial, "w+", np.float16, part.truth.values.shape)
    if features is not None:
        for rows in in_order(np.arange(len(part)), 1024):
            pooled = torch.from_numpy(np.asarray(features[rows])).to(device)
            kept[rows] = _scores(model.head(pooled).logits)
            if report is not None:
                report(len(rows))
    else:
        loader = ImageLoader(part, views_of(run.config().views)[1], workers=workers)
        broken: list[str] = []
        for batch in _readable(loader, np.arange(len(part)), broken):
            numbers = batch.rows.numpy()
            kept[numbers] = _scores(model(batch.inputs[0].to(device)).logits) if batch.inputs else np.nan
            if report is not None:
                report(len(numbers))
        if broken:
            warnings.warn(
                f"{counted(len(broken), 'image')} cannot be read and will not be asked about: "
                f"{listing(broken, 5)}",
                DataWarning,
                stacklevel=2,
            )
    kept.flush()
    del kept
    _about_file(run).unlink(missing_ok=True)  # so that what it says is never said of another file
    partial.replace(file)
    write_json(_about_file(run), _identity(run, part))
    found: TrainingScores = np.load(file, mmap_mode="r", allow_pickle=False)
    return found


def _readable(loader: Loader, rows: npt.NDArray[np.int64], broken: list[str]) -> Iterator[Batch]:
    """Batches of these rows; an image that cannot be read comes alone and without inputs."""
    waiting = in_order(rows, BATCH)
    while waiting:
        done = 0
        try:
            for batch in loader(waiting, 0):
                done += 1
                yield batch
            return
        except DataError as error:
            first, *rest = waiting[done:]
            if len(first) > 1:
                waiting = [*in_order(first, 1), *rest]
            else:
                broken.append(str(error))
                yield Batch(torch.from_numpy(first), (), ())
                waiting = rest


def _scores(logits: Tensor) -> TrainingScores:
    return torch.sigmoid(logits.float()).cpu().numpy().astype(np.float16)


def _about_file(run: Run) -> Path:
    return run.review_scores_file.with_suffix(".json")


def _identity(run: Run, part: PreparedSplit) -> dict[str, Any]:
    """What the scores depend on: the model, the images and their order."""
    images = hashlib.blake2b(np.ascontiguousarray(part.digests).tobytes(), digest_size=16)
    with run.model_file.open("rb") as stream:
        model = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"model": model, "images": images.hexdigest(), "classes": list(part.truth.classes)}
