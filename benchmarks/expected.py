"""K without an oracle against the truth, over draws of the observed labels (docs/expected-positives.md).

    python -m benchmarks.expected PREPARED --backbone mobilenetv2_100 --weights FILE [--size 224]

PREPARED must know all training labels, and boxes for the draws by size; its own observed labels are not used.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from sparselabel.config import Machine, Sparsify, TrainConfig, Views
from sparselabel.data.dataset import Dataset, open_prepared
from sparselabel.data.labels import POSITIVE, Labels
from sparselabel.data.sparsify import keep_share, keep_weighted, largest_boxes, sparsify
from sparselabel.expected_positives.estimate import cross_fitted_scores, estimate_positives
from sparselabel.training.estimate_positives import training_features


def draws(data: Dataset) -> Iterator[tuple[str, Labels]]:
    truth, spatial_labels = np.asarray(data.train.truth.values), data.train.spatial_labels
    frequent = Sparsify("single-positive", label_seed=0, prefer="frequent")
    larger = Sparsify("single-positive", label_seed=0, prefer="larger")
    often = np.broadcast_to(data.train.truth.counts(), truth.shape)
    area = largest_boxes(spatial_labels, truth.shape) + 1e-6
    for seed in range(5):
        yield f"any of them, seed {seed}", keep_weighted(truth, np.ones(truth.shape), seed)
    yield "more frequent classes more often", keep_weighted(truth, often, 0)
    yield "larger ones more often", keep_weighted(truth, area, 0)
    yield "the most frequent class", sparsify(truth, frequent)
    yield "the largest", sparsify(truth, larger, spatial_labels)
    for share in (0.4, 0.75):
        for seed in range(3):
            yield f"each kept with {share}, seed {seed}", keep_share(truth, share, 0.0, seed)


def raw(features: npt.NDArray[np.float32], observed: Labels) -> tuple[float, float]:
    """The raw estimates: annotated / mean score of the annotated, and the sum of 1 / score (at least .1)."""
    labels = torch.from_numpy(observed == POSITIVE)
    scores = cross_fitted_scores(torch.from_numpy(features), labels.float(), 0).clamp(0.1, 1)
    by_class = [scores[labels[:, i], i] for i in range(labels.shape[1]) if labels[:, i].any()]
    return (
        float(sum(len(of) / of.mean() for of in by_class)) / len(labels),
        float(sum((1 / of).sum() for of in by_class)) / len(labels),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--weights", default="pretrained")
    parser.add_argument("--size", type=int, default=224)
    given = parser.parse_args()
    data = open_prepared(given.data)
    config = TrainConfig(backbone=given.backbone, weights=given.weights, views=Views(size=given.size))
    features = training_features(data, config, Machine(workers=0))
    truth = (np.asarray(data.train.truth.values) == POSITIVE).astype(int)
    half = np.random.default_rng(0).permutation(len(truth))[: len(truth) // 2]
    print("| annotated | K, raw | K | interval | truth | error | classes: mean, worst | inside | trusted |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows = [(name, observed, slice(None)) for name, observed in draws(data)]
    rows.insert(5, ("any of them, half the images", rows[0][1], half))  # type: ignore[arg-type]
    for name, observed, which in rows:
        some, real = observed[which], truth[which].sum(0)
        found = estimate_positives(features[which], some, data.classes)
        error = found.expected / real - 1
        inside = ((found.low <= real) & (real <= found.high)).mean()
        k = real.sum() / len(some)
        print(
            f"| {name} | {' / '.join(f'{value:.2f}' for value in raw(features[which], some))} "
            f"| {found.per_image:.2f} | {found.interval[0]:.2f} – {found.interval[1]:.2f} | {k:.2f} "
            f"| {100 * (found.per_image / k - 1):+.0f} % "
            f"| {100 * np.abs(error).mean():.0f} %, {100 * error[np.abs(error).argmax()]:+.0f} % "
            f"| {inside:.0%} | {'yes' if found.trusted else found.why} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
