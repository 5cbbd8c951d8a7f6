"""Two processes equal one process on the same batches, with an odd number of rows."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sparselabel.data.dataset import Dataset
from sparselabel.data.loaders import PADDING, Rows, epoch_batches
from sparselabel.losses.role import LabelEstimates
from sparselabel.losses.running_scores import RunningScores
from sparselabel.training import phases
from sparselabel.training.checkpoint import newest_checkpoint
from tests.training import two_processes
from tests.training.processes import run_processes

METHODS = ("epr", "role", "pseudo", "an", "en", "en+scl", "asl+cl", "ll-r", "ll-cp", "em+apl")
WITH_BOXES = ("csl-i", "csl-p", "patchml+cluster", "fixmatch")


@pytest.fixture(scope="module")
def runs(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return train_twice(small, tmp_path_factory.mktemp("runs"), METHODS)


@pytest.fixture(scope="module")
def runs_with_boxes(marked: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return train_twice(marked, tmp_path_factory.mktemp("runs"), WITH_BOXES)


def train_twice(data: Dataset, folder: Path, methods: tuple[str, ...]) -> dict[str, Path]:
    """Train each method by two processes, and by one on the same batches."""
    said = run_processes(2, two_processes.__file__, str(data.folder), str(folder / "two"), *methods)
    (folder / "stderr").write_text(said)

    def both_shards(count: int, batch: int, seed: int, epoch: int, shard: int, shards: int) -> list[Rows]:
        halves = [epoch_batches(count, batch, seed, epoch, shard, 2) for shard in (0, 1)]
        together = [np.concatenate(pair) for pair in zip(*halves, strict=True)]
        return [rows[rows != PADDING] for rows in together]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phases, "epoch_batches", both_shards)
        patch.setattr(LabelEstimates, "dtype", torch.float64)
        patch.setattr(RunningScores, "dtype", torch.float64)
        two_processes.main(str(data.folder), str(folder / "one"), *methods)
    return {"one": folder / "one", "two": folder / "two", "stderr": folder / "stderr"}


def losses(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["losses"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def memory(run: Path, process: int) -> dict[str, torch.Tensor]:
    newest = newest_checkpoint(run / "checkpoints")
    assert newest is not None
    return load_file(newest.path / f"memory-{process}.safetensors")


@pytest.mark.parametrize("method", METHODS)
def test_same_losses_weights_and_memories(runs: dict[str, Path], small: Dataset, method: str) -> None:
    refuse_difference(runs, small, method)


@pytest.mark.parametrize("method", WITH_BOXES)
def test_the_same_with_boxes(runs_with_boxes: dict[str, Path], marked: Dataset, method: str) -> None:
    refuse_difference(runs_with_boxes, marked, method)
    if method == "csl-p":  # its prior was estimated first, by a run of the same processes
        one, two = (
            json.loads((runs_with_boxes[by] / method / "prior.json").read_text()) for by in ("one", "two")
        )
        assert list(one) == list(marked.classes)
        assert one == pytest.approx(two, abs=1e-9)
    if method == "patchml+cluster":
        assert [step["pseudo"] > 0 for step in losses(runs_with_boxes["one"] / method)] == [False, True]


def refuse_difference(runs: dict[str, Path], data: Dataset, method: str) -> None:
    assert len(data.train) % 2 == 1
    one, two = runs["one"] / method, runs["two"] / method
    for ours, theirs in zip(losses(one), losses(two), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-9)
    if method == "en+scl":
        assert [step["consistency"] > 0 for step in losses(one)] == [False, False, True, True]
    weights = [load_file(run / "model.safetensors") for run in (one, two)]
    assert weights[0].keys() == weights[1].keys()
    for key, weight in weights[0].items():
        torch.testing.assert_close(weight, weights[1][key], rtol=0, atol=1e-9)
    whole = memory(one, 0)
    for process in (0, 1):
        for key, part in memory(two, process).items():
            of_rows = part.shape[:1] == (len(data.train) // 2 + 1 - process,)
            expected = whole[key][process::2] if of_rows else whole[key]
            torch.testing.assert_close(part, expected, rtol=0, atol=1e-9)
    results = [json.loads((run / "result.json").read_text()) for run in (one, two)]
    assert results[0]["test"]["value"] == pytest.approx(results[1]["test"]["value"], abs=1e-9)
    assert results[0]["recovery"] == pytest.approx(results[1]["recovery"], abs=1e-9)


def test_torch_has_nothing_to_complain_of(runs: dict[str, Path]) -> None:
    assert "arning" not in runs["stderr"].read_text()


@pytest.mark.parametrize("method", ["role", "pseudo", "en+scl", "ll-cp", "em+apl"])
def test_a_run_of_two_goes_on_as_one(
    runs: dict[str, Path], small: Dataset, tmp_path: Path, method: str
) -> None:
    shutil.copytree(runs["two"] / method, tmp_path / method)
    (tmp_path / method / "result.json").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LabelEstimates, "dtype", torch.float64)
        patch.setattr(RunningScores, "dtype", torch.float64)
        two_processes.main(str(small.folder), str(tmp_path), method)
    results = [json.loads((run / method / "result.json").read_text()) for run in (runs["two"], tmp_path)]
    assert results[0]["recovery"] == pytest.approx(results[1]["recovery"], abs=1e-9)
