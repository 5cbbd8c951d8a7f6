"""Methods of Verelst 2023, Spatial Consistency Loss for Training Multi-Label Classifiers.

Verelst 2023 supplement is its supplement. ``cl`` and ``scl`` add a term to a method.
"""

from sparselabel.losses.base import SparseLoss
from sparselabel.losses.catalog.adding import with_term
from sparselabel.losses.consistency import Consistency, SpatialConsistency
from sparselabel.losses.entry_losses import cross_entropy
from sparselabel.losses.expected_negatives import ExpectedLabels
from sparselabel.losses.heatmaps import HeatMaps
from sparselabel.losses.running_scores import RunningScores
from sparselabel.losses.target_rules import ConfidentPositive, ExpectedNegative, ExpectedPositive
from sparselabel.losses.terms import Expected


def pseudo(threshold: float = 0.6, momentum: float = 0.8) -> SparseLoss:
    """Assume negative, but a running score above a threshold counts as positive (Verelst 2023 supplement
    table B.1).

    Their "BCE + pseudo label", whose threshold is not published (.6 is ours).
    Running scores: Verelst 2023 eq. 4.
    """
    return SparseLoss(ConfidentPositive(RunningScores(momentum), threshold), cross_entropy)


def en(expected_positives: Expected = None, momentum: float = 0.8) -> SparseLoss:
    """Expected negatives: unknown is negative, but the likeliest positives are left out (Verelst 2023 eq.
    3–5).

    Of every class the p_i best images by running scores (eq. 4) are expected positives, chosen anew in
    every epoch but the first; p_i follows from K (``expected_positives``), or is given for each class. No
    program was published. Ours: p_i = round(K·N·count_i/Σcount), which is eq. 3 where every image has one
    positive; an observed negative is never expected to be positive; ties go to the lower row.
    """
    return SparseLoss(ExpectedNegative(_expected(expected_positives, momentum)), cross_entropy)


def ep(expected_positives: Expected = None, momentum: float = 0.8) -> SparseLoss:
    """Expected positives: as en, but the likeliest positives count as positive (Verelst 2023 §4.2, L_EP).

    Verelst 2023 finds it to work badly (table 2): early mistakes confirm themselves.
    """
    return SparseLoss(ExpectedPositive(_expected(expected_positives, momentum)), cross_entropy)


def _expected(expected_positives: Expected, momentum: float) -> ExpectedLabels:
    return ExpectedLabels(RunningScores(momentum), expected_positives)


def cl(method: SparseLoss, momentum: float = 0.8, weight: float = 1.0, distance: str = "l1") -> SparseLoss:
    """Consistency: γ times the distance between scores and the image's running scores (Verelst 2023 eq. 6,
    8).

    It joins after the warm-up (the head alone), or, without one, after the first epoch. Verelst 2023 writes a
    norm; here it is the mean over the B·L entries (ours). ``distance``: l1, l2 (squared, ours) or jsd;
    ``weight`` is γ, which Verelst 2023 chooses from .1 and 1 by validation.
    """
    return with_term(method, "consistency", Consistency(_running_scores(method, momentum), weight, distance))


def scl(
    method: SparseLoss,
    momentum: float = 0.8,
    weight: float = 1.0,
    distance: str = "l1",
    map_scale: int = 2,
    top_maps: int | None = None,
) -> SparseLoss:
    """Spatial consistency: γ times the distance between cells' scores and the heat maps (Verelst 2023 eq. 7,
    8).

    As cl, but cell by cell: heat maps keep ``map_scale`` times the cells of the model, in 8 bits, and are
    seen through the view's crop and flip. With ``top_maps`` (Verelst 2023 supplement G) only the best classes
    of an image have one. Means over the entries instead of norms, and stochastic rounding, are ours.
    """
    scores = None if top_maps is None else _running_scores(method, momentum)
    maps = HeatMaps(momentum, map_scale, top_maps, scores)
    return with_term(method, "consistency", SpatialConsistency(maps, weight, distance))


def _running_scores(method: SparseLoss, momentum: float) -> RunningScores:
    """The method's own running scores, so that an image's are kept once, or new ones."""
    own = [part for part in method.parts() if isinstance(part, RunningScores)]
    return own[0] if own else RunningScores(momentum)
