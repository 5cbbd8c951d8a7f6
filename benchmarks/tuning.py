"""Fine-tuning with the input pipeline against bare passes on one batch, and with heat maps against without.

    python -m benchmarks.tuning [BACKBONE]

Targets: 0.95 of the bare rate; en+scl and pu+scl at most 1.03 of an, with maps in RAM and in files. JPEG
files of 500 x 375 pixels become crops of 224. Each has its turn three times, so that a busy machine slows
all; the shares are medians of ratios within a turn, of wall time and of the processor's time.
"""

import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal
from unittest.mock import patch

import torch

from benchmarks.common import Seconds, now, show, since, table_of
from benchmarks.rivals import drawn
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Setting, TrainConfig, Views
from sparselabel.data.dataset import Dataset
from sparselabel.models.backbone import make_backbone
from sparselabel.models.classifier import Classifier, LinearHead
from sparselabel.resources import keep_freed_memory
from sparselabel.training.train_run import train_run
from sparselabel.training.trainer import Trainer

SIZE, BATCH, STEPS, CLASSES, TURNS = 224, 16, 8, 20, 3
IMAGES = BATCH * STEPS
METHODS: tuple[tuple[str, Literal["ram", "file"]], ...] = (
    ("an", "ram"),
    *(("en+scl", "ram"), ("pu+scl", "ram"), ("en+scl", "file"), ("pu+scl", "file")),
)


def bare(backbone: str) -> Seconds:
    """Forward, backward and Adam on one batch that is already there."""
    network = make_backbone(backbone, "none", size=SIZE)
    model = Classifier(network, LinearHead(network.width, CLASSES)).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    views = torch.randint(0, 256, (BATCH, 3, SIZE, SIZE), dtype=torch.uint8)
    for number in range(2 + STEPS):
        if number == 2:
            begin = now()
        loss = torch.nn.functional.softplus(model(views).logits).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return since(begin)


def ours(data: Dataset, out: Path, backbone: str, method: str, memories: Literal["ram", "file"]) -> Seconds:
    """Our second epoch: images decoded, cropped and flipped on the way."""
    settings: dict[str, Setting] = {} if method == "an" else {"expected_positives": 1.5}
    config = TrainConfig(
        method=method,
        settings=settings,
        backbone=backbone,
        weights="none",
        views=Views(size=SIZE),
        head=HeadPhase(epochs=0),
        finetune=FinetunePhase(epochs=2, batch_size=BATCH),
        watch=0,
    )
    taken = []
    original = Trainer.train_epoch

    def timed(*arguments: Any) -> Any:
        begin = now()
        result = original(*arguments)
        taken.append(since(begin))
        return result

    with (
        patch.object(Trainer, "train_epoch", timed),
        patch("sparselabel.training.train_run.finish", lambda trainer, state: {}),
    ):
        train_run(data, config, out, Machine(accelerator="cpu", memories=memories), Handling(quiet=True))
    return taken[-1]


def main(backbone: str = "mobilenetv2_100") -> dict[str, float]:
    keep_freed_memory()
    with TemporaryDirectory() as name:
        folder = Path(name)
        photos = drawn(folder / "photos", IMAGES)
        table = table_of(photos.iterdir(), folder / "labels.csv", CLASSES)
        data = Dataset.from_table(table, photos, out=folder / "data", validation=0.0)
        turns = [
            {"bare": bare(backbone)}
            | {
                f"{method}, {memories}": ours(
                    data, folder / f"{method}-{memories}-{turn}", backbone, method, memories
                )
                for method, memories in METHODS
            }
            for turn in range(TURNS)
        ]
    figures = {"bare, images a second": IMAGES / min(turn["bare"][0] for turn in turns)}
    for clock, words in enumerate(("", ", processor's time")):
        share = median(turn["bare"][clock] / turn["an, ram"][clock] for turn in turns)
        figures[f"share of the bare rate (at least 0.95){words}"] = share
        for method, memories in METHODS[1:]:
            ratio = median(turn[f"{method}, {memories}"][clock] / turn["an, ram"][clock] for turn in turns)
            figures[f"{method}, {memories}, beside an (at most 1.03){words}"] = ratio
    return figures


if __name__ == "__main__":
    show("tuning", main(*sys.argv[1:]))
