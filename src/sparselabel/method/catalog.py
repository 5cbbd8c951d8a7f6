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
from sparselabel.method.base import Layout, Method
from sparselabel.method.elements import cross_entropy
from sparselabel.method.estimates import LabelEstimates
from sparselabel.method.memory import RunningScores
from sparselabel.method.readings import (
    AssumedNegative,
    ConfidentPositive,
    Ignored,
    PositivesOnly,
    TrueNegatives,
    Truth,
    WeakNegative,
)
from sparselabel.method.role import EstimatesLoss, RoleReading
from sparselabel.method.terms import ExpectedPositives, checked_count


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
