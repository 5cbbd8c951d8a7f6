"""Another model's scores of the training images: from a file, or from class names (``text:MODEL``).

A run saves its own copy, and resumes with it.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sparselabel.checksums import require_own_checksum
from sparselabel.data.dataset import Dataset
from sparselabel.file_formats import read_array, write_array
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.score_prior import ScorePrior
from sparselabel.models.zero_shot import PROMPT, zero_shot_scores
from sparselabel.run import Run
from sparselabel.training.logger import Log
from sparselabel.training.resolve import scores_file, text_model

if TYPE_CHECKING:
    from sparselabel.training.phase_loaders import PhaseLoaders

Scores = npt.NDArray[np.float32]


def load_external_scores(loaders: "PhaseLoaders", run: Run, goes_on: bool) -> Scores | None:
    """(N, L) The scores that a run was begun with, or else those that its configuration names."""
    model, file = text_model(loaders.config), scores_file(loaders.config)
    if model is None and file is None:
        return None
    if goes_on and run.given_scores_file.is_file():
        return external_scores_in(run.given_scores_file, loaders.data)
    if file is not None:
        from sparselabel.data.external_scores import read_scores

        train = loaders.data.train
        return read_scores(file, train.observed, train.paths)
    return _of_text(loaders, str(model))


def save_external_scores(run: Run, scores: Scores | None) -> None:
    """Save a copy in the run, if there are scores."""
    if scores is not None and not run.given_scores_file.exists():
        write_array(run.given_scores_file, scores)


def log_external_scores(method: ComposedLoss, log: Log) -> None:
    """Log how well a method's external scores rank the observed labels."""
    for part in method.parts():
        if isinstance(part, ScorePrior):
            log.say(f"scores: {part.summary}")


def _of_text(loaders: "PhaseLoaders", name: str) -> Scores:
    """Scores of the classes' names, computed once and kept beside the data."""
    data, fabric = loaders.data, loaders.fabric
    key = (
        json.dumps([name, PROMPT, *data.classes]).encode()
        + np.ascontiguousarray(data.train.digests).tobytes()
    )
    file = data.features_folder / f"text-{hashlib.blake2b(key, digest_size=10).hexdigest()}.npy"
    if fabric.is_global_zero and not file.is_file():
        with loaders.log.bar(len(data.train), f"scores of text:{name}") as bar:
            scores = zero_shot_scores(
                name, data.train, data.classes, fabric.device, loaders.machine.workers, bar.advance
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        write_array(file, scores)
    fabric.barrier()
    return external_scores_in(file, data)


def external_scores_in(file: Path, data: Dataset) -> Scores:
    """(N, L) The scores of a saved file, memory-mapped; damage is an error."""
    layout = f"f {len(data.train)} {len(data.classes)}"
    again = "remove it, and begin the run anew"
    scores: Scores = read_array(file, layout, again, mapped=True)
    require_own_checksum(file, again)
    return scores
