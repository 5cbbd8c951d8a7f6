"""Scores that a run keeps: of a split (RUN/scores-SPLIT.npz), and of all training images, for a review.

RUN/review-scores.npy has those, (N, L) in float16. An image that cannot be read has NaN: nobody can be asked
about it.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch

from sparselabel.data.dataset import PreparedSplit, evaluation_labels
from sparselabel.data.labels import POSITIVE, Labels, LabelTable
from sparselabel.data.loaders import Batch, FeatureLoader, Loader, Rows, in_order
from sparselabel.errors import DataError, DataWarning, RunError, command, counted, listing, numpy_said
from sparselabel.files import read_json, write_json
from sparselabel.inference.scorer import BATCH, evaluation_loader, full_precision, load_scorer
from sparselabel.metrics.ranking import Scores
from sparselabel.run import Run


@dataclass(frozen=True, eq=False)
class Saved:
    """Scores (N, L) of a split's images, as training (of the test split) or evaluation kept them."""

    run: Run
    split: PreparedSplit
    scores: Scores

    @property
    def labels(self) -> LabelTable:
        """The labels that the scores are judged by."""
        return evaluation_labels(self.split)

    @property
    def positive(self) -> Labels:
        """(N, L) 1 where a class is known to be there, else 0: unknown counts as absent, as in evaluation."""
        return np.asarray(self.labels.values == POSITIVE).astype(np.int8)


def keep_scores(run: Run, part: PreparedSplit, scores: Scores) -> None:
    """Write RUN/scores-SPLIT.npz, as floats."""
    ids = np.asarray(part.truth.ids)
    np.savez(run.scores_file(part.name), ids=ids, scores=np.asarray(scores, np.float32))


def saved_scores(run: Run, split: str) -> Saved:
    """Read RUN/scores-SPLIT.npz; refuses scores of other images than the split has now."""
    part = run.split(split)
    file = run.scores_file(split)
    evaluate = command("evaluate", run.path, split=split)
    if not file.is_file():
        raise RunError(f"there is no {file}", f"{evaluate} writes it", what=file)
    ids, scores = read_arrays(file, ("ids", "scores"), f"{evaluate} writes it again").values()
    if not np.array_equal(ids, part.truth.ids) or scores.shape != part.truth.values.shape:
        raise RunError(
            f"{file} has the scores of other images or classes", f"{evaluate} writes it again", what=file
        )
    return Saved(run, part, scores)


def saved_pair(run: Run, other: Run, split: str) -> tuple[Saved, Saved]:
    """The scores of two runs for the same images, classes and labels; refuses others."""
    first, second = saved_scores(run, split), saved_scores(other, split)
    data = f"({first.run.data_name(split)} and {second.run.data_name(split)})"
    same_images = np.array_equal(first.labels.ids, second.labels.ids)
    if not same_images or first.labels.classes != second.labels.classes:
        raise RunError(
            f"{run.path} and {other.path} have other images or classes in split {split!r} {data}: no pairs"
        )
    if not np.array_equal(first.positive, second.positive):
        raise RunError(
            f"{run.path} and {other.path} have other labels in split {split!r} {data}: their mAPs do not "
            "compare"
        )
    return first, second


def refuse_other_data(everyone: Sequence[Saved]) -> None:
    """Raise unless all scores are of the same images and labels."""
    first = everyone[0]
    for saved in everyone[1:]:
        if saved.split.digest != first.split.digest:
            name = first.split.name
            raise RunError(
                f"{first.run.path} and {saved.run.path} are of different data "
                f"({first.run.data_name(name)} and {saved.run.data_name(name)})",
                "name runs on the same data",
            )


def read_arrays(file: Path, names: Sequence[str], *remedies: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file, first those that must be there."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            required = {name: arrays[name] for name in names}
            return required | {name: arrays[name] for name in arrays.files if name not in required}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise RunError(f"{file} cannot be read ({numpy_said(error)})", *remedies, what=file) from error


FEATURES = 1024  # rows of stored features at a time

TrainingScores = npt.NDArray[np.float16]


def training_scores(run: Run, part: PreparedSplit) -> TrainingScores | None:
    """What was kept, in the file; None if there is nothing, or it is of another model or other images."""
    file, about = run.review_scores_file, _about_file(run)
    if not file.is_file() or not about.is_file():
        return None
    try:
        if read_json(about) != _identity(run, part):
            return None
        scores: TrainingScores = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, RunError):
        return None
    return scores if scores.shape == part.truth.values.shape else None


def write_training_scores(
    run: Run,
    part: PreparedSplit,
    *,
    features: npt.NDArray[np.float32] | None = None,
    workers: int = 0,
    report: Callable[[int], None] | None = None,
) -> TrainingScores:
    """Score every training image once, by its stored features (N, D) where there are some."""
    scorer = load_scorer(run)
    file = run.review_scores_file
    partial = file.with_name(file.name + ".partial")
    scores = np.lib.format.open_memmap(partial, "w+", np.float16, part.truth.values.shape)
    scores[:] = np.nan
    unreadable: list[str] = []
    if features is not None:
        scorer, batch = replace(scorer, model=scorer.head), FEATURES
        loader: Loader = FeatureLoader(torch.from_numpy(features))
    else:
        loader, batch = Readable(evaluation_loader(run.config(), part, workers), unreadable), BATCH
    for rows, output, _ in scorer.batches(loader, np.arange(len(part)), batch=batch, report=report):
        scores[rows.numpy()] = torch.sigmoid(full_precision(output.logits)).cpu().numpy().astype(np.float16)
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
    write_json(_about_file(run), _identity(run, part))
    written: TrainingScores = np.load(file, mmap_mode="r", allow_pickle=False)
    return written


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


def _identity(run: Run, part: PreparedSplit) -> dict[str, Any]:
    """What the scores depend on: the model, the images and their order."""
    images = hashlib.blake2b(np.ascontiguousarray(part.digests).tobytes(), digest_size=16)
    with run.model_file.open("rb") as stream:
        model = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"model": model, "images": images.hexdigest(), "classes": list(part.truth.classes)}
