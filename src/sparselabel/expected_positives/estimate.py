"""K without an oracle: how many positives each class has, from observed labels and, if needed, features.

- Labels answer random questions: the share of yes is all it takes (``from_answers``).
- Labels were kept at random, so that some images have several and some none: the numbers of labels per image
  tell the share that was kept (``kept_share``).
- (Nearly) all images have one positive: cross-fitted linear `an` scores, and a mixture over label sets
  (``single_positive_em``).

docs/expected-positives.md says what each assumes, and where it fails.
"""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels, labels_of
from sparselabel.errors import DataError, command, param
from sparselabel.expected_positives.class_counts import (
    DRAWS,
    SPREAD,
    ClassCounts,
    Floats,
    annotated_positives,
    bounded,
)
from sparselabel.expected_positives.from_answers import from_answers, random_answers
from sparselabel.expected_positives.single_positive_em import (
    LARGEST_SET,
    Observations,
    Posterior,
    fit,
    initial_parameters,
)
from sparselabel.losses.setting_checks import within_label_bounds

FOLDS = 5
PENALTY = 1.0
"""Of the least-squares `an` models, on standardized features."""
STEPS, SETTLE = 25, 6
REPEATS, REPEAT_STEPS = 8, 5
ALL_STEPS = STEPS + REPEATS * REPEAT_STEPS
MOST_IMAGES = 10_000
MOST_CLASSES = 400
"""Time grows with the fourth power of the classes, memory with the third: 1,000 take hours and over 8 GB."""
SMALL_CLASS = 20.0
"""Annotated labels that the ratio of all classes weighs beside a class's own."""
MODEL_ERROR, CLASS_ERROR = 0.3, 0.8
"""Shares of the hidden positives by which the model is off (docs/expected-positives.md)."""

FEWEST_IMAGES = 300
WEAKEST_SCORES = 0.75
MOST_LARGE_SETS = 0.2
MOST_UNLABELED = 0.1
MOST_ONE_SIDED = 0.15
MOSTLY_SINGLE = 0.95
"""Share of the labeled images with exactly one label from which the others count as strays."""
NEARLY_ALL_KEPT = 0.9
WIDEST = 0.5
OTHER_FEATURES = "try another backbone or other weights"
COUNT = f"count positives in some images ({command('expect', how='counted')})"
EMPTY_IMAGES = "it assumes that every image has a class"


def needs_features(observed: Labels) -> bool:
    """Whether labels alone are not enough: hardly an image has more than one, and they are no answers."""
    return bool((observed == UNKNOWN).any()) and random_answers(observed) is None and _mostly_single(observed)


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
        images have several positives, or labels answer random questions.
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
    features: npt.NDArray[np.float32] | None,
    observed: Labels,
    classes: tuple[str, ...],
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> ClassCounts:
    """Expected positives of every class, from observed labels (N, L) and, if needed, features (N, D).

    ``report`` is told of steps, ``ALL_STEPS`` of them where features are needed.
    """
    annotated = annotated_positives(observed)
    answers = random_answers(observed)
    if answers is not None:
        return from_answers(answers, observed, classes)
    if not (observed == UNKNOWN).any() or not _mostly_single(observed):
        return _from_numbers(observed, annotated, classes, seed)
    if features is None:
        raise DataError("with one positive per image, expected positives need the images' features")
    if features.ndim != 2 or len(features) != len(observed):
        raise DataError(f"{len(observed):,} images need features of shape (N, D), not {features.shape}")
    try:
        return _from_scores(features, observed, annotated, classes, seed, report)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise DataError(
            f"the {features.shape[1]:,} features hardly vary within a class, so nothing shows how classes "
            f"mix ({error})",
            OTHER_FEATURES,
            COUNT,
        ) from error


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


def _from_scores(
    features: npt.NDArray[np.float32],
    observed: Labels,
    annotated: npt.NDArray[np.int64],
    classes: tuple[str, ...],
    seed: int,
    report: Callable[[int], None] | None,
) -> ClassCounts:
    """One positive per image: how many more each seems to have. The few images with several are not used."""
    numbers = (observed == POSITIVE).sum(1)
    rows, labeled = np.flatnonzero(numbers == 1), int((numbers > 0).sum())
    known = np.flatnonzero((observed[rows] == POSITIVE).any(0))
    if not 2 <= len(known) <= MOST_CLASSES:
        raise DataError(
            f"{len(known):,} annotated class{'es are' if len(known) > 1 else ' is'} too "
            f"{'many' if len(known) > 1 else 'few'} to estimate positives from single labels (2 to "
            f"{MOST_CLASSES})",
            COUNT,
        )
    random = np.random.default_rng(seed)
    if len(rows) > MOST_IMAGES:
        rows = np.sort(random.choice(rows, MOST_IMAGES, replace=False))
    values = torch.from_numpy(observed[rows][:, known])
    labels = (values == POSITIVE).float()
    used = np.asarray(features[rows], dtype=np.float32)
    _refuse_useless(used, rows)
    scores = cross_fitted_scores(torch.from_numpy(used), labels, seed)
    absent = (values == NEGATIVE).float() if (values == NEGATIVE).any() else None
    data = Observations(scores, labels.argmax(1), absent, torch.ones(len(rows)))
    parameters = initial_parameters(data)
    posterior = fit(data, parameters, STEPS, SETTLE, report)

    def counts(posterior: Posterior, weight: Tensor) -> Floats:
        seen = (labels * weight[:, None]).sum(0)
        hidden = (posterior.present * weight[:, None]).sum(0) - seen
        pooled = hidden.sum() / seen.sum()
        ratio = (hidden + SMALL_CLASS * pooled) / (seen + SMALL_CLASS)
        ratio *= hidden.sum() / (ratio * seen).sum().clamp(min=1e-12)
        positives = annotated.astype(np.float64)
        positives[known] = annotated[known] * (1 + ratio.double().numpy())
        return bounded(positives, observed)

    expected = counts(posterior, data.weight)
    repeats = []
    for _ in range(REPEATS):
        weight = torch.from_numpy(np.bincount(random.integers(0, len(rows), len(rows)), minlength=len(rows)))
        again = Observations(scores, data.annotated, absent, weight.float())
        refitted = fit(again, copy.deepcopy(parameters), REPEAT_STEPS, report=report)
        repeats.append(counts(refitted, weight.float()))
    doubts = _doubts(data, posterior, scores, labels, labeled, len(observed))
    return _with_spread(expected, np.stack(repeats), observed, annotated, classes, doubts)


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


def _doubts(
    data: Observations, posterior: Posterior, scores: Tensor, labels: Tensor, labeled: int, images: int
) -> list[str]:
    """Reasons not to trust an estimate from scores."""
    doubts = []
    if labeled < FEWEST_IMAGES:
        doubts.append(f"only {labeled:,} images have a label (at least {FEWEST_IMAGES})")
    if labeled < (1 - MOST_UNLABELED) * images:
        doubts.append(f"{images - labeled:,} images have no label and count as empty")
    auc = float(_mean_auc(scores, labels))
    if auc < WEAKEST_SCORES:
        doubts.append(f"the features hardly tell the classes apart (mean AUC {auc:.2f})")
    large = float(posterior.sizes[LARGEST_SET - 1] / posterior.sizes.sum())
    if large > MOST_LARGE_SETS:
        doubts.append(
            f"{large:.0%} of the images seem to have {LARGEST_SET} or more classes, the most it looks for"
        )
    one_sided = _one_sided(data, posterior)
    if one_sided > MOST_ONE_SIDED:
        doubts.append(
            f"the annotated class is not a random one of the image's (one-sidedness {one_sided:.2f})"
        )
    return doubts


def _mean_auc(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean area under the ROC curve of the scores, for the annotated labels."""
    rank = scores.argsort(0).argsort(0).double() + 1
    seen = labels.sum(0).double()
    area = ((rank * labels).sum(0) - seen * (seen + 1) / 2) / (seen * (len(scores) - seen)).clamp(min=1)
    return area[seen < len(scores)].mean()


def _one_sided(data: Observations, posterior: Posterior) -> float:
    """How unequal "i annotated, j hidden" and "j annotated, i hidden" are, beyond chance: 0 to 1."""
    classes = posterior.present.shape[1]
    pairs = torch.zeros(classes, classes).index_add_(0, data.annotated, posterior.present).fill_diagonal_(0)
    both = pairs + pairs.T
    by_chance = 0.8 * torch.sqrt(both).sum()  # E|a − b| of two Poisson counts with a + b known
    return float(((pairs - pairs.T).abs().sum() - by_chance) / both.sum().clamp(min=1e-12))


def _from_numbers(
    observed: Labels, annotated: npt.NDArray[np.int64], classes: tuple[str, ...], seed: int
) -> ClassCounts:
    """Each positive kept with the same chance: that chance from the numbers of labels per image."""
    numbers = (observed == POSITIVE).sum(1)
    random = np.random.default_rng(seed)
    share, explains = kept_share(numbers)
    expected = bounded(annotated / share, observed)
    repeats = []
    labeled, present = np.nonzero(observed == POSITIVE)  # few of many: rows are not copied for a draw
    negatives = (observed == NEGATIVE).sum(0)
    for _ in range(DRAWS):
        rows = random.integers(0, len(numbers), len(numbers))
        copies = np.bincount(rows, minlength=len(numbers))
        drawn = np.bincount(present, copies[labeled], observed.shape[1])
        again = drawn / kept_share(numbers[rows])[0]
        repeats.append(within_label_bounds(again, annotated, negatives, len(observed)))
    if (observed != UNKNOWN).all():
        return _with_spread(
            expected, np.stack(repeats), observed, annotated, classes, [], 0.0, "all labels are known"
        )
    doubts = []
    if (observed == NEGATIVE).any():
        doubts.append("labels say no, too, but do not look like answers to random questions")
    if not explains:
        doubts.append("no share of kept labels explains how many images have none, one and more labels")
    most, at_most = int(numbers.max()), float((numbers == numbers.max()).mean())
    wide = float(SPREAD * _deviation(np.sum(repeats, axis=1)) / expected.sum())
    if wide > WIDEST:
        doubts.append(f"other images of the same kind could give a K {wide:.0%} off")
    if numbers.min() > 0:
        doubts.append("every image has a label, so their numbers do not tell how many were hidden")
        if at_most > 0.1:
            doubts.append(f"{at_most:.0%} of the images have {most}: labels seem to end there")
    elif share > NEARLY_ALL_KEPT:
        empty = (numbers == 0).mean()
        doubts.append(
            f"only {empty:.1%} of the images have no label: nearly all labels were kept, or most images "
            "without one were left out"
        )
    return _with_spread(expected, np.stack(repeats), observed, annotated, classes, doubts, 0.0, EMPTY_IMAGES)


def kept_share(numbers: npt.NDArray[np.int64]) -> tuple[float, bool]:
    """The chance c with which positives were kept, from the number of kept ones per image; whether it fits.

    If y positives are kept with chance c each, E[(1 − 1/c)^kept] = E[0^y], which is 0 where every image has
    at least one class. The largest root is c; where there is none, the share that comes nearest.
    """
    images = np.bincount(numbers)
    shares = np.linspace(0.02, 1, 981)
    powers = (1 - 1 / shares[:, None]) ** np.arange(len(images))
    value = powers @ images / np.sqrt(powers**2 @ images + 1e-12)  # in standard errors
    crossings = np.flatnonzero((value[:-1] < 0) != (value[1:] < 0))
    if not len(crossings):
        return float(shares[np.abs(value).argmin()]), False
    at = crossings[-1]
    step = value[at] / (value[at] - value[at + 1])
    return float(shares[at] + step * (shares[at + 1] - shares[at])), True


def _with_spread(
    expected: Floats,
    repeats: Floats,
    observed: Labels,
    annotated: npt.NDArray[np.int64],
    classes: tuple[str, ...],
    doubts: list[str],
    model_error: float = MODEL_ERROR,
    note: str = "",
) -> ClassCounts:
    """Bounds from the repeats' spread and the error of the model's form."""
    images = len(observed)
    hidden = expected - annotated
    class_error = CLASS_ERROR if model_error else 0.0
    spread = np.sqrt((SPREAD * _deviation(repeats)) ** 2 + (class_error * hidden) ** 2)
    k_spread = np.sqrt(
        (SPREAD * _deviation(repeats.sum(1)) / images) ** 2 + (model_error * hidden.sum() / images) ** 2
    )
    k, fewest = expected.sum() / images, annotated.sum() / images
    return ClassCounts(
        "auto", classes, images, annotated, expected,
        bounded(expected - spread, observed), bounded(expected + spread, observed),
        (max(float(k - k_spread), float(fewest)), float(k + k_spread)),
        not doubts, "; ".join([*(doubts or ["nothing speaks against it"]), *([note] if note else [])]),
    )  # fmt: skip


def _deviation(repeats: Floats) -> Floats:
    """Half the width of the middle 68 %: a standard deviation that a few wild repeats do not move."""
    low, high = np.quantile(repeats, (0.16, 0.84), axis=0)
    half: Floats = (high - low) / 2
    return half
