"""Methods that are a plain target rule with a plain entry loss, and the oracles they are measured against.

Cole et al. 2021, Multi-Label Learning from Single Positive Labels: bce, bce-ls, iu, iun, an, an-ls, wan.
Lin et al. 2017: focal. Ridnik et al. 2021: asl. Zhang et al. 2021: hill.
"""

from sparselabel.losses.base import Needs, ScaledMean, SparseLoss, TargetLoss, batch_sum
from sparselabel.losses.entry_losses import Asymmetric, Focal, Hill, cross_entropy
from sparselabel.losses.registry import OWN_ENTRY_LOSS, register
from sparselabel.losses.target_rules import AssumedNegative, Ignored, TrueNegatives, Truth, WeakNegative


@register("bce", needs=Needs(truth=True), all_known=True)
def bce() -> SparseLoss:
    """Oracle: binary cross-entropy with all labels known (Cole 2021 eq. 5).

    The upper bound that sparse methods are measured against. Same as the authors' program, but for its ε.
    """
    return SparseLoss(TargetLoss(Truth(), cross_entropy))


@register("bce-ls", needs=Needs(truth=True), all_known=True)
def bce_ls(smoothing: float = 0.1) -> SparseLoss:
    """Oracle: bce with smoothed targets, 1 → 1−ε/2 and 0 → ε/2 (Cole 2021 §5.2, table 1).

    The authors' program uses its 0.1 as the flip weight itself, which is ``smoothing`` 0.2 here.

    Parameters
    ----------
    smoothing
        ε of label smoothing.
    """
    return SparseLoss(TargetLoss(Truth(smoothing), cross_entropy))


@register("iu", needs=Needs(negatives=True), all_known=True, leaves_out=True)
def iu() -> SparseLoss:
    """Ignore unobserved: unknown labels are left out (Cole 2021 eq. 6).

    Needs observed negatives; Cole 2021 table 1 gives it one positive and one negative per image.
    """
    return SparseLoss(TargetLoss(Ignored(), cross_entropy))


@register("iun", needs=Needs(truth=True), all_known=True)
def iun() -> SparseLoss:
    """Oracle: ignore unobserved negatives; observed positives and all true negatives count (Cole 2021 eq. 7).

    The authors' released program compares with a wrong code and never sees the negatives; the formula stands.
    """
    return SparseLoss(TargetLoss(TrueNegatives(), cross_entropy))


@register("an")
def an() -> SparseLoss:
    """Assume negative: every unknown label counts as negative (Cole 2021 eq. 8).

    The common baseline: right for most entries, wrong for every positive that nobody annotated.
    """
    return SparseLoss(TargetLoss(AssumedNegative(), cross_entropy))


@register("an-ls")
def an_ls(smoothing: float = 0.1) -> SparseLoss:
    """Assume negative with label smoothing (Cole 2021 eq. 9).

    The authors' program uses its 0.1 as the flip weight itself, which is ``smoothing`` 0.2 here. Observed
    negatives are not smoothed (ours; the paper has none).

    Parameters
    ----------
    smoothing
        ε of label smoothing.
    """
    return SparseLoss(TargetLoss(AssumedNegative(smoothing), cross_entropy))


@register("wan")
def wan(negative_weight: float | None = None, sampled_negatives: bool = False) -> SparseLoss:
    """Weak assume negative: unknown counts as negative at weight γ = 1/(L−1) (Cole 2021 §5.1).

    With ``sampled_negatives`` one random unknown label per image and step is the negative instead.

    Parameters
    ----------
    negative_weight
        Weight γ of assumed negatives; default: 1/(L−1).
    sampled_negatives
        One random pseudo-negative per image and step instead of a weight.
    """
    return SparseLoss(TargetLoss(WeakNegative(negative_weight, sampled_negatives), cross_entropy))


@register("focal", "entry loss", keeps_entry_loss=OWN_ENTRY_LOSS)
def focal(gamma_pos: float = 2.0, gamma_neg: float = 2.0) -> SparseLoss:
    """Focal loss, unknown as negative: sure entries count less, (1−p)^γ on both sides (Lin et al. 2017).

    The mean over the entries, without the paper's α. A loss for full labels: observed negatives are on its
    negative side too; in combinations, as en+focal, they are −log(1−p).

    Parameters
    ----------
    gamma_pos
        Exponent γ₊ of positives.
    gamma_neg
        Exponent γ₋ of negatives.
    """
    return SparseLoss(TargetLoss(AssumedNegative(), Focal(gamma_pos, gamma_neg)))


@register(
    "asl",
    "entry loss",
    keeps_entry_loss=OWN_ENTRY_LOSS,
    presets={"q2l": {"gamma_pos": 0.0, "gamma_neg": 2.0, "margin": 0.0, "scale": 1000.0}},
)
def asl(
    gamma_pos: float = 0.0, gamma_neg: float = 4.0, margin: float = 0.05, scale: float | None = None
) -> SparseLoss:
    """Asymmetric loss, unknown as negative: easy negatives count less, the easiest not (Ridnik et al. 2021).

    The sum over the entries; no gradient through the powers, as in the authors' program. A loss for full
    labels: observed negatives are on its negative side too; in combinations, as en+asl, they are −log(1−p).
    With ``scale`` it is so many times the mean over the entries: Query2Label's program takes γ 0 and 2, no
    margin and 1000 (``preset`` q2l; Query2Label's text says γ₋ 1). The program clamps scores at 1e-8, ours
    computes from logits.

    Parameters
    ----------
    gamma_pos
        Exponent γ₊ of positives.
    gamma_neg
        Exponent γ₋ of negatives.
    margin
        Taken off the scores of negatives.
    scale
        So many times the mean over the entries instead of their sum; Query2Label takes 1000.
    """
    label_loss = TargetLoss(AssumedNegative(), Asymmetric(gamma_pos, gamma_neg, margin))
    return SparseLoss(label_loss, reduction=batch_sum if scale is None else ScaledMean(scale))


@register("hill", "entry loss", keeps_entry_loss=OWN_ENTRY_LOSS)
def hill(gamma_pos: float = 2.0, margin: float = 1.0) -> SparseLoss:
    """Hill loss: an unknown label costs (1.5−p)·p², which pulls less at high scores (Zhang et al. 2021).

    Its gradient 3p²·(1−p)² is the hill. Positives are focal on σ(logit − ``margin``). The sum over the
    entries. An observed negative is −log(1−p) (ours; the paper has none).

    Parameters
    ----------
    gamma_pos
        Exponent γ₊ of positives.
    margin
        Taken off the logits of positives.
    """
    return SparseLoss(TargetLoss(AssumedNegative(), Hill(gamma_pos, margin)), reduction=batch_sum)
