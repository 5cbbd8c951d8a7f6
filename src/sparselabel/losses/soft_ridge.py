"""Soft labels, and a linear head that is computed whole: the default on stored features (ours).

    features, labels ──▶ ridge regression ──▶ scores of images by models without them
                                                    │ how likely is an unknown label present?
    features, soft labels ◀─────────────────────────┘
        └──▶ ridge regression, logistic regression ──▶ the mean of their logits: the head

Least squares bends less to wrong negatives than cross-entropy, and has its leave-one-out scores for free.
Cross-entropy has the better head where images are many.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.losses.base import ComposedLoss, LinearWeights, Needs, TargetLoss, cross_entropy
from sparselabel.losses.expected_negatives import positives_of_classes
from sparselabel.losses.registry import register
from sparselabel.losses.setting_checks import Expected, checked_counts, refuse_too_many
from sparselabel.losses.step import Layout, Observed, count_labels, rows_at_once
from sparselabel.losses.target_rules import AssumedNegative
from sparselabel.models.classifier import SMALLEST_DEVIATION

PENALTIES = tuple(2.0**power for power in range(-1, 6))
"""In units of an image's mean squared feature norm."""
LIGHTER = 0.5
"""The second regression's penalty, as a part of the first's: its labels are less noisy."""
ANCHORS, FEWEST_ANCHORS = 0.4, 5
"""A class's ranking is read down to this share of its annotated images, and to so many at least."""
BELIEVED = 0.7
"""The part of the hidden positives that is counted on, of those that anchors or K tell: too many cost more
than too few, and features that do not tell classes apart make anchors tell too many."""
MOST_PRESENT = 0.9  # of a class's unknown labels
PENALTY = 0.25  # of the logistic regression, in the same units
ALIKE = 1_500
"""Images with which both heads count alike: least squares needs fewer, and gains less from more."""
LABELS_AT_ONCE = 2**25
FITTED_ON = 2**20  # labels that the chance of an unknown one is fitted on
ITERATIONS, MOST_STEPS = 50, 200
CONVERGED = 1e-5  # what a step gains at most, in cross-entropy of an image
FLATTEST, STEEPEST, FARTHEST = 0.1, 20.0, 6.0  # slope of a score's log odds; standard deviations
TINY = 1e-9
NEGLIGIBLE = 1e-6  # a direction's share of the largest variance: below it are errors of rounding

MOST_IMAGES = 100_000
"""So many images at most have ``soft`` as their default: it needs all features in RAM, some of them thrice.
It was measured with up to 65,665 (docs/results.md)."""
MOST_LABELS = 10_000_000  # images × classes: a million take about a second of the processor
SOLVED = "its head is computed and not trained"


def is_quickly_solved(images: int, classes: int) -> bool:
    """Whether a head of ``soft`` takes seconds, and features that fit: then it is the default."""
    return images <= MOST_IMAGES and images * classes <= MOST_LABELS


class SolvedOnFeatures(TargetLoss):
    """The loss of ``an``, of a head that is not trained with it: ``solve_head`` computes it from features."""

    needs = Needs(solves=True)

    def __init__(self, expected: Expected) -> None:
        super().__init__(AssumedNegative(), cross_entropy)
        self.expected = None if expected is None else checked_counts(expected)

    def prepare(self, layout: Layout) -> None:
        if self.expected is not None:
            refuse_too_many(self.expected, layout.observed.shape[1], layout.total)

    def solve_head(self, features: Tensor, observed: Observed) -> LinearWeights:
        return solve_head(features, observed, self.expected)


@register("soft", needs=Needs(solves=True), keeps_entry_loss=SOLVED, keeps_past=SOLVED)
def soft(expected_positives: Expected = None) -> ComposedLoss:
    """Soft labels: unknown is positive as far as models that did not see the image say so (ours).

    A linear head that is computed whole, from stored features, with no epochs and nothing to choose. Ridge
    regression on observed labels, unknown ones as 0, scores every image by the model without it; its
    penalty is that with the least error there. Where a class ranks highest, the share of its images that
    are annotated is the chance c that a positive is observed, unless ``expected_positives`` tell it. Of the
    hidden positives that follow, 70 % are counted on. At a score z the log odds of a class are a + b·z: a
    and b follow from c and the observed labels, and with them how likely an unknown label is present,
    (1−c)·p / (1−c·p). A second ridge regression, of half the penalty, learns these soft labels, with logits
    a + b·z of its scores, and so does a logistic regression. Of N images the head has the mean of both
    logits, that of the latter with weight N / (N + 1,500). In a training loop of your own, which goes by
    steps, it is ``an``.

    Parameters
    ----------
    expected_positives
        K, the mean number of classes in an image, or the number of images of every class; None for what
        scores tell. An estimate that is not to be trusted is left to calibration.
    """
    return ComposedLoss(SolvedOnFeatures(expected_positives))


@torch.no_grad()
def solve_head(features: Tensor, observed: Observed, expected_positives: Expected = None) -> LinearWeights:
    """The head of ``soft``, from features (N, D) that all vary about alike and labels (N, L)."""
    ridge = Ridge(features)
    told = None if expected_positives is None else _told(checked_counts(expected_positives), observed)
    classes, share = observed.shape[1], len(features) / (len(features) + ALIKE)
    block = max(1, LABELS_AT_ONCE // len(features))  # classes: their regressions are independent
    weight, bias = features.new_zeros(classes, features.shape[1]), features.new_zeros(classes)
    for start in range(0, classes, block):
        some = slice(start, start + block)
        labels = torch.cat(list(_columns(observed, some)))
        positive = (labels == POSITIVE).to(features.dtype)
        penalty = min(PENALTIES, key=lambda one: _error(ridge.fit(positive, one).scores, positive))
        scores = ridge.fit(positive, penalty).scores
        expected = _counted_on(_by_anchors(scores, labels) if told is None else told[some], labels)
        soft_labels = _odds(scores, labels, expected).soft_labels(scores, labels)
        fit = ridge.fit(soft_labels, LIGHTER * penalty)
        odds = _odds(fit.scores, labels, expected)
        slope = odds.slope / odds.deviation
        least_squares = slope * fit.coefficients, odds.offset + slope * (fit.mean - odds.mean)
        both = zip(least_squares, ridge.logistic(soft_labels, PENALTY), strict=True)
        coefficients, offset = (torch.lerp(one, other, share) for one, other in both)
        weight[some] = (ridge.vectors @ coefficients).T
        bias[some] = offset - weight[some] @ ridge.center
    return LinearWeights(weight, bias)


def _error(scores: Tensor, targets: Tensor) -> float:
    """The mean squared error of scores without each image (PRESS), as a part of the classes' variance."""
    variance = targets.var(0, correction=0)
    varies = variance > TINY
    error = (scores - targets).square().mean(0)
    return float((error[varies] / variance[varies]).mean()) if bool(varies.any()) else 0.0


class Fit(NamedTuple):
    """A regression: its coefficients (D, L), its targets' mean (L,), and scores (N, L) without each image."""

    coefficients: Tensor
    mean: Tensor
    scores: Tensor


class Ridge:
    """Regressions on the same features (N, D), of which the products are decomposed once."""

    def __init__(self, features: Tensor) -> None:
        self.center = features.mean(0)
        centered = features - self.center
        if len(features) < features.shape[1]:  # as many directions as images: the rest has nothing
            values, images = torch.linalg.eigh((centered @ centered.T).double())
            lengths = values.clamp(min=float(values[-1]) * NEGLIGIBLE).sqrt().clamp(min=TINY)
            vectors = centered.double().T @ (images / lengths)
        else:
            values, vectors = torch.linalg.eigh((centered.T @ centered).double())
        self.values, self.vectors = values.clamp(min=0).to(features), vectors.to(features)
        self.rotated = centered @ self.vectors
        self.unit = float(self.values.sum()) / len(features)

    def fit(self, targets: Tensor, penalty: float) -> Fit:
        """Least squares on targets (N, L), and what each would be said to be by a model without it."""
        mean, count = targets.mean(0), len(targets)
        shrunk = 1 / (self.values + max(penalty * self.unit, TINY))
        coefficients = shrunk[:, None] * (self.rotated.T @ (targets - mean))
        leverage = (self.rotated.square() @ shrunk + 1 / count).clamp(max=1 - 1e-4)[:, None]
        scores = torch.addmm(mean, self.rotated, coefficients).sub_(leverage * targets).div_(1 - leverage)
        return Fit(coefficients, mean, scores)

    def logistic(self, targets: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
        """Coefficients (D, L) and offsets (L,) of the logits with the least penalized cross-entropy.

        By Nesterov's accelerated gradients, which start anew where they go uphill. The features' products
        are diagonal here and a score's curvature is at most 1/4, so these steps never go too far.
        """
        count, least = len(targets), max(penalty * self.unit, TINY)
        steps = 1 / (self.values[:, None] / 4 + least), 4 / count
        offset = torch.logit((targets.sum(0) + 0.5) / (count + 1))
        now = targets.new_zeros(len(self.values), targets.shape[1]), offset
        ahead, age = now, torch.zeros_like(offset)
        for _ in range(MOST_STEPS):
            residual = torch.addmm(ahead[1], self.rotated, ahead[0]).sigmoid_().sub_(targets)
            slopes = torch.addmm(least * ahead[0], self.rotated.T, residual), residual.sum(0)
            moved = ahead[0] - steps[0] * slopes[0], ahead[1] - steps[1] * slopes[1]
            gained = (steps[0] * slopes[0].square()).sum(0) + steps[1] * slopes[1].square()
            way = moved[0] - now[0], moved[1] - now[1]
            uphill = (slopes[0] * way[0]).sum(0) + slopes[1] * way[1] > 0
            age = torch.where(uphill, 0.0, age + 1)
            momentum = (age - 1).clamp(min=0) / (age + 2)
            now, ahead = moved, (moved[0] + momentum * way[0], moved[1] + momentum * way[1])
            if float(gained.max()) < CONVERGED * count:
                break
        return now


class Odds(NamedTuple):
    """The log odds of a class at a score: offset (L,) + slope · (score − mean) / deviation."""

    mean: Tensor
    deviation: Tensor
    offset: Tensor
    slope: Tensor
    observed_share: Tensor

    def present(self, scores: Tensor) -> Tensor:
        """(N, L) How likely the class is there, whatever was observed."""
        z = ((scores - self.mean) / self.deviation).clamp(-FARTHEST, FARTHEST)
        return torch.sigmoid(self.offset + self.slope * z)

    def soft_labels(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(N, L) How likely it is there, given what was observed."""
        share = self.observed_share
        present = self.present(scores)
        unknown = (1 - share) * present / (1 - share * present)
        return torch.where(labels == UNKNOWN, unknown, (labels == POSITIVE).to(scores))


def _told(expected: float | tuple[float, ...], observed: Observed) -> Tensor:
    """(L,) How many images have each class, by K or by a number for each class."""
    positives, negatives = (count_labels(observed, one) for one in (POSITIVE, NEGATIVE))
    return positives_of_classes(expected, positives, negatives, len(observed))


def _counted_on(expected: Tensor, labels: Tensor) -> Tensor:
    """(L,) How many images have each class, if not all of the hidden ones are believed in."""
    counts, unknown = ((labels == one).sum(0) for one in (POSITIVE, UNKNOWN))
    return counts + torch.minimum(BELIEVED * (expected - counts), MOST_PRESENT * unknown)


def _by_anchors(scores: Tensor, labels: Tensor) -> Tensor:
    """(L,) How many images have each class, by the share of its highest scores that is annotated.

    One share for all classes: few have enough labels for a share of their own. Images that are known not to
    have the class are no evidence.
    """
    counts = (labels == POSITIVE).sum(0)
    wanted = torch.maximum((ANCHORS * counts).ceil(), counts.clamp(max=FEWEST_ANCHORS)).clamp(min=1)
    order = scores.masked_fill(labels == NEGATIVE, -math.inf).argsort(0, descending=True)
    annotated = (labels == POSITIVE).gather(0, order).cumsum(0)
    depth = (annotated < wanted).sum(0) + 1
    share = float((counts * wanted / depth).sum() / counts.sum().clamp(min=1))
    return counts / max(share, TINY)


def _odds(scores: Tensor, labels: Tensor, expected: Tensor) -> Odds:
    """The log odds by which the annotations are likeliest, with as many positives as are expected.

    Newton's method on the labels expected of the unknown ones (expectation-maximization); one slope for all
    classes.
    """
    count = len(scores)
    step = -(-scores.numel() // FITTED_ON)  # rows
    some, known = scores[::step], labels[::step]
    expected = expected * len(some) / count
    counts = (known == POSITIVE).sum(0)
    deviation, mean = torch.std_mean(some, dim=0, correction=0)
    deviation = deviation.clamp(min=SMALLEST_DEVIATION)
    share = (counts / expected.clamp(min=1)).clamp(max=1)
    offset = torch.logit(((expected + 0.5) / (len(some) + 1)).clamp(max=0.99))
    odds = Odds(mean, deviation, offset, torch.ones_like(offset[0]), share)
    z = ((some - mean) / deviation).clamp(-FARTHEST, FARTHEST)
    for _ in range(ITERATIONS):
        present = odds.present(some)
        residual = odds.soft_labels(some, known) - present
        curve = present * (1 - present) + TINY
        centered = z - (curve * z).sum(0) / curve.sum(0)
        step_of_slope = (residual * centered).sum() / ((curve * centered.square()).sum() + TINY)
        slope = (odds.slope + step_of_slope.clamp(-1, 1)).clamp(FLATTEST, STEEPEST)
        odds = odds._replace(slope=slope)
        present = odds.present(some)
        step_of_offset = (expected - present.sum(0)) / ((present * (1 - present)).sum(0) + TINY)
        odds = odds._replace(offset=(odds.offset + step_of_offset.clamp(-2, 2)).clamp(-30, 30))
    return odds


def _columns(observed: Observed, some: slice) -> Iterator[Tensor]:
    """The labels of some classes, a few rows at a time."""
    size = rows_at_once(observed.shape[1])
    for start in range(0, len(observed), size):
        yield observed[start : start + size][:, some]
