"""Losses that weigh or correct unknown labels: the baselines of Verelst 2023 and newer methods for single
positives.

``PRESETS`` has the settings that each paper uses on each data set, and those of ll-* with BoostLU. Learning
rates and epochs are in the docstrings, which ``sparselabel methods NAME`` prints; ll-* have recipes too.
"""

from typing import Any

from sparselabel.losses.base import ScaledMean, SparseLoss, batch_sum
from sparselabel.losses.entropy_max import Acknowledged, PseudoLabeled, SoftLabels
from sparselabel.losses.entry_losses import Asymmetric, Focal, Hill, cross_entropy
from sparselabel.losses.large_loss import LargeLoss, LargeLossForGood
from sparselabel.losses.robust import GeneralizedRobust, Line
from sparselabel.losses.target_rules import AssumedNegative, ConfidentNow

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "asl": {"q2l": {"gamma_pos": 0.0, "gamma_neg": 2.0, "margin": 0.0, "scale": 1000.0}},
    "splc": {"coco-75": {"threshold": 0.65}},
    "ll-r": {
        "voc": {"share": 0.002},
        "coco": {"share": 0.004},
        "nus": {"share": 0.004},
        "cub": {"share": 0.004},
        "boostlu": {"share": 0.005},
    },
    "ll-ct": {
        "voc": {"share": 0.002},
        "coco": {"share": 0.002},
        "nus": {"share": 0.002},
        "cub": {"share": 0.004},
        "boostlu": {"share": 0.002},
    },
    "ll-cp": {
        "voc": {"share": 0.001},
        "coco": {"share": 0.002},
        "nus": {"share": 0.002},
        "cub": {"share": 0.002},
        "boostlu": {"share": 0.001},
    },
    "em": {
        "voc": {"entropy_weight": 0.2},
        "coco": {"entropy_weight": 0.1},
        "nus": {"entropy_weight": 0.1},
        "cub": {"entropy_weight": 0.01},
    },
    "em+apl": {
        "voc": {"entropy_weight": 0.2, "soft_weight": 0.02, "warm_up": 5},
        "coco": {"entropy_weight": 0.1, "soft_weight": 0.9, "warm_up": 5},
        "nus": {"entropy_weight": 0.1, "soft_weight": 0.2, "warm_up": 4},
        "cub": {"entropy_weight": 0.01, "soft_weight": 0.4, "warm_up": 3},
    },
    "gr": {
        "voc": {"belief_slope": 2.0, "belief_offset": -2.0},
        "coco": {"belief_slope": 10.0, "belief_offset": -8.0},
        "nus": {"belief_slope": 2.0, "belief_offset": -2.0},
        "cub": {"belief_slope": 2.0, "belief_offset": -2.0},
    },
}


def focal(gamma_pos: float = 2.0, gamma_neg: float = 2.0) -> SparseLoss:
    """Focal loss, unknown as negative: sure entries count less, (1−p)^γ on both sides (Lin et al. 2017).

    The mean over the entries, without the paper's α. A loss for full labels: observed negatives are on its
    negative side too; in combinations, as en+focal, they are −log(1−p).
    """
    return SparseLoss(AssumedNegative(), Focal(gamma_pos, gamma_neg))


def asl(
    gamma_pos: float = 0.0,
    gamma_neg: float = 4.0,
    margin: float = 0.05,
    scale: float | None = None,
) -> SparseLoss:
    """Asymmetric loss, unknown as negative: easy negatives count less, the easiest not (Ridnik et al. 2021).

    ``margin`` is taken off the scores of negatives. The sum over the entries; no gradient through the focus,
    as in the authors' program. A loss for full labels: observed negatives are on its negative side too; in
    combinations, as en+asl, they are −log(1−p). With ``scale`` it is so many times the mean over the
    entries: Query2Label's program takes γ 0 and 2, no margin and 1000 (``preset`` q2l; Query2Label's text
    says γ₋ 1). The program clamps scores at 1e-8, this one computes from logits.
    """
    reduction = batch_sum if scale is None else ScaledMean(scale)
    return SparseLoss(AssumedNegative(), Asymmetric(gamma_pos, gamma_neg, margin), reduction=reduction)


def hill(gamma_pos: float = 2.0, margin: float = 1.0) -> SparseLoss:
    """Hill loss: an unknown label costs (1.5−p)·p², which pulls less at high scores (Zhang et al. 2021).

    Its gradient 3p²·(1−p)² is the hill. Positives are focal on σ(logit − ``margin``). The sum over the
    entries. An observed negative is −log(1−p) (ours; the paper has none).
    """
    return SparseLoss(AssumedNegative(), Hill(gamma_pos, margin), reduction=batch_sum)


def splc(
    threshold: float = 0.6, gamma_pos: float = 2.0, gamma_neg: float = 2.0, margin: float = 1.0
) -> SparseLoss:
    """Self-paced loss correction: from epoch 2 on, unknown labels above τ are positive (Zhang et al. 2021).

    In that step only: nothing is remembered. Focal on both sides, with ``margin`` taken off the logits of
    observed positives. The sum over the entries. τ (``threshold``) is .6, and .65 where 75 % of COCO's
    labels are kept (``preset`` coco-75). An observed negative is −log(1−p) and never corrected (ours; the
    paper has none). An element, as in splc+asl, takes the place of focal and its margin.
    """
    entry_loss = Focal(gamma_pos, gamma_neg, margin, plain_negatives=True)
    return SparseLoss(ConfidentNow(threshold), entry_loss, reduction=batch_sum)


def ll_r(share: float = 0.004) -> SparseLoss:
    """Large losses rejected: unknown labels with the batch's largest losses are left out (Kim et al. 2022).

    From the second epoch on; in epoch t (from 1) the ⌈B·L·Δ·(t−1)⌉ largest, Δ = ``share``. B·L counts the
    whole batch of all processes; in exact arithmetic, and at most all unknown labels: the authors' program
    adds up rounding errors and, where unknown labels run out, goes on with observed positives. Ties all
    count. Theirs: batch 16, 10 epochs, SGD 5e-3 on VOC, Adam 1e-5 on COCO and NUS, 7.5e-5 on CUB, the head
    at ten times the rate (recipes other/voc-large-losses and others). With BoostLU (--boost 5) Δ .005; any
    ``preset`` is boostlu then. With an element, as in ll-r+asl, the same labels are chosen: every element's
    loss of a negative grows with its score.
    """
    return SparseLoss(LargeLoss(share, "drop"), cross_entropy)


def ll_ct(share: float = 0.002) -> SparseLoss:
    """Large losses corrected for now: as ll-r, but they count as positive in that step (Kim et al. 2022).

    With BoostLU (``preset`` boostlu) Δ .002. The rest is as for ll-r.
    """
    return SparseLoss(LargeLoss(share, "turn"), cross_entropy)


def ll_cp(share: float = 0.002) -> SparseLoss:
    """Large losses corrected for good: the batch's largest become positive labels (Kim et al. 2022).

    From the second epoch on, the ⌈B·L·Δ⌉ largest of every step. The corrections are the method's memory, one
    bit an entry, never written to the data. The released program never stores them (a comparison goes wrong)
    and would keep one too few; that of the authors' next paper (Kim et al. 2023) does as here. With BoostLU
    (``preset`` boostlu) Δ .001. The rest is as for ll-r.
    """
    return SparseLoss(LargeLossForGood(share), cross_entropy)


def em(entropy_weight: float = 0.1) -> SparseLoss:
    """Entropy maximization: an unknown label costs −α times the entropy of its score (Zhou et al. 2022).

    So the model is kept unsure of what nobody has said. The loss can be negative. α is ``entropy_weight``.
    An observed negative is −log(1−p) (ours; the paper has none). The program adds 1e-5 in logarithms.
    """
    return SparseLoss(Acknowledged(entropy_weight), cross_entropy)


def em_apl(entropy_weight: float = 0.1, soft_weight: float = 0.9, warm_up: int = 5) -> SparseLoss:
    """Entropy maximization with asymmetric pseudo-labels: low scores become soft labels (Zhou et al. 2022).

    Before every epoch from ``warm_up`` on, the lowest-scored unknown rows of every class get their score as a
    soft label for good, at weight β (``soft_weight``): as many each time that 90 % have one at the end.
    Scores are those of all training images seen whole, in evaluation mode. 10 epochs in the paper.
    """
    return SparseLoss(
        PseudoLabeled(Acknowledged(entropy_weight), SoftLabels(warm_up), soft_weight), cross_entropy
    )


def gr(belief_slope: float = 2.0, belief_offset: float = -2.0) -> SparseLoss:
    """Generalized robust loss: an unknown label is positive to the degree of a belief (Chen et al. 2024).

    V·[k·(1−p^q₂)/q₂ + (1−k)·(1−(1−p)^q₃)/q₃] with q₂ .01, q₃ 1, the belief k = σ(w·p + b) and the weight
    V = exp(−(p−m)²/2s²). After the warm-up w goes from 0 to ``belief_slope``, b from −2 to ``belief_offset``,
    m from .5 to .8 and s from 2 to .5; w and b stop a step short, as in the authors' program. 8 epochs there.
    An observed negative is −log(1−p) (ours; the program drops it).
    """
    entry_loss = GeneralizedRobust(slope=Line(0.0, belief_slope), offset=Line(-2.0, belief_offset))
    return SparseLoss(AssumedNegative(), entry_loss)
