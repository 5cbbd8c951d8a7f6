"""Saved scores of a split (RUN/scores-SPLIT.npz), with the labels that they are evaluated by."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np

from sparselabel.checksums import file_checksum, require_checksum
from sparselabel.data.dataset import PreparedSplit, evaluation_labels
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import POSITIVE, Labels
from sparselabel.errors import ResourceError, RunError, command, param
from sparselabel.file_formats import read_arrays, read_json
from sparselabel.files import write_arrays, write_json
from sparselabel.metrics import tiled_scores
from sparselabel.metrics.tiled_scores import ScoreMatrix, Scores, TiledScores, in_memory
from sparselabel.resources import format_bytes
from sparselabel.run import Run
from sparselabel.schema import Count

IDS_AT_ONCE = 1 << 16


class LargeScores(TypedDict):
    """What is beside scores that are too many for memory."""

    images: str
    checksum: Count


@dataclass(frozen=True, eq=False)
class SplitScores:
    """Scores (N, L) of a split's images, as training or evaluation saved them."""

    run: Run
    split: PreparedSplit
    scores: ScoreMatrix

    @property
    def array(self) -> Scores:
        """(N, L) The scores in memory; an error with their size if they are too many."""
        return in_memory(self.scores)

    @property
    def labels(self) -> LabelTable:
        """The labels that the scores are evaluated by."""
        return evaluation_labels(self.split)

    @property
    def positive(self) -> Labels:
        """(N, L) 1 where a class is known to be there, else 0: unknown counts as absent, as in evaluation."""
        return np.asarray(self.labels.values == POSITIVE).astype(np.int8)


def new_scores(run: Run, split: PreparedSplit) -> TiledScores | None:
    """A file for a split's scores, if they are too many for memory; its disk space is reserved now."""
    shape = split.truth.matrix.shape
    if 4 * shape[0] * shape[1] <= tiled_scores.LARGEST_SCORES:
        return None
    file = run.large_scores_file(split.name)
    partial = file.with_name(file.name + ".partial")
    run.path.mkdir(parents=True, exist_ok=True)
    return TiledScores(partial, shape, refusal=_no_room)


def _no_room(folder: Path, size: int, free: int) -> ResourceError:
    return ResourceError(
        f"scores of all images and classes take {format_bytes(size)} and {folder} has {format_bytes(free)} "
        "free",
        "make room",
        f"prepare fewer images of the split ({param('keep_test')}, {param('keep_validation')})",
        what=folder,
        value=size,
        allowed=free,
    )


def keep_scores(run: Run, split: PreparedSplit, scores: ScoreMatrix) -> ScoreMatrix:
    """Write RUN/scores-SPLIT.npz, as floats; scores that are in a file are moved there."""
    if not isinstance(scores, TiledScores):
        ids = np.asarray(split.truth.ids)
        write_arrays(run.scores_file(split.name), ids=ids, scores=np.asarray(scores, np.float32))
        return scores
    file = run.large_scores_file(split.name)
    file.with_suffix(".json").unlink(missing_ok=True)  # so that it is never said of other scores
    scores.path.replace(file)
    about = {"images": _digest(split), "checksum": file_checksum(file)}
    write_json(file.with_suffix(".json"), about)
    return TiledScores(file, scores.shape)


def _digest(split: PreparedSplit) -> str:
    """The digest of a split's images and their order."""
    digest = hashlib.blake2b(digest_size=16)
    for start in range(0, len(split), IDS_AT_ONCE):
        digest.update("\n".join(split.truth.ids[start : start + IDS_AT_ONCE].tolist()).encode() + b"\n")
    return digest.hexdigest()


def saved_scores(run: Run, split: str) -> SplitScores:
    """Read RUN/scores-SPLIT.npz; refuses scores of other images than the split has now."""
    prepared_split = run.split(split)
    file, large = run.scores_file(split), run.large_scores_file(split)
    evaluate = command("evaluate", run.path, split=split)
    if large.is_file():
        about = read_json(large.with_suffix(".json"), LargeScores, f"{evaluate} writes it again")
        if about["images"] != _digest(prepared_split):
            raise RunError(f"{large} has the scores of other images", f"{evaluate} writes it again")
        require_checksum(large, about["checksum"], f"{evaluate} writes it again")
        return SplitScores(run, prepared_split, TiledScores(large, prepared_split.truth.matrix.shape))
    if not file.is_file():
        raise RunError(f"there is no {file}", f"{evaluate} writes it", what=file)
    arrays = read_arrays(file, {"ids": "U N", "scores": "f M L"}, f"{evaluate} writes it again")
    ids, scores = arrays["ids"], arrays["scores"]
    if not np.array_equal(ids, prepared_split.truth.ids) or scores.shape != prepared_split.truth.matrix.shape:
        raise RunError(f"{file} has the scores of other images or classes", f"{evaluate} writes it again")
    if scores.size and not np.isfinite([scores.min(), scores.max()]).all():  # these carry NaN along
        raise RunError(f"{file} has scores that are no numbers", f"{evaluate} writes it again", what=file)
    return SplitScores(run, prepared_split, scores)


def saved_pair(run: Run, other: Run, split: str) -> tuple[SplitScores, SplitScores]:
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


def refuse_other_data(everyone: Sequence[SplitScores]) -> None:
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
