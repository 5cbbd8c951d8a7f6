import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import TrainConfig, from_dict, save
from sparselabel.data.dataset import Dataset
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import UNKNOWN
from sparselabel.data.prepared_files import open_prepared
from sparselabel.errors import ConfigError, RunError
from sparselabel.expected_positives.class_counts import wilson
from sparselabel.file_formats import read_json
from sparselabel.files import write_json
from sparselabel.inference.class_thresholds import (
    ClassThresholds,
    _read,
    choose,
    expected_by_run,
    load_class_thresholds,
    no_class_thresholds,
    threshold_metrics,
    write_class_thresholds,
)
from sparselabel.inference.saved_scores import keep_scores
from sparselabel.metrics.calibration import Reliability, logits_of, sigmoid
from sparselabel.metrics.class_prevalence import PrevalenceSource
from sparselabel.run import Run
from tests.report.runs import CLASSES, finished, make_data

RANDOM = np.random.default_rng(2)
IMAGES = 1500
LOGITS = RANDOM.normal([-2.0, -2, -2, -4, -9], 2, (IMAGES, 5))
TRUTH = (RANDOM.random(LOGITS.shape) < sigmoid(LOGITS)).astype(np.int8)
TRUTH[:, 3], TRUTH[:15, 3] = 0, 1
TRUTH[:, 4] = 0
SCORES = sigmoid(LOGITS / 2 - 1).astype(np.float32)  # as a model that is too careful says it


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    """The report's data, with a validation split of labels alone."""
    made = make_data(tmp_path)
    ids = np.array([f"{row}" for row in range(IMAGES)])
    labels = LabelTable(ids, CLASSES, TRUTH)
    val = replace(made.split("test"), name="val", paths=ids, truth=labels, observed=labels)
    return replace(made, splits={**made.splits, "val": val})


@pytest.fixture
def run(tmp_path: Path, data: Dataset) -> Run:
    return finished(tmp_path / "run", data, "an", None)


def chosen_from(run: Run, data: Dataset, observed: np.ndarray) -> ClassThresholds:
    part = data.split("val")
    part = replace(part, observed=LabelTable(part.truth.ids, CLASSES, observed.astype(np.int8)))
    return choose(run, data, part, SCORES)


def test_full_labels(run: Run, data: Dataset) -> None:
    class_thresholds = write_class_thresholds(run, data, SCORES)
    assert class_thresholds.calibration.slope[:3] == pytest.approx([2, 2, 2], rel=0.2)
    first = class_thresholds.classes[0]
    count = int(TRUTH[:, 0].sum())
    assert (first.trust, first.why) == ("good", f"chosen from 1,500 fully labeled images, {count} with it")
    assert [row.trust for row in class_thresholds.classes] == ["good", "good", "good", "fair", "poor"]
    assert class_thresholds.classes[4].why.startswith("no validation image is known to show it")
    found = threshold_metrics(SCORES, data.split("val").observed, class_thresholds)
    assert found["calibration"]["ece"] < 0.02 < found["calibration"]["ece_of_raw_scores"]
    best = max(_f1(SCORES[:, 0] >= cut, TRUTH[:, 0]) for cut in np.linspace(0.05, 0.95, 50))
    assert found["classes"][0]["f1"] == pytest.approx(best, abs=0.02)
    assert found["micro_precision"] == pytest.approx(
        (TRUTH * _decided(class_thresholds)).sum() / _decided(class_thresholds).sum()
    )
    low, high = found["classes"][0]["precision_interval"]
    assert low < first.expected_precision < high


def _decided(class_thresholds: ClassThresholds) -> np.ndarray:
    scores: np.ndarray = class_thresholds.calibration(logits_of(SCORES)) >= class_thresholds.thresholds()
    return scores


def _f1(predicted: np.ndarray, truth: np.ndarray) -> float:
    return float(2 * (predicted & (truth == 1)).sum() / (predicted.sum() + truth.sum()))


def test_sparse_labels_with_known_counts_decide_nearly_as_full_ones(run: Run, data: Dataset) -> None:
    full = chosen_from(run, data, TRUTH)
    single = np.full(TRUTH.shape, UNKNOWN)
    for row in np.flatnonzero(TRUTH.any(axis=1)):
        single[row, RANDOM.choice(np.flatnonzero(TRUTH[row]))] = 1
    unaware = chosen_from(run, data, single)
    assert {row.trust for row in unaware.classes} == {"poor"}
    assert "a guess from the labels alone" in unaware.classes[0].why
    rows = [{"name": n, "expected": e} for n, e in zip(CLASSES, TRUTH.sum(0).tolist(), strict=True)]
    write_json(run.expected_file, {"classes": rows, "images": IMAGES, "trusted": True, "how": "counted"})
    aware = chosen_from(run, data, single)
    assert [row.trust for row in aware.classes[:3]] == ["fair"] * 3
    assert "labels are sparse" in aware.classes[0].why
    assert "counted in complete labels" in aware.classes[0].why
    labels = data.split("val").observed
    f1 = [threshold_metrics(SCORES, labels, found)["micro_f1"] for found in (full, aware, unaware)]
    assert f1[1] > f1[0] - 0.02
    assert f1[2] > f1[0] - 0.06
    # The interval of K becomes that of precision and recall, around what is expected.
    assert aware.ranges is None
    k = TRUTH.sum() / IMAGES
    content = {"classes": rows, "images": IMAGES, "trusted": False, "how": "auto"}
    write_json(run.expected_file, content | {"interval": [0.8 * k, 1.3 * k]})
    rough = chosen_from(run, data, single)
    assert rough.ranges is not None
    expected = threshold_metrics(SCORES, labels, rough)["expected"]
    assert expected["ranges"] == rough.ranges
    for name, (low, high) in rough.as_json()["ranges"].items():
        assert low < high, name
        assert low - 1e-4 <= expected[name] <= high + 1e-4, name
    truth = threshold_metrics(SCORES, data.split("val").truth, rough)
    assert rough.ranges["precision"][0] < truth["micro_precision"] < rough.ranges["precision"][1]
    write_json(run.thresholds_file, rough.as_json())
    assert _read(run.thresholds_file, list(CLASSES)).ranges == rough.ranges


def test_thresholds_for_what_is_asked(run: Run, data: Dataset) -> None:
    class_thresholds = chosen_from(run, data, TRUTH)
    strict, scores = (
        class_thresholds.thresholds(precision=0.9),
        class_thresholds.calibration(logits_of(SCORES)),
    )
    assert (strict[:3] > class_thresholds.thresholds()[:3]).all()
    assert TRUTH[:, 0][scores[:, 0] >= strict[0]].mean() == pytest.approx(0.9, abs=0.06)
    assert strict[4] == 0.9  # no image scores as high, so the score itself says it
    assert class_thresholds.thresholds(threshold=0.25).tolist() == [0.25] * 5
    with pytest.raises(ConfigError, match=r"must be a score in \[0, 1\], not 1\.5"):
        class_thresholds.thresholds(threshold=1.5)
    with pytest.raises(ConfigError, match="give one of the two"):
        class_thresholds.thresholds(precision=0.9, threshold=0.5)


def test_what_is_kept_is_read_again(run: Run, data: Dataset) -> None:
    written = write_class_thresholds(run, data, SCORES)
    read = load_class_thresholds(run)
    assert read.classes == written.classes
    assert read.calibration.offset.tolist() == written.calibration.offset.tolist()
    content = read_json(run.thresholds_file, dict)
    content["classes"][0]["name"] = "somebody else"
    write_json(run.thresholds_file, content)
    with pytest.raises(RunError, match=r"thresholds\.json is of other classes or another version"):
        load_class_thresholds(run)
    run.thresholds_file.write_text(json.dumps({"format": 1}))
    with pytest.raises(RunError, match=r"thresholds\.json has no '\w+'") as lacking:
        load_class_thresholds(run)
    assert lacking.value.what == run.thresholds_file


def test_thresholds_that_were_removed_are_chosen_again(tmp_path: Path, data: Dataset) -> None:
    about = finished(tmp_path / "older", data, "an", None)
    with pytest.raises(RunError, match=r"older` with `split=val` chooses them"):
        load_class_thresholds(about)
    opened = open_prepared(data.folder)  # no validation on the disk: its digest would not be found either
    keep_scores(about, data.split("val"), SCORES)
    with pytest.raises(Exception, match="no split 'val'"):
        load_class_thresholds(about)
    without = finished(tmp_path / "without", opened, "an", None)
    alone = load_class_thresholds(without)
    assert alone.thresholds().tolist() == [0.5] * 5
    assert "no validation split" in alone.classes[0].why
    with pytest.raises(ConfigError, match=r"precision=0\.9.* needs validation images"):
        alone.thresholds(precision=0.9)


def test_no_positive_in_validation(run: Run, data: Dataset) -> None:
    part = data.split("val")
    none = replace(part, observed=LabelTable(part.truth.ids, CLASSES, np.zeros_like(TRUTH)))
    class_thresholds = write_class_thresholds(run, replace(data, splits={**data.splits, "val": none}), SCORES)
    assert class_thresholds.labels == "no positive"
    assert class_thresholds.calibration.slope.tolist() == [1.0] * 5


def test_a_class_on_every_validation_image(run: Run, data: Dataset) -> None:
    """However many images show it, there is none to tell it from."""
    every = TRUTH.copy()
    every[:, 0] = 1
    row = chosen_from(run, data, every).classes[0]
    assert (row.trust, row.answers_needed) == ("poor", 0)
    assert row.why.startswith("every validation image shows it")


def test_calibration_is_unknown_where_labels_are(data: Dataset) -> None:
    part = data.split("val")
    labels = LabelTable(part.truth.ids, CLASSES, np.where(TRUTH == 1, 1, UNKNOWN).astype(np.int8))
    assert threshold_metrics(SCORES, labels, no_class_thresholds(CLASSES, "nothing"))["calibration"] is None


def test_reliability_by_hand() -> None:
    scores, positive = np.array([[0.05, 0.95], [0.05, 0.85]]), np.array([[0, 1], [1, 1]], np.int8)
    whole, parts = Reliability(), Reliability()
    whole.add(scores, positive)
    parts.add(scores[:1], positive[:1])
    parts.add(scores[1:], positive[1:])
    bins = whole.bins
    assert [parts.brier, *(row["mean_score"] for row in parts.bins)] == pytest.approx(
        [whole.brier, *(row["mean_score"] for row in bins)]
    )
    assert whole.brier == pytest.approx((0.05**2 + 0.05**2 + 0.95**2 + 0.15**2) / 4)
    assert bins[0] == {
        "from": 0.0,
        "to": 0.1,
        "count": 2,
        "mean_score": pytest.approx(0.05),
        "share_there": 0.5,
    }
    assert bins[3]["share_there"] is None
    largest = Reliability()
    largest.add(np.array([[1.0]]), np.array([[1]], np.int8))
    assert largest.bins[9]["count"] == 1
    assert np.stack(wilson(np.array([9]), 10))[:, 0] == pytest.approx([0.5958, 0.9821], abs=1e-4)


def test_what_a_run_knows(tmp_path: Path) -> None:
    run = Run(tmp_path)
    write_json(tmp_path / "run.json", {"data": "d", "data_digest": {}, "classes": ["a", "b"]})
    save(TrainConfig(), run.config_file)
    assert expected_by_run(run) is None
    save(from_dict(TrainConfig, {"settings": {"expected_positives": 1.5}}, "test"), run.config_file)
    assert expected_by_run(run) == PrevalenceSource("given", True, per_image=1.5)
    content = {
        "how": "auto",
        "trusted": False,
        "images": 10,
        "classes": [{"name": "b", "expected": 5}, {"name": "a", "expected": 2}],
    }
    write_json(run.expected_file, content)
    found = expected_by_run(run)
    assert found is not None
    assert found.shares is not None
    assert (found.source, found.trusted, found.shares.tolist()) == ("estimated", False, [0.2, 0.5])
    write_json(run.expected_file, {})
    with pytest.raises(RunError, match=r"expected\.json has no '\w+'.*: train again") as raised:
        expected_by_run(run)
    assert raised.value.what == run.expected_file


def test_thresholds_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "thresholds.json"
    chosen = no_class_thresholds(("cat",), "nothing").as_json()
    for key in ("threshold", "slope", "offset"):
        (row,) = chosen["classes"]
        write_json(file, chosen | {"classes": [row | {key: float("nan")}]})
        with pytest.raises(RunError) as error:
            _read(file, ["cat"])
        assert error.value.what == file
