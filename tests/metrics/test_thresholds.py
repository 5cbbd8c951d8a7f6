import numpy as np
import pytest

from sparselabel.errors import ConfigError
from sparselabel.metrics.thresholds import (
    PRECISIONS,
    all_thresholds,
    f1_thresholds,
    interpolate_thresholds,
)

SCORES = np.array([[0.9, 0.2], [0.8, 0.1], [0.3, 0.1], [0.1, 0.0]])


def test_the_highest_expected_f1() -> None:
    # class 0: 2 * 0.9 / (1 + 2.1) = 0.58, 2 * 1.7 / (2 + 2.1) = 0.83, 2 * 2 / (3 + 2.1) = 0.78
    # class 1: 2 * 0.2 / (1 + 0.4) = 0.29, 2 * 0.3 / (2 + 0.4) = 0.25
    assert f1_thresholds(SCORES) == pytest.approx([0.55, 0.15])


def test_the_lowest_threshold_with_a_precision() -> None:
    by_precision = dict(zip(PRECISIONS, all_thresholds(SCORES)[1].T, strict=True))
    assert by_precision[0.85] == pytest.approx([0.55, 0.85])
    assert by_precision[0.9] == pytest.approx([0.85, 0.9])
    assert by_precision[0.5] == pytest.approx([0.1, 0.5])
    assert by_precision[0.99].tolist() == [0.99, 0.99]


def test_precisions_between_the_kept_ones() -> None:
    kept = np.stack([np.linspace(0.1, 0.7, len(PRECISIONS)), PRECISIONS])
    kept[1, 0] = 0.3
    assert interpolate_thresholds(kept, 0.5).tolist() == [kept[0, 0], 0.3]
    assert interpolate_thresholds(kept, 0.525) == pytest.approx(
        [(kept[0, 0] + kept[0, 1]) / 2, (0.3 + 0.55) / 2]
    )
    assert interpolate_thresholds(kept, 0.99) == pytest.approx([0.7, 0.99])


@pytest.mark.parametrize("precision", [0.0, -1.0, 0.49, 0.995, 90.0, float("nan")])
def test_precisions_that_nobody_can_promise(precision: float) -> None:
    with pytest.raises(ConfigError, match=r"`precision` must be from 0\.5 to 0\.99, not"):
        interpolate_thresholds(np.zeros((1, len(PRECISIONS))), precision)
