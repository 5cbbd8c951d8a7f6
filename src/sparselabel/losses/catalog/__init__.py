"""The methods by name: each a few lines that put parts together.

A factory's keyword arguments are the method's settings, its docstring is what ``sparselabel methods NAME``
prints, and its first line names the paper. To add a method, write a factory and add it to METHODS.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparselabel.data.labels import LabelTable, as_labels
from sparselabel.errors import ConfigError
from sparselabel.losses.base import Layout, SparseLoss
from sparselabel.losses.catalog.reweighted import PRESETS
from sparselabel.losses.registry import (
    CONSISTENCY,
    ENTRY_LOSSES,
    METHODS,
    UNLABELED,
    Combination,
    combinations,
    factories,
    make_method,
    parsed,
    presets_of,
    settings_of,
    with_consistency,
    with_entry_losses,
    with_unlabeled,
)

__all__ = [
    "CONSISTENCY",
    "ENTRY_LOSSES",
    "METHODS",
    "PRESETS",
    "UNLABELED",
    "Combination",
    "build_method",
    "combinations",
    "factories",
    "make_method",
    "parsed",
    "presets_of",
    "settings_of",
    "with_consistency",
    "with_entry_losses",
    "with_unlabeled",
]


def build_method(
    name: str, observed: "LabelTable | np.ndarray[Any, Any] | Tensor", **settings: Any
) -> SparseLoss:
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
