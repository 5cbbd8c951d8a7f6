"""The recommendation of a plan: which kind of annotation to buy, and how sure that is.

The same draw asks the same questions for every kind, so kinds are compared draw by draw: the mean of the
differences, with Tukey's 95 % interval. It holds for all pairs of kinds at once: of equally good kinds one is
called better in 5 % of plans, however many there are. All have one spread, that of the residuals after the
means of kinds and draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.stats import studentized_range

from sparselabel.data.annotation_budget import Kind
from sparselabel.plan.candidate_runs import fraction_in_words
from sparselabel.plan.results import NAMES, KindResult, Measure

LEAST = 1.0  # mAP-loc, in percent, below which no map says where things are


@dataclass(frozen=True)
class Difference:
    """The difference between two kinds, in percentage points.

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
class Recommendation:
    """What to buy, in a headline and some sentences. ``rivals`` may be as good as the best."""

    buy: Kind
    best: Kind
    rivals: tuple[Kind, ...]
    clear: bool
    headline: str
    sentences: tuple[str, ...]


def comparable(rows: Sequence[KindResult], measure: Measure = "mAP") -> list[KindResult]:
    """The results at one budget with only the draws that all kinds have, as runs may have failed.

    Where there is no such draw, the kinds with the fewest are left out.
    """
    remaining = [row for row in rows if row.values.get(measure)]
    remaining.sort(key=lambda row: len(row.values[measure]), reverse=True)
    while remaining:
        draws = sorted(set[int].intersection(*({*row.values[measure]} for row in remaining)))
        if draws:
            break
        remaining.pop()
    kinds, compared = [row.kind for row in remaining], []
    for row in rows:
        if row.kind in kinds:
            shared = {draw: row.values[measure][draw] for draw in draws}
            compared.append(replace(row, values=row.values | {measure: shared}))
    return compared


def difference(
    one: KindResult, other: KindResult, among: Sequence[KindResult], measure: Measure = "mAP"
) -> Difference:
    """By how much one is above another of ``among``, which are comparable."""
    values = [row.values[measure] for row in (one, other, *among)]
    table = np.array([[*of.values()] for of in values])
    mean, draws = float((table[0] - table[1]).mean()), table.shape[1]
    if draws < 2:
        return Difference(mean, None, draws)
    table = table[2:]
    residuals = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    kinds, count = table.shape
    spread = math.sqrt(float((residuals**2).sum()) / ((kinds - 1) * (count - 1)))
    return Difference(mean, _quantile(kinds, (kinds - 1) * (count - 1)) * spread / math.sqrt(count), count)


@cache
def _quantile(kinds: int, freedom: int) -> float:
    """The 95 % quantile of the studentized range."""
    return float(studentized_range.ppf(0.95, kinds, freedom))


def recommend(rows: Sequence[KindResult]) -> Recommendation | None:
    """What to buy with the whole budget; None where all runs at it failed."""
    at_budget = [row for row in rows if row.fraction == 1]
    compared = comparable(at_budget)
    if not compared:
        return None
    ranked = sorted(compared, key=lambda row: row.mean() or 0.0, reverse=True)
    best, others = ranked[0], ranked[1:]
    rivals = [row for row in others if not difference(best, row, ranked).clear]
    buy = min([best, *rivals], key=lambda row: [*NAMES].index(row.kind))
    first, chance = _left_out(at_budget, compared), _chance(best, others, rivals)
    return Recommendation(
        buy.kind,
        best.kind,
        tuple(row.kind for row in rivals),
        not rivals and bool(others),
        _headline(best, others, rivals, buy),
        (*first, chance, *_smaller(rows, buy), *_places(at_budget)),
    )


def _headline(
    best: KindResult, others: Sequence[KindResult], rivals: Sequence[KindResult], buy: KindResult
) -> str:
    name = NAMES[buy.kind]
    if not others:
        return f"Only {name} were tried: mAP {best.text()}."
    if buy is best:
        clear = " The difference is not clear, but nothing that costs more work was better." if rivals else ""
        return f"Buy {name}: mAP {best.text()} against {others[0].text()} for {NAMES[others[0].kind]}.{clear}"
    return (
        f"Not clear. {NAMES[best.kind].capitalize()} came out best (mAP {best.text()}), but {name} "
        f"({buy.text()}) may be as good and are the simplest: buy {name}."
    )


def _left_out(at_budget: Sequence[KindResult], compared: Sequence[KindResult]) -> list[str]:
    """A sentence on what failed runs leave out of the comparison."""
    draws = sorted(compared[0].values["mAP"])
    kinds = [row.kind for row in compared]
    out = [NAMES[row.kind] for row in at_budget if row.kind not in kinds]
    fewer = any(len(row.values["mAP"]) > len(draws) for row in at_budget if row.kind in kinds)
    if not out and not fewer:
        return []
    these = f"draw {draws[0]}" if len(draws) == 1 else f"draws {_and([str(draw) for draw in draws])}"
    sentence = f"As runs have failed, kinds are compared by {these}, which all of them have"
    return [f"{sentence}; left out: {_and(out)}." if out else f"{sentence}."]


def _chance(best: KindResult, others: Sequence[KindResult], rivals: Sequence[KindResult]) -> str:
    """A sentence on how reliable the order is."""
    if not others:
        return "There is nothing to compare with: try more kinds."
    second = difference(best, others[0], [best, *others])
    ahead = f"{NAMES[best.kind].capitalize()} are ahead of {NAMES[others[0].kind]}, the second, by {second}"
    if second.margin is None:
        return f"{ahead}. One draw says nothing of chance: take 3 or more."
    ahead += f" over {second.draws} draws"
    if not rivals:
        return f"{ahead}: more than the spread over draws explains. All other kinds are clearly worse too."
    names = _and([NAMES[row.kind] for row in rivals])
    worse = [NAMES[row.kind] for row in others if row not in rivals]
    rest = f" Clearly worse: {_and(worse)}." if worse else ""
    return (
        f"{ahead}. The spread over draws alone could make such a difference for {names}: more draws, or a "
        f"larger sample, would tell.{rest}"
    )


def _and(names: Sequence[str]) -> str:
    """Several names in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _smaller(rows: Sequence[KindResult], buy: KindResult) -> list[str]:
    """A sentence on a smaller budget, and whether another kind is ahead there."""
    own = [row for row in rows if row.kind == buy.kind and row.fraction < 1 and row.mean() is not None]
    if not own:
        return []
    nearest = max(own, key=lambda row: row.fraction)
    gain = (buy.mean() or 0.0) - (nearest.mean() or 0.0)
    sentences = [
        f"With {fraction_in_words(nearest.fraction)} {NAMES[buy.kind]} reach {nearest.text()}: the rest of "
        f"the money brings {gain:.1f} points more.".replace("-", "−")
    ]
    for fraction in sorted({row.fraction for row in own}):
        at_fraction = comparable([row for row in rows if row.fraction == fraction])
        ahead = max(at_fraction, key=lambda row: row.mean() or 0.0)
        mine = next((row for row in at_fraction if row.kind == buy.kind), ahead)
        if ahead.kind != buy.kind and difference(ahead, mine, at_fraction).clear:
            sentences.append(
                f"With {fraction_in_words(fraction)} {NAMES[ahead.kind]} are clearly better ({ahead.text()} "
                f"against {mine.text()})."
            )
    return sentences


def _places(at_budget: Sequence[KindResult]) -> list[str]:
    """Which kind is best if it matters where things are."""
    located = comparable(at_budget, "mAP-loc")
    if len(located) < 2 or max(row.mean("mAP-loc") or 0.0 for row in located) < LEAST:
        return []
    ranked = sorted(located, key=lambda row: row.mean("mAP-loc") or 0.0, reverse=True)
    best, second = ranked[:2]
    gap = difference(best, second, located, "mAP-loc")
    sure = "a clear difference" if gap.clear else "not a clear difference"
    return [
        f"If the model must also show where things are: {NAMES[best.kind]} have the highest mAP-loc, "
        f"{best.text('mAP-loc')} against {second.text('mAP-loc')} for {NAMES[second.kind]} ({sure})."
    ]
