"""Estimate K and the positives of every class from observed labels and, if needed, features.

- Labels answer random questions: the share of yes is all it takes (``from_answers``).
- Labels were kept at random, so that some images have several and some none: the numbers of labels per image
  tell the share that was kept (``kept_share``).
- (Nearly) every image has a label: cross-fitted linear `an` scores, read where classes are certain
  (``from_features``). The choice of labels cannot be verified, so this is never trusted.
  docs/expected-positives.md explains what each way assumes, and where it fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sparselabel.data.label_conversion import label_matrix_of
from sparselabel.data.labels import NEGATIVE, UNKNOWN, LabelMatrix, count_per_image, has_value
from sparselabel.errors import DataError, param
from sparselabel.expected_positives.class_counts import SPREAD, ClassCounts, annotated_positives, bounded
from sparselabel.expected_positives.from_answers import from_answers, random_answers
from sparselabel.expected_positives.from_features import (
    COUNT,
    SEVERAL,
    SINGLE,
    from_features,
    images_to_score,
)

MOSTLY_SINGLE = 0.95
"""Share of the labeled images with exactly one label from which the others count as strays."""
NEARLY_ALL_KEPT = 0.9
REFUTED = 2.5
"""Standard errors from which a share of kept labels is ruled out."""
WIDEST = 2.0
"""Largest K − 1 of an interval over its smallest that is still trusted."""
EMPTY_IMAGES = "it assumes that every image has a class"


def needs_features(observed: LabelMatrix) -> bool:
    """Whether labels alone are not enough: (nearly) every image has one, and they are no answers."""
    return has_value(observed, UNKNOWN) and random_answers(observed) is None and not _kept_at_random(observed)


def _kept_at_random(observed: LabelMatrix) -> bool:
    """Whether numbers of labels per image look like those of labels that were kept with one chance."""
    numbers = count_per_image(observed)
    return (
        not _mostly_single(observed) and kept_share(numbers).share <= NEARLY_ALL_KEPT and numbers.min() == 0
    )


def _mostly_single(observed: LabelMatrix) -> bool:
    numbers = count_per_image(observed)
    return bool((numbers == 1).sum() >= MOSTLY_SINGLE * (numbers > 0).sum())


def estimate_expected_positives(
    features: object, labels: object, *, classes: Sequence[str] | None = None, seed: int = 0
) -> ClassCounts:
    """K, the mean number of classes in an image, and the expected positives of every class.

    Counted where all labels are known, else estimated. ``per_image`` of what it returns is K, ``interval``
    its bounds, ``expected`` the number of images of every class; ``trusted`` says whether it is reliable, and
    ``why``.

    Parameters
    ----------
    features
        (N, D) of the images, as an array or a tensor. None if labels alone are enough: if some images have
        several positives and others none, or labels answer random questions.
    labels
        (N, L) with 1, 0, and -1 or NaN for unknown, in all the forms that ``SparseLoss`` takes.
    classes
        Their names; a DataFrame and a ``LabelTable`` have them, and else they are numbers.
    seed
        Of folds and of repeats.
    """
    observed = label_matrix_of(labels)
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
    features: npt.NDArray[np.float32] | None, observed: LabelMatrix, classes: tuple[str, ...], seed: int = 0
) -> ClassCounts:
    """Expected positives of every class, from observed labels (N, L) and, if needed, features (N, D).

    Features of ``images_to_score`` alone will do.
    """
    lengths = {len(observed)}
    if features is not None and len(features) != len(observed):
        lengths.add(len(images_to_score(observed, seed)))
    if features is not None and (features.ndim != 2 or len(features) not in lengths):
        problem = f"{len(observed):,} images need features of shape (N, D), not {features.shape}"
        raise DataError(problem, what="features", value=features.shape, allowed=(len(observed), "D"))
    annotated = annotated_positives(observed)
    answers = random_answers(observed)
    if answers is not None:
        return from_answers(answers, observed, classes)
    if not has_value(observed, UNKNOWN):
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
    link = SINGLE if _mostly_single(observed) else SEVERAL
    return from_features(features, observed, annotated, classes, seed, link)


def _from_numbers(
    observed: LabelMatrix, annotated: npt.NDArray[np.int64], classes: tuple[str, ...]
) -> ClassCounts:
    """Each positive kept with the same chance: that chance from the numbers of labels per image."""
    numbers = count_per_image(observed)
    share_kept, images, fewest = kept_share(numbers), len(observed), annotated.sum() / len(observed)
    expected = bounded(annotated / share_kept.share, observed)
    chance = SPREAD * np.sqrt(annotated)
    low, high = (min(fewest / share, observed.shape[1]) for share in (share_kept.high, share_kept.low))
    doubts = []
    if has_value(observed, NEGATIVE):
        doubts.append("labels say no, too, but do not look like answers to random questions")
    if not share_kept.explains:
        doubts.append("no share of kept labels explains how many images have none, one and more labels")
    if high - 1 > WIDEST * (low - 1):
        doubts.append("the numbers of labels per image fit other shares of kept labels nearly as well")
    k = float(expected.sum() / images)
    return ClassCounts(
        "auto", classes, images, annotated, expected,
        bounded((annotated - chance) / share_kept.high, observed),
        bounded((annotated + chance) / share_kept.low, observed),
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
