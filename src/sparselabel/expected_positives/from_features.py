"""Estimate how many positives have no label, from the images that most surely show a class (its anchors).

Let c_j be the chance that an image of class j is annotated j. Then class j is in annotated_j / c_j images.
With one label per image, any of its classes as likely, c_j = E[1 / |y| | j in y]: the propensity 1 / |y| of
single positives is part of c_j and needs no correction of its own.

c_j is seen where class j is certain. Among the images that cross-fitted scores rank highest for j, the share
that is annotated j is c_j, as Elkan & Noto 2008 (their e3) and the best-bin estimator of Garg et al. 2021
have it. What differs:

- One number for all classes: the mean of the classes' shares, weighted by their labels. Few classes have
  enough labels for a share of their own, and single shares err both ways.
- Two errors remain, and oppose each other. Anchors show fewer classes than other images, which makes the
  share high and K low; features that do not tell classes apart make it low and K high. How far they cancel
  was measured on label sets whose K is known (``benchmarks/expected_suite.py``, fitted on one half):
  K / m − 1 = factor · (1 / share − 1)^power for m labels per image, where 1 and 1 would be a perfect model
  (``Link``).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, Indices, LabelMatrix, count_per_class, count_per_image
from sparselabel.errors import DataError, command
from sparselabel.expected_positives.class_counts import SPREAD, ClassCounts, Floats, bounded, shared_out

ANCHORS = 0.4
"""Share of a class's annotated images down to which its ranking is read."""
FEWEST_ANCHORS = 5

FOLDS = 5
PENALTY = 1.0
"""Of the least-squares `an` models, on standardized features."""
REPEATS = 50
MOST_IMAGES, MOST_SCORES = 10_000, 50_000_000
"""Images that are scored by classes, and the most scores of them that are in memory at once."""

FEWEST_IMAGES = 300
WEAKEST_SCORES, USELESS_SCORES = 0.75, 0.6
GUESS, MOST_HIDDEN = 1.0, 4.3
"""Hidden positives per label where scores are useless, and the most that any fitted label set has."""
MOST_UNLABELED = 0.1
OTHER_FEATURES = "try another backbone or other weights"
COUNT = f"count positives in some images ({command('expect', how='counted')})"
CHOICE = "the labels do not tell how they were chosen, so K cannot be known from them"


@dataclass(frozen=True)
class Link:
    """From the labeled share of anchors to positives without a label, and how far off that was.

    Errors are ranges of log(true / said) on the fitted half of the suite: over all annotators, for single
    classes, and for labels that were chosen at random.
    """

    factor: float
    power: float
    chosen: tuple[float, float]
    of_class: tuple[float, float]
    at_random: tuple[float, float] | None = None

    def hidden(self, share: float) -> float:
        """Positives without a label, per labeled one."""
        return float(self.factor * max(1 / share - 1, 0.01) ** self.power)

    def interval(self, chance: float, error: tuple[float, float]) -> tuple[float, float]:
        """Ends of the 95 % interval of log(true / said): an error of the form, and chance."""
        return -math.hypot(error[0], chance), math.hypot(error[1], chance)


SINGLE = Link(1.45, 0.60, chosen=(-1.11, 0.93), of_class=(-2.9, 1.6), at_random=(-1.11, 0.04))
"""One label per image."""
SEVERAL = Link(0.89, 0.54, chosen=(-0.89, 0.55), of_class=(-4.0, 1.6))
"""Some images have several labels, and (nearly) none has none."""


def from_features(
    features: npt.NDArray[np.float32],
    observed: LabelMatrix,
    annotated: npt.NDArray[np.int64],
    classes: tuple[str, ...],
    seed: int,
    link: Link,
) -> ClassCounts:
    """(Nearly) every image has a label: how many more it seems to have, by cross-fitted scores."""
    known = np.flatnonzero(annotated)
    labeled, images = int(np.count_nonzero(count_per_image(observed))), len(observed)
    if len(known) < 2:
        raise DataError("1 annotated class is too few to estimate positives from (2 at least)", COUNT)
    rows, random = _drawn(observed, seed)
    positives = observed[rows][:, known] == POSITIVE
    used = np.asarray(features if len(features) < images else features[rows], dtype=np.float32)
    _refuse_useless(used, rows)
    scores = cross_fitted_scores(torch.from_numpy(used), torch.from_numpy(positives).float(), seed).numpy()
    anchors = Anchors(scores, positives)
    hidden = min(link.hidden(anchors.labeled_share(np.ones(len(rows)))), MOST_HIDDEN)
    auc = _mean_auc(scores, positives)
    if auc < USELESS_SCORES:
        hidden = GUESS
    draws = [
        np.bincount(random.integers(0, len(rows), len(rows)), minlength=len(rows)) for _ in range(REPEATS)
    ]
    repeats = np.array([link.hidden(anchors.labeled_share(draw.astype(np.float64))) for draw in draws])
    chance = SPREAD * float(_deviation(np.log(repeats)))
    most, seen = images - count_per_class(observed, NEGATIVE), annotated.astype(np.float64)

    def positives_of(hidden: float) -> Floats:
        return shared_out((1 + hidden) * float(seen.sum()), seen, annotated, most)

    def k(hidden: float) -> float:
        return float(positives_of(hidden).sum() / images)

    doubts = [CHOICE]
    if link.at_random is not None:
        low, high = (k(hidden * math.exp(end)) for end in link.interval(chance, link.at_random))
        doubts[0] += f" (at random, K would be {low:.2f} – {high:.2f})"
    if labeled < FEWEST_IMAGES:
        doubts.append(f"only {labeled:,} images have a label (at least {FEWEST_IMAGES})")
    if labeled < (1 - MOST_UNLABELED) * images:
        doubts.append(f"{images - labeled:,} images have no label and count as empty")
    if len(rows) < min(labeled, MOST_IMAGES):
        doubts.append(f"by {len(rows):,} of {labeled:,} labeled images, drawn at random")
    if auc < WEAKEST_SCORES:
        doubts.append(f"the features hardly tell the classes apart (mean AUC {auc:.2f})")
    low, high = (hidden * math.exp(end) for end in link.interval(chance, link.chosen))
    fewest, largest = (hidden * math.exp(end) for end in link.interval(chance, link.of_class))
    return ClassCounts(
        "auto", classes, images, annotated, positives_of(hidden),
        bounded((1 + fewest) * seen, observed), bounded((1 + largest) * seen, observed),
        (k(low), k(high)), False, "; ".join(doubts),
    )  # fmt: skip


def images_to_score(observed: LabelMatrix, seed: int = 0) -> Indices:
    """Rows, rising, of the images whose features are looked at: labeled ones, as many as there is room."""
    return _drawn(observed, seed)[0]


def _drawn(observed: LabelMatrix, seed: int) -> tuple[Indices, np.random.Generator]:
    rows, random = np.flatnonzero(count_per_image(observed)), np.random.default_rng(seed)
    annotated = max(int(np.count_nonzero(count_per_class(observed))), 1)
    most = max(min(MOST_IMAGES, MOST_SCORES // annotated), FEWEST_IMAGES)
    if len(rows) > most:
        rows = np.sort(random.choice(rows, most, replace=False))
    return rows, random


def _refuse_useless(features: npt.NDArray[np.float32], rows: Indices) -> None:
    """Raise if features are not finite, or the same for all images."""
    not_finite = np.argwhere(~np.isfinite(features))
    if len(not_finite):
        row, column = not_finite[0]
        raise DataError(
            f"features must be finite, but feature {column} of image {rows[row]} is {features[row, column]}",
            "try other weights of the backbone",
            COUNT,
        )
    if (features == features[0]).all():
        raise DataError(
            f"all {len(features):,} labeled images have the same features ({features[0, 0]:g}, ...), which "
            "tell nothing",
            OTHER_FEATURES,
            COUNT,
        )


def _mean_auc(scores: npt.NDArray[np.float32], positives: npt.NDArray[np.bool_]) -> float:
    """Mean area under the ROC curve of the scores, for the annotated labels."""
    order, rank = scores.argsort(0), np.empty(scores.shape, np.int64)
    np.put_along_axis(rank, order, np.arange(1, len(scores) + 1)[:, None], axis=0)
    seen = positives.sum(0)
    area = ((rank * positives).sum(0) - seen * (seen + 1) / 2) / np.maximum(seen * (len(scores) - seen), 1)
    return float(area[seen < len(scores)].mean())


class Anchors:
    """Scores (N, L) sorted once, to be read with different weights of the images."""

    def __init__(self, scores: npt.NDArray[np.floating], positives: npt.NDArray[np.bool_]) -> None:
        order = np.argsort(-scores, axis=0, kind="stable")
        annotated = np.take_along_axis(positives, order, axis=0)
        # A class at a time: its anchors are a short part of its ranking.
        self.rankings = np.ascontiguousarray(order.T)
        self.ranks = [np.flatnonzero(column) for column in annotated.T]

    def labeled_share(self, weight: Floats, anchors: float = ANCHORS) -> float:
        """Mean over the annotated labels of the share of their class's anchors that is annotated with it."""
        share, total = np.zeros(len(self.ranks)), np.zeros(len(self.ranks))
        for column, (ranking, ranks) in enumerate(zip(self.rankings, self.ranks, strict=True)):
            annotated = np.cumsum(weight[ranking[ranks]])
            if not len(annotated) or not annotated[-1]:
                continue
            total[column] = annotated[-1]
            wanted = max(anchors * annotated[-1], min(FEWEST_ANCHORS, annotated[-1]))
            last = int((annotated >= wanted - 1e-9).argmax())
            share[column] = annotated[last] / weight[ranking[: ranks[last] + 1]].sum()
        return float((share * total).sum() / total.sum())


def cross_fitted_scores(features: Tensor, labels: Tensor, seed: int) -> Tensor:
    """(N, L) Linear least-squares scores of the labels, each row by a model of the other folds."""
    count, width = features.shape
    if count < 2 * FOLDS:
        raise DataError(
            f"{count} labeled images are too few for {FOLDS} folds", f"label at least {2 * FOLDS}", COUNT
        )
    inputs = (features - features.mean(0)) / features.std(0).clamp(min=1e-6)
    fold = torch.from_numpy(np.random.default_rng(seed).permutation(count) % FOLDS)
    gram, cross, total = inputs.T @ inputs, inputs.T @ labels, labels.sum(0)
    penalty = PENALTY * torch.eye(width, dtype=inputs.dtype)
    scores = torch.empty_like(labels)
    for number in range(FOLDS):
        out = fold == number
        held, held_labels, rest = inputs[out], labels[out], int((~out).sum())
        mean, rate = -held.sum(0) / rest, (total - held_labels.sum(0)) / rest
        inside = (gram - held.T @ held) / rest - torch.outer(mean, mean)
        response = (cross - held.T @ held_labels) / rest - torch.outer(mean, rate)
        scores[out] = (held - mean) @ torch.linalg.solve(inside + penalty, response) + rate
    return scores


def _deviation(repeats: Floats) -> Floats:
    """Half the width of the middle 68 %: a standard deviation that a few wild repeats do not move."""
    low, high = np.quantile(repeats, (0.16, 0.84), axis=0)
    half: Floats = (high - low) / 2
    return half
