"""Run by test_distributed through torchrun: trains each method given, in double precision."""

import sys
from pathlib import Path

import torch

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Setting, TrainConfig, Views
from sparselabel.data.prepared_files import open_prepared
from sparselabel.losses.role import LabelEstimates
from sparselabel.losses.running_scores import RunningScores
from sparselabel.training.train_run import train_run

HANDLING = Handling(quiet=True, resume=True)
SETTINGS: dict[str, dict[str, Setting]] = {
    "ll-r": {"share": 0.05},
    "ll-cp": {"share": 0.02},
    "em+apl": {"warm_up": 1},
    "csl-i": {"likeliest": 1},
    "csl-p": {"unknown": "selective", "prior": "auto", "prior_threshold": 0.3},
    "patchml+cluster": {"near": 0.2, "far": 0.4},
}


def config(method: str) -> TrainConfig:
    """The head alone on fresh views, as batch norm would tell processes apart; three train everything.

    Their backbone has no batch norm, but parameters that its features do not depend on. en+scl compares
    cells with heat maps there, for the head alone is its warm-up; its batches go in two parts.
    """
    everything = method in ("an", "en+scl", "fixmatch")
    return TrainConfig(
        method=method,
        settings=SETTINGS.get(method, {}),
        backbone="test_convnext" if everything else "test_efficientnet",
        weights="none",
        views=Views(size=32),
        head=HeadPhase(epochs=2, lr=1e-2, batch_size=8),
        finetune=FinetunePhase(
            epochs=2 if everything else 0,
            lr=1e-3,
            batch_size=8,
            micro_batches=2 if method == "en+scl" else 1,
        ),
        precision="64-true",
        watch=2,
    )


def main(data: str, out: str, *methods: str) -> None:
    """Train every method into its own run."""
    LabelEstimates.dtype = RunningScores.dtype = torch.float64
    machine = Machine(accelerator="cpu", workers=0)
    for method in methods:
        train_run(open_prepared(Path(data)), config(method), Path(out) / method, machine, HANDLING)


if __name__ == "__main__":
    main(*sys.argv[1:])
