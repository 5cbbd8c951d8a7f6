"""Which recipe and which method generalize on frozen features (docs/results.md, results/frozen-defaults.csv).

    python -m benchmarks.defaults FOLDER --out FILE [--sources coco-3000 ...] [--draws 0 ...]
    python -m benchmarks.defaults FOLDER --out FILE --told [--halves decide]
    python -m benchmarks.defaults FOLDER --out FILE --full-validation
    python -m benchmarks.defaults --table FILE ... [--over soft ...]

FOLDER has, for NAME coco, voc, scenes and scenes-dense, NAME.npz with arrays (N, L) ``truth`` and, except for
COCO, ``area`` (of each class's largest object, as a share of the image), and the images' features
NAME-dino.npy and NAME-mbv2.npy (N, D). A setting is a source with a number of images, an annotator who hides
labels, a backbone, and a draw. Candidates are trained by ``train_run``, as users train them. Nothing is fully
labeled: the epoch is chosen on a fifth of the images, whose labels are as sparse as the others'.

With ``--full-validation`` each candidate also runs with held-out images that have all labels. With ``--told``
there are also candidates that are told K, or the number of images of every class.

Half of every source's label sets are for deciding, half for reporting, by a hash of their names.
"""

import argparse
import csv
import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch

from sparselabel.config import FinetunePhase, Handling, Machine, TrainConfig
from sparselabel.config import Setting as Value
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.expected_positives.class_counts import ClassCounts
from sparselabel.training.checkpoint import TrainingState
from sparselabel.training.estimate_positives import new_counts
from sparselabel.training.phase_loaders import PhaseLoaders
from sparselabel.training.train_run import train_run
from sparselabel.training.trainer import Trainer
from sparselabel.training.validate import scores_of, validate

Array = npt.NDArray[Any]
SOURCES = {  # training images with sparse labels, a fifth of which are held out; test images
    "voc-2000": ("voc", 2000, 1500),
    "coco-3000": ("coco", 3000, 4000),
    "coco-10000": ("coco", 10000, 4000),
    "scenes-800": ("scenes", 800, 800),
    "scenes-dense-800": ("scenes-dense", 800, 800),
}
LIKELIHOOD: dict[str, Value] = {"unknown_weight": 1.0, "entropy_weight": 0.0, "margin": 0.3}
CANDIDATES = {
    "an": TrainConfig(method="an"),
    "wan": TrainConfig(method="wan"),
    "gr": TrainConfig(method="gr"),
    "soft": TrainConfig(method="soft"),
    "iun": TrainConfig(method="iun"),
    "bce": TrainConfig(method="bce"),
}
ORACLES = "iun", "bce"
BACKBONES = "dino", "mbv2"
ANNOTATORS = "one", "largest", "frequent", "kept-40", "kept-75", "names"
HALVES = "decide", "report"
FULL = ", full validation"
HELD_OUT = 0.2
SALT = 275


@dataclass(frozen=True)
class Setting:
    """A label set, a backbone and a draw."""

    source: str
    backbone: str
    annotator: str
    draw: int

    @property
    def half(self) -> str:
        """Decide or report: for both backbones and all draws of a label set alike, half of every source's."""
        own = sorted(annotators(self.source), key=lambda name: _hash(f"{self.source}/{name}"))
        return "decide" if own.index(self.annotator) < len(own) / 2 else "report"


def annotators(source: str) -> list[str]:
    """Those of a source; COCO's labels come without sizes."""
    return [name for name in ANNOTATORS if name != "largest" or not source.startswith("coco")]


def _hash(name: str) -> bytes:
    # With this salt, label sets that were looked at before there were halves are all for deciding.
    return hashlib.sha256(f"{SALT}/{name}".encode()).digest()


def settings(draws: Iterable[int]) -> Iterator[Setting]:
    for draw in draws:
        for source in SOURCES:
            for annotator in annotators(source):
                for backbone in BACKBONES:
                    yield Setting(source, backbone, annotator, draw)


def one_label(truth: Array, weight: Array, random: np.random.Generator) -> Array:
    """One of each image's classes, with a chance in proportion to its weight."""
    draw = np.where(truth, np.log(weight + 1e-30) + random.gumbel(size=truth.shape), -np.inf)
    named = np.zeros_like(truth)
    named[np.arange(len(truth)), draw.argmax(1)] = True
    return named


def annotate(annotator: str, truth: Array, area: Array | None, random: np.random.Generator) -> Array:
    """(N, L) Which of the classes that are there somebody named."""
    if annotator == "one":
        return one_label(truth, np.ones(truth.shape), random)
    if annotator == "largest" and area is not None:
        return one_label(truth, area.astype(np.float64) ** 20, random)
    if annotator == "frequent":
        return one_label(truth, np.broadcast_to(truth.mean(0) + 1e-6, truth.shape), random)
    if annotator.startswith("kept"):
        return truth & (random.random(truth.shape) < float(annotator.split("-")[1]) / 100)
    # A chance of its own for every class, and a larger one for what is large; one where that names none.
    evidence = np.broadcast_to(random.normal(-0.3, 1, truth.shape[1]), truth.shape)
    if area is not None:
        size = np.log(area + 1e-4)
        evidence = evidence + 1.2 * (size - size[truth].mean()) / size[truth].std()
    chance = 1 / (1 + np.exp(-evidence))
    named = truth & (random.random(truth.shape) < chance)
    none = ~named.any(1)
    named[none] = one_label(truth[none], chance[none], random)
    return np.asarray(named)


def data_of(
    setting: Setting, source: Path, folder: Path, full_validation: bool = False
) -> tuple[Dataset, dict[str, torch.Tensor]]:
    """Prepared data without images, and the features of its splits."""
    name, images, tests = SOURCES[setting.source]
    arrays = np.load(source / f"{name}.npz")
    order = np.random.default_rng(0).permutation(len(arrays["truth"]))
    rows = np.concatenate([order[:images], order[-tests:]])
    truth = arrays["truth"][rows] == 1
    area = None if name == "coco" else arrays["area"][rows].astype(np.float32)
    seed = zlib.crc32(f"{setting.source}/{setting.annotator}/{setting.draw}".encode())
    named = annotate(setting.annotator, truth, area, np.random.default_rng(seed))
    complete = np.where(truth, POSITIVE, NEGATIVE).astype(np.int8)
    sparse = np.where(named, POSITIVE, UNKNOWN).astype(np.int8)
    features = torch.from_numpy(
        np.asarray(np.load(source / f"{name}-{setting.backbone}.npy", mmap_mode="r")[rows], np.float32)
    )
    classes = tuple(f"class {number}" for number in range(truth.shape[1]))
    first = round(images * (1 - HELD_OUT))
    splits, inputs = {}, {}
    for split, part in (
        ("train", slice(0, first)),
        ("val", slice(first, images)),
        ("test", slice(images, None)),
    ):
        ids = np.array([f"{split}-{number}" for number in range(len(truth[part]))])
        full = split == "test" or (split == "val" and full_validation)
        splits[split] = PreparedSplit(
            name=split,
            root=folder,
            paths=ids,
            truth=LabelTable(ids, classes, sparse[part] if split == "val" and not full else complete[part]),
            observed=LabelTable(ids, classes, complete[part] if full else sparse[part]),
            spatial_labels=SpatialLabels.none(),
            digests=np.arange(len(ids)).astype(np.uint64),
            digest=split,
        )
        inputs[split] = features[part]
    return Dataset(folder, setting.source, classes, splits), inputs


def measured(trainer: Trainer, state: TrainingState) -> dict[str, Any]:
    """In place of the end of a run, which would save a model with its backbone."""
    trainer.load_best(state)
    figures: dict[str, Any] = {"epoch": state.best_epoch}
    for split in ("val", "test"):
        scores = scores_of(trainer.network.head, trainer.loaders, "head", split)
        value = validate(scores.numpy(), trainer.data.split(split).observed)["value"]
        figures[split] = round(100 * value, 2)
    return figures


Candidates = Callable[[Dataset, Path], dict[str, TrainConfig]]


def told_nothing(data: Dataset, folder: Path) -> dict[str, TrainConfig]:
    return CANDIDATES


def told(data: Dataset, folder: Path) -> dict[str, TrainConfig]:
    """The candidates without `wan` and `iun`, and those that are told the true K or every class's images."""
    train = data.train
    images = train.truth.counts().astype(np.float64)
    counts = ClassCounts(
        how="counted", classes=data.classes, images=len(train), annotated=train.observed.counts(),
        expected=images, low=images, high=images, interval=(images.sum() / len(train),) * 2, trusted=True,
        why="told",
    )  # fmt: skip
    counts.write(folder / "images.json")
    k, every = counts.per_image, str(folder / "images.json")
    references = {name: CANDIDATES[name] for name in ("an", "gr", "soft", "bce")}
    return references | {
        "soft, K": TrainConfig(method="soft", settings={"expected_positives": k}),
        "soft, images of classes": TrainConfig(method="soft", settings={"expected_positives": every}),
        "pu, K": TrainConfig(method="pu", settings=LIKELIHOOD | {"expected_positives": k}),
    }


def run(
    setting: Setting, source: Path, candidates: Candidates = told_nothing, full_validation: bool = False
) -> Iterator[dict[str, Any]]:
    """The figures of every candidate, which may put files into a temporary folder."""
    counts: list[ClassCounts | None] = []

    def counted_once(loaders: PhaseLoaders, **given: Any) -> ClassCounts | None:
        expected = loaders.config.settings.get("expected_positives")
        if expected != "auto":
            return new_counts(loaders, **given) if isinstance(expected, str) else None
        if not counts:
            counts.append(new_counts(loaders, **given))
        return counts[0]

    with TemporaryDirectory() as name:
        data, features = data_of(setting, source, Path(name), full_validation)
        for number, (candidate, own) in enumerate(candidates(data, Path(name)).items()):
            config = replace(own, frozen=True, finetune=FinetunePhase(epochs=0), watch=0)
            with (
                patch.object(PhaseLoaders, "_features_of", lambda self, split, cells: features[split]),
                patch.object(PhaseLoaders, "check", lambda self, network: None),
                patch("sparselabel.training.train_run.new_counts", counted_once),
                patch("sparselabel.training.train_run.finish", measured),
            ):
                figures = train_run(
                    data,
                    config,
                    Path(name) / str(number),
                    Machine(accelerator="cpu", workers=0, engine="torch"),
                    Handling(quiet=True),
                )
            yield vars(setting) | {"half": setting.half, "candidate": candidate} | figures


def table(files: list[Path], others: list[str]) -> None:
    """Mean test mAP by half of the candidates that all files have, with 95 % intervals over label sets.

    Backbones and draws of a label set go together. Also of the candidate that sparse labels choose: the one
    with the highest mAP on the held-out images of a setting, of those that are told nothing.
    """
    tables = [list(csv.DictReader(file.open())) for file in files]
    rows = [row for own in tables for row in own]
    in_all = set.intersection(*({row["candidate"] for row in own} for own in tables))
    names = [name for name in dict.fromkeys(row["candidate"] for row in rows) if name in in_all]
    for half in HALVES:
        by_setting: dict[tuple[str, ...], dict[str, tuple[float, float]]] = {}
        for row in rows:
            if row["half"] == half and row["candidate"] in in_all:
                key = (row["source"], row["annotator"], row["backbone"], row["draw"])
                found = float(row["val"] or "nan"), float(row["test"])
                by_setting.setdefault(key, {})[row["candidate"]] = found
        whole = {key: found for key, found in by_setting.items() if len(found) == len(names)}
        if not whole:
            continue
        label_sets = sorted({key[:2] for key in whole})
        member = np.array([[key[:2] == one for key in whole] for one in label_sets], dtype=float)
        values = {name: np.array([found[name][1] for found in whole.values()]) for name in names}
        for labels in ("", FULL):
            own = [name + labels for name in names if name not in ORACLES and "," not in name]
            offered = [name for name in own if name in names]
            if (
                offered
                and not np.isnan([found[name][0] for found in whole.values() for name in offered]).any()
            ):
                chosen = [max(found[name] for name in offered)[1] for found in whole.values()]
                values["chosen" + labels] = np.array(chosen)
        draws = np.random.default_rng(0).integers(0, len(label_sets), (10_000, len(label_sets)))
        weights = member[draws].sum(1)  # (draws, settings): how often each is in

        def interval(above: Array, of: Array | None = None, weights: Array = weights) -> str:
            below = weights.sum(1) if of is None else weights @ of
            low, high = np.quantile(weights @ above / below, (0.025, 0.975))
            mean = above.sum() / (len(above) if of is None else of.sum())
            return f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"

        print(f"{half}: {len(label_sets)} label sets, {len(whole)} settings")
        for name, maps in values.items():
            over = {other: maps - values[other] for other in others}
            parts = [f"over {one} {interval(by)}, at worst {by.min():+.2f}" for one, by in over.items()]
            share = interval(maps - values["an"], values["bce"] - values["an"])
            print(f"  {name:5s} {maps.mean():.2f}; {'; '.join(parts)}; share of the gap {share}")


def main() -> None:
    """Measure, or show what was measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sources", nargs="+", default=[*SOURCES])
    parser.add_argument("--annotators", nargs="+", default=ANNOTATORS)
    parser.add_argument("--halves", nargs="+", default=HALVES)
    parser.add_argument("--draws", type=int, nargs="+", default=[0])
    parser.add_argument("--told", action="store_true")
    parser.add_argument("--full-validation", action="store_true")
    parser.add_argument("--table", type=Path, nargs="+")
    parser.add_argument("--over", nargs="+", default=["an", "gr"])
    given = parser.parse_args()
    if given.table:
        table(given.table, given.over)
        return
    wanted = set(given.sources), set(given.annotators), set(given.halves)
    torch.set_num_threads(1)
    with given.out.open("a", newline="") as file:
        writer = None
        for setting in settings(given.draws):
            own = setting.source, setting.annotator, setting.half
            if any(one not in some for one, some in zip(own, wanted, strict=True)):
                continue
            candidates = told if given.told else told_nothing
            rows = [*run(setting, given.folder, candidates)]
            if given.full_validation:
                full = run(setting, given.folder, candidates, full_validation=True)
                rows += [row | {"candidate": row["candidate"] + FULL} for row in full]
            for row in rows:
                if writer is None:
                    writer = csv.DictWriter(file, [*row])
                    if not file.tell():
                        writer.writeheader()
                writer.writerow(row)
            file.flush()
            print(setting, flush=True)


if __name__ == "__main__":
    main()
