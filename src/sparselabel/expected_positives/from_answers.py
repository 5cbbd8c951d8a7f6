"""K from answers: if labels answer random yes-no questions, the share of yes gives K.

Whether questions were random is tested. Labels chosen by image content show in one of four ways, and
``random_answers`` returns None for any of them: classes have uneven numbers of questions; all classes have
the same share of yes; images with more answers have a larger share of yes; or images have more similar
numbers of yes than by chance.
"""

from dataclasses import dataclass

import numpy as np

from sparselabel.data.labels import (
    NEGATIVE,
    POSITIVE,
    UNKNOWN,
    LabelMatrix,
    count_per_class,
    has_value,
    known_entries,
)
from sparselabel.expected_positives.class_counts import (
    SPREAD,
    ClassCounts,
    Counts,
    Floats,
    bounded,
    shared_out,
    wilson,
)

SURPRISE = 5.0  # standard deviations beyond which chance is no explanation
UNEVEN, DEPENDENT = 0.05, 0.1
"""What is too little to matter: differences between classes, and correlations, which many images show."""
DIFFERENT = 3.0  # standard deviations from which shares of yes differ
SOME_CLASSES, SOME_YES = 5, 5.0
"""Classes, and yes of each, from which it shows whether shares differ."""
LEAST_SPREAD = 0.5
"""Of the numbers of yes, as a share of what independent answers would have."""
POOLED_ANSWERS = 20.0
"""Answers that the share of yes of all classes weighs beside a class's own."""
FEWEST_YES, FEWEST_ANSWERS = 30, 5


@dataclass(frozen=True)
class Answers:
    """Numbers of yes and of answers: of every class (L,), and of every image (N,) compared with these.

    ``surplus`` is an image's number of yes minus what the shares of its classes would give, ``variance`` its
    variance if answers were independent, ``part`` its part in the error of K.
    """

    yes: Counts
    asked: Counts
    answers: Counts
    surplus: Floats
    variance: Floats
    part: Floats

    @property
    def shares(self) -> Floats:
        """(L,) The share of yes of every class; that of all for one nobody asked about."""
        return _shares(self.yes, self.asked)


def random_answers(observed: LabelMatrix) -> Answers | None:
    """The answers in labels (N, L), or None if some say nothing but yes, or questions were not random."""
    if not has_value(observed, NEGATIVE) or not has_value(observed, UNKNOWN):
        return None
    answers = _count(observed)
    return None if _not_random(answers, len(observed)) else answers


def _count(observed: LabelMatrix) -> Answers:
    """Count the answers; unknown labels add nothing to any of these numbers."""
    yes = count_per_class(observed)
    asked = yes + count_per_class(observed, NEGATIVE)
    shares = _shares(yes, asked)
    # A class's variance is estimated from its own answers: n/(n − 1).
    weight = np.sqrt(asked / np.maximum(asked - 1, 0.5)) / np.maximum(asked, 1)
    answers, surplus, variance, part = np.zeros((4, len(observed)))
    for rows, classes, values in known_entries(observed):
        if not len(rows):
            continue
        beyond = (values == POSITIVE) - shares[classes]
        here = slice(int(rows[0]), int(rows[-1]) + 1)
        for sums, weights in (
            (answers, None),
            (surplus, beyond),
            (part, beyond * weight[classes]),
            (variance, (shares * (1 - shares))[classes]),
        ):
            sums[here] += np.bincount(rows - here.start, weights)
    return Answers(yes, asked, answers.astype(np.int64), surplus, variance, part)


def _shares(yes: Counts, asked: Counts) -> Floats:
    shares: Floats = np.where(asked > 0, yes / np.maximum(asked, 1), yes.sum() / asked.sum())
    return shares


def _not_random(counts: Answers, images: int) -> bool:
    """Whether what was asked depends on what is in the images."""
    answered = counts.answers > 0
    answers, surplus = counts.answers[answered].astype(np.float64), counts.surplus[answered]
    return (
        _uneven(counts.asked, images)
        or _balanced(counts)
        or _dependent(answers, surplus)
        or _too_alike(answers, surplus, float(counts.variance[answered].sum()), len(counts.asked))
    )


def _uneven(asked: Counts, images: int) -> bool:
    """Whether the numbers of questions differ between classes by more than chance, and by more than a bit."""
    share, freedom = asked.mean() / images, len(asked) - 1
    if freedom < 1 or asked.std() <= UNEVEN * asked.mean():
        return False
    square = float(np.square(asked - asked.mean()).sum() / (images * share * (1 - share)))
    return _surprise(square, freedom) > SURPRISE


def _balanced(counts: Answers) -> bool:
    """Whether all classes have the same share of yes, as if a fixed number per class had been collected."""
    if len(counts.yes) < SOME_CLASSES or counts.yes.mean() < SOME_YES:
        return False
    pooled = counts.yes.sum() / counts.asked.sum()
    square = float((counts.asked * np.square(counts.shares - pooled)).sum() / (pooled * (1 - pooled)))
    return _surprise(square, len(counts.yes) - 1) < DIFFERENT


def _surprise(square: float, freedom: int) -> float:
    """By how many standard deviations χ² exceeds its mean (Wilson and Hilferty: its cube root is normal)."""
    middle = 2 / (9 * freedom)
    return float(((square / freedom) ** (1 / 3) - (1 - middle)) / np.sqrt(middle))


def _dependent(answers: Floats, surplus: Floats) -> bool:
    """Whether images with more answers have a larger share of yes: more was asked where more is."""
    if answers.std() == 0 or surplus.std() == 0:
        return False
    correlation = abs(float(np.corrcoef(answers, surplus)[0, 1]))
    return correlation > max(DEPENDENT, SURPRISE / float(np.sqrt(len(answers))))


def _too_alike(answers: Floats, surplus: Floats, variance: float, classes: int) -> bool:
    """Whether images have too similar numbers of yes, as if a fixed number per image had been collected.

    Classes that exclude each other make them alike too, the more, the more of an image is known: by 1 − s
    for a share s of its classes.
    """
    known = float(np.square(answers).sum() / (classes * answers.sum()))
    return bool(np.square(surplus).sum() < LEAST_SPREAD * (1 - known) * variance)


def from_answers(counts: Answers, observed: LabelMatrix, classes: tuple[str, ...]) -> ClassCounts:
    """Expected positives of every class from answers to random questions in labels (N, L).

    K is the sum of the classes' shares of yes; its spread is that of the images' parts in it. Classes with
    few answers are drawn to the share of all. A class's bounds are Wilson's interval.
    """
    images, yes, asked = len(observed), counts.yes, counts.asked
    drawn = (yes + POOLED_ANSWERS * yes.sum() / asked.sum()) / (asked + POOLED_ANSWERS)
    seen, most = yes > 0, images - (asked - yes)
    expected = np.zeros(len(classes))
    total = images * float(counts.shares.sum())
    expected[seen] = shared_out(total, (images * drawn)[seen], yes[seen], most[seen])
    k, fewest = float(expected.sum() / images), float(yes.sum() / images)
    unknown = 1 - asked.sum() / (images * len(classes))
    half = SPREAD * float(np.sqrt(np.square(counts.part).sum() * unknown))
    low, high = (bounded(images * bound, observed) for bound in wilson(yes, np.maximum(asked, 1)))
    why = f"the share of yes among {int(asked.sum()):,} answers to what look like random questions"
    doubts = []
    if yes.sum() < FEWEST_YES:
        doubts.append(f"only {int(yes.sum())} answers are yes (at least {FEWEST_YES})")
    if asked.min() < FEWEST_ANSWERS:
        doubts.append(f"some classes have fewer than {FEWEST_ANSWERS} answers")
    return ClassCounts(
        "auto", classes, images, yes, expected,
        np.minimum(low, expected), np.maximum(high, expected),
        (min(max(k - half, fewest), k), k + half),
        not doubts, "; ".join([*doubts, why]),
    )  # fmt: skip
