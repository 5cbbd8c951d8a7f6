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
    class_selective,
    patchml,
    patch_cluster,
    fixmatch,
    consistency,
)
