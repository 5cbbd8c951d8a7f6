"""Methods of Cole 2021, Multi-Label Learning from Single Positive Labels."""

from sparselabel.losses.base import SparseLoss
from sparselabel.losses.entry_losses import cross_entropy
from sparselabel.losses.role import EstimatesLoss, LabelEstimates, RoleTargets
from sparselabel.losses.target_rules import (
    AssumedNegative,
    Ignored,
    PositivesOnly,
    TrueNegatives,
    Truth,
    WeakNegative,
)
from sparselabel.losses.terms import ExpectedPositives, checked_count


def bce() -> SparseLoss:
    """Oracle: binary cross-entropy with all labels known (Cole 2021 eq. 5).

    The upper bound that sparse methods are measured against. Same as the authors' program, but for its ε.
    """
    return SparseLoss(Truth(), cross_entropy)


def bce_ls(smoothing: float = 0.1) -> SparseLoss:
    """Oracle: bce with smoothed targets, 1 → 1−ε/2 and 0 → ε/2 (Cole 2021 §5.2, table 1).

    The authors' program uses its 0.1 as the flip weight itself, which is ``smoothing`` 0.2 here.
    """
    return SparseLoss(Truth(smoothing), cross_entropy)


def iu() -> SparseLoss:
    """Ignore unobserved: unknown labels are left out (Cole 2021 eq. 6).

    Needs observed negatives; Cole 2021 table 1 gives it one positive and one negative per image.
    """
    return SparseLoss(Ignored(), cross_entropy)


def iun() -> SparseLoss:
    """Oracle: ignore unobserved negatives; observed positives and all true negatives count (Cole 2021 eq. 7).

    The authors' released program compares with a wrong code and never sees the negatives; the formula stands.
    """
    return SparseLoss(TrueNegatives(), cross_entropy)


def an() -> SparseLoss:
    """Assume negative: every unknown label counts as negative (Cole 2021 eq. 8).

    The common baseline: right for most entries, wrong for every positive that nobody annotated.
    """
    return SparseLoss(AssumedNegative(), cross_entropy)


def an_ls(smoothing: float = 0.1) -> SparseLoss:
    """Assume negative with label smoothing (Cole 2021 eq. 9).

    The authors' program uses its 0.1 as the flip weight itself, which is ``smoothing`` 0.2 here. Observed
    negatives are not smoothed (ours; the paper has none).
    """
    return SparseLoss(AssumedNegative(smoothing), cross_entropy)


def wan(negative_weight: float | None = None, sampled_negatives: bool = False) -> SparseLoss:
    """Weak assume negative: unknown counts as negative at weight γ = 1/(L−1) (Cole 2021 §5.1).

    With ``sampled_negatives`` one random unknown label per image and step is the negative instead.
    """
    return SparseLoss(WeakNegative(negative_weight, sampled_negatives), cross_entropy)


def epr(
    expected_positives: float | None = None, weight: float = 1.0, positive_weight: float = 1.0
) -> SparseLoss:
    """Expected positive regularization: positives, and λ((k̂−k)/L)² on the batch's count (Cole 2021 §5.3, eq.
    10).

    Positives are divided by B·L, as in the authors' program (its learning rates belong to that scale); the
    paper divides by B: ``positive_weight`` = L. Statistics are those of the whole batch over all processes.
    """
    term = ExpectedPositives(expected_positives, weight)
    return SparseLoss(PositivesOnly(positive_weight), cross_entropy, {"count": term})


def role(
    expected_positives: float | None = None, weight: float = 1.0, positive_weight: float = 1.0
) -> SparseLoss:
    """Regularized online label estimation: labels are estimated along with the classifier (Cole 2021 §5.4,
    eq. 11).

    (L′(F|Ỹ) + L′(Ỹ|F))/2, each side held fixed for the other, with epr on both. The estimates Ỹ = σ(φ), one
    logit an entry, move by their own Adam at ten times the classifier's rate. Its updates equal the authors'
    dense Adam (momentum moves rows between visits too) but cost nothing for rows that are not in the batch.
    An observed negative counts as −log(1−f) at full weight (ours). ``positive_weight`` as for epr.
    """
    expected = checked_count(expected_positives)
    estimates = LabelEstimates(expected, weight=weight, positive_weight=positive_weight)
    terms = {
        "count": ExpectedPositives(expected, weight / 2),
        "estimates": EstimatesLoss(estimates),
    }
    return SparseLoss(RoleTargets(estimates), cross_entropy, terms)
