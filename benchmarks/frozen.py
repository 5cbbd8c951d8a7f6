"""Training on stored features against a bare PyTorch loop on the same tensors. Target: at most 1.2.

    python -m benchmarks.frozen

They take turns, with the default number of epochs. Ratios are medians of those within a turn, of wall time
and of the processor's time.
"""

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch
import torch.nn.functional as F

from benchmarks.common import Seconds, imagined, now, show, since
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Setting, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.metrics.average_precision import average_precision
from sparselabel.training.checkpoint import TrainingState
from sparselabel.training.phase_loaders import PhaseLoaders
from sparselabel.training.train_run import train_run
from sparselabel.training.trainer import Trainer

ROWS, WIDTH, CLASSES, BATCH, EPOCHS, TURNS = 4574, 1280, 20, 16, 25, 3


def bare(method: str, data: Dataset, features: dict[str, torch.Tensor]) -> Seconds:
    """A plain loop with validation after every epoch; role's estimates have a dense Adam."""
    torch.manual_seed(0)
    observed = torch.from_numpy(data.train.observed.values)
    head = torch.nn.Linear(WIDTH, CLASSES)
    groups: list[dict[str, object]] = [{"params": head.parameters(), "lr": 1e-3}]
    estimates = torch.nn.Parameter(torch.empty(ROWS, CLASSES).uniform_(-0.4, 0.4))
    if method == "role":
        groups.append({"params": [estimates], "lr": 1e-2})
    optimizer = torch.optim.Adam(groups)
    begin = now()
    for _ in range(EPOCHS):
        for rows in torch.randperm(ROWS).split(BATCH):  # type: ignore[no-untyped-call]
            logits = head(features["train"][rows])
            positive = (observed[rows] == 1).float()
            if method == "role":
                loss = role_loss(logits, estimates[rows], positive)
            else:
                loss = F.binary_cross_entropy_with_logits(logits, positive)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            average_precision(torch.sigmoid(head(features["val"])).numpy(), data.split("val").truth.values)
    return since(begin)


def role_loss(logits: torch.Tensor, estimates: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
    def side(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        entropy = F.binary_cross_entropy_with_logits(one, torch.sigmoid(other).detach())
        known = -(positive * F.logsigmoid(one)).mean()
        return entropy + known + ((torch.sigmoid(one).sum(1).mean() - 1.5) / CLASSES) ** 2

    return (side(logits, estimates) + side(estimates, logits)) / 2


def ours(method: str, data: Dataset, features: dict[str, torch.Tensor], out: Path) -> Seconds:
    """Our loop, with validation, log, watched rows and a checkpoint after every epoch."""
    settings: dict[str, Setting] = {"expected_positives": 1.5} if method == "role" else {}
    config = TrainConfig(
        method=method,
        settings=settings,
        frozen=True,
        head=HeadPhase(epochs=EPOCHS, batch_size=BATCH),
        finetune=FinetunePhase(epochs=0),
    )
    seconds = []

    train = Trainer.train

    def timed(trainer: Trainer) -> TrainingState:
        begin = now()
        state = train(trainer)
        seconds.append(since(begin))
        return state

    with (
        patch.object(PhaseLoaders, "_features_of", lambda self, split, cells: features[split]),
        patch.object(PhaseLoaders, "check", lambda self, network: None),
        patch.object(Trainer, "train", timed),
        patch("sparselabel.training.train_run.finish", lambda trainer, state: {}),
    ):
        train_run(
            data, config, out, Machine(accelerator="cpu", workers=0, engine="torch"), Handling(quiet=True)
        )
    return seconds[0]


def main() -> dict[str, float]:
    figures = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        data = imagined(folder, {"train": ROWS, "val": 1143}, CLASSES)
        features = {split: torch.rand(len(part), WIDTH) for split, part in data.splits.items()}
        for method in ("an", "role"):
            turns = [
                (bare(method, data, features), ours(method, data, features, folder / f"{method}-{turn}"))
                for turn in range(TURNS)
            ]
            for clock, words in enumerate(("", ", processor's time")):
                seconds = [(plain[clock], whole[clock]) for plain, whole in turns]
                figures[f"{method}: bare loop, s an epoch{words}"] = min(seconds)[0] / EPOCHS
                figures[f"{method}: ratio (at most 1.2){words}"] = median(b / a for a, b in seconds)
    return figures


if __name__ == "__main__":
    show("frozen", main())
