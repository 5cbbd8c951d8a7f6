"""What a method's settings may be: each check names the setting and returns it."""

import math

import numpy as np
import numpy.typing as npt

from sparselabel.errors import ConfigError


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
    annotated: npt.NDArray[np.int64],
    negatives: npt.NDArray[np.int64],
    images: int,
) -> npt.NDArray[np.float64]:
    """At least what is annotated, at most all images but the observed negatives, 0 if never annotated."""
    kept: npt.NDArray[np.float64] = np.where(
        annotated > 0, np.clip(expected, annotated, images - negatives), 0.0
    )
    return kept
