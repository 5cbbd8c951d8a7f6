"""How right decided labels are: precision and recall at a threshold, and among the k highest scores.

The field reports six averages: CP, CR, CF1 "per class" and OP, OR, OF1 "overall", once for all
classes and once for the top 3 of an image. What is 0/0 counts as 0 here, without an epsilon.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import POSITIVE
from sparselabel.errors import ConfigError, param
from sparselabel.metrics.average_precision import COMPLETE, Scores, Values, refuse_unknown, scores_and_labels

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
    scores: npt.ArrayLike, labels: npt.ArrayLike, threshold: float = 0.5, top: int | None = None
) -> Counts:
    """Count what is predicted at a threshold, for (N, L) scores and labels without unknown ones.

    A class is predicted where its score is at or above the threshold. With ``top``, only an image's
    ``top`` highest scores can be: of these, the ones at or above the threshold are predicted.
    """
    if not np.isfinite(threshold):
        raise ConfigError(f"{param('threshold')} must be a finite number, not {threshold}", what="threshold")
    score_array, positive = _complete(scores, labels)
    predicted = np.asarray(score_array >= float(threshold))
    if top is not None:
        predicted &= _highest(score_array, top)
    return Counts(
        hits=np.count_nonzero(predicted & positive, axis=0).astype(np.int64),
        predicted=np.count_nonzero(predicted, axis=0).astype(np.int64),
        positive=np.count_nonzero(positive, axis=0).astype(np.int64),
    )


def at_k(scores: npt.ArrayLike, labels: npt.ArrayLike, k: int) -> AtK:
    """Recall, precision and hit rate of each image's k highest scores, whatever their size.

    Images without positives count as 0 in all three. Scores and labels are (N, L), none unknown.
    """
    score_array, positive = _complete(scores, labels)
    if k > score_array.shape[1]:
        raise ConfigError(
            f"{param('k')} must be at most the number of classes, {score_array.shape[1]:,}, not {k}", what="k"
        )
    hits = np.count_nonzero(_highest(score_array, k) & positive, axis=1)
    return AtK(
        k=k,
        recall=float(_ratio(hits, np.count_nonzero(positive, axis=1)).mean()),
        precision=float(hits.mean() / k),
        hit_rate=float((hits > 0).mean()),
    )


def _complete(scores: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Scores, npt.NDArray[np.bool_]]:
    score_array, label_array = scores_and_labels(scores, labels)
    refuse_unknown(label_array, *COMPLETE)
    return score_array, np.asarray(label_array == POSITIVE)


def _highest(scores: Scores, k: int) -> npt.NDArray[np.bool_]:
    """(N, L) Whether a score is among its row's k highest; of equal ones, the first classes are."""
    if k < 1:
        raise ConfigError(f"the number of highest scores must be at least 1, not {k}", what="k", value=k)
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
