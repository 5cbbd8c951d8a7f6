"""Scores of all training images, for a review: RUN/review-scores.npy, (N, L) float16.

An image that cannot be read gets NaN and is left out of reviews.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sparselabel.config import AUTO
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.loaders import Batch, FeatureLoader, Loader, Rows, in_order
from sparselabel.errors import DataError, DataWarning, ResourceError, RunError, counted, listing
from sparselabel.file_formats import read_array, read_json
from sparselabel.files import write_json
from sparselabel.inference.engine import TORCH
from sparselabel.inference.scorer import BATCH, evaluation_loader, full_precision, load_scorer
from sparselabel.resources import format_bytes, mapped_array
from sparselabel.run import Run

FEATURES = 1024  # rows of stored features at a time

ReviewScores = npt.NDArray[np.float16]


def review_scores(run: Run, split: PreparedSplit) -> ReviewScores | None:
    """The saved scores; None if there are none, or if they are of another model or other images."""
    file, about = run.review_scores_file, _about_file(run)
    if not file.is_file() or not about.is_file():
        return None
    try:
        if not _identity(run, split).items() <= read_json(about, dict).items():
            return None
        scores: ReviewScores = read_array(file, "f N L", error=RunError, mapped=True)
    except RunError:
        return None
    return scores if scores.shape == split.truth.matrix.shape else None


def write_review_scores(
    run: Run,
    split: PreparedSplit,
    *,
    features: FeatureLoader | None = None,
    workers: int | None = None,
    engine: str = AUTO,
    report: Callable[[int], None] | None = None,
) -> ReviewScores:
    """Score every training image once, by its stored features where there are some."""
    scorer = load_scorer(run, engine=engine, images=len(split))
    file = run.review_scores_file
    partial = file.with_name(file.name + ".partial")
    scores = mapped_array(partial, np.float16, split.truth.matrix.shape, _no_room)
    scores[:] = np.nan
    unreadable: list[str] = []
    if features is not None:
        scorer, batch = replace(scorer, model=scorer.head, engine=TORCH), FEATURES
        loader: Loader = features
    else:
        images = evaluation_loader(run.config(), split, workers, scorer.device)
        loader, batch = Readable(images, unreadable), BATCH
    for rows, output, _ in scorer.batches(loader, np.arange(len(split)), batch=batch, report=report):
        scores[rows.numpy()] = torch.sigmoid(full_precision(output.logits)).cpu().numpy().astype(np.float16)
    if len(split) and len(unreadable) == len(split):
        del scores
        partial.unlink()
        raise DataError(
            f"none of the {counted(len(split), 'training image')} can be read: {listing(unreadable, 5)}",
            f"bring them back to {split.root}",
            what=split.root,
            value=len(unreadable),
        )
    if unreadable:
        warnings.warn(
            DataWarning(
                f"{counted(len(unreadable), 'image')} cannot be read and will not be asked about: "
                f"{listing(unreadable, 5)}"
            ),
            stacklevel=2,
        )
    scores.flush()
    del scores
    _about_file(run).unlink(missing_ok=True)  # so that what it says is never said of another file
    partial.replace(file)
    write_json(_about_file(run), _identity(run, split) | {"engine": scorer.engine_used})
    written: ReviewScores = read_array(file, mapped=True)
    return written


def _no_room(folder: Path, size: int, free: int) -> ResourceError:
    return ResourceError(
        f"the scores of all training images take {format_bytes(size)} and {folder} has {format_bytes(free)} "
        "free",
        "make room",
        "copy the run to a larger disk",
        what=folder,
        value=size,
    )


class Readable:
    """A loader without the images that cannot be read; ``errors`` gets what is wrong with each."""

    def __init__(self, loader: Loader, errors: list[str]) -> None:
        self.loader, self.errors = loader, errors

    def __call__(self, batches: Sequence[Rows], epoch: int) -> Iterator[Batch]:
        """Batches of these rows, smaller ones where an image cannot be read."""
        waiting = list(batches)
        while waiting:
            done = 0
            try:
                for batch in self.loader(waiting, epoch):
                    done += 1
                    yield batch
                return
            except DataError as error:
                first, *rest = waiting[done:]
                if len(first) > 1:
                    waiting = [*in_order(first, 1), *rest]
                else:
                    self.errors.append(str(error))
                    waiting = rest


def _about_file(run: Run) -> Path:
    return run.review_scores_file.with_suffix(".json")


def _identity(run: Run, split: PreparedSplit) -> dict[str, Any]:
    """The identity of the scores: the model, the images and their order."""
    images = hashlib.blake2b(np.ascontiguousarray(split.digests).tobytes(), digest_size=16)
    with run.model_file.open("rb") as stream:
        model = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"model": model, "images": images.hexdigest(), "classes": list(split.truth.classes)}
