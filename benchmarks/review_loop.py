"""What the answers of a reviewer bring: train on one label per image, ask, train again (docs/results.md).

    python -m benchmarks.review_loop PREPARED --backbone mobilenetv2_100 --weights FILE [--size 224]

PREPARED must know all training labels: the simulated reviewer answers from them. Its own observed labels are
not used: every seed draws one positive label per image anew, and is the seed of training as well. `useful` is
asked through a real review, in which answers correct what is asked next; the other orders ask all at once.
"""

import argparse
import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from sparselabel.config import Handling, HeadPhase, Machine, TrainConfig, Views
from sparselabel.data.answers import with_files
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import POSITIVE
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.sparsify import keep_per_image, refuse_incomplete
from sparselabel.inference.review_scores import write_review_scores
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.question_order import How, questions
from sparselabel.review.run_review import stored_features
from sparselabel.review.session import Review
from sparselabel.run import Run
from sparselabel.training.train_run import train_run

Scores = npt.NDArray[np.floating[Any]]
BEFORE, ALL = "before", "all labels"


def sparse(data: Dataset, seed: int) -> Dataset:
    """The data with one random positive label per image observed."""
    train = data.train
    refuse_incomplete(np.asarray(train.truth.values))
    values = keep_per_image(np.asarray(train.truth.values), 1, 0, seed)
    seen = replace(train, observed=train.observed.with_values(values), digest=f"{train.digest}, seed {seed}")
    return replace(data, splits=data.splits | {"train": seen})


def answer(data: Dataset, scores: Scores, how: How, count: int, file: Path, seed: int) -> int:
    """Have ``count`` questions answered from the truth, into a file; how many answers are yes."""
    part = data.train
    truth = part.truth.values
    with AnswerFile(file, reviewer="the truth") as kept:
        if how == "useful":
            review = Review(part, scores, kept)
            for _ in range(count):
                for question in review.next(1):  # none, once all is known
                    row, column = question["row"], question["class"]
                    review.answer(row, column, "yes" if truth[row, column] == POSITIVE else "no")
        else:
            rows, columns = questions(scores, part.observed.values, how, count, seed)
            pairs = zip(rows.tolist(), columns.tolist(), strict=True)
            kept.add([(str(part.paths[i]), data.classes[j], int(truth[i, j])) for i, j in pairs])
        return sum(value == POSITIVE for value in kept.last_words().values())


def rounds(
    data: Dataset, config: TrainConfig, orders: Sequence[How], count: int, folder: Path
) -> Iterator[tuple[str, float, int]]:
    """For one seed: name, test mAP and yeses, before and after the answers that each order asks for."""
    seen = sparse(data, config.seed)
    machine, handling = Machine(workers=0, accelerator="cpu", engine="torch"), Handling(quiet=True)

    def trained(name: str, data: Dataset, config: TrainConfig = config) -> float:
        result = train_run(data, config, folder / name, machine, handling)
        return 100 * float(result["test"]["value"])

    yield ALL, trained("oracle", seen, replace(config, method="bce", settings={})), 0
    yield BEFORE, trained("before", seen), 0
    run = Run(folder / "before", seen)
    scores = write_review_scores(run, seen.train, features=stored_features(run, seen.train))
    for how in orders:
        answers = folder / f"{how}.csv"
        yes = answer(seen, scores, how, count, answers, config.seed)
        yield how, trained(how, with_files(seen, [answers])), yes


def table(rows: Sequence[tuple[int, str, float, int]], count: int) -> Iterator[str]:
    """Markdown: mean and spread of mAP, and of what each order adds to the same seed's run before."""
    before = {seed: value for seed, name, value, _ in rows if name == BEFORE}
    yield f"| {count} answers | yes | test mAP | gained |"
    yield "|---|---|---|---|"
    for name in dict.fromkeys(name for _, name, _, _ in rows):
        own = [(value, value - before[seed], yes) for seed, of, value, yes in rows if of == name]
        values, gained, yes = np.array(own).T
        found = "" if name in (BEFORE, ALL) else f"{yes.mean():.0f}"
        added = "" if name == BEFORE else spread(gained, "+")
        yield f"| {name} | {found} | {spread(values)} | {added} |"


def spread(values: npt.NDArray[np.float64], sign: str = "") -> str:
    """Mean ± standard deviation."""
    wide = values.std(ddof=1) if len(values) > 1 else 0.0
    return f"{values.mean():{sign}.2f} ± {wide:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--backbone", default="mobilenetv2_100")
    parser.add_argument("--weights", default="pretrained")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument(
        "--expected", choices=["counted", "auto"], default="counted", help="K in validation, or estimated"
    )
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--orders", nargs="+", default=[*get_args(How)], choices=get_args(How))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--csv", type=Path, help="file to which every single number is written")
    given = parser.parse_args()
    data = open_prepared(given.data)
    rows = []
    for seed in given.seeds:
        config = TrainConfig(
            method=given.method,
            settings={"expected_positives": "auto"} if given.expected == "auto" else {},
            backbone=given.backbone,
            weights=given.weights,
            frozen=True,
            views=Views(size=given.size),
            head=HeadPhase(batch_size=given.batch),
            seed=seed,
        )
        with TemporaryDirectory() as folder:
            for name, value, yes in rounds(data, config, given.orders, given.answers, Path(folder)):
                rows.append((seed, name, value, yes))
                print(f"seed {seed}: {name} {value:.2f}", flush=True)
    if given.csv is not None:
        with given.csv.open("w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerows([("seed", "order", "test_map", "yes"), *rows])
    print("\n".join(table(rows, given.answers)))


if __name__ == "__main__":
    main()
