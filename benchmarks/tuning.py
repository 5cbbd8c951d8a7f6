"""Fine-tuning with the input pipeline against bare passes. Target: at least 0.85 of their rate."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, TrainConfig, Views
from sparselabel.data.dataset import Dataset
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes
from sparselabel.models.backbone import make_backbone
from sparselabel.models.classifier import Classifier, LinearHead
from sparselabel.resources import keep_freed_memory
from sparselabel.training.train_run import train_run
from sparselabel.training.trainer import Trainer

SIZE, BATCH, IMAGES = 128, 16, 480


def bare() -> float:
    """Images a second of forward, backward and Adam on one batch that is already there."""
    backbone = make_backbone("mobilenetv2_100", "none", size=SIZE)
    model = Classifier(backbone, LinearHead(backbone.width, 12)).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    views = torch.randint(0, 256, (BATCH, 3, SIZE, SIZE), dtype=torch.uint8)
    for number in range(23):
        if number == 3:
            begin = time.perf_counter()
        loss = torch.nn.functional.softplus(model(views).logits).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return 20 * BATCH / (time.perf_counter() - begin)


def ours(data: Dataset, out: Path, workers: int) -> float:
    """Images a second of our second epoch, images decoded, cropped and flipped on the way."""
    config = TrainConfig(
        backbone="mobilenetv2_100",
        weights="none",
        views=Views(size=SIZE),
        head=HeadPhase(epochs=0),
        finetune=FinetunePhase(epochs=2, batch_size=BATCH),
        watch=0,
    )
    rates = []
    original = Trainer.train_epoch

    def timed(*arguments: Any) -> Any:
        begin = time.perf_counter()
        result = original(*arguments)
        rates.append(IMAGES / (time.perf_counter() - begin))
        return result

    with (
        patch.object(Trainer, "train_epoch", timed),
        patch("sparselabel.training.train_run.finish", lambda trainer, state: {}),
    ):
        train_run(data, config, out, Machine(accelerator="cpu", workers=workers), Handling(quiet=True))
    return rates[-1]


def main() -> dict[str, float]:
    keep_freed_memory()
    with TemporaryDirectory() as name:
        folder = Path(name)
        source = scenes.make(folder / "data", train=IMAGES, test=1, size=160)
        data = prepare(source, folder / "data", Preparation(sparsify="single-positive", validation=0.0))
        rates: dict[str, list[float]] = {"bare": [], "no worker": [], "one worker": []}
        for turn in range(3):  # in turns, so that a busy machine slows all
            rates["bare"].append(bare())
            rates["no worker"].append(ours(data, folder / f"none-{turn}", 0))
            rates["one worker"].append(ours(data, folder / f"one-{turn}", 1))
    best = {name: max(values) for name, values in rates.items()}
    return {f"{name}, images a second": value for name, value in best.items()} | {
        "share of the bare rate (at least 0.85)": best["no worker"] / best["bare"],
        "share of the bare rate, one worker": best["one worker"] / best["bare"],
    }
