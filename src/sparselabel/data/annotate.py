"""Simulated annotation within a budget: which labels, points and boxes training may see (P2 §4).

P2 = PatchML. What is bought is decided in ``budget.py``; here things become the points that an annotator
would click on: somewhere on the thing, where its mask is known, else near the middle of its box.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.config import Annotation, Sparsify
from sparselabel.data.annotation_budget import PRICES, Indices, Prices, ask, buy, cost_of_all, refuse_answers
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.data.masks import Masks, runs_of
from sparselabel.data.readers.source import Split
from sparselabel.data.spatial_labels import Floats, Marks
from sparselabel.errors import ConfigError, DataError

SPREAD = 0.02  # of points around the middle of a box, in shares of the picture (P2 §4, Objects365)
BLOCK = 4096  # masks decoded together


@dataclass(frozen=True, eq=False)
class Annotated:
    """What training may see of a split, and what it was: ``bought`` for the data's description."""

    observed: Labels
    seen: Marks
    bought: dict[str, Any]


def annotate(split: Split, how: Sparsify, draw: int = 0, prices: Prices | None = None) -> Annotated:
    """Spend the budget on a split; ``draw`` tells splits of the same data apart.

    ``prices`` take the place of those that ``how`` names.
    """
    truth = split.labels.values
    marks, numbers = _things(split.marks, how.annotate)
    prices = prices or PRICES[how.cost]
    seed = (how.label_seed, draw)
    if how.answers is not None:
        bought = ask(truth, marks, how.annotate, how.answers, prices, seed)
    else:
        seconds = (how.budget or 0.0) * truth.size * prices.answer
        bought = buy(truth, marks, how.annotate, seconds, prices, seed)
    chosen = numbers[bought.marks]
    if how.annotate in ("SP", "AP"):
        seen = points_on(split.marks, split.masks, chosen, np.random.default_rng((*seed, 1)))
    else:
        seen = Marks(*_columns(split.marks, chosen), check=False)
    points = int(seen.is_point.sum())
    positives, negatives = (int((bought.observed == value).sum()) for value in (POSITIVE, NEGATIVE))
    said = {
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
    return Annotated(bought.observed, seen, said)


def refuse_budget(name: str, split: Split, how: Sparsify) -> None:
    """Raise if a budget cannot be spent on a split, which takes no time to find out."""
    _things(split.marks, how.annotate)
    if how.budget is not None and how.budget * split.labels.values.size < 1:
        raise buys_nothing(name, split, how)
    if how.answers is not None:
        refuse_answers(split.labels.values, how.answers)


def buys_nothing(name: str, split: Split, how: Sparsify) -> ConfigError:
    """The error of a budget that is less than its first answer costs."""
    answers = split.labels.values.size
    return ConfigError(
        f"budget {how.budget} buys nothing of split {name!r}: 1 is to ask for every class on every picture, "
        f"{answers:,} answers, so that one costs {1 / answers:.2g} or, with points or boxes, more: give more"
    )


def refuse_more_than_all(split: Split, how: Sparsify) -> None:
    """Raise if a budget is more than it takes to annotate all of a split."""
    most = share_of_all(split.labels.values, split.marks, how.annotate, PRICES[how.cost])
    if how.budget is not None and how.budget > most * (1 + 1e-9):
        raise ConfigError(
            f"budget {how.budget:g} is more than everything: annotation {how.annotate} of every class on "
            f"every picture costs {most:.6g} of what answers alone would (cost {how.cost}): give at most "
            f"--budget {math.floor(most * 1e4) / 1e4:g}"
        )


def share_of_all(truth: Labels, marks: Marks, kind: Annotation, prices: Prices) -> float:
    """What it costs to annotate everything, as a share of what answers alone would: 1 for kind I."""
    return cost_of_all(truth, _things(marks, kind)[0], kind, prices) / (truth.size * prices.answer)


def _things(marks: Marks, kind: Annotation) -> tuple[Marks, Indices]:
    """The marks that can be bought, and their numbers among all."""
    if kind == "I":
        return Marks.none(), np.empty(0, np.int64)
    numbers = np.arange(len(marks))
    if kind in ("SB", "AB"):
        numbers = np.flatnonzero(~marks.is_point)
    if not len(numbers):
        what = "boxes" if kind in ("SB", "AB") else "points and boxes"
        raise DataError(
            f"annotations of kind {kind} need {what}, and the data has none: prepare data whose "
            "boxes are known (voc, coco, scenes, a table with x, y, w, h), or give --annotate I"
        )
    return Marks(*_columns(marks, numbers), check=False), numbers


def _columns(
    marks: Marks, chosen: Indices
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], Floats, Floats]:
    return marks.rows[chosen], marks.classes[chosen], marks.centres[chosen], marks.sizes[chosen]


def points_on(marks: Marks, masks: Masks | None, chosen: Indices, random: np.random.Generator) -> Marks:
    """A random point on each of some things: on its mask, else near the middle of its box but inside it."""
    rows, classes, centres, sizes = _columns(marks, chosen)
    noise = random.normal(scale=SPREAD, size=centres.shape)
    places = np.clip(centres + noise, centres - sizes / 2, centres + sizes / 2).astype(np.float32)
    if masks is not None:
        drawn = np.flatnonzero(masks.there[chosen])
        for start in range(0, len(drawn), BLOCK):
            some = drawn[start : start + BLOCK]
            places[some] = _inside(masks.take(chosen[some]), random)
    return Marks(rows, classes, np.clip(places, 0, 1), np.zeros_like(sizes), check=False)


def _inside(masks: Masks, random: np.random.Generator) -> Floats:
    """(M, 2) A random point in each mask, any of its pixels as likely as another."""
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
