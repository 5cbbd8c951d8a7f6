"""Losses for sparse labels: a file for each family of methods, and ``registry`` knows all by name."""

# Importing a family registers its methods; the order is that of `sparselabel methods`.
from sparselabel.losses import (  # noqa: F401, I001
    baselines,
    focal_asl_hill,
    epr,
    role,
    pseudo_labels,
    expected_negatives,
    large_loss,
    entropy_max,
    generalized_robust,
    pu,
    soft_ridge,
    class_selective,
    patchml,
    patch_cluster,
    fixmatch,
    consistency,
)
from sparselabel.losses.base import (
    EntryLosses,
    LabelLoss,
    LossPart,
    Needs,
    TargetLoss,
    TargetRule,
    Targets,
    cross_entropy,
)
from sparselabel.losses.step import Step
from sparselabel.losses.registry import load_plugins, register

__all__ = [
    "EntryLosses",
    "LabelLoss",
    "LossPart",
    "Needs",
    "Step",
    "TargetLoss",
    "TargetRule",
    "Targets",
    "cross_entropy",
    "register",
]

load_plugins()
