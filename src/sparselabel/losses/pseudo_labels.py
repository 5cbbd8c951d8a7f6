"""Pseudo-labels by a threshold: an unknown label with a high enough score counts as positive.

pseudo takes running scores (Verelst et al. 2023, supplement, table B.1); splc the score of the step itself
(Zhang et al. 2021, Simple and Robust Loss Design for Multi-Label Learning with Missing Labels).
"""

import torch

from sparselabel.data.labels import UNKNOWN
from sparselabel.losses.base import (
    ComposedLoss,
    TargetLoss,
    TargetRule,
    Targets,
    at_least_float32,
    batch_sum,
    cross_entropy,
)
from sparselabel.losses.focal_asl_hill import Focal
from sparselabel.losses.registry import register
from sparselabel.losses.running_scores import RunningScores
from sparselabel.losses.setting_checks import checked_share
from sparselabel.losses.step import Step
from sparselabel.losses.target_rules import positive_targets


class ConfidentPositive(TargetRule):
    """Unknown is negative, but positive if the image's running score is above a threshold.

    Verelst 2023 supplement table B.1, "BCE + pseudo label"; that paper gives no threshold, .6 is ours.
    """

    side_by_side = True

    def __init__(self, scores: RunningScores, threshold: float = 0.6) -> None:
        super().__init__()
        self.scores = scores
        self.threshold = checked_share("threshold", threshold)

    def forward(self, step: Step) -> Targets:
        value = positive_targets(step.observed, step)
        scores = self.scores(step.rows).to(value.device)
        confident = (step.observed == UNKNOWN) & (scores > self.threshold)
        value = value.masked_fill(confident, 1)
        return Targets(value)


class ConfidentNow(TargetRule):
    """Unknown is negative, but positive if the model's score in this step is above a threshold.

    From epoch ``first`` (counted from 0) on; earlier scores mean little (Zhang et al. 2021, SPLC).
    """

    side_by_side = True

    def __init__(self, threshold: float = 0.6, first: int = 1) -> None:
        super().__init__()
        self.threshold = checked_share("threshold", threshold)
        self.first = first

    def forward(self, step: Step) -> Targets:
        value = positive_targets(step.observed, step)
        if step.progress.epoch >= self.first:
            scores = torch.sigmoid(at_least_float32(step.outputs[0].logits.detach()))
            value = value.masked_fill((step.observed == UNKNOWN) & (scores > self.threshold), 1)
        return Targets(value)


@register("pseudo")
def pseudo(threshold: float = 0.6, momentum: float = 0.8) -> ComposedLoss:
    """Assume negative, but a running score above a threshold counts as positive (Verelst 2023, table B.1).

    Their "BCE + pseudo label", whose threshold is not published (.6 is ours). Running scores: Verelst 2023
    eq. 4.

    Parameters
    ----------
    threshold
        Score above which an unknown label counts as positive.
    momentum
        μ of running averages.
    """
    return ComposedLoss(TargetLoss(ConfidentPositive(RunningScores(momentum), threshold), cross_entropy))


@register(
    "splc",
    presets={"coco-75": {"threshold": 0.65}},
    entry_loss_settings=("gamma_pos", "gamma_neg", "margin"),
)
def splc(
    threshold: float = 0.6, gamma_pos: float = 2.0, gamma_neg: float = 2.0, margin: float = 1.0
) -> ComposedLoss:
    """Self-paced loss correction: from epoch 2 on, unknown labels above τ are positive (Zhang et al. 2021).

    In that step only: nothing is remembered. Focal on both sides, with ``margin`` subtracted from the logits
    of observed positives. The sum over the entries. τ (``threshold``) is .6, and .65 where 75 % of COCO's
    labels are kept (``preset`` coco-75). An observed negative is −log(1−p) and never corrected (ours; the
    paper has none). An entry loss, as in splc+asl, takes the place of focal and its margin.

    Parameters
    ----------
    threshold
        Score above which an unknown label counts as positive.
    gamma_pos
        Exponent γ₊ of positives.
    gamma_neg
        Exponent γ₋ of negatives.
    margin
        Subtracted from the logits of observed positives.
    """
    entry_loss = Focal(gamma_pos, gamma_neg, margin, plain_negatives=True)
    return ComposedLoss(TargetLoss(ConfidentNow(threshold), entry_loss), reduction=batch_sum)
