"""Annotations that a budget buys: random questions, and points or boxes where the answer is yes (PatchML §4).

A question asks whether an image shows a class. Asking all of them is a budget of 100 %. The kind of
annotation says what else is bought for a yes:

    I   nothing          SP  a point on one object of the class     AP  a point on each
                         SB  a box around one object of the class   AB  a box around each
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from sparselabel.config import Annotation, Cost, Sparsify
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, spans
from sparselabel.data.masks import Masks, runs_of
from sparselabel.data.readers.raw_dataset import RawSplit
from sparselabel.data.spatial_labels import Floats, SpatialLabels
from sparselabel.errors import ConfigError, DataError, param

Kind = Annotation
KINDS: tuple[Kind, ...] = get_args(Annotation)
Indices = npt.NDArray[np.int64]
Seed = int | tuple[int, ...]
ROUNDING = 1e-9  # tolerance of rounding, so that a full budget buys everything


@dataclass(frozen=True)
class Prices:
    """Prices of annotations, in seconds.

    ``answer`` is paid for every question; ``point`` and ``box`` for each that is drawn (PatchML §1 has 1 and
    1.4; 6 for a box is derived, (101 − 80)/3.5). With ``mean_point`` or ``mean_box`` a question of kind SP or
    SB costs that much, yes or no: PatchML's tables take the mean over COCO's images, 84.9/80 and 101/80.
    """

    answer: float = 1.0
    point: float = 1.4
    box: float = 6.0
    mean_point: float | None = None
    mean_box: float | None = None

    def __post_init__(self) -> None:
        for name, price in vars(self).items():
            if price is not None and not 0 <= price < np.inf:
                raise ConfigError(f"the price of {name} must be seconds, 0 or more, not {price}")
        if self.answer <= 0:
            raise ConfigError("an answer must cost something: give its price in seconds")


FLAT = Prices(mean_point=84.9 / 80, mean_box=101 / 80)
"""PatchML's prices on COCO."""
FLAT_OBJECTS365 = Prices(mean_point=372 / 365, mean_box=395 / 365)
"""PatchML's prices on Objects365."""
PRICES: dict[Cost, Prices] = {"flat": FLAT, "flat-objects365": FLAT_OBJECTS365, "per-positive": Prices()}


class Bought(NamedTuple):
    """The result of a budget: observed labels, the indices of the spatial labels, and the seconds spent."""

    observed: Labels
    spatial_labels: Indices
    seconds: float


def buy(
    truth: Labels,
    spatial_labels: SpatialLabels,
    kind: Kind,
    seconds: float,
    prices: Prices | None = None,
    seed: Seed = 0,
) -> Bought:
    """Ask distinct random questions until the seconds are spent; PatchML's "random per annotation".

    ``truth`` (N, L) must be complete. ``spatial_labels`` has one per object; a yes to a class without any is
    an answer alone. With one seed every kind asks the same questions in the same order, and a dearer kind
    stops earlier.
    """
    prices = prices or Prices()
    _refuse(truth, kind, seconds)
    # As many are drawn for every kind: the draw depends on their number.
    least = min(prices.answer, _least(kind, prices))
    affordable = min(truth.size, int(seconds * (1 + ROUNDING) // least))
    return _answered(truth, spatial_labels, kind, prices, affordable, seed, seconds)


def ask(
    truth: Labels,
    spatial_labels: SpatialLabels,
    kind: Kind,
    answers: int,
    prices: Prices | None = None,
    seed: Seed = 0,
) -> Bought:
    """Ask this many distinct random questions, whatever they cost; they are the same for every kind."""
    _refuse(truth, kind, answers)
    refuse_answers(truth, answers)
    return _answered(truth, spatial_labels, kind, prices or Prices(), answers, seed, np.inf)


def refuse_answers(truth: Labels, answers: int) -> None:
    """Raise if there are fewer questions than asked for."""
    if answers > truth.size:
        raise ConfigError(
            f"{answers:,} answers are more than the {truth.size:,} questions that {truth.shape[0]:,} "
            f"images and {truth.shape[1]:,} classes have",
            f"take {param('answers', truth.size)} or fewer",
        )


def _answered(
    truth: Labels,
    spatial_labels: SpatialLabels,
    kind: Kind,
    prices: Prices,
    count: int,
    seed: Seed,
    seconds: float,
) -> Bought:
    """The answers to this many random questions, or to as many as the seconds allow."""
    random = np.random.default_rng(seed)
    # numpy need not hold all questions if it may leave those it draws unshuffled; they are few
    few = (
        truth.size if count == truth.size else random.choice(truth.size, count, replace=False, shuffle=False)
    )
    questions: Indices = random.permutation(few)
    firsts, counts, order = _objects(spatial_labels, truth.shape)
    objects = np.zeros(len(questions), np.int64)
    if len(firsts):
        position = np.minimum(np.searchsorted(firsts, questions), len(firsts) - 1)
        yes = truth.ravel()[questions] == POSITIVE
        objects = np.where(yes & (firsts[position] == questions), counts[position], 0)
    costs = _costs(kind, prices, objects)
    affordable = int(np.searchsorted(np.cumsum(costs), seconds * (1 + ROUNDING), side="right"))
    questions, objects = questions[:affordable], objects[:affordable]
    observed = np.full_like(truth, UNKNOWN)
    observed.ravel()[questions] = truth.ravel()[questions]
    chosen = np.empty(0, np.int64)
    if kind != "I" and objects.any():
        position = np.searchsorted(firsts, questions[objects > 0])
        start, count_of_each = (np.cumsum(counts) - counts)[position], counts[position]
        one = kind in ("SP", "SB")
        chosen = order[start + random.integers(count_of_each) if one else spans(start, count_of_each)]
    return Bought(observed, np.sort(chosen), float(costs[:affordable].sum()))


def _refuse(truth: Labels, kind: Kind, seconds: float) -> None:
    if kind not in KINDS:
        raise ConfigError(f"annotations are of kind {', '.join(KINDS)}, not {kind!r}")
    if not seconds > 0:
        raise ConfigError(f"a budget must be above 0 seconds, not {seconds}")
    hidden = int((truth == UNKNOWN).sum())
    if hidden:
        raise DataError(
            f"a budget is simulated on complete labels, but {hidden:,} of these are unknown",
            "take a fully labeled sample",
        )


def _least(kind: Kind, prices: Prices) -> float:
    """The least that a question costs."""
    mean = {"SP": prices.mean_point, "SB": prices.mean_box}.get(kind)
    return prices.answer if mean is None else mean


def _costs(kind: Kind, prices: Prices, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The cost of each question, given its number of objects (0 for a no)."""
    mean = {"SP": prices.mean_point, "SB": prices.mean_box}.get(kind)
    if mean is not None:
        return np.full(len(objects), mean, np.float64)
    each = {"I": 0.0, "SP": prices.point, "AP": prices.point, "SB": prices.box, "AB": prices.box}[kind]
    annotated = np.minimum(objects, 1) if kind in ("SP", "SB") else objects
    return np.asarray(prices.answer + each * annotated, np.float64)


def _objects(spatial_labels: SpatialLabels, shape: tuple[int, ...]) -> tuple[Indices, Indices, Indices]:
    """Questions with objects, how many each has, and the objects' indices in the order of questions."""
    question = np.asarray(spatial_labels.rows) * shape[1] + np.asarray(spatial_labels.classes)
    return *np.unique(question, return_counts=True), np.argsort(question, kind="stable")


SPREAD = 0.02  # of points around the middle of a box, in shares of the image (PatchML §4, Objects365)
BLOCK = 4096  # masks decoded together


class Annotated(NamedTuple):
    """What training may see of a split; ``bought`` summarizes it for dataset.json."""

    observed: Labels
    seen: SpatialLabels
    bought: dict[str, Any]


def annotate(split: RawSplit, how: Sparsify, draw: int = 0, prices: Prices | None = None) -> Annotated:
    """Spend the budget on a split; ``draw`` is the split's number, for its random stream.

    ``prices`` replace those that ``how`` names.
    """
    truth = split.labels.values
    spatial_labels, numbers = _instances(split.spatial_labels, how.annotate)
    prices = prices or PRICES[how.cost]
    seed = (how.label_seed, draw)
    if how.answers is not None:
        bought = ask(truth, spatial_labels, how.annotate, how.answers, prices, seed)
    else:
        seconds = (how.budget or 0.0) * truth.size * prices.answer
        bought = buy(truth, spatial_labels, how.annotate, seconds, prices, seed)
    chosen = numbers[bought.spatial_labels]
    seen = split.spatial_labels.only(chosen)
    if how.annotate in ("SP", "AP"):
        seen = points_on(split.spatial_labels, split.masks, chosen, np.random.default_rng((*seed, 1)))
    points = int(seen.is_point.sum())
    positives, negatives = (int((bought.observed == value).sum()) for value in (POSITIVE, NEGATIVE))
    summary = {
        "kind": how.annotate,
        "answers": positives + negatives,
        "positive": positives,
        "negative": negatives,
        "points": points,
        "boxes": len(seen) - points,
        "images": int((bought.observed != UNKNOWN).any(axis=1).sum()),
        "seconds": bought.seconds,
        "seconds_of_all_answers": truth.size * prices.answer,
        "cost": how.cost,
    }
    return Annotated(bought.observed, seen, summary)


def refuse_budget(name: str, split: RawSplit, how: Sparsify) -> None:
    """Raise if a budget cannot be spent on a split."""
    _instances(split.spatial_labels, how.annotate)
    if how.budget is not None and how.budget * split.labels.matrix.size < 1:
        raise buys_nothing(name, split, how)
    if how.answers is not None:
        refuse_answers(split.labels.values, how.answers)


def buys_nothing(name: str, split: RawSplit, how: Sparsify) -> ConfigError:
    """The error of a budget that is less than its first answer costs."""
    answers = split.labels.matrix.size
    whole = f"1 is to ask for every class on every image ({answers:,} answers)"
    return ConfigError(
        f"{param('budget', how.budget)} buys nothing of split {name!r}, where {whole} and one answer costs "
        f"{1 / answers:.2g} or, with points or boxes, more",
        "give more",
    )


def refuse_more_than_all(split: RawSplit, how: Sparsify) -> None:
    """Raise if a budget is more than it takes to annotate all of a split."""
    most = share_of_all(split.labels.values, split.spatial_labels, how.annotate, PRICES[how.cost])
    if how.budget is not None and how.budget > most * (1 + 1e-9):
        raise ConfigError(
            f"{param('budget', f'{how.budget:g}')} is more than everything: annotation {how.annotate} of "
            f"every class on every image costs {most:.6g} of what answers alone would (cost {how.cost})",
            f"give at most {param('budget', f'{math.floor(most * 1e4) / 1e4:g}')}",
        )


def share_of_all(truth: Labels, spatial_labels: SpatialLabels, kind: Annotation, prices: Prices) -> float:
    """The cost of annotating everything, relative to answers alone: 1 for kind I."""
    objects = _instances(spatial_labels, kind)[0]
    _, counts, _ = _objects(objects.only(truth[objects.rows, objects.classes] == POSITIVE), truth.shape)
    seconds = float(_costs(kind, prices, counts).sum()) + (truth.size - len(counts)) * _least(kind, prices)
    return seconds / (truth.size * prices.answer)


def _instances(spatial_labels: SpatialLabels, kind: Annotation) -> tuple[SpatialLabels, Indices]:
    """The spatial labels that can be bought, and their indices among all."""
    if kind == "I":
        return SpatialLabels.none(), np.empty(0, np.int64)
    boxes = kind in ("SB", "AB")
    numbers = np.flatnonzero(~spatial_labels.is_point) if boxes else np.arange(len(spatial_labels))
    if not len(numbers):
        what = "boxes" if boxes else "points and boxes"
        raise DataError(
            f"annotations of kind {kind} need {what}, and the data has none",
            "prepare data with boxes (voc, coco, scenes, a table with x, y, w, h)",
            f"take {param('annotate', 'I')}",
        )
    return spatial_labels.only(numbers), numbers


def points_on(
    spatial_labels: SpatialLabels, masks: Masks | None, chosen: Indices, random: np.random.Generator
) -> SpatialLabels:
    """A random point on each of some objects: on its mask, else near the middle of its box but inside it."""
    objects = spatial_labels.only(chosen)
    centers, sizes = objects.centers, objects.sizes
    noise = random.normal(scale=SPREAD, size=centers.shape)
    points = np.clip(centers + noise, centers - sizes / 2, centers + sizes / 2).astype(np.float32)
    if masks is not None:
        with_mask = np.flatnonzero(masks.there[chosen])
        for start in range(0, len(with_mask), BLOCK):
            some = with_mask[start : start + BLOCK]
            points[some] = _inside(masks.take(chosen[some]), random)
    return replace(objects, centers=np.clip(points, 0, 1), sizes=np.zeros_like(sizes), check=False)


def _inside(masks: Masks, random: np.random.Generator) -> Floats:
    """(M, 2) A random point in each mask, uniform over its pixels."""
    runs = runs_of(masks)
    ends = np.cumsum(runs.ends - runs.starts)
    areas = np.bincount(runs.owners, runs.ends - runs.starts, len(masks)).astype(np.int64)
    wanted = np.cumsum(areas) - areas + np.floor(random.random(len(masks)) * areas).astype(np.int64)
    run = np.searchsorted(ends, wanted, side="right")
    pixel = runs.ends[run] - (ends[run] - wanted)
    height, width = masks.sizes.T
    within = random.random((len(masks), 2))
    return np.column_stack(
        [(pixel // height + within[:, 0]) / width, (pixel % height + within[:, 1]) / height]
    ).astype(np.float32)
