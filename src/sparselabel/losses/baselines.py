"""Baselines: a plain target rule with cross-entropy; and oracles that see all labels.

Cole et al. 2021, Multi-Label Learning from Single Positive Labels.
"""

from sparselabel.losses.base import ComposedLoss, Needs, TargetLoss, cross_entropy
from sparselabel.losses.registry import register
from sparselabel.losses.target_rules import AssumedNegative, Ignored, TrueNegatives, Truth, WeakNegative


@register("bce", needs=Needs(truth=True), all_known=True)
def bce() -> ComposedLoss:
    """Oracle: binary cross-entropy with all labels known (Cole 2021 eq. 5).

    The upper bound that sparse methods are measured against. Same as the authors' code, but for its ε.
    """
    return ComposedLoss(TargetLoss(Truth(), cross_entropy))


@register("bce-ls", needs=Needs(truth=True), all_known=True)
def bce_ls(smoothing: float = 0.1) -> ComposedLoss:
    """Oracle: bce with smoothed targets, 1 → 1−ε/2 and 0 → ε/2 (Cole 2021 §5.2, table 1).

    The authors' code uses its 0.1 as the flip weight itself, which is ``smoothing`` 0.2 here.

    Parameters
    ----------
    smoothing
        ε of label smoothing.
    """
    return ComposedLoss(TargetLoss(Truth(smoothing), cross_entropy))


@register("iu", needs=Needs(negatives=True), all_known=True, leaves_out=True)
def iu() -> ComposedLoss:
    """Ignore unobserved: unknown labels are left out (Cole 2021 eq. 6).

    Needs observed negatives; Cole 2021 table 1 gives it one positive and one negative per image.
    """
    return ComposedLoss(TargetLoss(Ignored(), cross_entropy))


@register("iun", needs=Needs(truth=True), all_known=True)
def iun() -> ComposedLoss:
    """Oracle: ignore unobserved negatives; observed positives and all true negatives count (Cole 2021 eq. 7).

    The authors' released code compares with a wrong value and never sees the negatives; the formula stands.
    """
    return ComposedLoss(TargetLoss(TrueNegatives(), cross_entropy))


@register("an")
def an() -> ComposedLoss:
    """Assume negative: every unknown label counts as negative (Cole 2021 eq. 8).

    The common baseline: right for most entries, wrong for every positive that nobody annotated.
    """
    return ComposedLoss(TargetLoss(AssumedNegative(), cross_entropy))


@register("an-ls")
def an_ls(smoothing: float = 0.1) -> ComposedLoss:
    """Assume negative with label smoothing (Cole 2021 eq. 9).

    The authors' code uses its 0.1 as the flip weight itself, which is ``smoothing`` 0.2 here. Observed
    negatives are not smoothed (ours; the paper has none).

    Parameters
    ----------
    smoothing
        ε of label smoothing.
    """
    return ComposedLoss(TargetLoss(AssumedNegative(smoothing), cross_entropy))


@register("wan")
def wan(negative_weight: float | None = None, sampled_negatives: bool = False) -> ComposedLoss:
    """Weak assume negative: unknown counts as negative at weight γ = 1/(L−1) (Cole 2021 §5.1).

    With ``sampled_negatives`` one random unknown label per image and step is the negative instead.

    Parameters
    ----------
    negative_weight
        Weight γ of assumed negatives; default: 1/(L−1).
    sampled_negatives
        One random pseudo-negative per image and step instead of a weight.
    """
    return ComposedLoss(TargetLoss(WeakNegative(negative_weight, sampled_negatives), cross_entropy))
