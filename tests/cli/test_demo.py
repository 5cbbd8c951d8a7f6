"""The demo, with few pictures and one epoch."""

from dataclasses import replace
from pathlib import Path

import pytest

from sparselabel.cli import demo
from tests.cli.conftest import Command


@pytest.mark.filterwarnings(
    "ignore::sparselabel.errors.DataWarning"
)  # so few pictures do not have all classes
def test_the_whole_way(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "PICTURES", 60)
    monkeypatch.setattr(demo, "TESTED", 30)
    monkeypatch.setattr(demo, "CONFIG", replace(demo.CONFIG, full=replace(demo.CONFIG.full, epochs=1)))
    done = command("demo", "--out", "shown")
    assert done == 0
    for method in demo.METHODS:
        assert Path(f"shown/runs/{method}-seed0/result.json").is_file()
    assert Path("shown/heat-maps.png").is_file()
    assert "Where en+scl sees things" in done.out
    page = Path("shown/report.html").read_text(encoding="utf-8")
    assert all(f">{method}<" in page for method in demo.METHODS)
    lines = Path("shown/table.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == list(demo.METHODS)
