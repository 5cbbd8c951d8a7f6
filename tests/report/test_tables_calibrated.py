from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparselabel.data.label_table import LabelTable
from sparselabel.file_formats import read_json
from sparselabel.files import write_json
from sparselabel.inference.class_thresholds import no_class_thresholds, threshold_metrics
from sparselabel.report.examples import Scored
from sparselabel.report.page import write_report
from sparselabel.report.run_data import ReportData, read_runs
from sparselabel.report.tables import calibrated_runs, reliability_charts, threshold_rows
from tests.report.runs import CLASSES, STRONG, TEST, WEAK, Tables, finished, hidden_labels, make_data


def reported(folder: Path, labels: np.ndarray | None) -> ReportData:
    """Two runs, whose results have (but for None) what their thresholds bring against these labels."""
    data = make_data(folder)
    paths = []
    for name, scores in (("an", WEAK), ("en", STRONG)):
        run = finished(folder / name, data, name, scores)
        if labels is not None:
            result = read_json(run.result_file, dict)
            table = LabelTable(np.array([f"{row}" for row in range(len(TEST))]), CLASSES, labels)
            result["test"]["decided"] = threshold_metrics(
                scores, table, no_class_thresholds(CLASSES, "nothing")
            )
            write_json(run.result_file, result)
        paths.append(run.path)
    return read_runs(paths)


def test_numbers_charts_and_thresholds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparselabel.report.tables.FEWEST", 1)
    about = reported(tmp_path, TEST)
    first, second = calibrated_runs(about)
    predicted = WEAK >= 0.5
    micro = 200 * (predicted & (TEST == 1)).sum() / (predicted.sum() + TEST.sum())
    assert first.name == "an"
    assert first.micro_f1 == pytest.approx(micro)
    assert second.error is not None
    assert second.error == pytest.approx(second.error_of_raw)  # nothing was calibrated here
    ours, raw = reliability_charts(about)
    assert [line.name for line in ours.chart.lines] == ["perfect", "an", "en"]
    assert raw.chart.title == "The model's own scores"
    low = (WEAK >= 0.1) & (WEAK < 0.2)
    assert ours.chart.lines[1].values[1] == (pytest.approx(100 * TEST[low].mean()) if low.any() else None)
    assert [row.trust for row in threshold_rows(about)] == ["poor"] * 5

    write_report(about, Scored(), None, tmp_path / "report.html", {}, "1.2.3")
    found = Tables((tmp_path / "report.html").read_text(encoding="utf-8")).found
    assert found["Table of calibration"][1][:2] == ["an", f"{micro:.1f}"]
    alone = replace(about, runs=about.runs[:1])
    write_report(alone, Scored(), None, tmp_path / "report.html", {}, "1.2.3")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    first_class = Tables(page).found["Table of classes"][1]
    right = 100 * (predicted & (TEST == 1))[:, 0].sum() / max(predicted[:, 0].sum(), 1)
    found_of = 100 * (predicted & (TEST == 1))[:, 0].sum() / TEST[:, 0].sum()
    assert first_class[3:] == [f"{right:.0f}", f"{found_of:.0f}", "0.50", "poor"]
    assert "no validation split" in page  # why, under the pointer


def expected_of(scores: np.ndarray, thresholds: float) -> tuple[float, float]:
    """Precision and recall if scores are probabilities."""
    above = scores >= thresholds
    return scores[above].sum() / above.sum(), scores[above].sum() / scores.sum()


def test_sparse_labels_have_expected_precision_and_recall(tmp_path: Path) -> None:
    about = reported(tmp_path, hidden_labels(TEST))
    result = about.reference.result["test"]
    result["labels"] = "observed; unknown counts as absent"
    precision, recall = expected_of(WEAK.astype(np.float64), 0.5)
    overall = result["decided"]["expected"]
    assert overall["precision"] == pytest.approx(precision, abs=1e-6)
    assert overall["recall"] == pytest.approx(recall, abs=1e-6)
    assert overall["labels_per_image"] == pytest.approx(WEAK.sum() / len(WEAK), abs=1e-6)
    of_class, found_of = expected_of(WEAK[:, 1].astype(np.float64), 0.5)
    row = threshold_rows(about)[1]
    assert (row.precision.text, row.recall.text) == (f"{100 * of_class:.0f}", f"{100 * found_of:.0f}")


def test_incomplete_labels_say_nothing_of_calibration(tmp_path: Path) -> None:
    about = reported(tmp_path, hidden_labels(TEST))
    assert reliability_charts(about) == []
    assert calibrated_runs(about)[0].error is None
    write_report(about, Scored(), None, tmp_path / "report.html", {}, "1.2.3")
    assert "Calibration is not measured" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_without_thresholds_there_is_no_such_section(tmp_path: Path) -> None:
    about = reported(tmp_path, None)
    assert (calibrated_runs(about), threshold_rows(about), reliability_charts(about)) == ([], [], [])
    write_report(about, Scored(), None, tmp_path / "report.html", {}, "1.2.3")
    assert 'id="calibration"' not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_thresholds_that_answers_have_moved_are_those_of_the_report(tmp_path: Path) -> None:
    about = reported(tmp_path, TEST)
    folder = about.reference.folder
    chosen = no_class_thresholds(CLASSES, "nothing").as_json()
    for row in chosen["classes"]:
        row |= {"threshold": 0.25, "trust": "fair", "why": "chosen by 20 answers of reviewers"}
    write_json(folder.thresholds_file, chosen)
    rows = threshold_rows(read_runs([folder.path]))
    assert [(row.threshold.text, row.trust) for row in rows] == [("0.25", "fair")] * 5
    predicted = WEAK[:, 0] >= 0.25
    right = 100 * (predicted & (TEST[:, 0] == 1)).sum() / predicted.sum()
    assert rows[0].precision.text == f"{right:.0f}"
