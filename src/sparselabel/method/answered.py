"""K from answers: where labels, yes or no, answer random questions, the share of yes tells it."""

import numpy as np

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.method.class_counts import SPREAD, ClassCounts, bounded, shared_out, wilson

MOST_UNEVEN = 5.0
"""Standard deviations by which the numbers of questions may differ between classes more than by chance."""
FEWEST_WITHOUT = 0.5
"""Pictures without a yes, as a share of what random questions would give: below, yes was looked for."""
POOLED_ANSWERS = 20.0
"""Answers that the share of yes of all classes weighs beside a class's own."""
FEWEST_YES = 30


def asked_at_random(observed: Labels) -> bool:
    """Whether labels (N, L) that say no, too, look like answers to questions that nobody chose by content.

    Then all classes were asked about as often, and not every picture that was asked about has a yes. One
    chosen positive and some negatives a picture fail one or both.
    """
    if not (observed == NEGATIVE).any() or (observed != UNKNOWN).all():
        return False
    known = observed != UNKNOWN
    asked, of_picture = known.sum(0), known.sum(1)
    share, freedom = float(known.mean()), known.shape[1] - 1
    uneven = float(np.square(asked - asked.mean()).sum() / (len(observed) * share * (1 - share)))
    if uneven > freedom + MOST_UNEVEN * np.sqrt(2 * max(freedom, 1)):
        return False
    yes = observed == POSITIVE
    by_chance = (1 - yes.sum() / known.sum()) ** of_picture
    without = ((of_picture > 0) & ~yes.any(1)).sum()
    return bool(without >= FEWEST_WITHOUT * by_chance[of_picture > 0].sum())


def from_answers(observed: Labels, classes: tuple[str, ...]) -> ClassCounts:
    """Expected positives of every class from labels (N, L) that answer random questions.

    K is the sum of the classes' shares of yes; its spread is that of the pictures' shares in it. Classes with
    few answers are drawn to the share of all. A class's bounds are Wilson's interval.
    """
    pictures = len(observed)
    known, yes = observed != UNKNOWN, observed == POSITIVE
    asked, annotated = known.sum(0), yes.sum(0, dtype=np.int64)
    answers = np.maximum(asked, 1)
    shares = annotated / answers
    drawn = (annotated + POOLED_ANSWERS * annotated.sum() / asked.sum()) / (asked + POOLED_ANSWERS)
    seen, most = annotated > 0, pictures - (asked - annotated)
    expected = np.zeros(len(classes))
    expected[seen] = shared_out(
        pictures * shares.sum(), (pictures * drawn)[seen], annotated[seen], most[seen]
    )
    k = float(expected.sum() / pictures)
    of_pictures = yes @ (1 / answers) - known @ (shares / answers)
    half = SPREAD * float(np.sqrt(np.square(of_pictures).sum() * (1 - known.mean())))
    low, high = (bounded(pictures * bound, observed) for bound in wilson(annotated, answers))
    fewest, total = float(annotated.sum() / pictures), int(annotated.sum())
    few = total < FEWEST_YES
    why = f"the share of yes among {int(known.sum()):,} answers to what look like random questions"
    return ClassCounts(
        "auto", classes, pictures, annotated, expected,
        np.minimum(low, expected), np.maximum(high, expected),
        (min(max(k - half, fewest), k), k + half),
        not few, f"only {total} of them are yes: {why}" if few else why,
    )  # fmt: skip
