"""Paired bootstrap: is one model better than another beyond chance?

The images of a split are repeatedly resampled with replacement, and both models are measured on the same
draw. The spread of the difference of their mAP shows how reliable the measured difference is.

For methods that were trained several times the bootstrap is hierarchical: draws of labels, their seeds and
the test images are all resampled, and the mean mAP is taken; both methods get the same samples. So the
interval covers other labels, seeds and images. It is too narrow if there are few: n of them show (n - 1) / n
of their variance.

A draw is a number of copies of every image, so a class is sorted once, and its average precision (rule
``sklearn``) follows from sums of copies.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import POSITIVE
from sparselabel.errors import ConfigError, DataError, param
from sparselabel.metrics.average_precision import COMPLETE, Values, arrays_of, refuse_unknown
from sparselabel.metrics.tiled_scores import Scores

SEED_OF_RUNS = 1  # of which runs are drawn; that of images is given
BLOCK = 250  # draws at a time: more take more memory and no less time
Copies = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Difference:
    """The mAP of two models on the same images, 0..1, and how their difference varies.

    ``low`` and ``high`` are the 2.5 and 97.5 percentiles of the difference (the second model's mAP minus the
    first one's) over the draws; ``same_sign`` is the share of draws with the sign of ``difference``
    (None where that is 0).
    """

    first: float
    second: float
    low: float
    high: float
    same_sign: float | None
    samples: int

    @property
    def difference(self) -> float:
        """The second mAP minus the first."""
        return self.second - self.first

    @property
    def zero_outside(self) -> bool:
        """Whether the interval does not contain 0: the difference is more than chance."""
        return not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Interval:
    """A mean mAP, 0..1, and the 2.5 and 97.5 percentiles of its draws."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Drawn:
    """The mAP of a model on the images as they are, and (S,) on every draw of them."""

    whole: float
    draws: Values


def paired_bootstrap(
    first: npt.ArrayLike, second: npt.ArrayLike, labels: npt.ArrayLike, samples: int = 2000, seed: int = 0
) -> Difference:
    """Compare two models' scores (N, L) of the same images; labels (N, L) without unknown ones.

    A class that has no positive, in the split or in a draw, counts as 0 for both.
    """
    one, other = (drawn(scores, labels, samples, seed) for scores in (first, second))
    return difference([one], [other])


def drawn(scores: npt.ArrayLike, labels: npt.ArrayLike, samples: int = 2000, seed: int = 0) -> Drawn:
    """Measure a model on bootstrap samples of the images, the same for all models with this seed."""
    if samples < 1:
        raise ConfigError(f"{param('samples')} must be at least 1, not {samples}", what="samples")
    score_array, label_array = arrays_of(scores, labels)
    refuse_unknown(label_array, *COMPLETE)
    positive = label_array == POSITIVE
    if not positive.any():
        raise DataError("there is no positive label, so there is no mAP to compare")
    count, classes = positive.shape
    model = [Ranked(score_array[:, index], positive[:, index]) for index in range(classes)]
    whole = float(_mean(model, np.ones((count, 1), dtype=np.int32))[0])
    random = np.random.default_rng(seed)
    values = np.empty(samples)
    for start in range(0, samples, BLOCK):
        values[start : start + BLOCK] = _mean(model, _draws(random, count, min(BLOCK, samples - start)))
    return Drawn(whole, values)


def interval(models: Sequence[Drawn], groups: Sequence[Hashable] | None = None) -> Interval:
    """The mean mAP of models that were measured on the same draws of images.

    ``groups`` says for each model which draw of labels it was trained on; by default all on the same.
    """
    whole, draws = _hierarchical(models, groups)
    low, high = np.percentile(draws, [2.5, 97.5]).tolist()
    return Interval(whole, low, high)


def difference(
    first: Sequence[Drawn], second: Sequence[Drawn], groups: Sequence[Hashable] | None = None
) -> Difference:
    """The difference in mean mAP between two groups of models on the same bootstrap samples.

    Models are pairs: the same place is the same draw of labels (``groups``) and the same seed.
    """
    (one, draws), (other, other_draws) = (_hierarchical(models, groups) for models in (first, second))
    differences = other_draws - draws
    low, high = np.percentile(differences, [2.5, 97.5]).tolist()
    sign = np.sign(other - one)
    same = float((np.sign(differences) == sign).mean()) if sign else None
    return Difference(one, other, low, high, same, len(differences))


def _hierarchical(models: Sequence[Drawn], groups: Sequence[Hashable] | None) -> tuple[float, Values]:
    """The mean over groups of the mean over their models, as they are, and (S,) as drawn."""
    labels = list(groups or [None] * len(models))
    names = list(dict.fromkeys(labels))
    shares = np.asarray([1 / (len(names) * labels.count(label)) for label in labels])
    whole = float(shares @ [model.whole for model in models])
    draws = np.stack([model.draws for model in models])
    random = np.random.default_rng(SEED_OF_RUNS)
    samples = draws.shape[1]
    drawn_groups = random.multinomial(len(names), [1 / len(names)] * len(names), samples)
    weights = np.empty((samples, len(models)))
    for number, name in enumerate(names):
        members = [index for index, label in enumerate(labels) if label == name]
        # A group that was drawn twice has its seeds drawn twice, independently: the counts add up.
        counts = random.multinomial(drawn_groups[:, number] * len(members), [1 / len(members)] * len(members))
        weights[:, members] = counts * shares[members]
    return whole, np.asarray((weights.T * draws).sum(axis=0))


class Ranked:
    """A class's images by falling score, cut after each tie that has a positive."""

    def __init__(self, scores: Scores, positive: npt.NDArray[np.bool_]) -> None:
        self.order = np.argsort(-scores, kind="stable")
        by_rank, hit = scores[self.order], positive[self.order]
        hits = np.flatnonzero(hit)
        self.positives = self.order[hits]
        # Every tie with a positive is one threshold; a stretch is what lies between two of them.
        ends = np.searchsorted(-by_rank, np.unique(-by_rank[hits]), side="right")
        self.order = self.order[: ends[-1]] if len(ends) else self.order[:0]
        self.stretches = np.concatenate([[0], ends[:-1]]).astype(np.intp)
        self.hit_stretches = np.searchsorted(hits, self.stretches).astype(np.intp)

    def average_precision(self, copies: Copies) -> Values:
        """(S,) The average precision in every draw; ``copies`` is (N, S); 0 where no positive was drawn."""
        if not len(self.positives):
            return np.zeros(copies.shape[1])
        new_hits = np.add.reduceat(copies[self.positives], self.hit_stretches, axis=0)
        images = np.cumsum(np.add.reduceat(copies[self.order], self.stretches, axis=0), axis=0)
        hits = np.cumsum(new_hits, axis=0)
        # Where no image was drawn yet, no positive was either: 0/1 there.
        total = (new_hits * (hits / np.maximum(images, 1))).sum(axis=0)
        return np.asarray(total / np.maximum(hits[-1], 1))


def _mean(model: list[Ranked], copies: Copies) -> Values:
    """(S,) The mAP in every draw."""
    return np.asarray(sum(ranked.average_precision(copies) for ranked in model) / len(model))


def _draws(random: np.random.Generator, count: int, samples: int) -> Copies:
    """(count, samples) How often each image is in each draw."""
    drawn = random.integers(count, size=(samples, count))
    drawn += np.arange(samples)[:, None] * count
    copies = np.bincount(drawn.ravel(), minlength=samples * count).reshape(samples, count)
    return np.ascontiguousarray(copies.T, dtype=np.int32)
