"""One pass over the runs' scores: their distribution, things by size, and the cases to show.

The scores of one run at a time are in memory, beside the highest and the lowest of all.
"""

from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from sparselabel.errors import DataError
from sparselabel.inference.saved_scores import saved_scores
from sparselabel.metrics.ranking import Values
from sparselabel.report.cases import Group, choose
from sparselabel.report.figures.object_sizes import Bin, bin_precision, bins_of
from sparselabel.report.figures.score_histogram import RANKS, shares_by_score
from sparselabel.report.run_data import Reported

SIZES = 5  # bins of object size


@dataclass(frozen=True, eq=False)
class Scored:
    """By run: ``distribution`` of the 1st to 4th highest score, ``by_size`` the mAP of each of ``sizes``."""

    distribution: dict[str, list[Values]] = field(default_factory=dict)
    sizes: list[Bin] = field(default_factory=list)
    by_size: dict[str, list[float]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)


def look_at_scores(about: Reported) -> Scored:
    """What the runs' kept scores of the split say; all of them must be there (``saved_scores``)."""
    if about.split is None:
        return Scored()
    part = about.data.split(about.split)
    scored = Scored()
    with suppress(DataError):  # no boxes: nothing is known about sizes
        scored.sizes.extend(bins_of(part, SIZES))
    reference, high, low = None, np.zeros(0), np.zeros(0)
    for run in about.runs:
        scores = saved_scores(run.folder.path, about.split, about.moved).scores
        ranks = min(len(RANKS), scores.shape[1])
        top = -np.sort(-np.partition(scores, scores.shape[1] - ranks, axis=1)[:, -ranks:], axis=1)
        scored.distribution[run.name] = [shares_by_score(top[:, rank]) for rank in range(ranks)]
        if scored.sizes:
            scored.by_size[run.name] = [bin_precision(scores, part, size) for size in scored.sizes]
        if reference is None:
            reference, high, low = scores, np.asarray(scores), np.asarray(scores)
        else:
            high, low = np.maximum(high, scores), np.minimum(low, scores)
    if reference is not None:
        apart = None if len(about.runs) == 1 else high - low
        scored.groups.extend(choose(reference, np.asarray(part.observed.values), apart))
    return scored
