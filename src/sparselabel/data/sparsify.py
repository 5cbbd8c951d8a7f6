"""Simulated sparse annotation: hide labels of a fully labeled table, as the papers do.

All functions take complete labels (N, L) and return observed ones with UNKNOWN where a label was hidden.
They are deterministic in their seed. ``keep_per_image`` reproduces the published single-positive labels
bit for bit (numpy's legacy ``RandomState``, which never changes); the others use numpy's ``Generator``.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sparselabel.config import ALL, PAPER_SEED, SUBSET_SEED, Sparsify
from sparselabel.data.labels import (
    NEGATIVE,
    POSITIVE,
    UNKNOWN,
    LabelMatrix,
    Labels,
    count_known,
    positives_of,
)
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import ConfigError, DataError, param

Weights = npt.NDArray[np.floating] | npt.NDArray[np.integer]


def sparsify(
    truth: Labels,
    how: Sparsify,
    spatial_labels: SpatialLabels | None = None,
    frequency: Weights | None = None,
) -> Labels:
    """The observed labels that ``how`` leaves of complete ones.

    ``spatial_labels`` are needed where larger classes are preferred. ``frequency`` (L,) is how many training
    images have each class, where these images are not the training images.
    """
    if how.sparsify == "none":
        return truth
    refuse_incomplete(truth)
    match how.sparsify:
        case "single-positive":
            return _keep_one(truth, how, spatial_labels or SpatialLabels.none(), frequency)
        case "per-image":
            return keep_per_image(truth, how.positives, how.negatives, how.label_seed)
        case "positive-share":
            return keep_share(truth, how.share, 0.0, how.label_seed)
        case "uniform":
            return keep_share(truth, how.share, how.share, how.label_seed)
        case "per-class":
            return keep_per_class(truth, how.positives, how.negatives, how.label_seed)
        case "budget":
            raise ConfigError("a budget buys points and boxes too: use sparselabel.data.annotation_budget")


def refuse_incomplete(truth: LabelMatrix) -> None:
    """Raise if there are unknown labels: sparsifiers need full ones."""
    hidden = truth.size - count_known(truth)
    if hidden:
        raise DataError(
            f"{param('sparsify')} hides labels of complete data, but {hidden:,} labels are unknown already",
            f"leave {param('sparsify')} out",
        )


def _keep_one(
    truth: Labels, how: Sparsify, spatial_labels: SpatialLabels, frequency: Weights | None
) -> Labels:
    """One positive per image, by the annotator's preference."""
    match how.prefer:
        case "any":
            return keep_per_image(truth, 1, 0, how.label_seed)
        case "larger":
            return keep_preferred(truth, largest_boxes(spatial_labels, truth.shape), how.label_seed)
        case "frequent":
            counts = (truth == POSITIVE).sum(0) if frequency is None else frequency
            return keep_preferred(truth, np.broadcast_to(counts, truth.shape), how.label_seed)


def keep_per_image(truth: Labels, positives: int, negatives: int, seed: int) -> Labels:
    """Keep this many random positives and negatives of every image (Cole 2021 §6.1; ALL keeps all).

    The random stream is that of Cole 2021's code: for each row in turn the positive classes are shuffled,
    then the negative ones, even when none of those is kept.
    """
    random = np.random.RandomState(seed)
    observed = np.full_like(truth, UNKNOWN)
    for row in range(len(truth)):
        for value, count in ((POSITIVE, positives), (NEGATIVE, negatives)):
            classes = np.nonzero(truth[row] == value)[0]
            random.shuffle(classes)
            observed[row, classes if count == ALL else classes[:count]] = value
    return observed


def keep_preferred(truth: Labels, weights: Weights, seed: int) -> Labels:
    """Keep the positive with the largest weight (N, L) of every image, a random one of several such."""
    there = truth == POSITIVE
    most = np.where(there, weights, -1).max(1, keepdims=True)
    return keep_weighted(truth, (there & (weights == most)).astype(np.float64), seed)


def keep_weighted(truth: Labels, weights: Weights, seed: int) -> Labels:
    """Keep one positive of every image, each with a chance in proportion to its weight (N, L)."""
    sums = np.cumsum(np.where(truth == POSITIVE, weights, 0.0), axis=1)
    total = sums[:, -1:]
    draw = np.random.default_rng(seed).random((len(truth), 1)) * total
    draw = np.minimum(draw, np.nextafter(total, 0))  # the product may round up to the total
    rows = np.flatnonzero(total)
    observed = np.full_like(truth, UNKNOWN)
    observed[rows, (sums <= draw).sum(1)[rows]] = POSITIVE
    return observed


def largest_boxes(spatial_labels: SpatialLabels, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """(N, L) The share of the image that a class's largest box takes; 0 where it has none."""
    if spatial_labels.is_point.all():
        raise DataError(
            f"{param('prefer', 'larger')} needs boxes, and these {shape[0]:,} images have none",
            f"take {param('prefer', 'frequent')} or {param('prefer', 'any')}",
        )
    shares = np.zeros(shape, dtype=np.float32)
    np.maximum.at(
        shares,
        (np.asarray(spatial_labels.rows), np.asarray(spatial_labels.classes)),
        np.prod(spatial_labels.sizes, axis=1),
    )
    return shares


def keep_share(truth: Labels, positives: float, negatives: float, seed: int) -> Labels:
    """Keep each positive and each negative label with its own probability, independently."""
    chance = np.where(truth == POSITIVE, np.float32(positives), np.float32(negatives))
    draw = np.random.default_rng(seed).random(truth.shape, dtype=np.float32)
    return np.where(draw < chance, truth, np.int8(UNKNOWN))


def keep_per_class(truth: Labels, positives: int, negatives: int, seed: int) -> Labels:
    """Keep this many random positives and negatives of every class, or all if there are fewer."""
    random = np.random.default_rng(seed)
    observed = np.full_like(truth, UNKNOWN)
    for column in range(truth.shape[1]):
        for value, count in ((POSITIVE, positives), (NEGATIVE, negatives)):
            rows = random.permutation(np.nonzero(truth[:, column] == value)[0])
            observed[rows if count == ALL else rows[:count], column] = value
    return observed


def split_rows(
    count: int, share: float, seed: int = PAPER_SEED
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Sorted rows of the training and of the validation split, as Cole 2021 splits them.

    Unlike Cole 2021's code, a share that rounds to no image at all gives an empty validation split.
    """
    held_out = round(share * count)
    order = np.random.RandomState(seed).permutation(count)
    trained = count - held_out
    return np.sort(order[:trained]), np.sort(order[trained:])


FREE, TRAINED, HELD_OUT = 0, 1, 2  # parts of ``stratified_rows``


def stratified_rows(labels: LabelMatrix, share: float) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Sorted rows of the training and of the validation split, with every class in both if possible.

    Sechidis et al. 2011, class by class from the rarest: validation gets its share of a class's positives,
    rounded, and training the others, so that a class with one positive is learned. Rows without a positive
    come last. There are as many validation rows as ``split_rows`` has, as long as no class is left without an
    example for training.
    """
    count = len(labels)
    held_out = round(share * count)
    random = np.random.default_rng(PAPER_SEED)
    order = random.permutation(count)
    positions, classes = _shuffled_positives(labels, order)
    rows = positions[np.lexsort((positions, classes))]  # class by class
    positives = np.bincount(classes, minlength=labels.shape[1])
    ends = np.cumsum(positives)
    part = np.full(count, FREE, np.int8)
    taken = 0
    for column in np.argsort(positives, kind="stable").tolist():
        showing = rows[ends[column] - positives[column] : ends[column]]
        wanted = round(share * int(positives[column])) - np.count_nonzero(part[showing] == HELD_OUT)
        open_ = showing[part[showing] == FREE]
        chosen = open_[: max(0, min(wanted, held_out - taken))]
        part[open_], part[chosen] = TRAINED, HELD_OUT
        taken += len(chosen)
    rest = np.flatnonzero(part == FREE)[: held_out - taken]
    part[rest] = HELD_OUT
    taken += len(rest)
    left = np.bincount(classes[part[positions] != HELD_OUT], minlength=labels.shape[1])
    first = np.searchsorted(positions, np.arange(count + 1))
    spare = iter(np.flatnonzero(part == TRAINED).tolist())
    while taken < held_out and (row := next(spare, None)) is not None:  # many classes of one or two positives
        shown = classes[first[row] : first[row + 1]]
        if (left[shown] > 1).all():
            part[row] = HELD_OUT
            left[shown] -= 1
            taken += 1
    if not taken:  # every class has one positive
        return split_rows(count, share)
    return np.sort(order[part != HELD_OUT]), np.sort(order[part == HELD_OUT])


def _shuffled_positives(
    labels: LabelMatrix, order: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Sorted positions of the positives' images in ``order``, and the positives' classes."""
    position_of = np.empty(len(order), np.int32)
    position_of[order] = np.arange(len(order), dtype=np.int32)
    rows, classes = positives_of(labels)
    positions = position_of[rows]
    by_position = np.argsort(positions, kind="stable")
    return positions[by_position], classes[by_position].astype(np.int32)


def subset_rows(
    counts: Sequence[int], shares: Sequence[float], seed: int = SUBSET_SEED
) -> list[npt.NDArray[np.intp]]:
    """Sorted rows of a random share of each of several splits, as in figure 1 of Cole 2021.

    One random stream serves all splits in turn; a split that stays whole draws its numbers too.
    """
    random = np.random.RandomState(seed)
    return [
        np.sort(random.permutation(count)[: round(share * count)])
        for count, share in zip(counts, shares, strict=True)
    ]
