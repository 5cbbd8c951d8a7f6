"""Label sets with known K, and what estimators say (docs/expected-positives.md, results/expected-suite.csv).

    python -m benchmarks.expected_suite FOLDER --out results/expected-suite.csv
    python -m benchmarks.expected_suite FOLDER --judge --out results/expected-judged.csv
    python -m benchmarks.expected_links

The first measures all label sets (half an hour on two cores, in two ``--parts``), the second runs
``estimate_positives`` as it is on the judged half, and the third fits what the package has as constants
and sums up.

FOLDER has, for each of coco, voc, scenes, scenes-dense and scenes-sparse, NAME.npz with arrays (N, L):
``truth``, and of each class's largest object ``area`` (share of the image) and ``central`` (1 in the
middle, 0 in a corner); and the images' features NAME-dino.npy and NAME-mbv2.npy (N, D). COCO's labels here
have no boxes: its ``area`` and ``central`` are how strongly a class shows to linear models of all labels on
either backbone, with noise. Scenes-dense and -sparse are scenes whose classes are 2 and .4 times as likely.

A label set is a source, some of its classes, a number of images and the fewest classes an image must have;
an annotator hides labels of it. The order of the hashes of their names says which label sets are fitted on
and which are judged; the halves share no image.
"""

import argparse
import csv
import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from sparselabel.data.labels import POSITIVE, UNKNOWN
from sparselabel.expected_positives.estimate import estimate_positives, kept_share
from sparselabel.expected_positives.from_features import Anchors, cross_fitted_scores

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating]
BACKBONES = "dino", "mbv2"
DEPTHS = 0.05, 0.1, 0.2, 0.4
SLOW = "any", "largest", "names-large"  # for which estimators that need a softmax are computed
COCO = (  # noqa: SIM905 - eighty names
    "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,"
    "parking meter,bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,"
    "handbag,tie,suitcase,frisbee,skis,snowboard,sports ball,kite,baseball bat,baseball glove,"
    "skateboard,surfboard,tennis racket,bottle,wine glass,cup,fork,knife,spoon,bowl,banana,apple,"
    "sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,potted plant,bed,"
    "dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,microwave,oven,toaster,sink,"
    "refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush"
).split(",")
VOC = (  # noqa: SIM905
    "aeroplane,bicycle,bird,boat,bottle,bus,car,cat,chair,cow,diningtable,dog,horse,motorbike,person,"
    "pottedplant,sheep,sofa,train,tvmonitor"
).split(",")
GROUPS = {
    "kitchen": (
        "person,bottle,wine glass,cup,fork,knife,spoon,bowl,dining table,chair,microwave,oven,toaster,sink,"
        "refrigerator"
    ),
    "table": (
        "bottle,wine glass,cup,fork,knife,spoon,bowl,dining table,pizza,cake,sandwich,broccoli,carrot,"
        "banana,apple,orange,hot dog,donut"
    ),
    "street": (
        "person,bicycle,car,motorcycle,bus,train,truck,traffic light,fire hydrant,stop sign,parking meter,"
        "bench,backpack,handbag,umbrella"
    ),
    "sport": (
        "person,frisbee,skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,"
        "tennis racket"
    ),
    "room": (
        "chair,couch,potted plant,bed,dining table,tv,laptop,mouse,remote,keyboard,cell phone,book,clock,"
        "vase,teddy bear,person"
    ),
}


@dataclass(frozen=True)
class LabelSet:
    """Images of a source with at least so many of these classes."""

    name: str
    source: str
    classes: tuple[int, ...]
    images: int
    least: int = 1


def label_sets() -> list[LabelSet]:
    random = np.random.default_rng(7)

    def some(classes: int, count: int) -> tuple[int, ...]:
        return tuple(sorted(random.choice(classes, count, replace=False).tolist()))

    def named(names: str, classes: list[str]) -> tuple[int, ...]:
        return tuple(classes.index(name) for name in names.split(","))

    every = tuple(range(80))
    sets = [LabelSet(f"coco-all-{n}", "coco", every, n) for n in (800, 2000, 3000, 8000)]
    for least, sizes in ((2, (1500, 3000)), (3, (1200, 3000)), (4, (1000, 2000))):
        sets += [LabelSet(f"coco-all-at-least-{least}-{n}", "coco", every, n, least) for n in sizes]
    sets += [LabelSet("coco-no-person", "coco", every[1:], 3000)]
    sets += [LabelSet("coco-no-person-at-least-2", "coco", every[1:], 2500, 2)]
    sets += [LabelSet(f"coco-40-{i}", "coco", some(80, 40), (3000, 1500)[i % 2]) for i in range(4)]
    sets += [LabelSet(f"coco-20-{i}", "coco", some(80, 20), (2500, 1200)[i % 2]) for i in range(4)]
    for group, names in GROUPS.items():
        for least in {"kitchen": (1, 2, 3), "table": (1, 2, 3), "sport": (1,)}.get(group, (1, 2)):
            name = f"coco-{group}" + (f"-at-least-{least}" if least > 1 else "")
            sets.append(LabelSet(name, "coco", named(names, COCO), 2500, least))
    sets += [LabelSet(f"voc-all-{n}", "voc", tuple(range(20)), n) for n in (800, 1700)]
    sets += [LabelSet("voc-at-least-2", "voc", tuple(range(20)), 1700, 2)]
    sets += [LabelSet("voc-no-person", "voc", tuple(i for i in range(20) if i != 14), 1700)]
    room = "person,chair,diningtable,sofa,tvmonitor,bottle,pottedplant,cat,dog"
    sets += [LabelSet("voc-room", "voc", named(room, VOC), 1700)]
    sets += [
        LabelSet("voc-road", "voc", named("person,car,bus,bicycle,motorbike,train,aeroplane,boat", VOC), 1700)
    ]
    sets += [LabelSet(f"voc-10-{i}", "voc", (14, *some(14, 9)), 1700) for i in range(2)]
    for world in ("scenes", "scenes-dense", "scenes-sparse"):
        sets += [
            LabelSet(f"{world}-{n}", world, tuple(range(12)) if n == 12 else some(12, n), 800)
            for n in (6, 9, 12)
        ]
    return sets


def halves() -> dict[str, str]:
    """Fit or judge, for the names of the label sets: by the order of their hashes."""
    names = sorted(
        (one.name for one in label_sets()), key=lambda name: hashlib.sha256(name.encode()).hexdigest()
    )
    return {name: "fit" if place < len(names) / 2 else "judge" for place, name in enumerate(names)}


def rows_of(one: LabelSet, half: str, truth: Bools) -> npt.NDArray[np.intp]:
    order = np.random.default_rng(0).permutation(len(truth))
    own = order[: len(order) // 2] if half == "fit" else order[len(order) // 2 :]
    enough = own[truth[own][:, list(one.classes)].sum(1) >= one.least]
    return np.sort(enough[: one.images])


def one_label(truth: Bools, weight: Floats, random: np.random.Generator) -> Bools:
    """One of each image's classes, with a chance in proportion to its weight."""
    draw = np.where(truth, np.log(weight + 1e-30) + random.gumbel(size=truth.shape), -np.inf)
    kept = np.zeros_like(truth)
    kept[np.arange(len(truth)), draw.argmax(1)] = True
    return kept


def named_labels(truth: Bools, weight: Floats, random: np.random.Generator) -> Bools:
    """Each class with a chance of its own that grows with the weight; one where that names none."""
    size = np.log(weight + 1e-4)
    size = (size - size[truth].mean()) / size[truth].std()
    chance = 1 / (1 + np.exp(-(random.normal(-0.3, 1, truth.shape[1]) + 1.2 * size)))
    kept: Bools = truth & (random.random(truth.shape) < chance)
    none = ~kept.any(1)
    kept[none] = one_label(truth[none], chance[none], random)
    return kept


def annotators(truth: Bools, area: Floats, central: Floats, seed: int) -> Iterator[tuple[str, Bools]]:
    random = np.random.default_rng(seed)
    often = np.broadcast_to(truth.mean(0) + 1e-6, truth.shape)
    yield "any", one_label(truth, np.ones(truth.shape), random)
    yield "larger", one_label(truth, area, random)
    yield "largest", one_label(truth, area.astype(np.float64) ** 20, random)
    yield "central", one_label(truth, np.exp(4 * central), random)
    yield "frequent", one_label(truth, often, random)
    yield "rare", one_label(truth, 1 / often, random)
    yield "kept-40", truth & (random.random(truth.shape) < 0.4)
    yield "kept-75", truth & (random.random(truth.shape) < 0.75)
    yield "names-large", named_labels(truth, area, random)
    yield "names-central", named_labels(truth, np.exp(3 * central), random)
    yield "names-rare", named_labels(truth, 1 / often, random)


def mixture_proportions(scores: Floats, kept: Bools) -> dict[str, float]:
    """K as the sum of class priors: CRISP's estimator, and the best bin (a tenth of a class's positives)."""
    order = np.argsort(-scores, 0)
    annotated, images = np.take_along_axis(kept, order, 0), len(kept)
    total = np.maximum(kept.sum(0), 1)
    recall = np.cumsum(annotated, 0) / total
    prior = (np.arange(1, images + 1) / images)[:, None] / np.maximum(recall, 1e-12)
    delta = 0.01
    doubt = np.sqrt(np.log(4 / delta) / 2 / images) + np.sqrt(np.log(4 / delta) / 2 / total)
    bound = np.where(annotated, prior + (1 + delta) / np.maximum(recall, 1e-12) * doubt, np.inf)
    tenth = (recall >= np.maximum(0.1, np.minimum(5, total) / total) - 1e-9).argmax(0)
    known = kept.any(0)
    return {
        name: float(np.clip(prior[at, np.arange(len(at))], kept.mean(0), 1)[known].sum())
        for name, at in (("crisp", bound.argmin(0)), ("best_bin", tenth))
    }


def effective_number(features: torch.Tensor, kept: Bools, seed: int) -> float:
    """Mean of 1 / Σ q², q a cross-fitted softmax of one label per image, its temperature fitted."""
    random = np.random.default_rng(seed)
    rows = np.flatnonzero(kept.any(1))
    drawn = np.where(kept[rows], random.random((len(rows), kept.shape[1])), -1).argmax(1)
    label = torch.from_numpy(np.unique(drawn, return_inverse=True)[1])
    inputs = (features[rows] - features[rows].mean(0)) / features[rows].std(0).clamp(min=1e-6)
    _, directions = torch.linalg.eigh(inputs.T @ inputs / len(inputs))
    inputs = inputs @ directions[:, -128:]
    inputs = torch.cat([inputs / inputs.std(0).mean(), torch.ones(len(rows), 1)], 1)
    fold = torch.from_numpy(random.permutation(len(rows)) % 5)
    logits = torch.zeros(len(rows), int(label.max()) + 1)
    for number in range(5):
        rest = fold != number
        logits[~rest] = inputs[~rest] @ _softmax(inputs[rest], label[rest], logits.shape[1])
    scale = _minimized(
        torch.ones(1), lambda scale: torch.nn.functional.cross_entropy(logits * scale, label), 20
    )
    return float((1 / (torch.softmax(logits * scale, 1) ** 2).sum(1)).mean())


def _softmax(inputs: torch.Tensor, label: torch.Tensor, classes: int) -> torch.Tensor:
    def loss(weights: torch.Tensor) -> torch.Tensor:
        penalty = 30 / len(inputs) * (weights[:-1] ** 2).sum()
        return torch.nn.functional.cross_entropy(inputs @ weights, label) + penalty

    return _minimized(torch.zeros(inputs.shape[1], classes), loss, 60)


def _minimized(start: torch.Tensor, loss: Callable[[torch.Tensor], torch.Tensor], steps: int) -> torch.Tensor:
    start.requires_grad_()
    optimizer = torch.optim.LBFGS([start], max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(start)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return start.detach()


@dataclass(frozen=True)
class Setting:
    """A label set as one annotator labeled it."""

    annotator: str
    truth: Bools
    kept: Bools
    features: dict[str, torch.Tensor]


def settings(one: LabelSet, half: str, folder: Path) -> Iterator[Setting]:
    source = np.load(folder / f"{one.source}.npz")
    everything = source["truth"] == 1
    rows, seed = rows_of(one, half, everything), zlib.crc32(one.name.encode())
    truth, area, central = (source[key][rows][:, list(one.classes)] for key in ("truth", "area", "central"))
    truth, area, central = truth == 1, area.astype(np.float32), central.astype(np.float32)
    stored = {name: np.load(folder / f"{one.source}-{name}.npy", mmap_mode="r")[rows] for name in BACKBONES}
    features = {name: torch.from_numpy(np.asarray(x, np.float32)) for name, x in stored.items()}
    for annotator, kept in annotators(truth, area, central, seed):
        yield Setting(annotator, truth, kept, features)


def about(one: LabelSet, half: str, setting: Setting, backbone: str) -> dict[str, object]:
    numbers = setting.kept.sum(1)
    return {
        "labels": one.name, "half": half, "annotator": setting.annotator, "backbone": backbone,
        "images": len(numbers), "classes": len(one.classes), "K": setting.truth.sum() / len(numbers),
        "mean_labels": numbers.mean(), "without": (numbers == 0).mean(), "several": (numbers > 1).mean(),
    }  # fmt: skip


def measured(one: LabelSet, half: str, folder: Path) -> Iterator[dict[str, object]]:
    """What other estimators say, and how many anchors are labeled."""
    for setting in settings(one, half, folder):
        kept, numbers = setting.kept, setting.kept.sum(1)
        for backbone, features in setting.features.items():
            scores = cross_fitted_scores(features, torch.from_numpy(kept).float(), 0).numpy()
            anchors, weight = Anchors(scores, kept), np.ones(len(kept))
            figures = about(one, half, setting, backbone)
            for depth in DEPTHS:
                figures[f"share_{round(100 * depth)}"] = anchors.labeled_share(weight, depth)
            figures |= mixture_proportions(scores, kept)
            figures["numbers"] = numbers.mean() / kept_share(numbers).share
            slow = setting.annotator in SLOW
            figures["effective"] = effective_number(features, kept, 0) if slow else ""
            yield figures


def judged(one: LabelSet, half: str, folder: Path) -> Iterator[dict[str, object]]:
    """What the package says."""
    if half == "fit":
        return
    for setting in settings(one, half, folder):
        observed = np.where(setting.kept, POSITIVE, UNKNOWN).astype(np.int8)
        for backbone, features in setting.features.items():
            found = estimate_positives(features.numpy(), observed, tuple(map(str, one.classes)))
            low, high = found.interval
            figures = about(one, half, setting, backbone)
            yield figures | {"said": found.per_image, "low": low, "high": high, "trusted": found.trusted}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--source", nargs="+", default=["coco", "voc", "scenes", "scenes-dense", "scenes-sparse"]
    )
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    half_of = halves()
    writer = None
    with given.out.open("w", newline="") as file:
        for number, one in enumerate(label_sets()):
            if number % given.parts != given.part or one.source not in given.source:
                continue
            for figures in (judged if given.judge else measured)(one, half_of[one.name], given.folder):
                row = {key: f"{n:.5g}" if isinstance(n, float) else n for key, n in figures.items()}
                if writer is None:
                    writer = csv.DictWriter(file, list(row))
                    writer.writeheader()
                writer.writerow(row)
            file.flush()
            print(one.name, flush=True)


if __name__ == "__main__":
    main()
