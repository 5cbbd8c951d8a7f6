import json
import mmap
from pathlib import Path

import pytest

from sparselabel.run import Run
from sparselabel.training import run_cost as cost
from sparselabel.training.run_cost import Cost, peak_memory


def test_a_run_that_goes_on_adds_to_its_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    peaks = iter([500, 700, 300])
    monkeypatch.setattr(cost, "peak_memory", lambda: next(peaks))
    run = Run(tmp_path)
    assert run.cost() == {}
    first = Cost(run)
    now[0] = 104.5
    first.keep()
    assert run.cost() == {"seconds": 4.5, "peak_memory": 500}
    now[0] = 106
    first.keep()
    assert run.cost() == {"seconds": 6.0, "peak_memory": 700}
    now[0] = 1000
    second = Cost(run)
    now[0] = 1001
    second.keep()
    assert json.loads((tmp_path / "cost.json").read_text()) == {"seconds": 7.0, "peak_memory": 700}


@pytest.mark.skipif(not cost.RESET.exists(), reason="only Linux counts the peak anew")
def test_the_peak_is_of_the_run(tmp_path: Path) -> None:
    Cost(Run(tmp_path))
    before = peak_memory()
    size = 300_000_000
    with mmap.mmap(-1, size) as large:  # not malloc, which may keep what was freed
        large.write(b"x" * size)
        high = peak_memory()
    assert high > before + size / 2
    Cost(Run(tmp_path))
    assert peak_memory() < high - size / 2


def test_without_linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cost, "STATUS", tmp_path / "no")
    monkeypatch.setattr(cost, "RESET", tmp_path / "no" / "no")
    Cost(Run(tmp_path))
    assert peak_memory() > 10_000_000
