"""A backbone by each engine beside PyTorch at its best (channels last, memory kept), on the same views.

    python -m benchmarks.engines [BACKBONE [WEIGHTS]]

The network alone, in one process, turn by turn; ratios are the medians of three turns.
"""

import sys
import time
from statistics import median

import torch

from benchmarks.common import show
from sparselabel.inference.engine import PACKAGES, TORCH, CellFeatures, CompiledNetwork, missing_packages
from sparselabel.models.backbone import make_backbone
from sparselabel.resources import keep_freed_memory

VIEWS, SIZE, TURNS = 8, 224, 3


def main(backbone: str = "vit_small_patch14_dinov2", weights: str = "none") -> dict[str, float]:
    keep_freed_memory()
    network = CellFeatures(make_backbone(backbone, weights, size=SIZE).eval())
    views = torch.randint(0, 256, (VIEWS, 3, SIZE, SIZE), dtype=torch.uint8)
    engines = [engine for engine in PACKAGES if not missing_packages(engine)]
    by = {engine: CompiledNetwork(network, engine) for engine in (TORCH, *engines)}
    features = {engine: run.run(views)[0] for engine, run in by.items()}
    turns = [{engine: seconds(run, views) for engine, run in by.items()} for _ in range(TURNS)]
    figures = {}
    for engine in engines:
        apart = (features[engine] - features[TORCH]).abs().max() / features[TORCH].std()
        figures[f"{engine}: largest difference, of the spread"] = float(apart)
        for clock, words in enumerate(("", ", processor's time")):
            ratio = median(turn[TORCH][clock] / turn[engine][clock] for turn in turns)
            figures[f"{engine}: times as fast as PyTorch{words}"] = ratio
    return figures


def seconds(run: CompiledNetwork, views: torch.Tensor) -> tuple[float, float]:
    begin, used = time.perf_counter(), time.process_time()
    run.run(views)
    return time.perf_counter() - begin, time.process_time() - used


if __name__ == "__main__":
    show("engines", main(*sys.argv[1:]))
