"""The methods by name: each a few lines that put parts together.

A factory's keyword arguments are the method's settings, its docstring is what ``sparselabel methods NAME``
prints, and its first line names paper and equation. To add a method, write a factory and add it to METHODS.

P1 = Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label
Annotations (P1s its supplement). P3 = Cole et al., Multi-Label Learning from Single Positive Labels.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparselabel.data.labels import LabelTable, as_labels
from sparselabel.errors import ConfigError, nearest
from sparselabel.method.base import Method, Part
from sparselabel.method.consistency import Consistency, SpatialConsistency
from sparselabel.method.elements import cross_entropy
from sparselabel.method.estimates import LabelEstimates
from sparselabel.method.expected import ExpectedLabels
from sparselabel.method.heatmaps import HeatMaps
from sparselabel.method.layout import Layout
from sparselabel.method.memory import RunningScores
from sparselabel.method.readings import (
    AssumedNegative,
    ConfidentPositive,
    ExpectedNegative,
    ExpectedPositive,
    Ignored,
    PositivesOnly,
    TrueNegatives,
    Truth,
    WeakNegative,
)
from sparselabel.method.role import EstimatesLoss, RoleReading
from sparselabel.method.terms import Expected, ExpectedPositives, checked_count


def bce() -> Method:
    """Oracle: binary cross-entropy with all labels known (P3 eq. 5).

    The upper bound that sparse methods are measured against. Same as the authors' program, but for its ε.
    """
    return Method(Truth(), cross_entropy)


def bce_ls(smoothing: float = 0.1) -> Method:
    """Oracle: bce with smoothed targets, 1 → 1−ε/2 and 0 → ε/2 (P3 §5.2, table 1).

    The authors' program uses its 0.1 as the flip weight itself, which is ``smoothing`` 0.2 here.
    """
    return Method(Truth(smoothing), cross_entropy)


def iu() -> Method:
    """Ignore unobserved: unknown labels are left out (P3 eq. 6).

    Needs observed negatives; P3 table 1 gives it one positive and one negative a picture.
    """
    return Method(Ignored(), cross_entropy)


def iun() -> Method:
    """Oracle: ignore unobserved negatives; observed positives and all true negatives count (P3 eq. 7).

    The authors' released program compares with a wrong code and never sees the negatives; the formula stands.
    """
    return Method(TrueNegatives(), cross_entropy)


def an() -> Method:
    """Assume negative: every unknown label counts as negative (P3 eq. 8).

    The common baseline: right for most entries, wrong for every positive that nobody annotated.
    """
    return Method(AssumedNegative(), cross_entropy)


def an_ls(smoothing: float = 0.1) -> Method:
    """Assume negative with label smoothing (P3 eq. 9).

    The authors' program uses its 0.1 as the flip weight itself, which is ``smoothing`` 0.2 here. Observed
    negatives are not smoothed (ours; the paper has none).
    """
    return Method(AssumedNegative(smoothing), cross_entropy)


def wan(negative_weight: float | None = None, sampled_negatives: bool = False) -> Method:
    """Weak assume negative: unknown counts as negative at weight γ = 1/(L−1) (P3 §5.1).

    With ``sampled_negatives`` one random unknown label a picture and step is the negative instead.
    """
    return Method(WeakNegative(negative_weight, sampled_negatives), cross_entropy)


def epr(expected_positives: float | None = None, weight: float = 1.0, positive_weight: float = 1.0) -> Method:
    """Expected positive regularisation: positives, and λ((k̂−k)/L)² on the batch's count (P3 §5.3, eq. 10).

    Positives are divided by B·L, as in the authors' program (its learning rates belong to that scale); the
    paper divides by B: ``positive_weight`` = L. Statistics are those of the whole batch over all processes.
    """
    term = ExpectedPositives(expected_positives, weight)
    return Method(PositivesOnly(positive_weight), cross_entropy, {"count": term})


def role(
    expected_positives: float | None = None, weight: float = 1.0, positive_weight: float = 1.0
) -> Method:
    """Regularised online label estimation: labels are estimated along with the classifier (P3 §5.4, eq. 11).

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
    return Method(RoleReading(estimates), cross_entropy, terms)


def pseudo(threshold: float = 0.6, momentum: float = 0.8) -> Method:
    """Assume negative, but a running score above a threshold counts as positive (P1s table B.1).

    Their "BCE + pseudo label", whose threshold is not published (.6 is ours).
    Running scores: P1 eq. 4.
    """
    return Method(ConfidentPositive(RunningScores(momentum), threshold), cross_entropy)


def en(expected_positives: Expected = None, momentum: float = 0.8) -> Method:
    """Expected negatives: unknown is negative, but the likeliest positives are left out (P1 eq. 3–5).

    Of every class the p_i best pictures by running scores (eq. 4) are expected positives, chosen anew in
    every epoch but the first; p_i follows from K (``expected_positives``), or is given for each class. No
    program was published. Ours: p_i = round(K·N·count_i/Σcount), which is eq. 3 where every picture has one
    positive; an observed negative is never expected to be positive; ties go to the lower row.
    """
    return Method(ExpectedNegative(_expected(expected_positives, momentum)), cross_entropy)


def ep(expected_positives: Expected = None, momentum: float = 0.8) -> Method:
    """Expected positives: as en, but the likeliest positives count as positive (P1 §4.2, L_EP).

    P1 finds it to work badly (table 2): early mistakes confirm themselves.
    """
    return Method(ExpectedPositive(_expected(expected_positives, momentum)), cross_entropy)


def _expected(expected_positives: Expected, momentum: float) -> ExpectedLabels:
    return ExpectedLabels(RunningScores(momentum), expected_positives)


def cl(method: Method, momentum: float = 0.8, weight: float = 1.0, distance: str = "l1") -> Method:
    """Consistency: γ times the distance between scores and the picture's running scores (P1 eq. 6, 8).

    It joins after the warm-up (the head alone), or, without one, after the first epoch. P1 writes a norm;
    here it is the mean over the B·L entries (ours). ``distance``: l1, l2 (squared, ours) or jsd; ``weight``
    is γ, which P1 chooses from .1 and 1 by validation.
    """
    return _with_term(method, Consistency(_running_scores(method, momentum), weight, distance))


def scl(
    method: Method,
    momentum: float = 0.8,
    weight: float = 1.0,
    distance: str = "l1",
    map_scale: int = 2,
    top_maps: int | None = None,
) -> Method:
    """Spatial consistency: γ times the distance between cells' scores and the heat maps (P1 eq. 7, 8).

    As cl, but cell by cell: heat maps keep ``map_scale`` times the cells of the model, in 8 bits, and are
    seen through the view's crop and flip. With ``top_maps`` (P1s G) only the best classes of a picture have
    one. Means over the entries instead of norms, and stochastic rounding, are ours.
    """
    scores = None if top_maps is None else _running_scores(method, momentum)
    return _with_term(
        method, SpatialConsistency(HeatMaps(momentum, map_scale, top_maps, scores), weight, distance)
    )


def _running_scores(method: Method, momentum: float) -> RunningScores:
    """The method's own running scores, so that a picture's are kept once, or new ones."""
    own = [part for part in method.parts() if isinstance(part, RunningScores)]
    return own[0] if own else RunningScores(momentum)


def _with_term(method: Method, term: Part) -> Method:
    terms = {name: part for name, part in method.terms.items() if isinstance(part, Part)}
    return Method(method.reading, method.element, terms | {"consistency": term}, method.reduction)


def _together(base: Callable[..., Method], term: Callable[..., Method]) -> Callable[..., Method]:
    """The factory of a method with a consistency term; ``weight`` is the term's.

    (epr's own weight λ keeps its default then.)
    """
    own = dict(inspect.signature(base).parameters)
    added = {key: p for key, p in inspect.signature(term).parameters.items() if key != "method"}

    def factory(**settings: Any) -> Method:
        shared = {key for key in settings if key in own and (key not in added or key == "momentum")}
        method = base(**{key: settings[key] for key in shared})
        return term(method, **{key: value for key, value in settings.items() if key in added})

    first, _, rest = (inspect.getdoc(term) or "").partition("\n")
    base_first, _, base_rest = (inspect.getdoc(base) or "").partition("\n")
    factory.__doc__ = f"{first.removesuffix('.')}, on {base.__name__}.\n{rest}\n\n{base_first}\n{base_rest}"
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (own | added).values()]
    factory.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return factory


METHODS: dict[str, Callable[..., Method]] = {
    "bce": bce,
    "bce-ls": bce_ls,
    "iu": iu,
    "iun": iun,
    "an": an,
    "an-ls": an_ls,
    "wan": wan,
    "epr": epr,
    "role": role,
    "pseudo": pseudo,
    "en": en,
    "ep": ep,
    "an+cl": _together(an, cl),
    "en+cl": _together(en, cl),
    "ep+cl": _together(ep, cl),
    "epr+cl": _together(epr, cl),
    "an+scl": _together(an, scl),
    "en+scl": _together(en, scl),
    "ep+scl": _together(ep, scl),
    "epr+scl": _together(epr, scl),
}


def make_method(name: str, **settings: Any) -> Method:
    """A method by its name, not yet told about any labels."""
    known = settings_of(name)
    for key in settings:
        if key not in known:
            has = nearest(key, known) if known else "it has none"
            raise ConfigError(f"method {name!r} has no setting {key!r}: {has}")
    return METHODS[name](**settings)


def settings_of(name: str) -> dict[str, Any]:
    """A method's settings and their defaults."""
    if name not in METHODS:
        raise ConfigError(f"there is no method {name!r}: {nearest(name, METHODS)}")
    return {key: p.default for key, p in inspect.signature(METHODS[name]).parameters.items()}


def build_method(
    name: str, observed: "LabelTable | np.ndarray[Any, Any] | Tensor", **settings: Any
) -> Method:
    """A method ready for a training loop of your own.

    ``observed`` are the training labels, N×L with POSITIVE, NEGATIVE and UNKNOWN; rows in a ``Step`` are rows
    of it. The trainer of this package does the same for the rows of its process.
    """
    values = observed.values if isinstance(observed, LabelTable) else np.asarray(observed)
    labels = torch.from_numpy(np.array(as_labels(values)))
    if labels.ndim != 2 or 0 in labels.shape:
        raise ConfigError(
            f"observed must be N×L with at least one of each, not of shape {tuple(labels.shape)}"
        )
    method = make_method(name, **settings)
    method.prepare(Layout(torch.arange(len(labels)), labels, len(labels)))
    return method
