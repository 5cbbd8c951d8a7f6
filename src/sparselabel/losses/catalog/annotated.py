"""Our own method, from the likelihood of annotations."""

from sparselabel.losses.base import SparseLoss
from sparselabel.losses.pu import AnnotationLikelihood
from sparselabel.losses.target_rules import AssumedNegative
from sparselabel.losses.terms import Expected


def pu(
    expected_positives: Expected = None,
    unknown_weight: float = 0.5,
    entropy_weight: float = 0.2,
    margin: float = 0.5,
) -> SparseLoss:
    """Unknown is absent, or present and not annotated: the likelihood of the annotations (ours).

    With c, the share of a class's images that are annotated, an unknown label costs −w·log(1 − c·f) less
    α times the entropy of its score (as em has it), an annotated one −log σ(x − κ·log 1/u): a margin that is
    the larger, the less likely unknown labels are present (u). c and u follow from ``expected_positives``.
    The mean over the entries. Positive-unlabeled learning with class priors, a margin (as in splc) and
    entropy are known; what they bring together was measured on Pascal VOC 2012 and on scenes
    (docs/results.md).
    """
    entry_loss = AnnotationLikelihood(expected_positives, unknown_weight, entropy_weight, margin)
    return SparseLoss(AssumedNegative(), entry_loss)
