import csv
import json
from pathlib import Path

import pytest

from sparselabel.cli.figure import hidden_positives
from sparselabel.comparison.compare import Comparison
from sparselabel.comparison.planned_runs import Outcome, PlannedRun
from sparselabel.config import TrainConfig
from sparselabel.errors import ConfigError, RunError
from sparselabel.report.figures.hidden_positives import draw_hidden_positives
from tests.report.runs import STRONG, WEAK, finished, make_data


def test_a_column_for_each_epoch(tmp_path: Path) -> None:
    data = make_data(tmp_path)
    runs = [
        finished(tmp_path / name, data, name, scores) for name, scores in (("an", WEAK), ("role", STRONG))
    ]
    numbers = draw_hidden_positives([run.path for run in runs], tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes()[:4] == b"\x89PNG"
    with numbers.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 20
    assert [row["run"] for row in rows[::60]] == ["an", "role"]
    first = [row for row in rows[:20] if float(row["share"])]
    assert [(row["from"], row["to"], row["share"]) for row in first] == [
        ("0.15", "0.2", "0.75"), ("0.6", "0.65", "0.25"),
    ]  # fmt: skip
    assert {(row["epoch"], row["phase"]) for row in rows} == {
        ("1", "head"), ("2", "finetune"), ("3", "finetune"),
    }  # fmt: skip
    comparison = Comparison(
        tmp_path,
        tuple(
            Outcome(PlannedRun(run.path.name, 0, TrainConfig(), run.path), run.result()) for run in runs[::-1]
        ),
        ({"": 4}, 20),
    )
    comparison.save()
    hidden_positives(tmp_path, out=tmp_path / "g.png")  # the baseline first
    assert (tmp_path / "g.csv").read_text() == numbers.read_text()


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to draw"):
        draw_hidden_positives([], tmp_path / "f.png")
    run = finished(tmp_path / "an", make_data(tmp_path), "an", WEAK)
    epochs = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    run.metrics_file.write_text("".join(json.dumps(one | {"hidden_positives": None}) for one in epochs[:1]))
    with pytest.raises(RunError, match="labels are known") as refused:
        draw_hidden_positives([run.path], tmp_path / "f.png")
    assert refused.value.what == run.path
