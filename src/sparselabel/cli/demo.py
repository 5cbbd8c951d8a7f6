"""``sparselabel demo``: all steps on the built-in data, in a few minutes."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

from sparselabel.cli.compare import Listed, show
from sparselabel.cli.terminal import exit_if_failed, plain_console
from sparselabel.config import FinetunePhase, HeadPhase, Preparation, TrainConfig, Views

METHODS = ("bce", "an", "en", "en+scl", "pu+scl")
IMAGES, TESTED = 2000, 800
WEIGHTS = Path(__file__).with_name("demo.safetensors")
"""Of a network that has learned to name single drawn things (``python -m benchmarks.demo_weights``)."""
CONFIG = TrainConfig(
    backbone="test_resnet",
    weights=str(WEIGHTS),
    output_stride=16,  # 4 × 4 cells
    views=Views(size=64, smallest_crop=0.5),
    head=HeadPhase(epochs=2, lr=1e-2, batch_size=32),
    finetune=FinetunePhase(epochs=5, lr=1e-3, batch_size=32, optimizer="adamw", weight_decay=0.02),
)


def demo(
    *, out: Path = Path("demo"), seeds: Annotated[list[int] | None, Listed] = None, force: bool = False
) -> None:
    """Draw images, hide all labels but one each, train five methods on that and compare them.

    It takes about two minutes on two cores. If it is stopped, the same command continues.

    Example: `sparselabel demo --out demo`

    Parameters
    ----------
    out
        Folder for data and runs.
    seeds
        Random seeds to train with; default: 0.
    force
        Start over.
    """
    from sparselabel.cli.prepare import Target, scenes
    from sparselabel.comparison.compare import compare
    from sparselabel.report.figures.heatmap_figures import draw_heat_maps
    from sparselabel.report.make_report import make_report
    from sparselabel.report.run_data import read_runs

    console = plain_console()
    data, runs = out / "data", out / "runs"
    if force and (data / "scenes.json").exists():
        shutil.rmtree(data)
        shutil.rmtree(runs, ignore_errors=True)
    if not (data / "dataset.json").exists():
        scenes(train=IMAGES, test=TESTED, to=Target(data, how=Preparation(sparsify="single-positive")))
    comparison = compare(data, METHODS, out=runs, seeds=seeds or 1, config=CONFIG, command=sys.argv)
    comparison.write(out)
    console.print()
    show(comparison.sheet())
    exit_if_failed(len(comparison.failed), len(comparison.outcomes))
    run = next(one.run.path for one in reversed(comparison.outcomes) if one.run.method == "en+scl")
    image = out / "heat-maps.png"
    draw_heat_maps(run, (), 4, image)
    page = out / "report.html"
    make_report(read_runs(comparison.best_runs()), page)
    console.print(
        "bce is the oracle: it saw every label. The others saw one positive label per image.\n"
        "an assumes that the rest is negative; en leaves out the likely positives; en+scl, the default if\n"
        "you fine-tune, also holds the model to its earlier heat map of an image; pu+scl does that too, and\n"
        "weighs an unknown label as positive and negative by how likely each is.\n"
        "All start from a network that was pretrained on single drawn objects of these classes, as networks\n"
        "for photographs are on ImageNet. From random weights en would lose to an \n"
        "(docs/results-appendix.md, scenes from random weights).\n\n"
        f"Where en+scl sees things in some training images: {image}\n"
        f"All about these runs, for your browser: {page}\n\n"
        "What to try next:\n"
        f"  sparselabel evaluate {run}     all metrics of a run, class by class\n"
        f"  sparselabel figure growth {run}     how its heat maps grew\n"
        "  sparselabel methods                              what else there is\n"
        "  sparselabel train photos --labels labels.csv     your own images"
    )
