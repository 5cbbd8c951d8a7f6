import json
import mmap
from pathlib import Path

import pytest

from sparselabel import resources
from sparselabel.resources import peak_memory
from sparselabel.run import Run
from sparselabel.training import logger
from sparselabel.training.logger import CostMeter


def test_a_run_that_goes_on_adds_to_its_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    peaks = iter([500, 700, 300])
    monkeypatch.setattr(logger, "peak_memory", lambda: next(peaks))
    run = Run(tmp_path)
    assert run.cost() == {}
    first = CostMeter(run)
    now[0] = 104.5
    first.keep()
    assert run.cost() == {"seconds": 4.5, "peak_memory": 500}
    now[0] = 106
    first.keep()
    assert run.cost() == {"seconds": 6.0, "peak_memory": 700}
    now[0] = 1000
    second = CostMeter(run)
    now[0] = 1001
    second.keep()
    assert json.loads((tmp_path / "cost.json").read_text()) == {"seconds": 7.0, "peak_memory": 700}


@pytest.mark.skipif(not resources.RESET.exists(), reason="only Linux counts the peak anew")
def test_the_peak_is_of_the_run(tmp_path: Path) -> None:
    CostMeter(Run(tmp_path))
    before = peak_memory()
    size = 300_000_000
    with mmap.mmap(-1, size) as large:  # not malloc, which may keep what was freed
        large.write(b"x" * size)
        high = peak_memory()
    assert high > before + size / 2
    CostMeter(Run(tmp_path))
    assert peak_memory() < high - size / 2


def test_without_linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "STATUS", tmp_path / "no")
    monkeypatch.setattr(resources, "RESET", tmp_path / "no" / "no")
    CostMeter(Run(tmp_path))
    assert peak_memory() > 10_000_000
