"""The expected quality of a run in sentences, and warnings about meaningless numbers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import UNKNOWN
from sparselabel.errors import spell
from sparselabel.inference.class_thresholds import ClassThreshold, ClassThresholds, answers_needed
from sparselabel.inference.expected_quality import (
    is_meaningless,
    of_ten,
    quality_of,
    says_nothing,
    trust_in,
)
from sparselabel.metrics.calibration import no_calibration
from sparselabel.metrics.thresholds import PRECISIONS

CLASSES = ("cat", "sofa", "bus")
OBSERVED = np.full((40, 3), UNKNOWN, np.int8)
OBSERVED[:20, 0], OBSERVED[20:25, 1], OBSERVED[25:30, 2] = 1, 1, 1
TRAIN: Any = SimpleNamespace(observed=LabelTable(np.arange(40).astype(str), CLASSES, OBSERVED))


def measured(
    labels: str = "observed", positives: tuple[int, ...] = (8, 3, 2), images: int = 10
) -> dict[str, Any]:
    by_class = [(0.9, 0.8, 0.8, 0.7), (0.3, 0.4, 0.1, 0.2), (0.7, 0.6, 0.5, 0.6)]
    keys = ("expected_precision", "expected_recall", "precision", "recall")
    rows = [
        dict(zip(keys, numbers, strict=True)) | {"name": n}
        for n, numbers in zip(CLASSES, by_class, strict=True)
    ]
    ranges = {"labels_per_image": [1.26, 2.08], "precision": [0.62, 0.86], "recall": [0.66, 0.74]}
    expected = {"basis": "estimated", "labels_per_image": 1.52, "precision": 0.72, "recall": 0.69}
    expected |= {"ranges": ranges}
    return {
        "images": images,
        "labels": labels,
        "classes": [{"name": n, "positive": p} for n, p in zip(CLASSES, positives, strict=True)],
        "classes_without_positives": [n for n, p in zip(CLASSES, positives, strict=True) if not p],
        "decided": {"expected": expected, "classes": rows, "micro_precision": 0.51, "micro_recall": 0.96},
    }


def test_sparse_labels_are_told_by_what_is_expected() -> None:
    quality = quality_of(measured(), "validation", TRAIN)
    assert quality is not None
    assert quality.opening() == [
        "Your images show about 1.5 (1.3 to 2.1) of the 3 classes each; you gave 1 label.",
        "Expect 6 to 9 of 10 suggested labels to be right, and about 7 of 10 present ones to be found.",
        "Weak, with F1 below 50 %: sofa (5 examples).",
    ]
    assert quality.rests_on == (
        "Estimated on 10 validation images: the number of labels per image is an estimate, which the ranges "
        "come from."
    )


def test_complete_labels_are_counted() -> None:
    quality = quality_of(measured("complete"), "test", TRAIN)
    assert quality is not None
    assert (quality.shown, quality.precision, quality.recall) == (1.3, 0.51, 0.96)
    assert quality.opening()[1].startswith(
        "Expect about 5 of 10 suggested labels to be right, and about 19 of 20"
    )
    assert quality.rests_on == "Measured on 10 test images: all their labels are known."
    assert quality.weak == [("sofa", 5)]


def test_without_thresholds_there_is_nothing_to_say() -> None:
    told = measured()
    told["decided"]["expected"]["basis"] = None  # no validation image had a label
    assert quality_of(told, "test", TRAIN) is None
    assert quality_of(told | {"decided": None}, "test", TRAIN) is None


def test_classes_on_every_image_or_on_one() -> None:
    told = measured(positives=(10, 0, 0))
    assert is_meaningless(told)
    assert quality_of(told, "validation", TRAIN) is None
    (warning,) = says_nothing(told, "validation")
    assert warning.startswith("Every validation image is labeled cat: there is no image without it")
    assert "so no number can say how good it is. Add images that do not show it" in warning
    other = measured(positives=(10, 1, 1))
    assert not is_meaningless(other)
    every, once = says_nothing(other, "test")
    assert "so its numbers say nothing" in every
    assert once == "Only one test image each is labeled sofa, bus: too few to judge these classes by."
    assert says_nothing(measured(), "test") == []
    (none,) = says_nothing(measured(positives=(5, 0, 5)), "test")
    assert none.startswith("No test image is labeled ")
    assert "counts 0 in the mAP" in none


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.01, "hardly any"),
        (0.66, "about 7 of 10"),
        (0.76, "about 3 of 4"),
        (0.94, "about 9 of 10"),
        (0.96, "about 19 of 20"),
        (1, "nearly all"),
    ],
)
def test_shares_in_words(share: float, words: str) -> None:
    assert of_ten(share) == words
    assert of_ten(share, [0.61, 0.86]) == "6 to 9 of 10"
    assert of_ten(share, [0.51, 0.54]) == words  # no range to speak of


def thresholds(*rows: tuple[str, int | None]) -> ClassThresholds:
    kept = (0.5,) * len(PRECISIONS)
    made = tuple(
        ClassThreshold(name, 0.5, 0.9, 0.8, trust, "seen twice", kept, needed)  # type: ignore[arg-type]
        for name, (trust, needed) in zip(CLASSES, rows, strict=True)
    )
    return ClassThresholds(made, no_calibration(3), "sparse", 10, "estimated")


def test_what_mends_thresholds_and_what_it_takes() -> None:
    run = Path("runs/one")
    assert trust_in(thresholds(("good", 0), ("good", 0), ("fair", 0)), run) == []
    said = [spell(text) for text in trust_in(thresholds(("good", 0), ("poor", 18), ("poor", 12)), run)]
    assert said[0] == "Do not rely on 2 of 3 thresholds yet (sofa, bus)."
    assert said[1].startswith(
        "`sparselabel review runs/one` with `goal=thresholds` mends that: it takes about 30 answers"
    )
    assert len(said) == 2
    said = trust_in(thresholds(("poor", 20), ("poor", None), ("poor", 20)), run)
    assert said[0] == "Do not rely on any of the 3 thresholds yet."
    assert said[2] == "sofa: validation shows it in fewer than 10 images, and only more images help."
    said = trust_in(thresholds(("good", 0), ("poor", 0), ("good", 0)), run)
    assert said == ["Do not rely on 1 of 3 thresholds yet (sofa).", "sofa: seen twice."]


def test_answers_that_a_threshold_takes() -> None:
    assert answers_needed(answers=0, positive=3, unknown=200, hidden=20) == 20
    assert answers_needed(answers=19, positive=30, unknown=200, hidden=20) == 1
    assert answers_needed(answers=25, positive=4, unknown=200, hidden=20) == 6  # of them must be a yes
    assert answers_needed(answers=25, positive=4, unknown=200, hidden=2) is None
    assert answers_needed(answers=0, positive=4, unknown=0, hidden=0) is None  # all is known
    assert answers_needed(answers=0, positive=12, unknown=8, hidden=4) == 8
