"""Positive-unlabeled learning: an unknown label is absent, or present but not annotated.

Ours: the likelihood of the annotations. Suppose that annotators label a present class with probability c.
Then a label is observed with probability c·f and unknown with probability 1 − c·f, where f is the model's
score. c follows from the expected number of images that show the class.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import ConfigError
from sparselabel.losses.base import ComposedLoss, EntryLosses, LabelLoss, at_least_float32
from sparselabel.losses.expected_negatives import positives_of_classes
from sparselabel.losses.registry import OWN_ENTRY_LOSS, register
from sparselabel.losses.score_prior import Scores, prior_of
from sparselabel.losses.setting_checks import Expected, checked_counts, not_negative, refuse_too_many
from sparselabel.losses.step import Layout, Step


class AnnotationLikelihood(LabelLoss):
    """The losses of entries with score f = σ(x), for a class with count observed of p expected images.

    - observed positive: −log σ(x − m), where the margin m = κ·log 1/u grows with the rarity of present
      classes among unknown labels; u is the probability that an unknown label is present
    - unknown: −w·log(1 − c·f) − α·H(f), where c = count/p, and H is the entropy
    - observed negative: −log(1 − f)

    With m = 0, w = 1 and α = 0 this is the likelihood of annotations that are a random choice of the present
    classes. Otherwise scores rank well but are too high to be probabilities, which calibration corrects. Too
    large a margin would make the model predict the class everywhere: where all f are near 1, an unknown entry
    pulls its logit down by w·c/(1−c)·(1−f), and the u·c/(1−c) observed ones that come with it push up by
    eᵐ·(1−f). So m is at most log w/u, and 0 for a class without unknown labels.

    Another model's score z gives r = P(z | present) / P(z | absent) (``score_prior``). If it errs
    independently of this model, the likelihood of an unknown label and its score is 1 − f + (1 − c)·r·f.
    """

    observed_share: Tensor
    margin: Tensor
    side_by_side = True

    def __init__(
        self,
        expected: Expected,
        unknown_weight: float,
        entropy_weight: float,
        margin: float,
        scores: Scores = None,
    ) -> None:
        super().__init__()
        self.prior = prior_of(scores)
        self.expected = checked_counts(expected)
        self.unknown_weight = not_negative("unknown_weight", unknown_weight)
        self.entropy_weight = not_negative("entropy_weight", entropy_weight)
        if not 0 <= margin < 1:
            raise ConfigError(
                f"margin of pu must be in [0, 1), not {margin}: from 1 on the best model predicts every class"
            )
        self.margin_share = margin

    def prepare(self, layout: Layout) -> None:
        """Compute c and the margin of every class."""
        refuse_too_many(self.expected, layout.observed.shape[1], layout.total)
        observed_positives, negatives, unknown = (
            all_reduce_sum(layout.counts(label)) for label in (POSITIVE, NEGATIVE, UNKNOWN)
        )
        positives = positives_of_classes(self.expected, observed_positives, negatives, layout.total)
        if self.prior is not None:
            self.prior.fit(layout, positives)
        # A class without observed positives has none to learn from: its unknown labels are negative.
        share = torch.where(observed_positives > 0, observed_positives / positives.clamp(min=1), 1.0)
        # Half an image more, so that a class that was always observed has a finite margin.
        present = (positives - observed_positives + 0.5) / (unknown + 1.0)
        self.register_buffer("observed_share", share.float(), persistent=False)
        surprise = present.clamp(max=1).log().neg()
        most = surprise + math.log(self.unknown_weight) if self.unknown_weight else torch.zeros_like(surprise)
        margin = torch.minimum(self.margin_share * surprise, most).clamp(min=0)
        margin = torch.where(unknown > 0, margin, 0.0)
        self.register_buffer("margin", margin.float(), persistent=False)

    def forward(self, step: Step) -> EntryLosses:
        logits, observed = at_least_float32(step.outputs[0].logits), step.observed
        share, margin = self.observed_share.to(logits), self.margin.to(logits)
        absent = F.softplus(logits)  # −log(1 − f)
        # −log(1 − c·f) from logits: 1 − c·f = (1 + (1−c)·eˣ) / (1 + eˣ), exact also for c = 1.
        present = logits + torch.log1p(-share)
        if self.prior is not None:
            present = present + self.prior(step.rows).to(logits)
        missed = absent - F.softplus(present)
        entropy = absent - logits * torch.sigmoid(logits)
        unknown = self.unknown_weight * missed - self.entropy_weight * entropy
        losses = torch.where(observed == POSITIVE, F.softplus(margin - logits), unknown)
        losses = torch.where(observed == NEGATIVE, absent, losses)
        return EntryLosses(losses)


@register("pu", keeps_entry_loss=OWN_ENTRY_LOSS)
def pu(
    expected_positives: Expected = None,
    unknown_weight: float = 0.5,
    entropy_weight: float = 0.2,
    margin: float = 0.5,
    scores: Scores = None,
) -> ComposedLoss:
    """Unknown is absent, or present and not observed: the likelihood of the annotations (ours).

    With c, the share of a class's images that are observed, an unknown label costs −w·log(1 − c·f) less α
    times the entropy of its score (as em has it), an observed one −log σ(x − κ·log 1/u): a margin that grows
    as present unknown labels (u) become rarer. c and u follow from ``expected_positives``. With another
    model's ``scores`` an unknown label costs −w·log(1 − f + (1 − c)·r·f), where r is the likelihood ratio of
    its score, present to absent. The weight of scores is estimated from observed labels. The mean over the
    entries. Positive-unlabeled learning with class priors, margins (as in splc) and entropy are known; their
    combination was measured on Pascal VOC 2012 and on scenes (docs/results.md).

    Parameters
    ----------
    expected_positives
        K, the mean number of classes in an image, or the number of images of every class.
    unknown_weight
        Weight w of unknown labels.
    entropy_weight
        α of the entropy of unknown labels.
    margin
        κ: κ·log 1/u is subtracted from the logits of observed labels.
    scores
        Another model's scores of the training images (N, L), on any scale; NaN for none.
    """
    return ComposedLoss(
        AnnotationLikelihood(expected_positives, unknown_weight, entropy_weight, margin, scores)
    )
