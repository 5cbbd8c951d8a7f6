"""What 200 answers bring by their goal: thresholds, K and mAP (docs/review.md).

    python -m benchmarks.review_goals PREPARED --weights FILE [--size 96] [--answers 200] [--images 40]

PREPARED must know all training and validation labels: the simulated reviewer answers from them, and makes no
mistakes. Every seed draws one positive label per image anew, of training and validation; test labels are
complete. Thresholds are chosen again without training; labels and counted images are trained with.
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.review_loop import Scores, spread
from sparselabel.config import Handling, HeadPhase, Machine, TrainConfig, Views
from sparselabel.data.answers import with_files
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.labels import POSITIVE
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.sparsify import keep_per_image, refuse_incomplete
from sparselabel.inference.class_thresholds import ClassThresholds, choose, load_class_thresholds
from sparselabel.inference.review_scores import write_review_scores
from sparselabel.metrics.calibration import logits_of
from sparselabel.metrics.precision_recall import precision_recall_f1
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.complete_images import CompleteImageReview
from sparselabel.review.run_review import stored_features
from sparselabel.review.session import Review
from sparselabel.review.threshold_review import ThresholdReview
from sparselabel.run import Run
from sparselabel.training.train_run import train_run

PAGE = 24
COLUMNS = ("trusted", "macro_f1", "precision_error", "k_error", "k_of_training", "test_map")


def sparse(data: Dataset, seed: int) -> Dataset:
    """The data with one random positive label per training and validation image observed."""
    splits = dict(data.splits)
    for number, name in enumerate(("train", "val")):
        split = data.splits[name]
        refuse_incomplete(np.asarray(split.truth.values))
        values = keep_per_image(np.asarray(split.truth.values), 1, 0, 100 * number + seed)
        splits[name] = replace(
            split, observed=split.truth.with_values(values), digest=f"{split.digest}, {seed}"
        )
    return replace(data, splits=splits)


def answer(review: Review, count: int, grid: bool) -> int:
    """Have questions answered from the truth, a page or one at a time; how many are yes."""
    truth, yes, left = review.split.truth.values, 0, count
    while left and (page := review.next(min(PAGE if grid else 1, left), grid=grid)):
        rows = [{"row": one["row"], "class": one["class"]} for one in page]
        words = ["yes" if truth[one["row"], one["class"]] == POSITIVE else "no" for one in rows]
        review.take({"answers": [one | {"answer": word} for one, word in zip(rows, words, strict=True)]})
        yes, left = yes + words.count("yes"), left - len(page)
    return yes


def measured(run: Run, data: Dataset, thresholds: ClassThresholds) -> dict[str, float]:
    """What thresholds are worth on the test images, whose labels are complete; K beside the true one."""
    scores: Scores = np.load(run.scores_file("test"))["scores"]
    val: Scores = np.load(run.scores_file("val"))["scores"]
    truth = np.asarray(data.split("test").truth.values)
    calibrated = thresholds.calibration(logits_of(scores)) - thresholds.thresholds()
    counts = precision_recall_f1(calibrated, (truth == POSITIVE).astype(np.int8), 0.0)
    promised = np.array([row.expected_precision for row in thresholds.classes])
    k = float(thresholds.calibration(logits_of(val)).sum(1).mean())
    true_k = float((np.asarray(data.split("val").truth.values) == POSITIVE).sum(1).mean())
    counted = run.expected_file.is_file() and run.result()
    return {
        "trusted": sum(row.trust != "poor" for row in thresholds.classes),
        "macro_f1": 100 * float(counts.f1.mean()),
        "precision_error": 100 * float(np.abs(promised - counts.precision).mean()),
        "k_error": 100 * (k / true_k - 1),
        "k_of_training": _k_of_training(run) if counted else float("nan"),
        "test_map": 100 * float(run.result()["test"]["value"]),
    }


def _k_of_training(run: Run) -> float:
    from sparselabel.expected_positives.class_counts import read_expected

    return read_expected(run.expected_file, run.classes).per_image


def rounds(
    data: Dataset, config: TrainConfig, count: int, images: int, folder: Path
) -> Iterator[tuple[str, dict[str, float]]]:
    """For one seed: before, and after the answers for each goal."""
    seen = sparse(data, config.seed)

    def trained(name: str, data: Dataset) -> Run:
        train_run(data, config, folder / name, Machine(workers=0, accelerator="cpu"), Handling(quiet=True))
        return Run(folder / name, data)

    run = trained("before", seen)
    yield "before", measured(run, seen, load_class_thresholds(run))
    val_scores: Scores = np.load(run.scores_file("val"))["scores"]
    for grid in (False, True):
        with AnswerFile(run.answers_file) as file:
            review = ThresholdReview(seen.split("val"), val_scores, file, load_class_thresholds(run))
            answer(review, count, grid)
        chosen = choose(run, seen, seen.split("val"), val_scores)
        yield f"thresholds, {'grid' if grid else 'one at a time'}", measured(run, seen, chosen)
        run.answers_file.unlink()
    scores: Scores = write_review_scores(run, seen.train, features=stored_features(run, seen.train))
    for grid in (False, True):
        name = f"labels, {'grid' if grid else 'one at a time'}"
        with AnswerFile(folder / f"{name}.csv") as file:
            answer(Review(seen.train, scores, file), count, grid)
        after = trained(name, with_files(seen, [folder / f"{name}.csv"]))
        yield name, measured(after, seen, load_class_thresholds(after))
    with AnswerFile(folder / "count.csv") as file:
        _count(CompleteImageReview(seen.train, scores, file), seen.train, images)
    after = trained("count", with_files(seen, [folder / "count.csv"]))
    yield f"count, {images} images", measured(after, seen, load_class_thresholds(after))


def _count(review: CompleteImageReview, split: PreparedSplit, images: int) -> None:
    for question in review.next(images):
        present = np.flatnonzero(split.truth.values[question["row"]] == POSITIVE).tolist()
        review.take({"row": question["row"], "present": present})


def table(rows: list[tuple[int, str, dict[str, float]]]) -> Iterator[str]:
    """Markdown: mean ± standard deviation over seeds."""
    yield f"| answers for | {' | '.join(COLUMNS)} |"
    yield f"|---|{'---|' * len(COLUMNS)}"
    for name in dict.fromkeys(name for _, name, _ in rows):
        own = [values for _, one, values in rows if one == name]
        cells = [spread(np.array([values[column] for values in own])) for column in COLUMNS]
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--method", default="pu")
    parser.add_argument("--backbone", default="mobilenetv2_100")
    parser.add_argument("--weights", default="pretrained")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--csv", type=Path, help="file to which every single number is written")
    given = parser.parse_args()
    data = open_prepared(given.data)
    rows: list[tuple[int, str, dict[str, Any]]] = []
    for seed in given.seeds:
        config = TrainConfig(
            method=given.method,
            settings={"expected_positives": "auto"},
            backbone=given.backbone,
            weights=given.weights,
            frozen=True,
            views=Views(size=given.size),
            head=HeadPhase(batch_size=64),
            seed=seed,
        )
        with TemporaryDirectory() as folder:
            for name, values in rounds(data, config, given.answers, given.images, Path(folder)):
                rows.append((seed, name, values))
                print(f"seed {seed}: {name} {values}", flush=True)
    if given.csv is not None:
        with given.csv.open("w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(("seed", "answers_for", *COLUMNS))
            writer.writerows((seed, name, *(round(v[c], 4) for c in COLUMNS)) for seed, name, v in rows)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
