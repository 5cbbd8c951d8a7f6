"""Checks of methods' settings: each names the setting in its error and returns the value."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sparselabel.errors import ConfigError, DataWarning, command


def checked_share(name: str, value: float) -> float:
    """The value, if it is in 0..1."""
    if not 0 <= value <= 1:
        raise ConfigError(f"{name} must be in [0, 1], not {value}")
    return value


def not_negative(name: str, value: float, why: str = "") -> float:
    """The value, if it is 0 or above and finite, as weights and exponents are."""
    if not 0 <= value < math.inf:
        because = f": {why}" if why else ""
        raise ConfigError(f"{name} must be a number that is not negative, not {value}{because}")
    return value


def finite(name: str, value: float) -> float:
    """The value, if it is a number of either sign."""
    if not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number, not {value}")
    return value


def within_label_bounds(
    expected: npt.NDArray[np.float64],
    positives: npt.NDArray[np.int64],
    negatives: npt.NDArray[np.int64],
    images: int,
) -> npt.NDArray[np.float64]:
    """Counts clipped to the bounds of the observed labels; 0 for a class that is never observed.

    The bounds are the observed positives, and all images without the observed negatives.
    """
    bounded: npt.NDArray[np.float64] = np.where(
        positives > 0, np.clip(expected, positives, images - negatives), 0.0
    )
    return bounded


Expected = float | Sequence[float] | npt.NDArray[Any] | Tensor | None
"""K, or the number of images of every class."""
PER_CLASS = ("en", "ep", "pu", "soft")  # methods that take a number for each class; the others take K
COUNTS_ITSELF = ("soft",)  # methods that work without K, and ignore an estimate that is not trusted

WAYS = (
    "count them in a few dozen images and give, say, expected_positives=2.5",
    f"let {command('expect')} estimate them from the images, or "
    "sparselabel.estimate_expected_positives(features, labels).per_image",
)


def checked_count(expected: Expected) -> float:
    """The expected number of positives per image (K); raises if it is missing."""
    if expected is None:
        raise ConfigError(
            "this method needs expected_positives (K), the mean number of classes in an image",
            *WAYS,
            what="expected_positives",
        )
    if not isinstance(expected, int | float) or isinstance(expected, bool) or not 0 < expected < math.inf:
        raise ConfigError(
            f"expected_positives must be a number above 0, not {expected!r}",
            *WAYS,
            what="expected_positives",
            value=expected,
        )
    return float(expected)


def checked_counts(expected: Expected) -> float | tuple[float, ...]:
    """K, or the expected number of images of every class."""
    if expected is None or isinstance(expected, str | bool | int | float):
        return checked_count(expected)
    if np.ndim(expected) == 0:
        return checked_count(float(np.asarray(expected)))
    try:
        counts = np.asarray(expected, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"expected_positives must be numbers, one for each class: {error}") from error
    if counts.ndim != 1 or not (np.isfinite(counts) & (counts >= 0)).all():
        raise ConfigError(
            f"expected_positives must be finite numbers, none negative, one for each class, not {expected!r}"
        )
    return tuple(counts.tolist())


def refuse_too_many(expected: float | Sequence[float], classes: int, images: int) -> None:
    """Raise if K exceeds the number of classes, or a class's positives the number of images."""
    if isinstance(expected, int | float):
        if expected > classes:
            raise ConfigError(
                f"expected_positives (K) is the mean number of classes in an image, so at most the "
                f"{classes} there are, not {expected:g}",
                *WAYS,
                what="expected_positives",
                value=expected,
                allowed=classes,
            )
    elif expected and max(expected) > images:
        raise ConfigError(
            f"expected_positives of a class is its number of images, so at most the {images:,} there "
            f"are, not {max(expected):,.10g}",
            *WAYS,
            what="expected_positives",
            value=max(expected),
            allowed=images,
        )


def below_observed(expected: object, observed: npt.NDArray[Any], images: int) -> DataWarning | None:
    """A warning if fewer positives are expected than observed (L,), else None.

    A warning and no error: papers train with a wrong K on purpose (Cole 2021, supplement).
    """
    if isinstance(expected, str | bool) or expected is None:
        return None
    positives = observed.astype(np.float64)
    given = np.asarray(expected, dtype=np.float64)
    if given.ndim == 0:
        least = float(positives.sum()) / images
        if float(given) >= round(least, 3):
            return None
        return DataWarning(
            f"expected_positives (K) is {float(given):g}, but already {least:.3f} classes per image are "
            "observed: it cannot be smaller",
            *WAYS,
            what="expected_positives",
            value=float(given),
            allowed=least,
        )
    if given.shape != positives.shape or not (low := given < positives - 0.5).any():
        return None
    first = int(np.argmax(low))
    return DataWarning(
        f"expected_positives of class {first} is {given[first]:g} images, but already "
        f"{positives[first]:,.0f} are observed: it cannot be smaller",
        *WAYS,
        what="expected_positives",
        where=first,
        value=float(given[first]),
        allowed=float(positives[first]),
    )
