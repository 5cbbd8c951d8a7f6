"""The expected number of images of each class, and how its labels were chosen: for calibration.

Four situations, class by class:

- ``full``: every image is labeled.
- ``answered``: some images are unknown, but of those that are labeled at least as many are negative as
  positive: they are taken for a random sample, and the others are left out.
- ``sparse``: (nearly) only positives are annotated. Their true number comes from the run (expected positives
of training, or K), or else from maximum likelihood. - ``reviewed``: sparse, but a reviewer answered questions
about images of all scores. Their number comes from the curve through these answers.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.metrics.calibration import Annotating, Floats, Mask, calibrate, likelihood

Situation = Literal["full", "answered", "sparse", "reviewed"]
Source = Literal["counted", "estimated", "given", "likelihood"]
FEWEST_ANSWERS = 10
"""Negatives from which on answers may count as a random sample, and reviewers' answers that make a curve."""
ROUNDS = 8  # iterations of curve and number of positives
PSEUDO = 2.0
"""Weight of training's share of a class, in positives of validation."""
RATIOS = (1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0)
"""Range of K, in annotated labels per image, if it is unknown."""
MOST = 0.98  # of the images: a class in all of them needs no threshold


@dataclass(frozen=True)
class PrevalenceSource:
    """What a run knows: expected positives per class in its training images, or their sum per image.

    ``interval`` are the factors of the lowest and the highest likely values.
    """

    source: Source
    trusted: bool
    shares: Floats | None = None
    per_image: float | None = None
    interval: tuple[float, float] | None = None

    def times(self, factor: float) -> "PrevalenceSource":
        """The same with more or fewer positives of every class."""
        return replace(self, shares=None if self.shares is None else factor * self.shares, interval=None)


@dataclass(frozen=True, eq=False)
class Prevalence:
    """Of each class (L,): expected share of images, how labels came about, and the situation.

    ``source`` says where the numbers of sparse classes come from; ``trusted`` whether to rely on it.
    """

    shares: Floats
    annotating: Annotating
    situations: list[Situation]
    source: Source
    trusted: bool


def estimate_prevalence(
    logits: Floats,
    labels: Labels,
    annotated: npt.NDArray[np.int64],
    expected: PrevalenceSource | None,
    answered: Mask | None = None,
) -> Prevalence:
    """From validation's logits and labels (N, L), and how often training has each class annotated (L,).

    ``answered`` (N, L) are a reviewer's answers to questions that were chosen by score.
    """
    all_labels, full = labels, (labels != UNKNOWN).all(axis=0)
    if answered is not None:
        labels = np.where(answered & ~full, UNKNOWN, labels)
    positive, negative = (np.count_nonzero(labels == value, axis=0) for value in (POSITIVE, NEGATIVE))
    situations = [_situation(len(labels), *pair) for pair in zip(positive, negative, strict=True)]
    sparse = np.array([name == "sparse" for name in situations])
    answers = np.maximum(positive + negative, 1)
    every = annotated + positive + 0.5
    share = every / every.sum()  # of all annotations
    random = positive[~sparse].sum() / max(
        float((answers * share)[~sparse].sum()), 1e-9
    )  # K by random answers
    prior = np.clip(random * share, 1e-6, MOST)
    prevalence = np.where(sparse, 0.0, (positive + PSEUDO) / (answers + PSEUDO / prior))
    present, absent = (answers / len(labels) for _ in range(2))
    source: Source = "counted"
    trusted = True
    if sparse.any():
        shares, source, trusted = _sparse_shares(logits, labels, share, expected, sparse)
        prevalence = np.where(sparse, shares, prevalence)
        present, absent = (
            np.where(sparse, chance, other)
            for chance, other in zip(_chances(labels, prevalence), (present, absent), strict=True)
        )
    if answered is not None:
        reviewed = np.flatnonzero(sparse & (np.count_nonzero(answered, axis=0) >= FEWEST_ANSWERS))
        for column in reviewed.tolist():
            situations[column] = "reviewed"
        if len(reviewed):
            prevalence[reviewed], chances = _reviewed_shares(
                logits[:, reviewed],
                labels[:, reviewed],
                all_labels[:, reviewed],
                answered[:, reviewed],
                prevalence[reviewed],
            )
            present[reviewed], absent[reviewed] = chances.present, chances.absent
    return Prevalence(
        np.clip(prevalence, 1e-6, MOST), Annotating(present, absent), situations, source, trusted
    )


def _situation(images: int, positive: int, negative: int) -> Situation:
    if positive + negative == images:
        return "full"
    return "answered" if negative >= max(positive, FEWEST_ANSWERS) else "sparse"


def _reviewed_shares(
    logits: Floats, annotated: Labels, labels: Labels, answered: Mask, shares: Floats
) -> tuple[Floats, Annotating]:
    """(L,) Shares of images that the curve through annotations and answers gives, and how these came about.

    The curve depends on the number of unannotated positives and determines it, so both are iterated.
    """
    seen = np.count_nonzero(labels == POSITIVE, axis=0) / len(labels)
    for _ in range(ROUNDS):
        annotating = Annotating(*_chances(annotated, shares))
        line = calibrate(logits, labels, shares, annotating, answered)
        shares = np.clip(line(logits).mean(axis=0), np.maximum(seen, 1e-6), MOST)
    return shares, Annotating(*_chances(annotated, shares))


def _chances(labels: Labels, prevalence: Floats) -> tuple[Floats, Floats]:
    """The probabilities that a class is annotated if present and if absent, given its prevalence."""
    positive, negative = (np.count_nonzero(labels == value, axis=0) for value in (POSITIVE, NEGATIVE))
    count = len(labels)
    there = np.clip(prevalence * count, 1e-6, count - 1e-6)
    return np.minimum(positive / there, 0.999), np.minimum(negative / (count - there), 0.999)


def _sparse_shares(
    logits: Floats,
    labels: Labels,
    share: Floats,
    expected: PrevalenceSource | None,
    sparse: npt.NDArray[np.bool_],
) -> tuple[Floats, Source, bool]:
    """(L,) Expected shares of images, never below what is annotated."""
    seen = np.count_nonzero(labels == POSITIVE, axis=0) / len(labels)
    if expected is not None and expected.shares is not None:
        return np.clip(expected.shares, seen, MOST), expected.source, expected.trusted
    if expected is not None and expected.per_image is not None:
        return np.clip(expected.per_image * share, seen, MOST), expected.source, expected.trusted
    columns = np.flatnonzero(sparse)
    annotated_per_image = float(seen[columns].sum() / max(share[columns].sum(), 1e-9))
    some, some_labels = logits[:, columns], labels[:, columns]
    likelihoods: list[tuple[float, float]] = []
    for ratio in RATIOS:
        shares = np.clip(ratio * annotated_per_image * share, seen, MOST)[columns]
        annotating = Annotating(*_chances(some_labels, shares))
        line = calibrate(some, some_labels, shares, annotating)
        likelihoods.append((likelihood(line, some, some_labels, annotating), ratio))
        if likelihoods[-1][0] < max(likelihoods)[0] - 0.02:  # it has one peak
            break
    return np.clip(max(likelihoods)[1] * annotated_per_image * share, seen, MOST), "likelihood", False
