"""Cole 2021's table on VOC's stored features, 240 runs side by side, against the same runs one by one.

Target: under three minutes on two cores. One by one: a run of each method and batch size, times their number.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import timm
import torch
from safetensors.torch import save_file

from benchmarks.common import imagined
from sparselabel.comparison.grid import CHOOSE, Varied
from sparselabel.comparison.planned_runs import PlannedRun, plan_runs
from sparselabel.comparison.runner import train_all
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, TrainConfig
from sparselabel.training.phase_loaders import PhaseLoaders
from sparselabel.training.train_run import train_run

METHODS = ["bce", "bce-ls", "iun", "an", "an-ls", "wan", "epr", "role", "en", "pu"]
RATES, BATCHES, SEEDS = (1e-2, 1e-3, 1e-4, 1e-5), (8, 16), (0, 1, 2)
IMAGES, WIDTH, CLASSES = {"train": 4574, "val": 1143, "test": 5823}, 1280, 20
MACHINE, HANDLING = Machine(accelerator="cpu", workers=0, engine="torch"), Handling(quiet=True)


def planned(weights: Path, out: Path) -> list[PlannedRun]:
    base = TrainConfig(
        backbone="mobilenetv2_100",
        weights=str(weights),
        frozen=True,
        head=HeadPhase(epochs=25),
        finetune=FinetunePhase(epochs=0),
        settings={"expected_positives": 1.5},
    )
    choose = [
        Varied.of(["head.lr", *RATES], CHOOSE),
        Varied.of(["head.batch-size", *BATCHES], CHOOSE),
    ]
    return plan_runs(base, METHODS, SEEDS, out, choose)


def main() -> dict[str, float]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        weights = folder / "weights.safetensors"
        save_file(timm.create_model("mobilenetv2_100").state_dict(), weights)
        data = imagined(folder, IMAGES, CLASSES)
        features = {split: torch.rand(count, WIDTH) for split, count in IMAGES.items()}
        with (
            patch.object(PhaseLoaders, "_features_of", lambda self, split, cells: features[split]),
            patch.object(PhaseLoaders, "check", lambda self, network: None),
            patch.object(PhaseLoaders, "stored_bytes", lambda self: 4 * WIDTH * sum(IMAGES.values())),
        ):
            runs = planned(weights, folder / "beside")
            begin = time.perf_counter()
            outcomes = train_all(data, runs, MACHINE, handling=HANDLING)
            beside = time.perf_counter() - begin
            failed = [str(outcome) for outcome in outcomes if outcome.error]
            if failed:
                raise RuntimeError("\n".join(failed))
            alone = 0.0
            for run in planned(weights, folder / "alone"):
                if run.seed == SEEDS[0] and run.config.head.lr == RATES[1]:
                    begin = time.perf_counter()
                    train_run(data, run.config, run.path, MACHINE, HANDLING)
                    alone += (time.perf_counter() - begin) * len(SEEDS) * len(RATES)
    return {
        "runs": len(runs),
        "side by side, s (at most 180)": beside,
        "one by one, s": alone,
        "times as fast": alone / beside,
    }
