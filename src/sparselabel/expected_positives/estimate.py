"""K without an oracle: how many positives each class has, from observed labels and, if needed, features.

- Labels answer random questions: the share of yes is all it takes (``from_answers``).
- Labels were kept at random, so that some images have several and some none: the numbers of labels per image
  tell the share that was kept (``kept_share``).
- (Nearly) every image has a label: cross-fitted linear `an` scores, read where classes are certain
  (``anchors``). How the labels were chosen cannot be seen, so this is never trusted.

docs/expected-positives.md says what each assumes, and where it fails.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels, labels_of
from sparselabel.errors import DataError, command, param
from sparselabel.expected_positives.anchors import SEVERAL, SINGLE, Anchors
from sparselabel.expected_positives.class_counts import (
    SPREAD,
    ClassCounts,
    Floats,
    annotated_positives,
    bounded,
    shared_out,
)
from sparselabel.expected_positives.from_answers import from_answers, random_answers

FOLDS = 5
PENALTY = 1.0
"""Of the least-squares `an` models, on standardized features."""
REPEATS = 50
MOST_IMAGES = 10_000

FEWEST_IMAGES = 300
WEAKEST_SCORES, USELESS_SCORES = 0.75, 0.6
GUESS, MOST_HIDDEN = 1.0, 4.3
"""Hidden positives per label where scores are useless, and the most that any fitted label set has."""
MOST_UNLABELED = 0.1
MOSTLY_SINGLE = 0.95
"""Share of the labeled images with exactly one label from which the others count as strays."""
NEARLY_ALL_KEPT = 0.9
REFUTED = 2.5
"""Standard errors from which a share of kept labels is ruled out."""
WIDEST = 2.0
"""Largest K − 1 of an interval over its smallest that is still trusted."""
OTHER_FEATURES = "try another backbone or other weights"
COUNT = f"count positives in some images ({command('expect', how='counted')})"
EMPTY_IMAGES = "it assumes that every image has a class"
CHOICE = "the labels do not tell how they were chosen, so K cannot be known from them"


def needs_features(observed: Labels) -> bool:
    """Whether labels alone are not enough: (nearly) every image has one, and they are no answers."""
    return (
        bool((observed == UNKNOWN).any())
        and random_answers(observed) is None
        and not _kept_at_random(observed)
    )


def _kept_at_random(observed: Labels) -> bool:
    """Whether numbers of labels per image look like those of labels that were kept with one chance."""
    numbers = (observed == POSITIVE).sum(1)
    return (
        not _mostly_single(observed) and kept_share(numbers).share <= NEARLY_ALL_KEPT and numbers.min() == 0
    )


def _mostly_single(observed: Labels) -> bool:
    numbers = (observed == POSITIVE).sum(1)
    return bool((numbers == 1).sum() >= MOSTLY_SINGLE * (numbers > 0).sum())


def estimate_expected_positives(
    features: object, labels: object, *, classes: Sequence[str] | None = None, seed: int = 0
) -> ClassCounts:
    """K, the mean number of classes in an image, and the expected positives of every class.

    Counted where all labels are known, else estimated. ``per_image`` of what it returns is K, ``interval``
    its bounds, ``expected`` the number of images of every class; ``trusted`` says whether to rely on it, and
    ``why``.

    Parameters
    ----------
    features
        (N, D) of the images, as an array or a tensor. None will do where labels alone are enough: where some
        images have several positives and others none, or labels answer random questions.
    labels
        (N, L) with 1, 0, and -1 or NaN for unknown, in all the forms that ``SparseLoss`` takes.
    classes
        Their names; a DataFrame and a ``LabelTable`` have them, and else they are numbers.
    seed
        Of folds and of repeats.
    """
    observed = labels_of(labels)
    names = class_names(labels, observed.shape[1]) if classes is None else tuple(classes)
    if len(names) != observed.shape[1]:
        raise DataError(
            f"{observed.shape[1]:,} classes need as many names, not {len(names):,}",
            f"leave {param('classes')} out",
            what="classes",
            value=len(names),
        )
    given = features.detach().float().cpu() if isinstance(features, Tensor) else features
    inputs = None if given is None else np.asarray(given, dtype=np.float32)
    return estimate_positives(inputs, observed, names, seed)


def class_names(labels: object, count: int) -> tuple[str, ...]:
    """The names that labels come with, or numbers."""
    names = getattr(labels, "classes", getattr(labels, "columns", None))
    return tuple(str(name) for name in (range(count) if names is None else names))


def estimate_positives(
    features: npt.NDArray[np.float32] | None, observed: Labels, classes: tuple[str, ...], seed: int = 0
) -> ClassCounts:
    """Expected positives of every class, from observed labels (N, L) and, if needed, features (N, D)."""
    if features is not None and (features.ndim != 2 or len(features) != len(observed)):
        problem = f"{len(observed):,} images need features of shape (N, D), not {features.shape}"
        raise DataError(problem, what="features", value=features.shape, allowed=(len(observed), "D"))
    annotated = annotated_positives(observed)
    answers = random_answers(observed)
    if answers is not None:
        return from_answers(answers, observed, classes)
    if not (observed == UNKNOWN).any():
        known = annotated.astype(np.float64)
        k = float(known.sum() / len(observed))
        return ClassCounts(
            "auto",
            classes,
            len(observed),
            annotated,
            known,
            known,
            known,
            (k, k),
            True,
            "all labels are known",
        )
    if _kept_at_random(observed):
        return _from_numbers(observed, annotated, classes)
    if features is None:
        raise DataError(
            "where every image has a label, expected positives need the images' features",
            COUNT,
            what="features",
        )
    return _from_anchors(features, observed, annotated, classes, seed)


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


def _from_anchors(
    features: npt.NDArray[np.float32],
    observed: Labels,
    annotated: npt.NDArray[np.int64],
    classes: tuple[str, ...],
    seed: int,
) -> ClassCounts:
    """(Nearly) every image has a label: how many more it seems to have, by cross-fitted scores."""
    numbers = (observed == POSITIVE).sum(1)
    rows, known = np.flatnonzero(numbers), np.flatnonzero(annotated)
    labeled, images = len(rows), len(observed)
    if len(known) < 2:
        raise DataError("1 annotated class is too few to estimate positives from (2 at least)", COUNT)
    random = np.random.default_rng(seed)
    if labeled > MOST_IMAGES:
        rows = np.sort(random.choice(rows, MOST_IMAGES, replace=False))
    positives = observed[rows][:, known] == POSITIVE
    used = np.asarray(features[rows], dtype=np.float32)
    _refuse_useless(used, rows)
    scores = cross_fitted_scores(torch.from_numpy(used), torch.from_numpy(positives).float(), seed).numpy()
    anchors, link = Anchors(scores, positives), SINGLE if _mostly_single(observed) else SEVERAL
    hidden = min(link.hidden(anchors.labeled_share(np.ones(len(rows)))), MOST_HIDDEN)
    auc = _mean_auc(scores, positives)
    if auc < USELESS_SCORES:
        hidden = GUESS
    draws = [
        np.bincount(random.integers(0, len(rows), len(rows)), minlength=len(rows)) for _ in range(REPEATS)
    ]
    repeats = np.array([link.hidden(anchors.labeled_share(draw.astype(np.float64))) for draw in draws])
    chance = SPREAD * float(_deviation(np.log(repeats)))
    most, seen = images - (observed == NEGATIVE).sum(0), annotated.astype(np.float64)

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
    if auc < WEAKEST_SCORES:
        doubts.append(f"the features hardly tell the classes apart (mean AUC {auc:.2f})")
    low, high = (hidden * math.exp(end) for end in link.interval(chance, link.chosen))
    fewest, largest = (hidden * math.exp(end) for end in link.interval(chance, link.of_class))
    return ClassCounts(
        "auto", classes, images, annotated, positives_of(hidden),
        bounded((1 + fewest) * seen, observed), bounded((1 + largest) * seen, observed),
        (k(low), k(high)), False, "; ".join(doubts),
    )  # fmt: skip


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
    rank = scores.argsort(0).argsort(0) + 1
    seen = positives.sum(0)
    area = ((rank * positives).sum(0) - seen * (seen + 1) / 2) / np.maximum(seen * (len(scores) - seen), 1)
    return float(area[seen < len(scores)].mean())


def _from_numbers(
    observed: Labels, annotated: npt.NDArray[np.int64], classes: tuple[str, ...]
) -> ClassCounts:
    """Each positive kept with the same chance: that chance from the numbers of labels per image."""
    numbers = (observed == POSITIVE).sum(1)
    kept, images, fewest = kept_share(numbers), len(observed), annotated.sum() / len(observed)
    expected = bounded(annotated / kept.share, observed)
    chance = SPREAD * np.sqrt(annotated)
    low, high = (min(fewest / share, observed.shape[1]) for share in (kept.high, kept.low))
    doubts = []
    if (observed == NEGATIVE).any():
        doubts.append("labels say no, too, but do not look like answers to random questions")
    if not kept.explains:
        doubts.append("no share of kept labels explains how many images have none, one and more labels")
    if high - 1 > WIDEST * (low - 1):
        doubts.append("the numbers of labels per image fit other shares of kept labels nearly as well")
    k = float(expected.sum() / images)
    return ClassCounts(
        "auto", classes, images, annotated, expected,
        bounded((annotated - chance) / kept.high, observed),
        bounded((annotated + chance) / kept.low, observed),
        (min(low, k), max(high, k)), not doubts,
        "; ".join([*(doubts or ["nothing speaks against it"]), EMPTY_IMAGES]),
    )  # fmt: skip


@dataclass(frozen=True)
class KeptShare:
    """The chance with which positives were kept, the range that is not ruled out, and whether any fits."""

    share: float
    low: float
    high: float
    explains: bool


def kept_share(numbers: npt.NDArray[np.int64]) -> KeptShare:
    """The chance c with which positives were kept, from the number of kept ones per image.

    If y positives are kept with chance c each, E[(1 − 1/c)^kept] = E[0^y], which is 0 where every image has
    at least one class. The largest root is c; where there is none, the share that comes nearest. Around it
    are the shares at which the mean differs from 0 by less than ``REFUTED`` standard errors. A bootstrap is
    too narrow where all images have two classes or more: 0 is then touched, not crossed.
    """
    images = np.bincount(numbers)
    shares = np.linspace(0.02, 1, 981)
    powers = (1 - 1 / shares[:, None]) ** np.arange(len(images))
    value = powers @ images / np.sqrt(powers**2 @ images + 1e-12)  # in standard errors
    crossings = np.flatnonzero((value[:-1] < 0) != (value[1:] < 0))
    if len(crossings):
        at = int(crossings[-1])
        step = value[at] / (value[at] - value[at + 1])
        share = float(shares[at] + step * (shares[at + 1] - shares[at]))
    else:
        at = int(np.abs(value).argmin())
        share = float(shares[at])
    refuted = np.flatnonzero(np.abs(value) >= REFUTED)
    low = refuted[refuted < at].max(initial=-1) + 1
    high = refuted[refuted > at].min(initial=len(shares)) - 1
    return KeptShare(
        share, min(float(shares[low]), share), max(float(shares[high]), share), bool(len(crossings))
    )


def _deviation(repeats: Floats) -> Floats:
    """Half the width of the middle 68 %: a standard deviation that a few wild repeats do not move."""
    low, high = np.quantile(repeats, (0.16, 0.84), axis=0)
    half: Floats = (high - low) / 2
    return half
