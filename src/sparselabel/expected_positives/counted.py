"""K from complete labels of some random images: counting."""

import numpy as np

from sparselabel.data.labels import NEGATIVE, POSITIVE, LabelTable
from sparselabel.errors import DataError
from sparselabel.expected_positives.class_counts import (
    DRAWS,
    ClassCounts,
    annotated_positives,
    bounded,
    shared_out,
    wilson,
)

OWN_COUNT = 20.0
"""Images that the share by annotated labels weighs beside a class's own count in the counted sample."""
FEWEST_COUNTED = 30


def counted_positives(complete: LabelTable, observed: LabelTable, seed: int = 0) -> ClassCounts:
    """Expected positives from some random images with complete labels.

    K is their mean number of classes. Classes share K·N by their annotated labels (Verelst 2023 eq. 3); the
    larger the sample, the more a class's own count in it weighs; what a class cannot take, as no class is in
    more than all images, the others share. K's spread is a bootstrap over the counted images. A class's is
    Wilson's interval of its own count, which has a width for a class that was never seen, too.
    """
    if complete.classes != observed.classes:
        raise DataError("the counted images must have the data's classes, in the same order")
    if not complete.complete:
        raise DataError(
            "counted images must have all labels, 1 or 0", "complete them", "leave those rows out"
        )
    if len(complete) < 2:
        raise DataError(
            f"{len(complete)} counted images say nothing",
            "label a few dozen random ones completely",
            value=len(complete),
        )
    annotated = annotated_positives(observed.values)
    counts = (complete.values == POSITIVE).astype(np.float64)
    size, images = len(counts), len(observed)
    own = counts.mean(0) * images
    weight = size / (size + OWN_COUNT * len(annotated))
    mixed = weight * own + (1 - weight) * own.sum() * annotated / annotated.sum()
    most = images - observed.counts(NEGATIVE)
    known = annotated > 0
    expected = np.zeros(len(annotated))
    expected[known] = shared_out(own.sum(), mixed[known], annotated[known], most[known])
    each, random = counts.sum(1), np.random.default_rng(seed)
    drawn = [each[random.integers(0, size, size)].mean() for _ in range(DRAWS)]  # one at a time is in memory
    k = expected.sum() / images
    k_low, k_high = np.quantile(drawn, (0.025, 0.975))
    # What is annotated is there for sure.
    k_low, k_high = min(max(k_low, annotated.sum() / images), k), max(k_high, k)
    low, high = (bounded(images * share, observed.values) for share in wilson(counts.sum(0), size))
    low, high = np.minimum(low, expected), np.maximum(high, expected)
    few = size < FEWEST_COUNTED
    why = f"counted in {size:,} images" + (f": fewer than {FEWEST_COUNTED}" if few else "")
    return ClassCounts(
        "counted", observed.classes, len(observed), annotated, expected, low, high,
        (float(k_low), float(k_high)), not few, why,
    )  # fmt: skip
