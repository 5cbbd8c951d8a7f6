"""What to buy, in plain words, and how sure that is.

The same draw asks the same questions for every kind, so kinds are compared draw by draw: the mean of the
differences, with the 95 % interval of Student's t. With few draws that is wide, as it should be.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from sparselabel.data.budget import Kind
from sparselabel.plan.candidates import in_words
from sparselabel.plan.results import NAMES, Measure, Reached

# Student's t, 97.5 %, for 1, 2, ... degrees of freedom; for more than these the last is a little too large.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)

LEAST = 1.0  # mAP-loc, in per cent, below which no map says where things are


@dataclass(frozen=True)
class Difference:
    """By how much one kind is above another, in points of per cent, over the draws that both have.

    ``margin`` is how far the 95 % interval reaches to both sides; None for a single draw.
    """

    mean: float
    margin: float | None
    draws: int

    @property
    def clear(self) -> bool:
        """Whether it is more than the draws explain."""
        return self.margin is not None and abs(self.mean) > self.margin

    def __str__(self) -> str:
        if self.margin is None:
            return f"{self.mean:.1f} points in a single draw"
        low, high = self.mean - self.margin, self.mean + self.margin
        return f"{self.mean:.1f} points (95 % interval {low:.1f} to {high:.1f})".replace("-", "−")


@dataclass(frozen=True)
class Advice:
    """What to buy, in a headline and some sentences. ``rivals`` may be as good as the best."""

    buy: Kind
    best: Kind
    rivals: tuple[Kind, ...]
    clear: bool
    headline: str
    sentences: tuple[str, ...]


def difference(one: Reached, other: Reached, measure: Measure = "mAP") -> Difference:
    """By how much one is above another."""
    first, second = one.values[measure], other.values[measure]
    gaps = [first[draw] - second[draw] for draw in first if draw in second]
    if len(gaps) < 2:
        return Difference(gaps[0] if gaps else math.nan, None, len(gaps))
    student = STUDENT[min(len(gaps) - 1, len(STUDENT)) - 1]
    return Difference(
        statistics.fmean(gaps), student * statistics.stdev(gaps) / math.sqrt(len(gaps)), len(gaps)
    )


def advise(rows: Sequence[Reached]) -> Advice | None:
    """What to buy with the whole budget; None where all runs at it failed."""
    at_it = [row for row in rows if row.fraction == 1 and row.mean() is not None]
    if not at_it:
        return None
    ranked = sorted(at_it, key=lambda row: row.mean() or 0.0, reverse=True)
    best, others = ranked[0], ranked[1:]
    rivals = [row for row in others if not difference(best, row).clear]
    order = [*NAMES]
    buy = min([best, *rivals], key=lambda row: order.index(row.kind))
    sentences = [_chance(best, others, rivals), *_smaller(rows, buy), *_places(at_it)]
    return Advice(
        buy.kind,
        best.kind,
        tuple(row.kind for row in rivals),
        not rivals and bool(others),
        _headline(best, others, rivals, buy),
        tuple(sentences),
    )


def _headline(best: Reached, others: Sequence[Reached], rivals: Sequence[Reached], buy: Reached) -> str:
    name = NAMES[buy.kind]
    if not others:
        return f"Only {name} were tried: mAP {best.text()}."
    if not rivals:
        return f"Buy {name}: mAP {best.text()} against {others[0].text()} for {NAMES[others[0].kind]}."
    if buy is best:
        return (
            f"Buy {name}: mAP {best.text()} against {others[0].text()} for {NAMES[others[0].kind]}. "
            "The difference is not clear, but nothing that costs more work was better."
        )
    return (
        f"Not clear. {NAMES[best.kind].capitalize()} came out best (mAP {best.text()}), but {name} "
        f"({buy.text()}) may be as good and are the simplest: buy {name}."
    )


def _chance(best: Reached, others: Sequence[Reached], rivals: Sequence[Reached]) -> str:
    """How far the order can be relied on."""
    if not others:
        return "There is nothing to compare with: name more --kinds."
    second = difference(best, others[0])
    name, other = NAMES[best.kind].capitalize(), NAMES[others[0].kind]
    if second.margin is None:
        return (
            f"{name} are ahead of {other}, the second, by {second}. One draw says nothing of chance: "
            "give --draws 3 or more."
        )
    ahead = f"{name} are ahead of {other}, the second, by {second} over {second.draws} draws"
    if not rivals:
        return f"{ahead}: more than the spread over draws explains. All other kinds are clearly worse too."
    names = _and([NAMES[row.kind] for row in rivals])
    worse = [NAMES[row.kind] for row in others if row not in rivals]
    rest = f" Clearly worse: {_and(worse)}." if worse else ""
    return (
        f"{ahead}. The spread over draws alone could make such a difference for {names}: more --draws, or a "
        f"larger sample, would tell.{rest}"
    )


def _and(names: Sequence[str]) -> str:
    """Several names in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _smaller(rows: Sequence[Reached], buy: Reached) -> list[str]:
    """What less money would bring, and whether another kind is ahead there."""
    own = [row for row in rows if row.kind == buy.kind and row.fraction < 1 and row.mean() is not None]
    if not own:
        return []
    nearest = max(own, key=lambda row: row.fraction)
    gain = (buy.mean() or 0.0) - (nearest.mean() or 0.0)
    said = [
        f"With {in_words(nearest.fraction)} {NAMES[buy.kind]} reach {nearest.text()}: the rest of the money "
        f"brings {gain:.1f} points more.".replace("-", "−")
    ]
    for fraction in sorted({row.fraction for row in own}):
        there = [row for row in rows if row.fraction == fraction and row.mean() is not None]
        ahead = max(there, key=lambda row: row.mean() or 0.0)
        mine = next(row for row in there if row.kind == buy.kind)
        if ahead.kind != buy.kind and difference(ahead, mine).clear:
            said.append(
                f"With {in_words(fraction)} {NAMES[ahead.kind]} are clearly better ({ahead.text()} against "
                f"{mine.text()})."
            )
    return said


def _places(at_it: Sequence[Reached]) -> list[str]:
    """Which kind is best if it matters where things are."""
    located = [row for row in at_it if row.mean("mAP-loc") is not None]
    if len(located) < 2 or max(row.mean("mAP-loc") or 0.0 for row in located) < LEAST:
        return []
    ranked = sorted(located, key=lambda row: row.mean("mAP-loc") or 0.0, reverse=True)
    best, second = ranked[:2]
    gap = difference(best, second, "mAP-loc")
    sure = "a clear difference" if gap.clear else "not a clear difference"
    return [
        f"If the model must also show where things are: {NAMES[best.kind]} have the highest mAP-loc, "
        f"{best.text('mAP-loc')} against {second.text('mAP-loc')} for {NAMES[second.kind]} ({sure})."
    ]
