"""``SparseLabelClassifier`` beside a bare loop: 100,000 × 768 features, 1,000 classes, one positive each.

    python -m benchmarks.estimator [ROWS]

The bare loop is as many steps of a linear layer, cross-entropy and AdamW on the same batches. Expected
positives are given; how long their estimate takes is the last row.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.common import show
from sparselabel import SparseLabelClassifier, estimate_expected_positives

ROWS, WIDTH, CLASSES, K = 100_000, 768, 1000, 2.0


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """By the clock, and of all cores together, which a busy machine changes less."""
    begin, begin_of_cores = time.perf_counter(), time.process_time()
    run()
    return round(time.perf_counter() - begin, 2), round(time.process_time() - begin_of_cores, 2)


def bare(features: np.ndarray, labels: np.ndarray, epochs: int, batch: int) -> None:
    inputs, observed = torch.from_numpy(features), torch.from_numpy(labels)
    head = nn.Linear(WIDTH, CLASSES)
    optimizer = torch.optim.AdamW(head.parameters(), 3e-4, fused=True)
    for _ in range(epochs):
        for index in torch.split(torch.randperm(len(inputs)), batch):
            target = (observed[index] == 1).float()
            loss = F.binary_cross_entropy_with_logits(head(inputs[index]), target)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def main(rows: int = ROWS) -> dict[str, float]:
    random = np.random.default_rng(0)
    own = random.integers(0, CLASSES, rows)
    prototypes = random.standard_normal((CLASSES, WIDTH), dtype=np.float32)
    features = prototypes[own] + 3 * random.standard_normal((rows, WIDTH), dtype=np.float32)
    labels = np.full((rows, CLASSES), -1, dtype=np.int8)
    labels[np.arange(rows), own] = 1
    bare(features[:1000], labels[:1000], 1, 512)  # torch loads parts of itself with the first optimizer
    found: dict[str, float] = {"threads": torch.get_num_threads()}
    for method in ("gr", "pu"):
        probe = SparseLabelClassifier(method, expected_positives=K)
        fit, fit_cores = seconds(partial(probe.fit, features, labels))
        loop, loop_cores = seconds(partial(bare, features, labels, probe.n_iter_, probe.batch_size))
        found |= {
            f"{method}: epochs": probe.n_iter_,
            f"{method}: fit, s": fit,
            f"{method}: fit, s of all cores": fit_cores,
            f"{method}: bare loop, s": loop,
            f"{method}: bare loop, s of all cores": loop_cores,
            f"{method}: ratio of cores' time (at most 2)": round(fit_cores / loop_cores, 2),
        }
    some = slice(0, rows // 5)
    return found | {
        "predict, s": seconds(lambda: probe.predict(features))[0],
        "score, s": seconds(lambda: probe.score(features, labels))[0],
        "K of a fifth of the rows, s of all cores": seconds(
            lambda: estimate_expected_positives(features[some], labels[some])
        )[1],
    }


if __name__ == "__main__":
    show("estimator", main(*map(int, sys.argv[1:])))
