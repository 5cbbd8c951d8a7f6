"""Another model's scores as soft evidence for unknown labels.

A score z, standardized by image and by class, is evidence for a class by log P(z | present) / P(z | absent).
Its weight is estimated from the observed labels: z should rank observed positives above unknown labels. With
c_j, the share of class j's positives that are observed,

    P(observed | z) = c_j · σ(a_j + w_j · z)

and a_j and w_j maximize the likelihood of what was observed. So random scores get w = 0. Weights of classes
shrink towards their mean, the more so the less they differ beyond chance. The method is ours; shrinkage of
class weights follows DerSimonian and Laird (1986).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import ConfigError, DataError, command, param
from sparselabel.losses.base import LossPart
from sparselabel.losses.step import Layout, rows_at_once

Scores = str | Tensor | npt.NDArray[Any] | None
"""(N, L) Scores of the training set, on any scale; NaN where there is none."""

FARTHEST = 5.0
"""Standard deviations from the mean at which scores are clipped."""
CHANCE = 2.0
"""A weight within so many standard errors of 0 is set to 0."""
BINS = 100
ITERATIONS, CONVERGED = 300, 1e-4
TINY = 1e-12
SMALLEST = 1e-6  # a standard deviation, below which scores are taken as constant


def prior_of(scores: Scores) -> "ScorePrior | None":
    """The prior of a method's setting."""
    if isinstance(scores, str):
        raise ConfigError(
            f"scores must be numbers (N, L), not {scores!r}: a file, or text:MODEL, is for "
            f"{command('train')}, which reads or computes them before",
            what="scores",
            value=scores,
        )
    return None if scores is None else ScorePrior(scores)


class Fit(NamedTuple):
    """Offsets a and weights w (L,), the likelihood, and how often a positive is above an unknown label."""

    offset: Tensor
    weight: Tensor
    likelihood: float
    auc: float


class ScorePrior(LossPart):
    """Evidence about labels from another model's scores (N, L): ``prior(rows)`` are log odds to add.

    Each image's scores are standardized over the classes, then each class's over the images; or only the
    latter, if that explains the observed labels better.
    """

    side_by_side = True
    weight: Tensor
    offset: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, scores: Tensor | npt.NDArray[Any]) -> None:
        super().__init__()
        given = scores if isinstance(scores, Tensor) else torch.from_numpy(np.asarray(scores))
        if given.ndim != 2 or given.is_complex() or given.dtype == torch.bool:
            raise DataError(
                f"scores must be numbers (N, L), not {tuple(given.shape)} in {given.dtype}",
                f"take {param('scores')} with a row for each training image and a column for each class",
                what="scores",
            )
        if given.is_floating_point() and bool(given.isnan().all()):
            raise DataError(
                "no score of the training images is a number",
                "give numbers (NaN is for images without a score)",
                what="scores",
            )
        self.scores = given.detach().cpu()
        self.auc = 0.5

    def fit(self, layout: Layout, positives: Tensor) -> None:
        """Find the weights, where class j is in ``positives`` (L,) of the images."""
        shape = layout.total, layout.observed.shape[1]
        if tuple(self.scores.shape) != shape:
            raise DataError(
                f"scores must be {shape}, a row for each image and a column for each class of the labels, "
                f"not {tuple(self.scores.shape)}",
                f"take {param('scores')} of the training set",
                what="scores",
                value=tuple(self.scores.shape),
                allowed=shape,
            )
        ways = [self._standardize(layout, positives, by_image) for by_image in (False, True)[: shape[1]]]
        fit, self.by_image, mean, deviation = max(ways, key=lambda way: way[0].likelihood)
        share = (positives / layout.total).clamp(1e-9, 1 - 1e-9)
        observed = all_reduce_sum(layout.counts(POSITIVE))
        known = (positives > 0) & (observed > 0) & (deviation > SMALLEST)
        self._set(
            mean=mean,
            deviation=deviation,
            weight=torch.where(known, fit.weight, 0.0),
            offset=torch.where(known & (fit.weight > 0), fit.offset - torch.logit(share), 0.0),
        )
        self.auc = fit.auc

    def forward(self, rows: Tensor) -> Tensor:
        """(B, L) float32 on the CPU: log P(score | present) / P(score | absent), 0 without a score."""
        z = self._standardized(rows.cpu().clamp(min=0))
        return torch.where(z.isnan(), 0.0, self.offset.cpu() + self.weight.cpu() * z).float()

    @property
    def summary(self) -> str:
        """A sentence on how good the scores are."""
        used = int((self.weight > 0).sum())
        ranking = f"an observed positive is above an unknown label in {100 * self.auc:.0f} % of pairs"
        if not used:
            return f"{ranking}, which may be chance: they are not used"
        return f"{ranking}; they count for {used:,} of the {len(self.weight):,} classes"

    def _standardize(
        self, layout: Layout, positives: Tensor, by_image: bool
    ) -> tuple[Fit, bool, Tensor, Tensor]:
        self.by_image = by_image
        mean, deviation = self._moments(layout)
        self._set(mean=mean, deviation=deviation)
        return _fit(self._tables(layout), positives), by_image, mean, deviation

    def _set(self, **buffers: Tensor) -> None:
        for name, value in buffers.items():
            self.register_buffer(name, value, persistent=False)

    def _of_rows(self, rows: Tensor) -> Tensor:
        values = self.scores[rows].double()
        if not self.by_image:
            return values
        mean = values.nanmean(-1, keepdim=True)
        deviation = (values - mean).square().nanmean(-1, keepdim=True).sqrt()
        return torch.where(
            deviation > SMALLEST, (values - mean) / deviation.clamp(min=SMALLEST), 0.0 * values
        )

    def _standardized(self, rows: Tensor) -> Tensor:
        """(..., L) float64."""
        deviation = self.deviation.cpu()
        z = (self._of_rows(rows) - self.mean.cpu()) / deviation.clamp(min=SMALLEST)
        return z.clamp(-FARTHEST, FARTHEST)

    def _chunks(self, layout: Layout) -> Iterator[slice]:
        size = rows_at_once(layout.observed.shape[1])
        for start in range(0, len(layout.rows), size):
            yield slice(start, start + size)

    def _moments(self, layout: Layout) -> tuple[Tensor, Tensor]:
        """(L,) Mean and standard deviation of every class, over all processes."""
        sums = torch.zeros(3, layout.observed.shape[1], dtype=torch.float64)
        shift = self._of_rows(torch.zeros(1, dtype=torch.int64)).nan_to_num()[0]  # for precision
        for some in self._chunks(layout):
            values = self._of_rows(layout.rows[some]) - shift
            sums[0] += (~values.isnan()).sum(0)
            sums[1] += values.nansum(0)
            sums[2] += values.square().nansum(0)
        count, first, second = all_reduce_sum(sums)
        mean = first / count.clamp(min=1)
        return mean + shift, (second / count.clamp(min=1) - mean.square()).clamp(min=0).sqrt()

    def _tables(self, layout: Layout) -> Tensor:
        """(3, L, BINS) How many positive, negative and unknown labels have which score, in all processes."""
        classes = layout.observed.shape[1]
        tables = torch.zeros(3 * classes * BINS, dtype=torch.float64)
        for some in self._chunks(layout):
            z, observed = self._standardized(layout.rows[some]), layout.observed[some]
            given = ~z.isnan()
            bins = ((z + FARTHEST) * (BINS / (2 * FARTHEST))).nan_to_num().long().clamp(max=BINS - 1)
            kind = (observed == NEGATIVE) * 1 + (observed == UNKNOWN) * 2
            index = (kind * classes + torch.arange(classes)) * BINS + bins
            tables += torch.bincount(index[given], minlength=len(tables))
        return all_reduce_sum(tables).view(3, classes, BINS)


def _fit(tables: Tensor, positives: Tensor) -> Fit:
    """Offsets and weights by expectation-maximization on counts (3, L, BINS)."""
    present, absent, unknown = tables
    observed, total = present.sum(1), tables.sum(0)
    known = observed > 0
    share = torch.where(known, observed / positives.clamp(min=1), 1.0).clamp(max=1)[:, None]
    # Half an image more at every score: perfect scores would get an infinite weight.
    anywhere = total / (2 * total.sum(1, keepdim=True).clamp(min=1))
    present, total = present + anywhere, total + anywhere
    z = (torch.arange(BINS, dtype=torch.float64) + 0.5) * (2 * FARTHEST / BINS) - FARTHEST
    offset = torch.logit(((positives + 0.5) / (total.sum(1) + 1)).clamp(1e-6, 1 - 1e-6))
    weight = torch.zeros_like(offset)

    def scores() -> Tensor:
        return torch.sigmoid(offset[:, None] + weight[:, None] * z)

    def information(f: Tensor) -> tuple[Tensor, Tensor]:
        """(L, BINS), (L,) Scores from their mean, and what is known of a class's weight where f is true."""
        chance = share * f
        about = (present + unknown) * chance * (1 - f).square() / (1 - chance) + absent * f * (1 - f)
        centered = z - ((about * z).sum(1) / about.sum(1).clamp(min=TINY))[:, None]
        return centered, torch.where(known, (about * centered.square()).sum(1), 0.0)

    def improve(step_of_weight: bool) -> bool:
        """A step of Newton's method on the expected values of unknown labels; returns whether it moved."""
        nonlocal offset, weight
        f = scores()
        expected = present + unknown * (1 - share) * f / (1 - share * f)
        residual, curve = expected - total * f, total * f * (1 - f) + TINY
        mean = (curve * z).sum(1) / curve.sum(1)
        gradient = (residual * (z - mean[:, None])).sum(1)[known].sum()
        curvature = (curve * (z - mean[:, None]).square()).sum(1)[known].sum().clamp(min=TINY)
        step = (gradient / curvature).clamp(-1, 1) if step_of_weight else torch.zeros_like(gradient)
        before = offset
        offset = (offset + (residual.sum(1) / curve.sum(1) - step * mean).clamp(-2, 2)).clamp(-30, 30)
        weight = weight + step
        return bool(torch.maximum((offset - before).abs().max(), step.abs()) > CONVERGED)

    _, by_chance = information(scores())
    for _ in range(ITERATIONS):
        if not improve(step_of_weight=True):
            break
    f = scores()
    centered, known_of = information(f)
    slope = present * (1 - f) - unknown * share * f * (1 - f) / (1 - share * f) - absent * f
    difference = torch.where(known, (slope * centered).sum(1) / known_of.clamp(min=TINY), 0.0)
    variance = _variance_between(difference, known_of)
    weight = weight + difference * variance * known_of / (1 + variance * known_of)
    deviation = (1 / by_chance.sum().clamp(min=TINY) + variance / (1 + variance * by_chance)).sqrt()
    weight = torch.where(known & (weight > CHANCE * deviation), weight, 0.0)
    for _ in range(ITERATIONS):
        if not improve(step_of_weight=False):
            break
    f = scores()
    terms = present * f.log() + unknown * (1 - share * f).log() + absent * (1 - f).log()
    below = unknown.cumsum(1) - unknown / 2
    auc = (tables[0] * below).sum(1) / (observed * unknown.sum(1)).clamp(min=1)
    return Fit(
        offset,
        weight,
        float(terms[known].sum()),
        float((auc * observed).sum() / observed.sum().clamp(min=1)) if bool(known.any()) else 0.5,
    )


def _variance_between(difference: Tensor, information: Tensor) -> Tensor:
    """Variance of the classes' weights beyond chance (DerSimonian & Laird 1986)."""
    total = information.sum().clamp(min=TINY)
    mean = (information * difference).sum() / total
    spread = (information * (difference - mean).square()).sum() - ((information > 0).sum() - 1)
    return (spread / (total - information.square().sum() / total).clamp(min=TINY)).clamp(min=0)
