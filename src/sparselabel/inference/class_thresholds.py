"""Calibration and thresholds of a run, and how reliable they are, in RUN/thresholds.json."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from sparselabel.data.answers import answered_labels, read_answers
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.errors import ConfigError, RunError, command, counted, listing, param
from sparselabel.file_formats import read_json
from sparselabel.files import write_json
from sparselabel.inference.saved_scores import saved_scores
from sparselabel.metrics.calibration import (
    Calibration,
    Floats,
    Reliability,
    calibrate,
    calibration_metrics,
    class_blocks,
    logits_of,
    no_calibration,
)
from sparselabel.metrics.class_prevalence import Prevalence, PrevalenceSource, Situation, estimate_prevalence
from sparselabel.metrics.precision_recall import Counts
from sparselabel.metrics.thresholds import PRECISIONS, all_thresholds, check_threshold, interpolate_thresholds
from sparselabel.metrics.tiled_scores import ScoreMatrix, image_blocks
from sparselabel.run import Run
from sparselabel.schema import LARGEST, Count, Finite, Range

FORMAT = 1
MOST_SCORES, FEWEST_IMAGES = 1 << 26, 1000
"""Scores that thresholds are chosen by, half a gigabyte of logits; but never fewer images than these."""
SPLIT = "val"
MANY, SOME = 30, 10
"""Positives from which on a class's own labels say much, or something."""
ANSWERS = 20
"""A reviewer's answers, over all scores, that a sparsely labeled class needs beside SOME positives."""
Trust = Literal["good", "fair", "poor"]
ORIGINS = {
    "counted": "counted in complete labels",
    "estimated": "an estimate",
    "given": "the K that training was given, shared by annotated labels",
    "likelihood": "a guess from the labels alone: give training expected positives",
}
Basis = Literal["complete", "answered", "reviewed", "counted", "estimated", "given", "likelihood"]
"""What calibration rests on: labels of validation images, a reviewer's answers, or a number of positives."""


@dataclass(frozen=True)
class ClassThreshold:
    """A class's threshold for F1, its expected precision and recall, and how far to trust it."""

    name: str
    threshold: Finite
    expected_precision: Finite
    expected_recall: Finite
    trust: Trust
    why: str
    at_precision: tuple[Finite, ...]
    answers_needed: Annotated[int, Range(0, LARGEST)] | None = 0
    """Answers about validation images that make it reliable; None: it takes more images."""


@dataclass(frozen=True, kw_only=True)
class CalibratedThreshold(ClassThreshold):
    """A class's threshold and calibration, as in thresholds.json."""

    slope: Finite
    offset: Finite


class QualityRanges(TypedDict):
    """Low and high ends for all classes together, from the interval of expected positives."""

    labels_per_image: list[Finite]
    precision: list[Finite]
    recall: list[Finite]


class ThresholdsFile(TypedDict):
    """thresholds.json."""

    format: Count
    images: Count
    labels: str
    basis: NotRequired[Basis]
    ranges: NotRequired[QualityRanges]
    classes: list[CalibratedThreshold]
    drawn_from: NotRequired[Count]


@dataclass(frozen=True, eq=False)
class ClassThresholds:
    """Calibration and thresholds of every class."""

    classes: tuple[ClassThreshold, ...]
    calibration: Calibration
    labels: str
    images: int
    basis: Basis | None = None
    drawn_from: int = 0
    """How many images the split has, of which ``images`` were drawn; 0 where these are all."""
    ranges: QualityRanges | None = None

    def __post_init__(self) -> None:
        if self.drawn_from == self.images:
            object.__setattr__(self, "drawn_from", 0)

    @property
    def answers_needed(self) -> int:
        """Answers that make all thresholds reliable that answers can make so."""
        return sum(row.answers_needed or 0 for row in self.classes)

    def thresholds(self, precision: float | None = None, threshold: float | None = None) -> Floats:
        """(L,) For the highest F1, for a precision, or the same for all."""
        if precision is not None and threshold is not None:
            raise ConfigError(
                f"{param('precision')} and {param('threshold')} cannot both be given",
                "give one of the two",
            )
        if threshold is not None:
            check_threshold(threshold)
            return np.full(len(self.classes), float(threshold))
        if precision is not None:
            if not self.images:
                raise ConfigError(
                    f"{param('precision', f'{precision:g}')} needs validation images, and the run's data has "
                    "none",
                    f"give {param('threshold')}",
                    "train on data with a validation split "
                    f"({command('prepare', 'READER', 'SOURCE', validation=0.2)})",
                )
            return interpolate_thresholds(np.array([row.at_precision for row in self.classes]), precision)
        return np.array([row.threshold for row in self.classes])

    def as_json(self) -> dict[str, Any]:
        """The content of thresholds.json."""
        slopes, offsets = self.calibration.slope.tolist(), self.calibration.offset.tolist()
        return {
            "format": FORMAT,
            "split": SPLIT,
            "images": self.images,
            "labels": self.labels,
            **({"drawn_from": self.drawn_from} if self.drawn_from else {}),
            **({} if self.basis is None else {"basis": self.basis}),
            **({} if self.ranges is None else {"ranges": self.ranges}),
            "precisions": list(PRECISIONS),
            "classes": [
                asdict(row) | {"slope": slope, "offset": offset}
                for row, slope, offset in zip(self.classes, slopes, offsets, strict=True)
            ],
        }


def write_class_thresholds(run: Run, data: Dataset, scores: ScoreMatrix | None) -> ClassThresholds:
    """Choose thresholds from the validation scores (N, L), if there are any, and save them in the run."""
    split = data.splits.get(SPLIT)
    if split is None or scores is None or not split.observed.has(POSITIVE):
        chosen = no_class_thresholds(data.classes, "nothing" if split is None else "no positive")
    else:
        chosen = choose(run, data, split, scores)
    write_json(run.thresholds_file, chosen.as_json())
    return chosen


def load_class_thresholds(run: Run) -> ClassThresholds:
    """The thresholds of a finished run; if their file was removed, they are chosen again from its scores."""
    run.require_finished()
    if run.thresholds_file.is_file():
        return _read(run.thresholds_file, list(run.classes))
    if SPLIT not in run.metadata()["data_digest"]:
        return no_class_thresholds(run.classes, "nothing")
    if not run.scores_file(SPLIT).is_file():
        raise RunError(
            f"{run.path} has no thresholds.json",
            f"{command('evaluate', run.path, split=SPLIT)} chooses them",
        )
    return write_class_thresholds(run, run.data(), saved_scores(run, SPLIT).scores)


def no_class_thresholds(classes: tuple[str, ...], why: str) -> ClassThresholds:
    """Thresholds without any information: the model's own scores, and 0.5 as the threshold."""
    reason = {
        "nothing": "the data has no validation split: the model's own scores, from 0.5 on",
        "no positive": "no validation image has a positive label: the model's own scores, from 0.5 on",
    }[why]
    same = (0.5,) * len(PRECISIONS)
    rows = tuple(ClassThreshold(name, 0.5, 0.0, 0.0, "poor", reason, same) for name in classes)
    return ClassThresholds(rows, no_calibration(len(rows)), why, 0)


def choose(run: Run, data: Dataset, split: PreparedSplit, scores: ScoreMatrix) -> ClassThresholds:
    """Calibrate on validation, and read the thresholds off the calibrated scores.

    Reviewers' answers about validation images count: those given to training, and the run's own. Beyond
    ``MOST_SCORES`` scores a random sample of images is used, and all images with answers.
    """
    own = read_answers(run.answers_file) if run.answers_file.is_file() else []
    all_labels, answers_at = answered_labels(split, [*data.answers, *own])
    rows = _sample(len(split), len(data.classes), answers_at[:, 0])
    labels = all_labels[rows]
    answered = np.zeros(labels.shape, dtype=np.bool_)
    answered[np.searchsorted(rows, answers_at[:, 0]), answers_at[:, 1]] = True
    logits = logits_of(scores[rows])
    expected = expected_by_run(run)
    prevalence = estimate_prevalence(logits, labels, data.train.observed.counts(), expected, answered)
    calibration = calibrate(logits, labels, prevalence.shares, prevalence.annotating, answered)
    count = len(data.classes)
    thresholds, precision, recall = np.empty(count), np.empty(count), np.empty(count)
    at_precision = np.empty((count, len(PRECISIONS)))
    for classes in class_blocks(*logits.shape):
        calibrated = calibration.of_classes(classes)(logits[:, classes])
        thresholds[classes], at_precision[classes] = all_thresholds(calibrated)
        above = calibrated >= thresholds[classes]
        hits = np.where(above, calibrated, 0).sum(axis=0)
        precision[classes] = hits / np.maximum(above.sum(axis=0), 1)
        recall[classes] = hits / np.maximum(calibrated.sum(axis=0), 1e-9)
    positive, negative = (np.count_nonzero(labels == value, axis=0) for value in (POSITIVE, NEGATIVE))
    answers = np.count_nonzero(answered, axis=0)
    chosen = []
    for index, name in enumerate(data.classes):
        yes, no, asked = (int(number[index]) for number in (positive, negative, answers))
        trust, why = _trust(prevalence, prevalence.situations[index], yes, no, asked, len(labels))
        unknown = labels[:, index] == UNKNOWN
        hidden = float(calibration.of_classes(slice(index, index + 1))(logits[unknown, index, None]).sum())
        needed = answers_needed(asked, yes, int(unknown.sum()), hidden) if trust == "poor" else 0
        chosen.append(
            ClassThreshold(
                name,
                round(float(thresholds[index]), 6),
                round(float(precision[index]), 4),
                round(float(recall[index]), 4),
                trust,
                why,
                tuple(round(value, 6) for value in at_precision[index].tolist()),
                needed,
            )
        )
    basis = _basis(prevalence)
    kind = "complete" if basis == "complete" else "sparse"
    ranges = None
    if expected is not None and expected.interval is not None and basis == expected.source:
        values = [_overall_quality(logits, calibration, calibration, thresholds)]
        for factor in expected.interval:
            source = expected.times(factor)
            other = estimate_prevalence(logits, labels, data.train.observed.counts(), source, answered)
            actual = calibrate(logits, labels, other.shares, other.annotating, answered)
            values.append(_overall_quality(logits, actual, calibration, thresholds))
        shown, precisions, recalls = ([min(each), max(each)] for each in zip(*values, strict=True))
        ranges = QualityRanges(labels_per_image=shown, precision=precisions, recall=recalls)
    return ClassThresholds(tuple(chosen), calibration, kind, len(labels), basis, len(split), ranges)


def _overall_quality(
    logits: Floats, actual: Calibration, chosen: Calibration, thresholds: Floats
) -> tuple[float, float, float]:
    """Labels per image, precision and recall of all classes if ``actual`` is the right calibration.

    ``thresholds`` cut scores of the ``chosen`` one.
    """
    shows, suggested, hits = 0.0, 0, 0.0
    for classes in class_blocks(*logits.shape):
        chance = actual.of_classes(classes)(logits[:, classes])
        above = chosen.of_classes(classes)(logits[:, classes]) >= thresholds[classes]
        shows, suggested = shows + float(chance.sum()), suggested + int(above.sum())
        hits += float(chance[above].sum())
    values = shows / max(len(logits), 1), hits / max(suggested, 1), hits / max(shows, 1e-9)
    return round(values[0], 4), round(values[1], 4), round(values[2], 4)


def _sample(images: int, classes: int, answered: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Rows to choose thresholds by: all, or a random sample and those with answers."""
    most = max(MOST_SCORES // classes, FEWEST_IMAGES)
    if images <= most:
        return np.arange(images)
    drawn = np.random.default_rng(0).choice(images, most, replace=False)
    return np.union1d(drawn, answered)


def answers_needed(answers: int, positive: int, unknown: int, hidden: float) -> int | None:
    """Answers that make a class's threshold reliable; None if too few validation images show it.

    ``hidden`` is how many of its ``unknown`` labels are expected to be positive.
    """
    if positive + hidden < SOME and (answers >= ANSWERS or not unknown):
        return None
    return min(max(ANSWERS - answers, SOME - positive, 0), unknown)


def _basis(prevalence: Prevalence) -> Basis:
    """The weakest basis of any class's number of positives."""
    if "sparse" in prevalence.situations:
        return prevalence.source
    if "reviewed" in prevalence.situations:
        return "reviewed"
    return "answered" if "answered" in prevalence.situations else "complete"


class ExpectedOfClass(TypedDict):
    """The expected positives of a class, in expected.json."""

    name: str
    expected: Finite


class ExpectedByRun(TypedDict):
    """The part of expected.json that thresholds need."""

    how: str
    trusted: bool
    images: Annotated[int, Range(1, LARGEST)]
    interval: NotRequired[list[Finite]]
    classes: list[ExpectedOfClass]


def expected_by_run(run: Run) -> PrevalenceSource | None:
    """The expected number of positives, from a run's files and configuration."""
    if run.expected_file.is_file():
        content = read_json(run.expected_file, ExpectedByRun, "train again")
        rows = {row["name"]: row["expected"] for row in content["classes"]}
        lacking = [name for name in run.classes if name not in rows]
        if lacking:
            problem = f"{run.expected_file} lacks classes: {listing(lacking)}"
            raise RunError(problem, "train again", what=run.expected_file, value=lacking)
        shares = np.array([rows[name] for name in run.classes]) / content["images"]
        how: Literal["counted", "estimated"] = "counted" if content["how"] == "counted" else "estimated"
        k = float(shares.sum())
        ends = [end / k for end in content.get("interval", []) if k > 0]
        interval = (ends[0], ends[1]) if len(ends) == 2 else None
        return PrevalenceSource(how, content["trusted"], shares=shares, interval=interval)
    given = run.config().settings.get("expected_positives")
    return PrevalenceSource("given", True, per_image=float(given)) if isinstance(given, int | float) else None


def _trust(
    prevalence: Prevalence, situation: Situation, positive: int, negative: int, answers: int, images: int
) -> tuple[Trust, str]:
    """How reliable a class's threshold is: a word, and a reason."""
    few = f"only {counted(positive, 'validation image')} {'shows' if positive == 1 else 'show'} it"
    if positive == 0:
        return "poor", "no validation image is known to show it: the curve of all classes is used"
    if situation == "reviewed":
        why = f"chosen by {counted(answers, 'answer')} of reviewers; {positive:,} of "
        why += f"{counted(images, 'image')} are known to show it"
        return ("fair" if answers >= ANSWERS and positive >= SOME else "poor"), why
    if situation == "sparse":
        origin = ORIGINS[prevalence.source]
        seen = f"{positive:,} annotated of {counted(images, 'image')}"
        why = f"labels are sparse ({seen}): how many really show it is {origin}"
        if positive < SOME:
            return "poor", f"{few} by annotation: close to the curve of all classes; {why}"
        return ("fair" if prevalence.trusted and positive >= MANY else "poor"), why
    chosen = (
        f"chosen from {counted(images, 'fully labeled image')}, {positive:,} with it"
        if situation == "full"
        else f"chosen from {counted(positive + negative, 'labeled image')}, {positive:,} with it; "
        "unlabeled ones are left out"
    )
    if positive < SOME or not negative:
        alone = "every validation image shows it: nothing says what images without it look like"
        return "poor", f"{few}: close to the curve of all classes" if negative else alone
    return ("good" if positive >= MANY and situation == "full" else "fair"), chosen


def _read(file: Path, classes: list[str]) -> ClassThresholds:
    again = f"remove it, and {command('evaluate', file.parent, split=SPLIT)} chooses them again"
    content = read_json(file, ThresholdsFile, again)
    rows = content["classes"]
    if content["format"] != FORMAT or [row.name for row in rows] != classes:
        raise RunError(f"{file} is of other classes or another version", again, what=file)
    if any(len(row.at_precision) != len(PRECISIONS) for row in rows):
        raise RunError(f"{file} has thresholds of other precisions", again, what=file)
    calibration = Calibration(np.array([row.slope for row in rows]), np.array([row.offset for row in rows]))
    own = [one.name for one in fields(ClassThreshold)]
    decided = tuple(ClassThreshold(**{name: getattr(row, name) for name in own}) for row in rows)
    basis, drawn_from = content.get("basis"), content.get("drawn_from", 0)
    return ClassThresholds(
        decided,
        calibration,
        content["labels"],
        content["images"],
        basis,
        drawn_from,
        content.get("ranges"),
    )


def threshold_metrics(
    scores: ScoreMatrix, labels: LabelTable, class_thresholds: ClassThresholds
) -> dict[str, Any]:
    """Calibration of scores (N, L), and precision, recall and F1 at the thresholds; plain values for JSON.

    ``calibration`` is None where labels are incomplete. ``expected`` is then the precision and recall that
    calibrated scores predict: counted in the labels, every unknown label would be absent.
    """
    from sparselabel.expected_positives.class_counts import wilson  # which a predictor does not need

    thresholds, complete = class_thresholds.thresholds(), labels.complete
    raw, calibrated = Reliability(), Reliability()
    hits, predicted_images = (np.zeros(len(thresholds), np.int64) for _ in range(2))
    expected_hits, shows = np.zeros((2, len(thresholds)))
    for images in image_blocks(*scores.shape):
        some = scores[images]
        now = class_thresholds.calibration(logits_of(some))
        positive = labels.matrix[images] == POSITIVE
        above = now - thresholds >= 0
        hits += np.count_nonzero(above & positive, axis=0)
        predicted_images += np.count_nonzero(above, axis=0)
        expected_hits += np.where(above, now, 0).sum(axis=0)
        shows += now.sum(axis=0)
        if complete:
            raw.add(np.asarray(some, np.float64), positive.astype(np.int8))
            calibrated.add(now, positive.astype(np.int8))
    counts = Counts(hits, predicted_images, labels.counts())
    averages = counts.averages()
    expected = _expected(expected_hits, counts.predicted, shows, len(labels), class_thresholds.basis)
    expected["overall"]["ranges"] = class_thresholds.ranges
    low, high = wilson(counts.hits, np.maximum(counts.predicted, 1))
    intervals = np.clip(np.stack([low, high], axis=1), 0, 1).tolist()
    rows = zip(
        class_thresholds.classes,
        intervals,
        counts.predicted.tolist(),
        counts.precision.tolist(),
        counts.recall.tolist(),
        counts.f1.tolist(),
        expected["classes"],
        strict=True,
    )
    return {
        "chosen_from": {
            "split": "val",
            "images": class_thresholds.images,
            "labels": class_thresholds.labels,
            **({"drawn_from": class_thresholds.drawn_from} if class_thresholds.drawn_from else {}),
        },
        "macro_f1": float(counts.f1.mean()),
        "micro_f1": averages["OF1"],
        "micro_precision": averages["OP"],
        "micro_recall": averages["OR"],
        "expected": expected["overall"],
        "classes": [
            {
                "name": decision.name,
                "threshold": decision.threshold,
                "precision": precision,
                "precision_interval": interval if predicted else None,
                "recall": recall,
                "f1": f1,
                "trust": decision.trust,
                "why": decision.why,
            }
            | of_class
            for decision, interval, predicted, precision, recall, f1, of_class in rows
        ],
        "calibration": calibration_metrics(raw, calibrated) if complete else None,
    }


def _expected(
    hits: Floats, predicted: npt.NDArray[np.int64], shows: Floats, images: int, basis: Basis | None
) -> dict[str, Any]:
    """Precision and recall at the thresholds if calibrated scores are probabilities, from sums of these (L,).

    ``hits`` are of the ``predicted`` images, ``shows`` of all.
    """
    precision, recall = hits / np.maximum(predicted, 1), hits / np.maximum(shows, 1e-9)
    by_class = zip(shows.tolist(), precision.tolist(), recall.tolist(), strict=True)
    names = ("expected_images", "expected_precision", "expected_recall")
    overall = {
        "basis": basis,
        "labels_per_image": float(shows.sum() / images),
        "suggested_per_image": float(predicted.sum() / images),
        "precision": float(hits.sum() / max(predicted.sum(), 1)),
        "recall": float(hits.sum() / max(shows.sum(), 1e-9)),
    }
    return {"overall": overall, "classes": [dict(zip(names, row, strict=True)) for row in by_class]}
