"""Precision and recall at a threshold, and among the k highest scores.

The field reports six averages: CP, CR, CF1 "per class" and OP, OR, OF1 "overall", once for all classes and
once for the top 3 of an image. 0/0 counts as 0, without an epsilon.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import POSITIVE, LabelMatrix, count_per_class, count_per_image
from sparselabel.errors import ConfigError, param
from sparselabel.metrics.average_precision import Values
from sparselabel.metrics.tiled_scores import ScoreMatrix, Scores, image_blocks

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Counts:
    """(L,) How many images of each class are ``predicted``, ``positive``, and both (``hits``)."""

    hits: Numbers
    predicted: Numbers
    positive: Numbers

    @property
    def precision(self) -> Values:
        """(L,) The share of hits among the predicted images; 0 for a class never predicted."""
        return _ratio(self.hits, self.predicted)

    @property
    def recall(self) -> Values:
        """(L,) The share of hits among the positive images; 0 for a class without positives."""
        return _ratio(self.hits, self.positive)

    @property
    def f1(self) -> Values:
        """(L,) The harmonic mean of precision and recall; 0 where both are."""
        return _ratio(2 * self.hits, self.predicted + self.positive)

    def averages(self) -> dict[str, float]:
        """The field's six numbers, 0..1, by their usual names.

        CP and CR are the means of the classes' precision and recall, and CF1 is the harmonic mean of
        these two (not the mean of the classes' F1). OP, OR and OF1 are of all decisions together.
        """
        cp, cr = float(self.precision.mean()), float(self.recall.mean())
        hits, predicted, positive = (int(n.sum()) for n in (self.hits, self.predicted, self.positive))
        return {
            "CP": cp,
            "CR": cr,
            "CF1": 2 * cp * cr / (cp + cr) if cp + cr else 0.0,
            "OP": hits / predicted if predicted else 0.0,
            "OR": hits / positive if positive else 0.0,
            "OF1": 2 * hits / (predicted + positive) if predicted + positive else 0.0,
        }


@dataclass(frozen=True)
class AtK:
    """The k highest scores of an image against its labels, as means over all images, 0..1.

    ``recall`` is the share of the image's positives among the k, ``precision`` the share of the k
    that are positive, ``hit_rate`` the share of images with at least one positive among the k.
    """

    k: int
    recall: float
    precision: float
    hit_rate: float


def precision_recall_f1(
    scores: ScoreMatrix,
    labels: LabelMatrix,
    threshold: "float | npt.NDArray[np.floating]" = 0.5,
    top: int | None = None,
) -> Counts:
    """Count what is predicted at a threshold, the same or one for each class; unknown labels are negative.

    A class is predicted where its score is at or above the threshold. With ``top``, only an image's
    ``top`` highest scores can be: of these, the ones at or above the threshold are predicted.
    """
    if top is not None:
        _refuse_none(top)
    hits, predicted_images = (np.zeros(scores.shape[1], np.int64) for _ in range(2))
    for rows in image_blocks(*scores.shape):
        block = scores[rows]
        predicted = np.asarray(block >= threshold)
        if top is not None:
            predicted &= _highest(block, top)
        hits += np.count_nonzero(predicted & (labels[rows] == POSITIVE), axis=0)
        predicted_images += np.count_nonzero(predicted, axis=0)
    return Counts(hits=hits, predicted=predicted_images, positive=count_per_class(labels))


def at_k(scores: ScoreMatrix, labels: LabelMatrix, k: int) -> AtK:
    """Recall, precision and hit rate of each image's k highest scores, whatever their size.

    Images without positives count as 0 in all three, and unknown labels as negative.
    """
    if k > scores.shape[1]:
        raise ConfigError(
            f"{param('k')} must be at most the number of classes, {scores.shape[1]:,}, not {k}", what="k"
        )
    _refuse_none(k)
    hits = np.concatenate(
        [
            np.count_nonzero(_highest(scores[rows], k) & (labels[rows] == POSITIVE), axis=1)
            for rows in image_blocks(*scores.shape)
        ]
    )
    return AtK(
        k=k,
        recall=float(_ratio(hits, count_per_image(labels)).mean()),
        precision=float(hits.mean() / k),
        hit_rate=float((hits > 0).mean()),
    )


def _refuse_none(k: int) -> None:
    if k < 1:
        raise ConfigError(f"the number of highest scores must be at least 1, not {k}", what="k", value=k)


def _highest(scores: Scores, k: int) -> npt.NDArray[np.bool_]:
    """(N, L) Whether a score is among its row's k highest; of equal ones, the first classes are."""
    classes = scores.shape[1]
    if k >= classes:
        return np.ones(scores.shape, dtype=np.bool_)
    last = np.partition(scores, classes - k, axis=1)[:, classes - k, None]
    above, level = scores > last, scores == last
    free = k - np.count_nonzero(above, axis=1)[:, None]
    return np.asarray(above | (level & (np.cumsum(level, axis=1, dtype=np.int32) <= free)))


def _ratio(part: npt.NDArray[np.integer], whole: npt.NDArray[np.integer]) -> Values:
    """Part by whole, and 0 where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.zeros(whole.shape), where=whole > 0))
