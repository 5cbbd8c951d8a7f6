"""Runs trained side by side equal runs trained one by one."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.errors import RunError
from sparselabel.run import Run
from sparselabel.training.checkpoint import Checkpoint, checkpoints
from sparselabel.training.stacked_heads import stack_key, train_side_by_side
from sparselabel.training.train_run import train_run
from tests.training.conftest import tiny

CPU = Machine(accelerator="cpu", workers=0)
QUIET = Handling(quiet=True, resume=True)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights that are the same for every seed."""
    file = tmp_path_factory.mktemp("weights") / "backbone.safetensors"
    torch.manual_seed(0)
    save_file(timm.create_model("test_efficientnet").state_dict(), file)
    return file


def head_run(weights: Path, method: str, *, seed: int, **head: Any) -> TrainConfig:
    phase = HeadPhase(**({"epochs": 3, "batch_size": 16, "lr": 1e-2} | head))
    changes = {"frozen": True, "weights": str(weights), "seed": seed, "finetune": FinetunePhase(epochs=0)}
    return tiny(method, head=phase, **changes)


def both(data: Dataset, configs: list[TrainConfig], folder: Path) -> list[tuple[Run, Run]]:
    """Each run trained beside the others, and alone."""
    runs = [(config, folder / f"beside-{number}") for number, config in enumerate(configs)]
    assert len({stack_key(data, config, out, CPU) for config, out in runs}) == 1
    results = {out: result() for out, result in train_side_by_side(data, runs, CPU, QUIET)}
    pairs = []
    for number, (config, out) in enumerate(runs):
        alone = folder / f"alone-{number}"
        train_run(data, config, alone, CPU, QUIET)
        assert results[out] == Run(out).result()
        pairs.append((Run(out), Run(alone)))
    return pairs


def close(one: Any, other: Any) -> None:
    """Equal to 1e-6, whatever they are."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            close(one[key], other[key])
    elif isinstance(one, list | tuple):
        for first, second in zip(one, other, strict=True):
            close(first, second)
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    elif isinstance(one, float):
        # Of numbers that are kept with six digits, two that are 1e-6 apart can be written 2e-6 apart.
        rounded = one == round(one, 6) and other == round(other, 6)
        assert one == pytest.approx(other, rel=1e-6, abs=2e-6 if rounded else 1e-6)
    else:
        assert one == other


@pytest.mark.parametrize(
    ("method", "phase"),
    [
        ("an", {}),
        ("bce", {"optimizer": "sgd", "schedule": "one-cycle", "grad_clip": 0.05}),
        ("en+asl", {"optimizer": "adamw", "batch_size": 7}),
        ("role", {"schedule": "cosine"}),
        ("ll-cp", {}),
        ("csl-i+cl", {"batch_size": 6}),
    ],
)
def test_runs_side_by_side_are_those_one_by_one(
    small: Dataset, weights: Path, tmp_path: Path, method: str, phase: dict[str, Any]
) -> None:
    changes = [
        {"seed": 0, "lr": 1e-2},
        {"seed": 1, "lr": 1e-3},
        {"seed": 2, "lr": 1e-2},
        {"seed": 0, "lr": 1e-3, "weight_decay": 0.01},
    ]
    configs = [head_run(weights, method, **(phase | change)) for change in changes]
    for beside, alone in both(small, configs, tmp_path):
        assert beside.config() == alone.config()
        close(load_file(beside.model_file), load_file(alone.model_file))
        # The models are equal to 1e-6, not in their bits.
        close(*(one.result() | {"model_checksum": 0} for one in (beside, alone)))
        lines = [
            [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
            for run in (beside, alone)
        ]
        close(*lines)
        assert {file.name for file in beside.path.iterdir()} == {file.name for file in alone.path.iterdir()}
        name = f"{alone.result()['best_epoch']:04d}"
        assert [path.name for path in checkpoints(beside.checkpoints)] == [name]
        bests = [Checkpoint(run.checkpoints / name) for run in (beside, alone)]
        close(*(asdict(best.state) for best in bests))
        close(*(best.optimizer()["optimizer"]["state"] for best in bests))
        for file in ("memory-0", "method", "model"):
            close(*(load_file(best.path / f"{file}.safetensors") for best in bests))


def test_a_run_that_diverges_fails_alone(small: Dataset, weights: Path, tmp_path: Path) -> None:
    configs = [
        head_run(weights, "an", seed=0, lr=lr, weight_decay=lr, optimizer="sgd") for lr in (1e-3, 1e30)
    ]
    runs = [(config, tmp_path / str(number)) for number, config in enumerate(configs)]
    results = dict(train_side_by_side(small, runs, CPU, QUIET))
    assert results[tmp_path / "0"]()["epochs"] == 3
    with pytest.raises(RunError, match="diverged"):
        results[tmp_path / "1"]()


def test_a_run_with_a_checkpoint_goes_on_alone(small: Dataset, weights: Path, tmp_path: Path) -> None:
    config = head_run(weights, "an", seed=0)
    assert stack_key(small, config, tmp_path / "run", CPU) is not None
    train_run(small, config, tmp_path / "run", CPU, QUIET)
    assert stack_key(small, config, tmp_path / "run", CPU) is None


def test_what_is_trained_side_by_side(small: Dataset, weights: Path, tmp_path: Path) -> None:
    def key(config: TrainConfig, machine: Machine = CPU) -> object:
        return stack_key(small, config, tmp_path, machine)

    an = head_run(weights, "an", seed=0)
    assert key(an) == key(head_run(weights, "an", seed=3, lr=1.0, weight_decay=0.1))
    assert key(an) != key(head_run(weights, "an", seed=0, batch_size=8))
    assert key(an) != key(head_run(weights, "wan", seed=0))
    random = replace(an, weights="none")
    assert key(random) != key(replace(random, seed=1)), "they have other features"
    alone = [
        head_run(weights, "em+apl", seed=0),
        head_run(weights, "an+scl", seed=0),
        replace(head_run(weights, "wan", seed=0), settings={"sampled_negatives": True}),
        head_run(weights, "an", seed=0, patience=1),
        head_run(weights, "an", seed=0, ema_decay=0.9),
        replace(an, frozen=False),
        replace(an, classifier="tscam"),
        replace(an, finetune=FinetunePhase(epochs=1)),
    ]
    assert [key(config) for config in alone] == [None] * len(alone)
    assert key(an, replace(CPU, memories="file")) is None
