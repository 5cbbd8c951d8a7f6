"""How the demo's network was taught: to name single drawn things, as others learn to with photographs.

    python -m benchmarks.demo_weights FOLDER

draws images of one large thing each (of the scenes' classes, all as often, with a seed of their own) into
FOLDER, trains the demo's network on them with all labels, and writes its backbone, in half precision, where
the demo looks for it. About five minutes on two cores.
"""

import sys
from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file, save_file

from sparselabel.cli.demo import CONFIG, WEIGHTS
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes
from sparselabel.files import atomic_write
from sparselabel.training.train_run import train_run

IMAGES, TESTED, SEED = 5000, 500, 77
LEARNING = FinetunePhase(
    epochs=10, lr=1e-2, batch_size=32, optimizer="adamw", weight_decay=0.02, schedule="one-cycle"
)
PREFIX = "backbone."


def teach(folder: Path) -> float:
    """Draw, train, and write the weights; returns the test mAP."""
    source = scenes.make(folder / "data", train=IMAGES, test=TESTED, seed=SEED, alone=True)
    data = prepare(source, folder / "data", Preparation())
    config = replace(CONFIG, method="bce", weights="none", head=HeadPhase(epochs=0), finetune=LEARNING)
    result = train_run(data, config, folder / "run", Machine(), Handling(resume=True))
    network = {
        name.removeprefix(PREFIX): value.half() if value.is_floating_point() else value
        for name, value in load_file(folder / "run" / "model.safetensors").items()
        if name.startswith(PREFIX)
    }
    with atomic_write(WEIGHTS) as partial:
        save_file(network, partial)
    WEIGHTS.chmod(0o644)  # safetensors makes files for their owner alone
    return float(result["test"]["value"])


if __name__ == "__main__":
    print(f"test mAP on single things: {100 * teach(Path(sys.argv[1])):.1f}; written: {WEIGHTS}")
