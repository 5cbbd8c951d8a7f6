"""Average precision of each class, and its mean, by the three definitions in use.

All rules are a mean over the positives of a class, taken by falling score; they differ in the
precision that a positive counts with. At the positive, ``i`` positives among the ``r`` images so
far give the precision ``i / r``:

- ``sklearn``  ``i / r`` counted to the end of the positive's tie: equal scores are one threshold.
  The order of rows does not matter.
- ``hits``     ``i / r`` at the positive's own rank (the programs of ASL, Hill and CSL).
- ``voc``      the largest ``i / r`` at this or any later rank: the envelope of all-point VOC.

For ``hits`` and ``voc``, equal scores keep the order of the rows, so the result is the same on every
machine, but it depends on that order. Numbers of different rules are not comparable.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import (
    POSITIVE,
    UNKNOWN,
    LabelMatrix,
    Labels,
    SparseLabels,
    as_labels,
    count_known,
    count_per_class,
    count_per_image,
)
from sparselabel.errors import ConfigError, DataError, DataWarning, listing, nearest, param
from sparselabel.metrics.tiled_scores import ScoreMatrix, Scores, TiledScores, class_blocks

Rule = Literal["sklearn", "voc", "hits"]
Unknown = Literal["negative", "ignore"]
Values = npt.NDArray[np.float64]

FEW_TIES = 16
"""Number of tied scores up to which resolving each is quicker than ranking all images."""


@dataclass(frozen=True)
class MeanAveragePrecision:
    """The mean of the classes' average precisions, 0..1, in both ways to count empty classes.

    ``mean`` counts a class without positives as 0. ``mean_of_present`` is over the ``present``
    classes that have positives; it is None when there is no such class.
    """

    mean: float
    mean_of_present: float | None
    present: int


@dataclass(frozen=True)
class Subset:
    """The mean average precision on some of the images."""

    images: int
    average_precision: MeanAveragePrecision


def average_precision(
    scores: "npt.ArrayLike | TiledScores",
    labels: "npt.ArrayLike | SparseLabels",
    rule: Rule = "sklearn",
    unknown: Unknown | None = None,
    classes: Sequence[str] | None = None,
) -> Values:
    """(L,) The average precision of each class, 0..1.

    ``scores`` and ``labels`` are (N, L), for N images and L classes; higher scores come first. Both may be
    too large for memory (``TiledScores``, ``SparseLabels``): a block of classes is looked at at a time. The
    rules are explained at the top of this module. Labels are 1 and 0; unknown labels (-1) are an error unless
    ``unknown`` says how to count them: "negative" counts them as negative ("observed-label mAP"), "ignore"
    leaves the entry out of its class. A class without positives counts 0 and is named in a warning, by
    ``classes`` or else by its index.
    """
    _refuse_other("rule", rule, get_args(Rule))
    if unknown is not None:
        _refuse_other("reading of unknown labels", unknown, get_args(Unknown))
    score_array, label_array = scores_and_labels(scores, labels)
    if unknown is None:
        refuse_unknown(
            label_array,
            f"count them as negative ({param('unknown', 'negative')})",
            f"leave them out ({param('unknown', 'ignore')})",
        )
    if classes is not None and len(classes) != label_array.shape[1]:
        raise DataError(f"{label_array.shape[1]:,} classes need as many names, not {len(classes):,}")
    empty: list[int] = np.flatnonzero(~_present(label_array)).tolist()
    if empty:
        names = empty if classes is None else [classes[index] for index in empty]
        warnings.warn(
            DataWarning(
                f"{len(names):,} of {label_array.shape[1]:,} classes have no positive image; "
                f"their average precision counts as 0: {listing(names)}",
                value=names,
            ),
            stacklevel=2,
        )
    return precision_of_classes(score_array, label_array, rule, drop_unknown=unknown == "ignore")


def mean_average_precision(ap: npt.ArrayLike, labels: "npt.ArrayLike | SparseLabels") -> MeanAveragePrecision:
    """The mean of ``ap`` (L,), the average precisions of the classes of ``labels`` (N, L)."""
    values = np.asarray(ap, dtype=np.float64)
    label_array = labels if isinstance(labels, SparseLabels) else as_labels(labels)
    if len(label_array.shape) != 2 or not label_array.shape[1] or values.shape != label_array.shape[1:]:
        raise DataError(
            "average precisions (L,) and labels (N, L) must be of the same classes, at least one; "
            f"their shapes are {values.shape} and {label_array.shape}"
        )
    return _mean(values, _present(label_array))


def _mean(values: Values, present: npt.NDArray[np.bool_]) -> MeanAveragePrecision:
    return MeanAveragePrecision(
        mean=float(np.where(present, values, 0).mean()),
        mean_of_present=float(values[present].mean()) if present.any() else None,
        present=int(present.sum()),
    )


def by_number_of_labels(
    scores: "npt.ArrayLike | TiledScores", labels: "npt.ArrayLike | SparseLabels", rule: Rule = "sklearn"
) -> dict[str, Subset]:
    """The mean average precision on the images with "1" to "6", "7+" and "4+" positive labels.

    Verelst 2023 fig. 5d has one to seven, its table 3 ends at four or more; so "4+" has images of other
    subsets. Unknown labels are refused: the number of labels would not be known. Images without a positive
    are in no subset. In a subset many classes have no positives, so that is no reason for a warning.
    """
    _refuse_other("rule", rule, get_args(Rule))
    score_array, label_array = scores_and_labels(scores, labels)
    refuse_unknown(label_array, "give full labels: without them an image's number of labels is not known")
    numbers = count_per_image(label_array)
    subsets = {str(number): numbers == number for number in range(1, 7)}
    subsets |= {"7+": numbers >= 7, "4+": numbers >= 4}
    ap = {name: np.zeros(label_array.shape[1]) for name in subsets}
    present = {name: np.zeros(label_array.shape[1], np.bool_) for name in subsets}
    for index, column, known in _columns(score_array, label_array):
        for name, chosen in subsets.items():
            positive = known[chosen] == POSITIVE
            if positive.any():
                present[name][index] = True
                ap[name][index] = _precisions(column[chosen], positive, (rule,))[rule].mean()
    return {
        name: Subset(int(chosen.sum()), _mean(ap[name], present[name])) for name, chosen in subsets.items()
    }


def _columns(scores: ScoreMatrix, labels: LabelMatrix) -> Iterator[tuple[int, Scores, Labels]]:
    """Index, scores and labels of every class; some classes are copied at a time, as rows lie together."""
    wide = None if isinstance(scores, TiledScores) or isinstance(labels, SparseLabels) else 16 * len(scores)
    for block in class_blocks(scores.shape[0], scores.shape[1], wide):
        columns, known = (np.ascontiguousarray(one[:, block].T) for one in (scores, labels))
        yield from zip(range(block.start, block.start + len(columns)), columns, known, strict=True)


def arrays_of(scores: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Scores, Labels]:
    """Scores and labels that must both be in memory."""
    score_array, label_array = scores_and_labels(np.asarray(scores), as_labels(np.asarray(labels)))
    return np.asarray(score_array), np.asarray(label_array)


def scores_and_labels(
    scores: "npt.ArrayLike | TiledScores", labels: "npt.ArrayLike | SparseLabels"
) -> tuple[ScoreMatrix, LabelMatrix]:
    """Both of one shape (N, L), neither of them 0; scores finite, labels 1, 0 or UNKNOWN."""
    label_array = labels if isinstance(labels, SparseLabels) else as_labels(labels)
    if isinstance(scores, TiledScores):  # checked when it was written
        if scores.shape != label_array.shape:
            raise _other_shapes(scores.shape, label_array.shape)
        return scores, label_array
    score_array = np.asarray(scores)
    if score_array.dtype.kind not in "biuf":
        raise DataError(f"scores must be real numbers, not of type {score_array.dtype}")
    if score_array.dtype.kind != "f":
        score_array = score_array.astype(np.float64)
    if score_array.ndim != 2 or score_array.shape != label_array.shape or not score_array.size:
        raise _other_shapes(score_array.shape, label_array.shape)
    # Minimum and maximum propagate NaN and infinity, without an array as large as the scores.
    if not np.isfinite([score_array.min(), score_array.max()]).all():
        row, index = np.argwhere(~np.isfinite(score_array))[0]
        raise DataError(
            f"scores must be finite, but row {row} of class {index} has {score_array[row, index]}",
            "look for a model that diverged",
        )
    return score_array, label_array


def _other_shapes(scores: tuple[int, ...], labels: tuple[int, ...]) -> DataError:
    return DataError(
        "scores and labels must both have shape (images, classes), with at least one of each; "
        f"theirs are {scores} and {labels}"
    )


COMPLETE = ("give full labels", "give labels == 1, which counts the unknown ones as negative")
"""What to do about unknown labels where they cannot be read in any other way."""


def refuse_unknown(labels: LabelMatrix, *remedies: str) -> None:
    """Raise if there are unknown labels, saying how many and what to do."""
    count = labels.size - count_known(labels)
    if count:
        raise DataError(f"{count:,} of {labels.size:,} labels are unknown (-1)", *remedies, value=count)


def _refuse_other(kind: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"there is no {kind} {value!r}", nearest(str(value), known), value=value)


def _present(labels: LabelMatrix) -> npt.NDArray[np.bool_]:
    """(L,) Whether a class has a positive."""
    return np.asarray(count_per_class(labels) > 0)


def precision_of_classes(scores: ScoreMatrix, labels: LabelMatrix, rule: Rule, drop_unknown: bool) -> Values:
    """(L,) The average precision of each class; 0, without a warning, for one that has no positives."""
    return precisions_by_rule(scores, labels, (rule,), drop_unknown)[rule]


def precisions_by_rule(
    scores: ScoreMatrix, labels: LabelMatrix, rules: Sequence[Rule], drop_unknown: bool = False
) -> dict[Rule, Values]:
    """(L,) The average precision of each class by each rule: a block of classes is read once for all."""
    values = {rule: np.zeros(labels.shape[1]) for rule in rules}
    for index, column, known in _columns(scores, labels):
        positive = known == POSITIVE
        if positive.any():
            rows = known != UNKNOWN if drop_unknown else slice(None)
            for rule, precisions in _precisions(column[rows], positive[rows], rules).items():
                values[rule][index] = precisions.mean()
    return values


def _precisions(scores: Scores, positive: npt.NDArray[np.bool_], rules: Sequence[Rule]) -> dict[Rule, Values]:
    """The precision that each positive of one class counts with, by each rule; (N,) in."""
    every = np.sort(scores)
    precisions: dict[Rule, Values] = {}
    if "sklearn" in rules:
        # Images scored at or above a positive: counted by bisection, no ranking needed.
        hits = np.sort(scores[positive])
        hits_above = len(hits) - np.searchsorted(hits, hits)
        precisions["sklearn"] = np.asarray(hits_above / (len(every) - np.searchsorted(every, hits)))
    if {"hits", "voc"} & {*rules}:
        ranks = _ranks(scores, positive, every)
        at_rank = np.arange(1, len(ranks) + 1) / ranks
        if "hits" in rules:
            precisions["hits"] = at_rank
        if "voc" in rules:
            # Between positives precision only falls, so the envelope needs the positives alone.
            precisions["voc"] = np.asarray(np.maximum.accumulate(at_rank[::-1])[::-1])
    return precisions


def _ranks(scores: Scores, positive: npt.NDArray[np.bool_], every: Scores) -> npt.NDArray[np.int64]:
    """(P,) The ranks of the positives, rising; of equal scores the first rows come first.

    ``every`` are the scores, sorted: that is much quicker than ranking rows, which is only done among equal
    scores.
    """
    hits = scores[positive]
    above = len(every) - np.searchsorted(every, hits, side="right")
    equal = len(every) - above - np.searchsorted(every, hits, side="left")
    before = np.zeros(len(hits), np.int64)
    rows = np.flatnonzero(positive)
    shared = np.unique(hits[equal > 1])
    if len(shared) > FEW_TIES:
        return np.flatnonzero(positive[np.argsort(-scores, kind="stable")]) + 1
    for value in shared:
        tied = np.flatnonzero(scores == value)
        of_value = hits == value
        before[of_value] = np.searchsorted(tied, rows[of_value])
    return np.sort(above + before + 1)
