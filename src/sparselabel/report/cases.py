"""Which pictures a report shows: the best, the worst and the most surprising of a split."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.metrics.ranking import Scores, Values

EACH = 6  # cases of a group
LOOKED_AT = 20_000  # highest entries among which cases are sought
SMALLEST = 1e-7  # score that counts as 0 in a logarithm


@dataclass(frozen=True)
class Case:
    """A picture and the classes whose maps are shown; ``value`` is what it was chosen for."""

    row: int
    classes: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class Group:
    """Cases chosen for the same reason: a heading, how they were chosen, and what ``value`` is called."""

    title: str
    says: str
    value: str
    cases: list[Case]


def spread_out(
    rows: npt.NDArray[np.integer], classes: npt.NDArray[np.integer], most: int, of_class: int
) -> list[int]:
    """Places of the first ``most`` entries, at most one of a picture and ``of_class`` of a class."""
    chosen: list[int] = []
    seen: set[int] = set()
    counts: Counter[int] = Counter()
    for place, (row, index) in enumerate(zip(rows.tolist(), classes.tolist(), strict=True)):
        if row in seen or counts[index] == of_class:
            continue
        seen.add(row)
        counts[index] += 1
        chosen.append(place)
        if len(chosen) == most:
            break
    return chosen


def highest(values: Scores, among: npt.NDArray[np.bool_], of_class: int, most: int = EACH) -> list[Case]:
    """The entries of (N, L) with the highest values, where ``among``; different pictures."""
    flat = np.flatnonzero(among)
    found = values.ravel()[flat]
    order = np.argsort(-found, kind="stable")[:LOOKED_AT]
    rows, classes = np.divmod(flat[order], values.shape[1])
    places = spread_out(rows, classes, most, of_class)
    return [Case(int(rows[p]), (int(classes[p]),), float(found[order[p]])) for p in places]


def bits_of_surprise(scores: Scores, labels: Labels) -> Values:
    """(N,) −log₂ of the probability that the scores give to the known labels of each picture."""
    likely = np.clip(np.where(labels == POSITIVE, scores, 1 - scores), SMALLEST, 1)
    return np.asarray(-np.log2(likely, where=labels != UNKNOWN, out=np.zeros_like(likely)).sum(axis=1))


def surprising(scores: Scores, labels: Labels, shown: set[int]) -> list[Case]:
    """The pictures with the most surprise that are not shown yet, each with its two oddest classes.

    These are the lowest-scored class that is there and the highest-scored one that is not.
    """
    bits = bits_of_surprise(scores, labels)
    order = [
        row for row in np.argsort(-bits, kind="stable")[: EACH + len(shown)].tolist() if row not in shown
    ]
    cases = []
    for row in order[:EACH]:
        there, absent = np.flatnonzero(labels[row] == POSITIVE), np.flatnonzero(labels[row] == NEGATIVE)
        classes = [int(there[scores[row, there].argmin()])] if len(there) else []
        classes += [int(absent[scores[row, absent].argmax()])] if len(absent) else []
        if classes:
            cases.append(Case(row, tuple(classes), float(bits[row])))
    return cases


def choose(scores: Scores, labels: Labels, apart: Scores | None = None) -> list[Group]:
    """The groups of a report; ``apart`` (N, L) is how far the scores of several runs lie apart."""
    there, absent = labels == POSITIVE, labels == NEGATIVE
    certain = "Certain and wrong" if absent.any() else "Certain, but not labelled"
    groups = [
        Group(
            "Certain and right",
            "The highest scores of classes that are there, one of each class.",
            "score",
            highest(scores, there, of_class=1),
        ),
        Group(
            certain,
            "The highest scores of classes that are not there."
            if absent.any()
            else "The highest scores of classes that nobody labelled: the labels may be missing.",
            "score",
            highest(scores, absent if absent.any() else labels == UNKNOWN, of_class=2),
        ),
        Group(
            "Missed",
            "The lowest scores of classes that are there.",
            "score",
            [Case(case.row, case.classes, -case.value) for case in highest(-scores, there, of_class=2)],
        ),
    ]
    if apart is None:
        shown = {case.row for group in groups for case in group.cases}
        says = (
            "Pictures whose labels as a whole the model thought least likely, with the least expected class "
            "that is there and the most expected one that is not. 10 bits: one in a thousand."
        )
        groups.append(Group("Most surprising", says, "bits", surprising(scores, labels, shown)))
    else:
        says = "The classes and pictures about which the runs disagree most."
        groups.append(
            Group("Where the runs differ", says, "apart", highest(apart, np.ones_like(there), of_class=2))
        )
    return [group for group in groups if group.cases]
