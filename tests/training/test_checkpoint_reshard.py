"""Resuming on another number of processes, with row stores in files."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sparselabel.data.dataset import Dataset
from sparselabel.errors import RunError
from sparselabel.training.trainer import Trainer
from tests.training import some_processes
from tests.training.processes import run_processes


def go_on(data: Dataset, run: Path, processes: int, memories: str, moment: str, epoch: int) -> None:
    """Train with so many processes, until before or after the checkpoint of an epoch."""
    arguments = [str(data.folder), str(run), memories, moment, str(epoch)]
    if processes == 1:
        some_processes.main(*arguments)
        return
    run_processes(processes, some_processes.__file__, *arguments)


def told(run: Path, what: str, processes: int) -> dict[str, torch.Tensor]:
    """What all processes together remembered, by row."""
    parts = [load_file(run / f"{what}-{n}-of-{processes}.safetensors") for n in range(processes)]
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    for name, values in whole.items():
        for number, part in enumerate(parts):
            values[number::processes] = part[name]
    return whole


def assert_kept(run: Path, before: int, now: int) -> None:
    left, taken = told(run, "left", before), told(run, "taken", now)
    assert sorted(name.rpartition(".")[2] for name in left) == ["maps", "scores"]
    assert left.keys() == taken.keys()
    for name, values in left.items():
        assert torch.equal(values, taken[name])
        assert len(set(map(tuple, values.tolist()))) > len(values) // 2  # a wrong row would be seen


def files(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (run / "memory").iterdir()}


def names(processes: int) -> set[str]:
    memories = ("heat-maps", "running-scores")
    return {f"{name}-{number}-of-{processes}.rows" for name in memories for number in range(processes)}


@pytest.fixture(scope="module")
def by_two(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes that ended after its third epoch."""
    run = tmp_path_factory.mktemp("two") / "run"
    go_on(small, run, 2, "file", "after", 3)
    assert files(run).keys() == names(2)
    return run


@pytest.fixture
def run(by_two: Path, tmp_path: Path) -> Path:
    shutil.copytree(by_two, tmp_path / "run")
    return tmp_path / "run"


def test_from_two_to_one_to_three_in_files(small: Dataset, run: Path) -> None:
    old = files(run)
    go_on(small, run, 1, "file", "before", 4)  # a crash before the first checkpoint
    assert_kept(run, 2, 1)
    assert files(run).keys() == names(2) | names(1)
    assert {name: files(run)[name] for name in old} == old
    go_on(small, run, 1, "file", "after", 4)  # the same again, from the old files
    assert_kept(run, 2, 1)
    assert files(run).keys() == names(1)
    go_on(small, run, 3, "file", "after", 9)
    assert_kept(run, 1, 3)
    assert (run / "result.json").is_file()
    assert not (run / "memory").exists()


def test_from_files_into_ram_whose_best_epoch_is_then_gone(
    small: Dataset, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on(small, run, 1, "file", "before", 4)
    go_on(small, run, 1, "ram", "before", 4)  # what was tried in vain does not decide where memories are
    assert_kept(run, 2, 1)
    assert files(run).keys() == names(2)
    monkeypatch.setattr(Trainer, "validate", lambda self, stage: {"name": "mAP", "value": -1.0})
    go_on(small, run, 1, "ram", "after", 4)
    assert not files(run)
    go_on(small, run, 1, "ram", "after", 9)
    result = json.loads((run / "result.json").read_text())
    assert result["best_epoch"] <= 3
    assert result["recovery"]["estimates"] is None  # two processes had them in files, which went on


def test_a_lost_file_is_named(small: Dataset, run: Path) -> None:
    (run / "memory" / "heat-maps-1-of-2.rows").unlink()
    said = r"run/memory lacks heat-maps-1-of-2\.rows, which the checkpoint 0003 needs, .*: bring it back"
    for memories in ("ram", "file"):
        with pytest.raises(RunError, match=said):
            go_on(small, run, 1, memories, "after", 4)
