"""How near thresholds from sparse validation labels come to those from full ones (docs/predict.md).

    python -m benchmarks.thresholds RUN ... [--images 300]

RUN are finished runs whose validation and test labels are complete. Validation labels are hidden anew, the
thresholds chosen from what is left, and measured on the test images.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from sparselabel.data.dataset import Dataset
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import POSITIVE, Labels
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.sparsify import keep_share, keep_weighted, largest_boxes
from sparselabel.inference.class_thresholds import ClassThresholds, choose, threshold_metrics
from sparselabel.inference.saved_scores import saved_scores
from sparselabel.metrics.calibration import logits_of
from sparselabel.metrics.precision_recall import precision_recall_f1
from sparselabel.metrics.tiled_scores import Scores
from sparselabel.run import Run

SEEDS = range(3)
COLUMNS = ("micro_f1", "macro_f1", "ece", "precision at 90 %")


def situations(truth: Labels, area: np.ndarray) -> Iterator[tuple[str, list[Labels], float | None]]:
    """What is left of the labels, draw by draw, and by how much the K that is given is wrong."""
    single = [keep_weighted(truth, np.ones(truth.shape), seed) for seed in SEEDS]
    yield "all labels", [truth], None
    yield "half of all labels, both kinds", [keep_share(truth, 0.5, 0.5, seed) for seed in SEEDS], None
    yield "one positive each, K right", single, 1.0
    yield "one positive each, K 15 % too high", single, 1.15
    yield "one positive each, K 15 % too low", single, 0.85
    yield "one positive each, nothing known of K", single, None
    large = [keep_weighted(truth, area, seed) for seed in SEEDS]
    yield "one positive each, larger ones more often, K right", large, 1.0
    yield "40 % of the positives, K right", [keep_share(truth, 0.4, 0.0, seed) for seed in SEEDS], 1.0


def decided(
    folder: Path, data: Dataset, scores: Scores, observed: Labels, k: float | None
) -> ClassThresholds:
    """The class thresholds of a run with these validation labels, as training would make them."""
    part = data.split("val")
    part = replace(part, observed=LabelTable(part.truth.ids, data.classes, observed, check=False))
    file = folder / "expected.json"
    file.unlink(missing_ok=True)
    if k is not None:
        annotated = np.count_nonzero(observed == POSITIVE, axis=0)
        truth = np.count_nonzero(np.asarray(part.truth.values) == POSITIVE)
        expected = np.clip(annotated * k * truth / annotated.sum(), annotated, len(observed))
        rows = [{"name": n, "expected": e} for n, e in zip(data.classes, expected.tolist(), strict=True)]
        content = {"classes": rows, "images": len(observed), "trusted": True, "how": "auto"}
        file.write_text(json.dumps(content))
    return choose(Run(folder), data, part, scores)


def highest_f1(scores: Scores, positive: np.ndarray) -> np.ndarray:
    """(L,) What is usually done: the score of validation from which on F1 on validation is highest."""
    order = np.argsort(-scores, axis=0)
    hits = np.cumsum(np.take_along_axis(positive, order, 0), axis=0)
    f1 = 2 * hits / (np.arange(1, len(scores) + 1)[:, None] + positive.sum(axis=0))
    best = np.take_along_axis(order, f1.argmax(axis=0)[None], 0)
    return np.asarray(np.take_along_axis(scores, best, 0)[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--images", type=int, help="use only so many validation images")
    given = parser.parse_args()
    sums: dict[str, list[list[float]]] = {}
    trusts: dict[str, list[float]] = {}
    for path in given.runs:
        run = Run(path)
        data = open_prepared(Path(run.metadata()["data"]))
        val, test = saved_scores(run, "val"), saved_scores(run, "test")
        some = np.random.default_rng(0).permutation(len(val.scores))[: given.images]
        truth = np.asarray(val.split.truth.values)
        area = largest_boxes(val.split.spatial_labels, truth.shape) + 1e-6
        part = replace(val.split, truth=val.split.truth.take(some.tolist()))
        data = replace(data, splits={**data.splits, "val": part})
        half = precision_recall_f1(test.scores, test.positive, 0.5)
        sums.setdefault("0.5 on the model's own scores", []).append(
            [half.averages()["OF1"], float(half.f1.mean()), np.nan, np.nan]
        )
        cuts = highest_f1(val.scores[some], truth[some] == POSITIVE)
        at_cuts = precision_recall_f1(test.scores - cuts, test.positive, 0.0)
        sums.setdefault("all labels, the highest F1 on validation itself", []).append(
            [at_cuts.averages()["OF1"], float(at_cuts.f1.mean()), np.nan, np.nan]
        )
        with TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "config.toml").write_text(run.config_file.read_text())
            best: np.ndarray | None = None
            for title, draws, k in situations(truth[some], area[some]):
                for observed in draws:
                    chosen = decided(folder, data, val.scores[some], observed, k)
                    found = threshold_metrics(test.scores, test.labels, chosen)
                    f1 = np.array([row["f1"] for row in found["classes"]])
                    best = f1 if best is None else best
                    for decision, lost in zip(chosen.classes, best - f1, strict=True):
                        if title != "all labels":
                            trusts.setdefault(decision.trust, []).append(float(lost))
                    strict = chosen.calibration(logits_of(test.array)) - chosen.thresholds(precision=0.9)
                    at = precision_recall_f1(strict, test.positive, 0.0)
                    row = [found["micro_f1"], found["macro_f1"], found["calibration"]["ece"]]
                    sums.setdefault(title, []).append([*row, at.averages()["OP"]])
    print(f"| validation labels | {' | '.join(COLUMNS)} |\n|---|---|---|---|---|")
    for title, rows in sums.items():
        print(f"| {title} | {' | '.join(f'{100 * value:.1f}' for value in np.mean(rows, axis=0))} |")
    for trust, losses in sorted(trusts.items()):
        away = np.abs(losses)
        within, mean = 100 * np.quantile(away, 0.9), 100 * np.mean(losses)
        print(
            f"{trust}: {len(losses)} thresholds, F1 within {within:.1f} points of full labels' in 9 of 10, "
            f"{mean:.1f} lower in the mean"
        )


if __name__ == "__main__":
    main()
