"""Scores of a split as a run keeps them (RUN/scores-SPLIT.npz), beside the labels they are evaluated by."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparselabel.data.dataset import PreparedSplit, evaluation_labels
from sparselabel.data.labels import POSITIVE, Labels, LabelTable
from sparselabel.errors import RunError, command
from sparselabel.file_formats import read_arrays
from sparselabel.files import write_arrays
from sparselabel.metrics.average_precision import Scores
from sparselabel.run import Run


@dataclass(frozen=True, eq=False)
class SplitScores:
    """Scores (N, L) of a split's images, as training (of the test split) or evaluation kept them."""

    run: Run
    split: PreparedSplit
    scores: Scores

    @property
    def labels(self) -> LabelTable:
        """The labels that the scores are evaluated by."""
        return evaluation_labels(self.split)

    @property
    def positive(self) -> Labels:
        """(N, L) 1 where a class is known to be there, else 0: unknown counts as absent, as in evaluation."""
        return np.asarray(self.labels.values == POSITIVE).astype(np.int8)


def keep_scores(run: Run, split: PreparedSplit, scores: Scores) -> None:
    """Write RUN/scores-SPLIT.npz, as floats."""
    ids = np.asarray(split.truth.ids)
    write_arrays(run.scores_file(split.name), ids=ids, scores=np.asarray(scores, np.float32))


def saved_scores(run: Run, split: str) -> SplitScores:
    """Read RUN/scores-SPLIT.npz; refuses scores of other images than the split has now."""
    prepared_split = run.split(split)
    file = run.scores_file(split)
    evaluate = command("evaluate", run.path, split=split)
    if not file.is_file():
        raise RunError(f"there is no {file}", f"{evaluate} writes it", what=file)
    arrays = read_arrays(file, {"ids": "U N", "scores": "f M L"}, f"{evaluate} writes it again")
    ids, scores = arrays["ids"], arrays["scores"]
    if not np.array_equal(ids, prepared_split.truth.ids) or scores.shape != prepared_split.truth.values.shape:
        raise RunError(f"{file} has the scores of other images or classes", f"{evaluate} writes it again")
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
