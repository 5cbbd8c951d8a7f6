"""Choose thresholds for calibrated scores: for the highest F1, or for a given precision.

Both follow from the calibrated scores of validation images, not from their labels: if scores are
probabilities, the images at or above t contain sum(score) positives. On Pascal VOC this gave a higher macro
F1 than the threshold with the highest F1 on validation, in all six runs (docs/predict.md).
"""

import numpy as np
import numpy.typing as npt

from sparselabel.errors import ConfigError, param
from sparselabel.metrics.calibration import Floats

PRECISIONS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99)
"""Precisions with stored thresholds; others are interpolated."""


def f1_thresholds(scores: Floats) -> Floats:
    """(L,) The thresholds with the highest expected F1, for calibrated scores (N, L)."""
    return _f1_thresholds(-np.sort(-scores, axis=0))


def _f1_thresholds(falling: Floats) -> Floats:
    predicted = np.arange(1, len(falling) + 1)[:, None]
    expected = 2 * np.cumsum(falling, axis=0) / (predicted + falling.sum(axis=0))
    best = expected.argmax(axis=0)
    return _below(falling, best)


def all_thresholds(scores: Floats) -> tuple[Floats, Floats]:
    """(L,) Those for the highest F1, and (L, P) those of ``PRECISIONS``; scores (N, L) are sorted once."""
    falling = -np.sort(-scores, axis=0)
    means = np.cumsum(falling, axis=0) / np.arange(1, len(falling) + 1)[:, None]
    thresholds = [_precision_thresholds(falling, means, wanted) for wanted in PRECISIONS]
    return _f1_thresholds(falling), np.stack(thresholds, axis=1)


def _precision_thresholds(falling: Floats, means: Floats, precision: float) -> Floats:
    """(L,) The lowest thresholds with this expected precision.

    Where no image reaches it, that is the precision itself: of the labels scored 0.9, nine of ten are right.
    """
    count = np.count_nonzero(means >= precision, axis=0)  # means only fall
    thresholds = _below(falling, np.maximum(count - 1, 0))
    return np.where(count > 0, np.minimum(thresholds, precision), precision)


def _below(falling: Floats, last: npt.NDArray[np.intp]) -> Floats:
    """The midpoint between the last selected score and the next one."""
    columns = np.arange(falling.shape[1])
    here, next_ = falling[last, columns], falling[np.minimum(last + 1, len(falling) - 1), columns]
    return np.asarray((here + next_) / 2)


def interpolate_thresholds(thresholds: Floats, precision: float) -> Floats:
    """(L,) Thresholds for any precision, interpolated from those (L, P) for ``PRECISIONS``."""
    if not PRECISIONS[0] <= precision <= PRECISIONS[-1]:
        raise ConfigError(
            f"{param('precision')} must be from {PRECISIONS[0]} to {PRECISIONS[-1]}, not {precision:g}: "
            "validation images cannot promise more",
            f"for less, give {param('threshold')}",
        )
    upper = int(np.searchsorted(PRECISIONS, precision))
    if upper == 0:
        return thresholds[:, 0]
    low, high = PRECISIONS[upper - 1], PRECISIONS[upper]
    share = (precision - low) / (high - low)
    return (1 - share) * thresholds[:, upper - 1] + share * thresholds[:, upper]


def check_threshold(threshold: float) -> None:
    """Raise unless it is a score."""
    if not 0 <= threshold <= 1:
        raise ConfigError(
            f"{param('threshold')} must be a score in [0, 1], not {threshold}",
            what="threshold",
            value=threshold,
        )
